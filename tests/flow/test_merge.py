"""Shards: planned as a matrix, merged into one run, and missed loudly."""

import json

import pytest

from d3bot.flow.merge import merge_runs
from d3bot.flow.plan_file import write_plan
from d3bot.generate.costs import NO_COSTS
from d3bot.history.evidence import load_evidence, write_evidence
from d3bot.history.finding_folder import list_findings, read_finding, write_finding
from d3bot.history.folder import RunWriter, load_changes, load_run
from d3bot.spec import Evidence, Setting, SpecError, Trial
from tests.findings.samples import BUILD, KEY, case, finding, run, verdict

OTHER = KEY[:-8] + "00000000"


@pytest.fixture
def shard(tmp_path):
    """Return a function that writes one finished shard."""

    def made(index, count=2, name="", findings=(), kinds=("pass",), evidence=(), **facts):
        folder = tmp_path / (name or f"shard{index}")
        header = {"seed": 5, "config": {"shard": {"index": index, "count": count}}} | facts
        seed = header.pop("seed")
        begun = run(f"20261130T0{index}-{name or index}", **header).model_copy(update={"seed": seed})
        writer = RunWriter.create(folder, begun)
        settings = [Setting.parse(f"ddp(world={2 + index * 10 + i})") for i in range(len(kinds))]
        write_plan(folder, [Trial(case=case(), setting=each) for each in settings], NO_COSTS)
        for kind, setting in zip(kinds, settings, strict=True):
            key = KEY if kind == "diverged" else ""
            writer.append(verdict(kind, case().id, str(setting), key=key))
        for each in findings:
            write_finding(folder, each, "print(1)\n", "bad", None, "x")
        if evidence:
            write_evidence(folder, evidence)
        writer.finish(begun)
        return folder

    return made


def test_shards_become_one_run_with_every_trial(shard, tmp_path):
    merged = merge_runs([shard(1, kinds=("pass", "diverged")), shard(2)], tmp_path / "out")
    assert merged.missing == ()
    loaded = load_run(tmp_path / "out")
    assert loaded.run.complete
    assert loaded.run.counts == {"pass": 2, "diverged": 1}
    assert sorted(each.shard for each in loaded.verdicts) == ["1/2", "1/2", "2/2"]
    assert loaded.run.config["shard"] == {"index": 1, "count": 1}


def test_f6_a_missing_shard_is_red_and_what_there_is_is_kept(shard, tmp_path):
    merged = merge_runs(
        [shard(1, count=3, kinds=("diverged",), findings=[finding()]), shard(3, count=3)], tmp_path / "out"
    )
    assert merged.missing == ("shard 2/3 is missing",)
    loaded = load_run(tmp_path / "out")
    assert not loaded.run.complete
    assert len(loaded.verdicts) == 2
    assert len(list_findings(tmp_path / "out")) == 1
    assert (tmp_path / "out" / "summary.md").read_text().startswith("> **shard 2/3 is missing**")


def test_f6_shards_that_never_came_at_all_are_missed_by_the_number_that_was_planned(shard, tmp_path):
    assert len(merge_runs([shard(1, count=8)], tmp_path / "out", shards=8).missing) == 7
    with pytest.raises(SpecError, match="no run folder given"):
        merge_runs([], tmp_path / "none", shards=8)


def test_f6_an_incomplete_shard_makes_the_run_incomplete(shard, tmp_path):
    merged = merge_runs([shard(1), shard(2, complete=False)], tmp_path / "out")
    assert merged.missing == ("shard 2/2 is incomplete",)
    assert not merged.night.run.complete


def test_f7_one_shard_that_stalled_does_not_take_the_others_with_it(shard, tmp_path):
    merged = merge_runs([shard(1, kinds=("pass",) * 5), shard(2, complete=False, kinds=())], tmp_path / "out")
    assert len(merged.night.verdicts) == 5


@pytest.mark.parametrize("order", [0, 1])
def test_f8_of_two_attempts_at_a_shard_the_last_complete_one_counts(shard, tmp_path, order):
    first = shard(1, name="shard-1-attempt-1", complete=False, started="2026-11-30T02:00:00+00:00")
    second = shard(1, name="shard-1-attempt-2", started="2026-11-30T04:00:00+00:00")
    attempts = [first, second] if order else [second, first]
    merged = merge_runs([*attempts, shard(2)], tmp_path / "out")
    assert merged.missing == ()
    assert merged.night.run.complete


def test_one_finding_in_two_shards_is_one_and_the_verified_one(shard, tmp_path):
    parts = [shard(1, findings=[finding(verified=False, unverified_reason="x")]), shard(2, findings=[finding()])]
    merge_runs(parts, tmp_path / "out")
    (path,) = list_findings(tmp_path / "out")
    assert read_finding(path).finding.verified


def test_a8_one_cause_that_two_shards_saw_under_two_names_is_one_finding(shard, tmp_path):
    alternate = f"{KEY[:-8]}11111111"
    one = finding(aliases=(alternate,), trials=("c0 ddp(world=12)",), verified=False, unverified_reason="x")
    other = finding(OTHER, aliases=(alternate,), trials=("c0 ddp(world=22)",), symptoms=("s",))
    merged = merge_runs([shard(1, kinds=("diverged",), findings=[one]), shard(2, findings=[other])], tmp_path / "out")
    (path,) = list_findings(tmp_path / "out")
    kept = read_finding(path).finding
    assert (kept.key, kept.verified) == (OTHER, True)
    assert kept.names == {KEY, OTHER, alternate}
    assert (kept.trials, kept.symptoms) == (("c0 ddp(world=22)", "c0 ddp(world=12)"), ("s",))
    (failing,) = [verdict for verdict in merged.night.verdicts if verdict.failing]
    assert (failing.key, failing.also) == (OTHER, (KEY,))


def test_evidence_of_one_shard_does_not_stand_against_a_failure_in_another(shard, tmp_path):
    shown = [Evidence(key=key, build=BUILD, script="0" * 64, runs=3, passed=3) for key in (KEY, OTHER)]
    merge_runs([shard(1, evidence=shown), shard(2, kinds=("diverged",))], tmp_path / "out")
    assert [item.key for item in load_evidence(tmp_path / "out")] == [OTHER]


def test_a_previous_run_is_compared_with(shard, tmp_path):
    before = shard(1, count=1, name="before", kinds=("pass",))
    merge_runs([shard(1, count=1, name="now", kinds=("diverged",))], tmp_path / "out", before)
    assert [change.change for change in load_changes(tmp_path / "out")] == ["regressed"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"count": 3}, "is shard 2/3"),
        ({"seed": 6}, "its seed"),
        ({"previous": "r0"}, "its previous run"),
        ({"builds": (BUILD.model_copy(update={"version": "2.12.0"}),)}, "its builds"),
    ],
)
def test_d2_parts_of_different_runs_are_not_merged(shard, tmp_path, facts, words):
    second = dict(facts)
    count = second.pop("count", 2)
    if "builds" in second:
        builds = second.pop("builds")
        folder = shard(2, count)
        data = json.loads((folder / "run.json").read_text())
        data["builds"] = [build.model_dump(mode="json") for build in builds]
        (folder / "run.json").write_text(json.dumps(data))
    else:
        folder = shard(2, count, **second)
    with pytest.raises(SpecError, match=words):
        merge_runs([shard(1), folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_processors_may_differ_from_runner_to_runner(shard, tmp_path):
    folder = shard(2)
    data = json.loads((folder / "run.json").read_text())
    data["builds"][0]["environment"] = {"cpu": "another"}
    (folder / "run.json").write_text(json.dumps(data))
    assert merge_runs([shard(1), folder], tmp_path / "out").missing == ()


def test_a_run_that_is_no_shard_is_named(tmp_path):
    folder = tmp_path / "x"
    RunWriter.create(folder, run("r1")).finish(run("r1"))
    with pytest.raises(SpecError, match="does not say which shard"):
        merge_runs([folder], tmp_path / "out")
