"""Where on GitHub this is: what Actions says in its environment, read once.  Works for GitHub Enterprise Server too."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from d3bot.spec import SpecError

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Place:
    """The API, the repository of the workflow, and the run; empty where Actions did not say."""

    api_url: str = "https://api.github.com"
    server_url: str = "https://github.com"
    repository: str = ""
    token: str = ""
    run_id: int = 0
    attempt: int = 1
    sha: str = ""
    event_name: str = ""
    event_path: Path | None = None
    summary: Path | None = None
    output: Path | None = None

    @property
    def run_url(self) -> str:
        """The page of this workflow run; empty outside Actions."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}" if self.run_id else ""


def place_of(environ: Mapping[str, str]) -> Place:
    """Return the place that the GITHUB_* variables name; SpecError names the one that is wrong."""

    def number(name: str, default: int) -> int:
        text = environ.get(name, "").strip()
        if text and not text.isdecimal():
            raise SpecError(f"{name}: {text[:40]!r} is not a number; Actions sets it, leave it alone")
        return int(text) if text else default

    def path(name: str) -> Path | None:
        return Path(environ[name]) if environ.get(name) else None

    def url(name: str, default: str) -> str:
        text = (environ.get(name) or default).rstrip("/")
        if not re.fullmatch(r"https?://[A-Za-z0-9.\-:\[\]]+(?:/[A-Za-z0-9._~/-]*)?", text):
            raise SpecError(f"{name}: {text[:100]!r} is not an address; give for example {default}")
        return text

    repository = environ.get("GITHUB_REPOSITORY", "").strip()
    if repository:
        checked_repo(repository, "GITHUB_REPOSITORY")
    return Place(
        api_url=url("GITHUB_API_URL", Place.api_url),
        server_url=url("GITHUB_SERVER_URL", Place.server_url),
        repository=repository,
        token=environ.get("GITHUB_TOKEN", "").strip(),
        run_id=number("GITHUB_RUN_ID", 0),
        attempt=number("GITHUB_RUN_ATTEMPT", 1),
        sha=environ.get("GITHUB_SHA", "").strip(),
        event_name=environ.get("GITHUB_EVENT_NAME", "").strip(),
        event_path=path("GITHUB_EVENT_PATH"),
        summary=path("GITHUB_STEP_SUMMARY"),
        output=path("GITHUB_OUTPUT"),
    )


def checked_repo(text: str, where: str) -> str:
    """Return `owner/name` as given; SpecError if it is not of that form."""
    if not _REPO.fullmatch(text) or text.endswith((".", ".git")):
        raise SpecError(f"{where}: {text[:100]!r} is not owner/name; give for example octocat/hello-world")
    return text


def tracker_repo(wanted: str, allowed: tuple[str, ...], place: Place) -> str:
    """Return the repository to file into: the workflow's own, or another that the configuration allows by name.

    SpecError otherwise: a bot that writes into a stranger's repository by a slip of the pen is not forgiven.
    """
    repo = wanted or place.repository
    if not repo:
        raise SpecError(
            "[tracker] repo: not given, and this is no workflow; give owner/name and add it to [tracker] allow"
        )
    checked_repo(repo, "[tracker] repo")
    if repo.lower() != place.repository.lower() and repo.lower() not in {each.lower() for each in allowed}:
        raise SpecError(
            f"[tracker] repo: {repo} is not the workflow's own repository; add it to [tracker] allow if you mean it"
        )
    return repo
