"""A check run with annotations: 50 a request, the rest appended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from d3bot.findings.markdown import line, strip_control
from d3bot.github.client import Client, RefusedError
from d3bot.github.sticky import Posted, fitting

Conclusion = Literal["success", "failure", "neutral"]
BATCH = 50
_MAX_ANNOTATIONS = 200
"""More than four requests of them help nobody; the summary says how many there are."""


@dataclass(frozen=True)
class Annotation:
    """A remark on a line of a file of the repository."""

    path: str
    message: str
    title: str = ""
    start: int = 1
    level: Literal["notice", "warning", "failure"] = "failure"


def post_check(
    client: Client,
    sha: str,
    name: str,
    conclusion: Conclusion,
    title: str,
    summary: str,
    annotations: Sequence[Annotation] = (),
) -> Posted:
    """Create a completed check run on a commit.  A refusal is returned: creating one takes an App's token."""
    shown = [_annotation(each) for each in annotations[:_MAX_ANNOTATIONS]]
    if len(annotations) > len(shown):
        summary = f"{len(annotations) - len(shown)} more annotations are not shown.\n\n{summary}"
    output: dict[str, Any] = {"title": line(title, 200), "summary": fitting(summary)}
    repo = client.repo
    first = {
        "name": name,
        "head_sha": sha,
        "status": "completed",
        "conclusion": conclusion,
        "external_id": f"d3bot-{client.place.run_id}-{client.place.attempt}",
        "output": {**output, "annotations": shown[:BATCH]},
    }
    if client.place.run_url:
        first["details_url"] = client.place.run_url
    try:
        # A second check run of this name replaces the first for whoever looks, so an unknown outcome may be repeated.
        _, made = client.write(
            "creating the check run",
            lambda: repo.requester.requestJsonAndCheck("POST", f"{repo.url}/check-runs", input=first),
        )
        for start in range(BATCH, len(shown), BATCH):
            more = {"output": {**output, "annotations": shown[start : start + BATCH]}}
            client.write(
                "appending annotations",
                lambda data=more: repo.requester.requestJsonAndCheck(  # type: ignore[misc]
                    "PATCH", f"{repo.url}/check-runs/{made['id']}", input=data
                ),
            )
    except RefusedError as error:
        return Posted("refused", str(error))
    return Posted("created")


def _annotation(each: Annotation) -> dict[str, Any]:
    data = {
        "path": line(each.path, 200),
        "start_line": each.start,
        "end_line": each.start,
        "annotation_level": each.level,
        "message": strip_control(each.message)[:4000] or "(no text)",
    }
    return data | ({"title": line(each.title, 200)} if each.title else {})
