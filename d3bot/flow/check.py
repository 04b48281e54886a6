"""The check of a pull request: the same trials on two builds, and only what is worse on the head counts."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from d3bot.config import Config
from d3bot.findings.key import is_catch_all
from d3bot.flow.night import Night, run_night
from d3bot.flow.planning import touched_settings
from d3bot.history.changes import NEWS, compare, other_names
from d3bot.history.check import Check, Outcome, Row, write_check
from d3bot.history.files import write_atomic
from d3bot.report.check import check_markdown
from d3bot.report.facts import times
from d3bot.report.terminal import print_summary
from d3bot.spec import Build, Change, SpecError

_ALONE = "there was no time to look into it, or nothing is known of its cause"


def run_check(
    config: Config,
    base: str,
    head: str,
    out: Path,
    console: Console,
    baseline: str = "",
    changed: Sequence[str] = (),
) -> Check:
    """Run the same trials on both builds and leave base/, head/, check.json and summary.md in `out`.

    A failure counts only if the head shows it again in fresh processes and its script passes on the base: what the base
    shows as well is listed and not counted, what does not repeat is flaky.  `changed` are the files of the library in
    which the head differs: what they touch comes first, on as many fresh cases again.  SpecError for wrong input.
    """
    if config.minutes:
        raise SpecError("--minutes: both builds of a check run the same trials; give --fresh instead")
    if out.exists() and any(out.iterdir()):
        raise SpecError(f"{out}: is not empty; choose another --out")
    seed = config.seed if config.seed is not None else secrets.randbelow(2**31)
    common = {"seed": seed, "previous": "", "out": None}
    before = config.model_copy(update=common | {"builds": (base,), "base": ""})
    after = config.model_copy(update=common | {"builds": (head,), "base": base})
    console.print("base:", highlight=False)
    old = run_night(before, out / "base", console, look=False, changed=changed)
    print_summary(console, old.run, old.verdicts, old.changes, old.findings)
    console.print("head:", highlight=False)
    new = run_night(after, out / "head", console, changed=changed, beside=old.verdicts)
    print_summary(console, new.run, new.verdicts, new.changes, new.findings)
    first = touched_settings(new.run.builds[0], changed, config.settings)
    families = tuple(dict.fromkeys(setting.family for setting in first))
    check = judge(old, new, baseline).model_copy(update={"only": config.settings, "touched": families})
    write_check(out, check)
    write_atomic(out / "summary.md", check_markdown(check, config.templates))
    return check


def load_changed(path: Path) -> list[str]:
    """Return the paths in a file of `git diff --name-only`, one a line; SpecError if it cannot be read."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise SpecError(
            f"--changed {path}: cannot be read ({error.strerror}); give what `git diff --name-only` wrote"
        ) from error


def judge(old: Night, new: Night, baseline: str = "") -> Check:
    """Return what the head does worse than the base.  Pure."""
    base, head = old.run.builds[0], new.run.builds[0]
    changes = compare(old.verdicts, new.verdicts, other_names(new.findings))
    news = {change.after_key for change in changes if change.change in NEWS}
    worse, known, unsure = [], [], []
    for finding in new.findings:
        row = Row(key=finding.key, title=finding.title, setting=str(finding.setting))
        if finding.key not in news or finding.regression == "pre-existing":
            known.append(row)
        elif not finding.verified or finding.regression != "regression":
            why = finding.unverified_reason or "its script was not seen to pass on the base"
            unsure.append(row.model_copy(update={"note": why[:300]}))
        else:
            worse.append(row)
    found = {key for finding in new.findings for key in (*finding.names, *finding.symptoms)}
    found |= {verdict.key for verdict in old.verdicts if verdict.failing and not is_catch_all(verdict.key)}
    alone = {change.after_key: change for change in changes if change.change in NEWS and change.after_key not in found}
    unsure += [Row(key=key, setting=change.setting, note=_ALONE) for key, change in alone.items()]
    listed = {row.key for row in (*worse, *known, *unsure)}
    known += [
        Row(key=change.after_key, setting=change.setting)
        for change in changes
        if change.change == "still-failing" and change.after_key not in listed
    ]
    fixed = sum(change.change == "fixed" for change in changes)
    outcome, reason = _outcome(old, new, changes, len(worse), len(alone), fixed)
    return Check(
        outcome=outcome,
        reason=reason,
        base=base,
        head=head,
        baseline=baseline,
        seed=new.run.seed,
        trials=len(new.verdicts),
        worse=tuple(worse),
        pre_existing=tuple(known),
        unverified=tuple(unsure),
        fixed=fixed,
        flaky=sum(change.change == "flaky" for change in changes),
        indeterminate=sum(change.change == "indeterminate" for change in changes),
        not_applicable=sum(verdict.kind == "not-applicable" for verdict in new.verdicts),
    )


def _outcome(
    old: Night, new: Night, changes: Sequence[Change], worse: int, alone: int, fixed: int
) -> tuple[Outcome, str]:
    differ = _companions(old.run.builds[0], new.run.builds[0])
    if differ:
        return "no-data", f"the two builds do not have the same companions: {differ}"
    for side, night in (("base", old), ("head", new)):
        if not night.run.complete:
            return "no-data", f"the run on the {side} is incomplete"
    if {v.trial for v in old.verdicts} != {v.trial for v in new.verdicts}:
        return "no-data", "the two builds did not run the same trials"
    if all(verdict.kind in ("not-applicable", "no-data") for verdict in new.verdicts):
        return "no-data", f"none of {len(new.verdicts)} trials says anything about the head"
    if worse:
        more = f", and without {times(fixed, 'failure')} of the base" if fixed else ""
        return ("mixed" if fixed else "worse"), f"{times(worse, 'failure')} that the base does not have{more}"
    if alone:
        return "no-data", f"{times(alone, 'failure')} that the base does not have and that nobody looked into"
    if fixed:
        return "better", f"{times(fixed, 'failure')} fewer than on the base"
    return "same", f"nothing is verified to fail that does not fail on the base, in {len(changes)} trials"


def _companions(base: Build, head: Build) -> str:
    """Return what differs beside the library under test, in words: such a difference could be the cause itself."""
    names = sorted(base.packages.keys() | head.packages.keys())
    differ = [f"{n} {base.packages.get(n, 'none')} and {head.packages.get(n, 'none')}" for n in names]
    return ", ".join(
        text for n, text in zip(names, differ, strict=True) if base.packages.get(n) != head.packages.get(n)
    )
