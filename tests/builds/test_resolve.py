"""What is asked for is what is tested, or the reason why not is told: the newest complete night, or no data.

Rows I1 to I14 of the field reports on nightlies are named where they are tested.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version
from toy_index import ELSEWHERE, ToyIndex, toy, wheel

from d3bot.builds import Index, NoDataError, UnavailableError, resolve
from d3bot.builds.install import NEEDED_GIB, Sources
from d3bot.builds.nights import age_in_days, night_of
from d3bot.spec import Build, SpecError

TODAY = date(2026, 10, 20)
NIGHT = "9.9.0.dev202610{:02}"

Resolve = Callable[..., Build]


@pytest.fixture
def get(index: ToyIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Resolve a spec with the toy's index, into a cache of the test's own; `said` collects the progress."""
    index.add("numpy", "2.4.6")
    monkeypatch.setattr("d3bot.builds.index.TRIES", 1)
    monkeypatch.setattr("d3bot.builds.fetch.TRIES", 1)
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # would break every install, were the machine's configuration not isolated
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not has_uv(p)))
    where = Index(url=index.url, torch=index.url, torch_nightly=index.url)

    def one(spec: str, said: list[str] | None = None, today: date = TODAY) -> Build:
        return resolve(spec, tmp_path / "cache", (said if said is not None else []).append, index=where, today=today)

    return one


def has_uv(folder: str) -> bool:
    return Path(folder, "uv").exists()


def outcome(get: Resolve, spec: str) -> tuple[str, str]:
    with pytest.raises(UnavailableError) as caught:
        get(spec)
    message = str(caught.value)
    assert message.startswith(f"{caught.value.outcome}: ")
    assert "\n" not in message
    return caught.value.outcome, message


def test_the_newest_night_is_installed_checked_and_recorded(get: Resolve, index: ToyIndex) -> None:
    for day in (17, 18, 19):
        index.add_torch(NIGHT.format(day) + "+cpu", commit=f"c0ffee{day}")
    index.add_torch(NIGHT.format(19) + "+cpu", tag=ELSEWHERE)
    said: list[str] = []
    build = get("torch@nightly", said)
    assert build.version == NIGHT.format(19) + "+cpu"
    assert build.commit == "c0ffee19"
    assert build.source == "127.0.0.1"
    assert build.wheel_hash.startswith("sha256:")
    assert build.provenance["night"] == "20261019"
    assert build.provenance["wheels"] == "2"
    assert build.provenance["index"] == index.url
    assert build.provenance["pip_config"] == "isolated"
    assert build.notes == ()
    again = get("torch@nightly", said)
    assert again == build
    assert sum("downloading" in line for line in said) == 1
    assert sum("installing" in line for line in said) == 1


def test_i1_a_partial_night_is_told_and_not_taken_for_new(get: Resolve, index: ToyIndex) -> None:
    index.add_torch(NIGHT.format(18))
    index.add_torch(NIGHT.format(19), tag=ELSEWHERE)
    index.add_torch(NIGHT.format(20), yanked="broken import")
    said: list[str] = []
    build = get("torch@nightly", said)
    assert build.provenance["night"] == "20261018"
    assert build.notes == (
        "yanked: 20261020 was passed over: torch was withdrawn (broken import)",
        "partial: 20261019 was passed over: 1 wheels of torch, none for this Python and platform",
    )
    assert all(any(note in line for line in said) for note in build.notes)


@pytest.mark.parametrize(
    ("options", "state", "words"),
    [
        ({"tag": ELSEWHERE}, "partial", "none for this Python and platform"),
        ({"yanked": ""}, "yanked", "no reason given"),
        ({"hashed": "none"}, "no-hash", "without a SHA-256 hash"),
        ({"hashed": "wrong"}, "wrong-hash", "where the index says"),
        ({"gone": True}, "missing", "listed, but the index answers 404"),
    ],
)
@pytest.mark.parametrize("spec", ["torch@nightly", "torch@2026-10-19", "torch==" + NIGHT.format(19)])
def test_i1_i2_what_cannot_be_had_is_no_data_never_another_version(
    get: Resolve, index: ToyIndex, options: dict[str, str], state: str, words: str, spec: str
) -> None:
    index.add_torch(NIGHT.format(19), **options)
    index.add_torch("9.8.0")  # the stable one that an installer would fall back to
    got, message = outcome(get, spec)
    assert got == state
    assert words in message


@pytest.mark.parametrize("spec", ["torch@2026-10-18", "torch==" + NIGHT.format(18)])
def test_i1_a_night_that_is_not_there_names_its_neighbours(get: Resolve, index: ToyIndex, spec: str) -> None:
    index.add_torch(NIGHT.format(17))
    index.add_torch(NIGHT.format(19))
    got, message = outcome(get, spec)
    assert got == "missing"
    assert "20261017" in message
    assert "20261019" in message


def test_an_index_that_is_down_or_empty(get: Resolve, index: ToyIndex) -> None:
    assert outcome(get, "torch@nightly")[0] == "missing"
    index.add_torch("9.8.0")
    assert outcome(get, "torch@nightly")[0] == "missing", "releases are no nights"
    index.down = True
    got, message = outcome(get, "torch@nightly")
    assert got == "index-down"
    assert "503" in message


def test_i3_a_set_comes_from_one_night_or_not_at_all(get: Resolve, index: ToyIndex) -> None:
    for day in (17, 18, 19):
        index.add_torch(NIGHT.format(day))
    for day in (16, 17, 19):
        index.add("torchrec", f"1.6.0.dev202610{day}")
    index.add("fbgemm-gpu", "2026.10.17")
    index.add("fbgemm-gpu", "2026.10.18")
    build = get("torch@nightly with torchrec fbgemm-gpu")
    assert build.provenance["night"] == "20261017"
    assert build.provenance["with"] == "torchrec==1.6.0.dev20261017 fbgemm-gpu==2026.10.17"
    assert [note.split(" was")[0] for note in build.notes] == ["missing: 20261019", "missing: 20261018"]
    got, message = outcome(get, "torch@2026-10-18 with torchrec fbgemm-gpu")
    assert got == "missing"
    assert "torchrec has no build of it" in message


def test_i5_a_night_that_left_its_index_is_still_there_for_the_base(get: Resolve, index: ToyIndex) -> None:
    index.add_torch(NIGHT.format(18))
    index.add("torchrec", "1.6.0.dev20261018")
    last = get("torch@nightly with torchrec")
    exact = f"torch=={last.version} with {last.provenance['with']}"
    assert get(exact).python == last.python, "naming what was chosen changes nothing"
    index.down = True
    again = get(exact)
    assert (again.id, again.provenance) == (last.id, last.provenance)


def test_i2_another_version_inside_is_refused(get: Resolve, index: ToyIndex) -> None:
    index.add("torch", NIGHT.format(19), toy("9.8.0"))
    got, message = outcome(get, "torch@nightly")
    assert got == "wrong-version"
    assert "imports 9.8.0 instead of 9.9.0.dev20261019" in message


def test_a_nightly_comes_from_the_index_of_its_compute_platform(index: ToyIndex, tmp_path: Path) -> None:
    index.add("numpy", "2.4.6")
    index.add_torch(NIGHT.format(19))
    where = Index(url=index.url, torch_nightly=index.url + "{platform}")
    build = resolve("torch@nightly/cu130", tmp_path / "cache", index=where, today=TODAY)
    assert build.provenance["index"] == index.url + "cu130"
    assert "/simple/cu130/torch/" in index.asked


def test_i13_a_release_candidate_does_not_outrank_a_nightly(get: Resolve, index: ToyIndex) -> None:
    index.add_torch(NIGHT.format(19))
    index.add_torch("9.9.0rc1")
    assert get("torch@nightly").version == NIGHT.format(19)


def test_i14_a_stale_index_raises_the_alarm(get: Resolve, index: ToyIndex) -> None:
    index.add_torch("9.9.0.dev20261013")
    assert get("torch@nightly").notes == ()
    late = date(2026, 10, 21)
    assert get("torch@nightly", today=late).notes == (
        "stale: the newest complete torch is of 20261013, 8 days ago; the alarm is set to 7",
    )
    assert get("torch@2026-10-13", today=late).notes == (), "who asks for a day gets no alarm"


def test_i4_a_library_that_names_no_commit_says_so(get: Resolve, index: ToyIndex) -> None:
    index.add_torch(NIGHT.format(19), commit="")
    build = get("torch@nightly")
    assert build.commit == ""
    assert build.notes == ("no-commit: the library does not say what it is of",)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("torch==9.7.0", "9.7.0+cpu"),
        ("torch>=9.6,<9.8", "9.7.0+cpu"),
        ("torch<9.7", "9.6.0"),
        ("torch==9.6.*", "9.6.0"),
    ],
)
def test_releases_and_ranges(get: Resolve, index: ToyIndex, spec: str, version: str) -> None:
    for release in ("9.6.0", "9.7.0+cpu", "9.8.0rc1", "9.8.0"):
        index.add_torch(release)
    build = get(spec)
    assert build.version == version
    assert build.wheel_hash


def test_a_range_tells_which_newer_release_it_passed_over(get: Resolve, index: ToyIndex) -> None:
    index.add_torch("9.6.0")
    index.add_torch("9.7.0", tag=ELSEWHERE)
    build = get("torch<9.8")
    assert build.version == "9.6.0"
    assert build.notes == ("partial: 9.7.0 was passed over: 1 wheels of torch, none for this Python and platform",)
    assert outcome(get, "torch>9.6")[0] == "partial"
    assert outcome(get, "torch>10")[0] == "missing"


def test_companions_of_pure_python_are_laid_over_one_environment(get: Resolve, index: ToyIndex, tmp_path: Path) -> None:
    index.add_torch("9.6.0")
    builds = []
    for version in ("0.1", "0.2"):
        index.add("addon", version, {"addon.py": f"VERSION = {version!r}\n"})
        builds.append(get(f"torch==9.6.0 with addon=={version}"))
    assert len({build.id for build in builds}) == 2
    assert len({build.python for build in builds}) == 1
    assert [build.label for build in builds] == [f"torch 9.6.0 (cafe1234) with addon==0.{n}" for n in (1, 2)]
    for build, version in zip(builds, ("0.1", "0.2"), strict=True):
        command = [build.python, "-c", "import addon, torch; print(addon.VERSION, torch.__version__)"]
        done = subprocess.run(command, env={"PYTHONPATH": build.overlay}, capture_output=True, text=True)
        assert done.stdout == f"{version} 9.6.0\n"
    assert outcome(get, "torch==9.6.0 with addon==0.3")[0] == "missing"


def test_a_wheel_by_path_and_by_address(get: Resolve, index: ToyIndex, tmp_path: Path) -> None:
    path = wheel(tmp_path, "torch", "9.5.0+fork", toy("9.5.0+fork"))
    build = get(str(path))
    assert build.version == "9.5.0+fork"
    assert build.wheel_hash.startswith("sha256:")
    served = index.add_torch("9.4.0")
    address = f"{index.url.removesuffix('simple/')}files/{served.name}"
    other = get(address)
    assert (other.version, other.source) == ("9.4.0", address)
    assert outcome(get, f"{address}#sha256={'0' * 64}")[0] == "wrong-hash"
    assert outcome(get, str(path) + "#sha256=" + "0" * 64)[0] == "wrong-hash"
    with pytest.raises(SpecError, match="is not there"):
        get(str(tmp_path / "torch-1.0-py3-none-any.whl"))
    with pytest.raises(SpecError, match="is a wheel of numpy"):
        get(str(tmp_path / "numpy-1.0-py3-none-any.whl"))
    with pytest.raises(SpecError, match="is not the name of a wheel"):
        get(str(tmp_path / "renamed.whl"))
    assert outcome(get, str(tmp_path / "torch-1.0-cp39-cp39-win_amd64.whl"))[0] == "partial"


CALL = """
import sys
from datetime import date
from pathlib import Path
from d3bot.builds import Index, resolve
index = Index(url=sys.argv[1], torch=sys.argv[1], torch_nightly=sys.argv[1])
print(resolve("torch@nightly", Path(sys.argv[2]), index=index, today=date(2026, 10, 20)).python)
"""


def test_runs_at_the_same_time_share_one_whole_environment(get: Resolve, index: ToyIndex, tmp_path: Path) -> None:
    index.add_torch(NIGHT.format(19))
    cache = tmp_path / "cache"
    running = [
        subprocess.Popen([sys.executable, "-c", CALL, index.url, str(cache)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = {process.communicate(timeout=120)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(outputs) == 1
    assert sum("/files/torch" in path for path in index.asked) == 1
    marker = json.loads(next(cache.glob("envs/*/ready.json")).read_text())
    assert marker["pip_config"] == "isolated"


def test_isolated_installers_see_neither_configuration_nor_variables_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://127.0.0.1:1/other")
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:1/other")
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/certs/ours.pem")
    isolated = Sources("http://127.0.0.1:2/simple/", "").environ
    assert not [name for name in isolated if name.endswith("INDEX_URL")]
    assert isolated["PIP_CONFIG_FILE"] == os.devnull
    assert isolated["UV_NO_CONFIG"] == "1"
    assert isolated["PIP_CERT"] == "/etc/ssl/certs/ours.pem", "how the network is reached is the machine's business"
    machine = Sources("", "").environ
    assert machine["PIP_EXTRA_INDEX_URL"] == "http://127.0.0.1:1/other"


def test_j5_too_little_disk_is_told_before_anything_is_downloaded(
    get: Resolve, index: ToyIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add_torch(NIGHT.format(19))
    monkeypatch.setitem(NEEDED_GIB, "torch", 10**6)
    with pytest.raises(NoDataError, match="GiB free and needs about"):
        get("torch@nightly")
    assert not [path for path in index.asked if path.startswith("/files/")]


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(SpecError, match=r"^D3BOT_INDEX_PIP_CONFIG: Input should be 'isolated' or 'machine'"):
        Index.from_environ({"D3BOT_INDEX_PIP_CONFIG": "mine"})
    assert Index.from_environ({"D3BOT_INDEX_PLATFORM": "cu130"}).of("torch", True).endswith("/nightly/cu130")
    assert Index.from_environ({}).of("torch", False, "rocm7.0").endswith("/rocm7.0")


@pytest.mark.parametrize(
    ("version", "night"),
    [
        ("2.15.0.dev20261019+cpu", "20261019"),
        ("3.16.0.dev2026102604", "20261026"),
        ("2026.10.9", "20261009"),
        ("2.15.0.dev3", ""),
        ("2.15.0", ""),
        ("2.15.0.dev20261399", ""),
    ],
)
def test_the_night_of_a_version(version: str, night: str) -> None:
    assert night_of(Version(version)) == night


def test_the_age_of_a_night() -> None:
    assert age_in_days("20261019", date(2026, 10, 20)) == 1
    with pytest.raises(ValueError, match="is not a night"):
        age_in_days("20261399", TODAY)


UV = """#!/bin/sh
echo "$@" >> "$0.asked"
env | grep -E '^(PIP|UV)_' >> "$0.asked"
case "$1 $2" in
  "venv --no-project") exec "$4" -m venv --without-pip "$5" ;;
  "pip install") python="$4"; shift 4
    exec PYTHON -m pip --python "$python" install $(echo "$@" | sed 's/--index-strategy [a-z-]*//') ;;
esac
"""


def test_uv_installs_where_it_is_there_and_sees_only_the_index_it_is_given(
    get: Resolve, index: ToyIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add_torch(NIGHT.format(19))
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.replace("PYTHON", sys.executable))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)
    monkeypatch.setenv("UV_INDEX_URL", "http://127.0.0.1:1/other")
    assert get("torch@nightly").version == NIGHT.format(19)
    asked = uv.with_name("uv.asked").read_text()
    assert f"--index-url {index.url} --extra-index-url {index.url} --index-strategy" in asked
    assert "UV_NO_CONFIG=1" in asked
    assert "127.0.0.1:1/other" not in asked
    assert "PIP_NO_INDEX" not in asked


def test_uv_that_fails_leaves_it_to_pip(
    get: Resolve, index: ToyIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add_torch(NIGHT.format(19))
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\necho error: no network >&2\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)
    assert get("torch@nightly").version == NIGHT.format(19)
    (log,) = (tmp_path / "cache").glob("envs/*.log")
    assert "error: no network" in log.read_text()
