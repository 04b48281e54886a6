"""Before a finding is filed: is there a newer night than the one that was run, and does the script pass there already?

A run takes its build when it begins.  Where it was queued for long, or is filed a day late, what it found may be mended
upstream, and an issue about it would only cost its reader time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from d3bot.builds import NoDataError
from d3bot.builds.spec import Nightly, parse
from d3bot.config import Config
from d3bot.flow.evidence import retest
from d3bot.flow.finding import issue_of
from d3bot.flow.resolved import resolved
from d3bot.history.finding_folder import FINDINGS, read_finding, write_finding
from d3bot.spec import Attempt, Build, Finding, Framework, SpecError

SECONDS = 120.0
"""For the scripts of all findings together; the others are filed as they are."""


def recheck(
    findings: Sequence[Finding],
    builds: Sequence[Build],
    run_dir: Path,
    config: Config,
    log: Callable[[str], None],
    newest: Callable[[str], Build] | None = None,
) -> list[Finding]:
    """Return the findings, each verified one with how its script does on a newer night, if the index has one.

    One that passes there `confirmations` times is mended on that build, and not filed; one that fails has an attempt
    more.  `newest` resolves a build spec; tests hand in another.
    """
    later = _newer(builds, newest or (lambda spec: resolved(spec, config, log)), log)
    ends = time.monotonic() + SECONDS
    done = []
    for finding in findings:
        build = later.get(finding.build.framework)
        if build is None or not finding.verified or time.monotonic() > ends:
            done.append(finding)
            continue
        folder = read_finding(run_dir / FINDINGS / finding.key)
        item = retest(folder, build, config.confirmations)
        mended = item.passed == item.runs
        log(f"{finding.key}: {'passes' if mended else 'fails, too,'} on {build.label}, which is newer")
        outcome = "exit 0" if mended else item.outcome
        attempt = Attempt(how="script", build=build.label, failed=not mended, outcome=outcome)
        finding = finding.model_copy(
            update={"attempts": (*finding.attempts, attempt), "mended_on": build.label if mended else ""}
        )
        told = issue_of(folder.with_finding(finding))
        body = f"# {told.title}\n\n{told.body}"
        write_finding(run_dir, finding, folder.script, folder.output_bad, folder.output_good, body)
        done.append(finding)
    return done


def _newer(
    builds: Sequence[Build], newest: Callable[[str], Build], log: Callable[[str], None]
) -> Mapping[Framework, Build]:
    """Return the builds that a spec such as `torch@nightly` means by now, where that is another than was run."""
    found: dict[Framework, Build] = {}
    for build in builds:
        request = parse(build.spec)
        if not isinstance(request, Nightly) or request.night or request.version:
            continue
        try:
            now = newest(build.spec)
        except (NoDataError, SpecError) as error:
            log(f"{build.spec}: whether there is a newer night is not known: {error}")
            continue
        if (now.version, now.commit) != (build.version, build.commit):
            found[build.framework] = now
    return found
