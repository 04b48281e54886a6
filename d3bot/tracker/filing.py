"""Filing a finished run folder, read as hostile data, into a tracker."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from d3bot.bisect import conclusion
from d3bot.findings.issue import Issue, marker, render_issue
from d3bot.findings.key import is_catch_all, is_key
from d3bot.findings.lifecycle import (
    Action,
    Decision,
    Record,
    bisected,
    closed,
    decide,
    decide_close,
    infrastructure_key,
    new_record,
    overflow_key,
    record_of,
    reminded,
    seen_again,
    summary_key,
)
from d3bot.findings.markdown import code, line, plain, title_text
from d3bot.findings.policy import DEFAULT, Policy
from d3bot.findings.title import MAX_TITLE
from d3bot.history.evidence import load_evidence
from d3bot.history.files import dump_json, write_atomic
from d3bot.history.finding_folder import FindingFolder, list_findings, read_finding
from d3bot.history.folder import LoadedRun, load_run
from d3bot.spec import SCHEMA, Evidence, Finding, Framework, Run, SpecError
from d3bot.templates import environment, render_page
from d3bot.tracker.base import ExhaustedError, Tracker, TrackerError

DECISIONS = "decisions.json"
BISECTED, RETESTED = "bisect", "retest"
"""What a run that only bisected, or ran one script again, names as its previous run: it is no night."""
_LISTED = 300
"""Keys that one record covers; what is beyond them is counted, and listed when there is room."""

_ROWS = 20_000
"""Bytes that the rows of such a record may take."""

INCOMPLETE = "the run is incomplete or has trials without data: finish it with --resume, or run again"


def plain_issue(folder: FindingFolder) -> Issue:
    """Render the issue of a finding anew: its own issue.md was written by the half that runs untrusted code."""
    return render_issue(folder.finding, folder.script, folder.output_bad, folder.output_good)


def file_run(
    run_dir: Path,
    tracker: Tracker,
    now: datetime,
    file_all: bool = False,
    known: Mapping[str, str] | None = None,
    render: Callable[[FindingFolder], Issue] = plain_issue,
    policy: Policy = DEFAULT,
    templates: Path | None = None,
) -> list[Decision]:
    """File the findings of a run and return what was decided about each; decisions.json in the run folder says it too.

    `known` maps keys to upstream issues.  The first run on a library (no record, no previous run) gives one record that
    lists its findings, unless `file_all`, which lifts the budgets of `policy` as well.  SpecError, with nothing filed,
    if the run or the tracker cannot be read.
    """
    loaded = load_run(run_dir)
    run = loaded.run
    started = _started(run)
    folders = [_read(path, run) for path in list_findings(run_dir)]
    evidence = load_evidence(run_dir)
    decisions: list[Decision] = []
    try:
        with tracker.locked():
            records = dict(tracker.records())
            job = _Filing(run, started, tracker, records, now, file_all, known or {}, render, policy, templates)
            job.run_all(folders, loaded, evidence, decisions)
    except TrackerError as error:
        # What was decided before stays true; of the rest, the next run decides.
        done = {decision.key for decision in decisions}
        left = [folder.finding.key for folder in folders if folder.finding.key not in done] or [infrastructure_key()]
        decisions += [Decision(key=key, action="failed", reason=line(str(error), 300)) for key in left]
    write_atomic(run_dir / DECISIONS, _dump(run, now, decisions))
    return decisions


def file_failure(
    tracker: Tracker, now: datetime, reason: str, policy: Policy = DEFAULT, templates: Path | None = None
) -> list[Decision]:
    """Tell in the one infrastructure issue that a night left no run at all, and return what was decided."""
    with tracker.locked():
        nothing = Run(run="", started=now.isoformat(), builds=(), seed=0)
        records = dict(tracker.records())
        job = _Filing(nothing, now, tracker, records, now, False, {}, plain_issue, policy, templates)
        return job.tell_of_night(reason)


@dataclass
class _Filing:
    """One run on its way into one tracker, which is held."""

    run: Run
    started: datetime
    tracker: Tracker
    records: dict[str, Record]
    now: datetime
    file_all: bool
    known: Mapping[str, str]
    render: Callable[[FindingFolder], Issue]
    policy: Policy
    templates: Path | None
    spent: str = ""
    """Why the tracker does nothing more in this run; empty while it does."""
    edits: int = 0
    closes: int = 0
    listed: dict[str, str] = field(default_factory=dict)
    """Key -> the open record that lists it in place of a record of its own."""

    def run_all(
        self,
        folders: Sequence[FindingFolder],
        loaded: LoadedRun,
        evidence: Sequence[Evidence],
        decisions: list[Decision],
    ) -> None:
        """Decide about everything in a run, adding to `decisions` as it goes."""
        if not self.run.complete:
            decisions += [Decision(key=each.finding.key, action="delay", reason=INCOMPLETE) for each in folders]
            decisions += self.tell_of_night(INCOMPLETE) if self.policy.night_issue else []
            return
        if self.policy.night_issue and self.run.previous not in (BISECTED, RETESTED):
            decisions += self.tell_of_recovery()
        for framework in sorted({build.framework for build in self.run.builds}):
            mine = [folder for folder in folders if folder.finding.build.framework == framework]
            decisions += self.file(framework, mine, loaded)
        decisions += self.close(evidence)

    def file(self, framework: Framework, folders: Sequence[FindingFolder], loaded: LoadedRun) -> list[Decision]:
        """File the findings of one framework of a complete run."""
        if self.run.previous == BISECTED:
            return [self._bisected(folder) for folder in folders]
        first_run = not self.run.previous and not any(key.startswith(f"{framework}-") for key in self.records)
        if first_run and not self.file_all:
            return self._file_summary(summary_key(framework), folders)
        self.listed = self._listed_keys(framework)
        new = self._new_keys(framework, folders, loaded)
        if len(new) > self.policy.panic and not self.file_all:
            return self._panic(sorted(new), folders)
        decided = [(folder, self._decide(folder)) for folder in folders]
        ready = [folder for folder, decision in decided if decision.action == "file"]
        rest, reasons = ([], {}) if self.file_all else self._beyond_budget(framework, ready, folders)
        # All of them before the first is filed: what cannot be rendered stops the filing while nothing is half done.
        issues = {folder.finding.key: self.render(folder) for folder in ready if folder.finding.key not in reasons}
        decisions = []
        # What is new first; then what waited longest, so that no record starves where there are many.
        order = sorted(decided, key=lambda pair: (pair[1].action != "file", self._waiting_since(pair[0])))
        for folder, decision in order:
            if decision.action == "file":
                decisions.append(reasons.get(folder.finding.key) or self._create(folder, decision, issues))
            elif decision.action in ("update", "remind", "reopen"):
                decisions.append(self._again(folder, decision))
            else:
                decisions.append(decision)
        decisions += self._overflow(framework, rest, [each.finding.key for each in ready])
        place = {folder.finding.key: i for i, folder in enumerate(folders)}
        return sorted(decisions, key=lambda decision: place.get(decision.key, -1))

    def close(self, evidence: Sequence[Evidence]) -> list[Decision]:
        """Close the records whose scripts are shown to pass, as far as the rules let d3bot do that."""
        decisions = []
        asked = self.run.previous == RETESTED
        for item in evidence:
            record = self.records.get(item.key)
            if record is None or record.covers or not (asked or record.state == "open"):
                continue
            if self.run.run in record.seen_runs:
                decisions.append(Decision(key=item.key, action="skip", reason="its script passes, but its key fails"))
                continue
            decision = decide_close(record, item, self.now, self.started, None, self.policy)
            if decision.action == "close" and self.closes >= self.policy.closes:
                decision = Decision(
                    key=item.key,
                    action="delay",
                    reason=f"this run has closed {self.closes} already: the next one goes on",
                )
            if decision.action == "close":
                decision = self._attempt(decision, partial(self._close, record, item))
            if asked and decision.action in ("skip", "delay"):
                decision = self._attempt(decision, partial(self._answer, record, item, decision))
            decisions.append(decision)
        return decisions

    def tell_of_night(self, reason: str) -> list[Decision]:
        """Tell of a run without data in the infrastructure record."""
        facts = {"cause": "no-data", "reason": line(reason)}
        return [
            self._infrastructure("The nightly run gives no result", f"no data: {line(reason, 300)}", facts, "delay")
        ]

    def tell_of_recovery(self) -> list[Decision]:
        """Say in an open infrastructure record that a run is complete again, and close it the first time."""
        key = infrastructure_key()
        record = self.records.get(key)
        if record is None or record.state != "open" or self.run.run in record.seen_runs:
            return []
        event = f"{self.now:%Y-%m-%d %H:%M} run {self.run.run} is complete again"
        better = record.model_copy(update={"history": (*record.history, event)[-50:], "last_seen": self.now})
        if record.auto_closed:
            if "complete again" in record.history[-1]:
                return []
            decision = Decision(
                key=key, action="update", reason="a run is complete again; a person closes it, d3bot did once"
            )
            return [self._attempt(decision, lambda: self._put(better))]
        gone = {"state": "closed", "closed_at": self.now, "closed_by": "d3bot", "auto_closed": 1}
        decision = Decision(key=key, action="close", reason=f"run {self.run.run} is complete")
        return [self._attempt(decision, lambda: self._put(better.model_copy(update=gone)))]

    def _decide(self, folder: FindingFolder) -> Decision:
        finding = folder.finding
        return decide(
            self._record(folder),
            finding,
            self.now,
            self.run.run,
            self.started,
            _first_of(self.known, finding),
            _first_of(self.listed, finding),
            self.policy,
        )

    def _record(self, folder: FindingFolder) -> Record | None:
        return record_of(self.records, folder.finding)

    def _is_open(self, folder: FindingFolder) -> bool:
        record = self._record(folder)
        return record is not None and record.state == "open"

    def _listed_keys(self, framework: Framework) -> dict[str, str]:
        """Return the keys that must not be filed because the open summary of the first run lists them."""
        summary = self.records.get(summary_key(framework))
        if summary is None or summary.state != "open" or self.file_all:
            return {}
        return dict.fromkeys(summary.covers, summary.key)

    def _new_keys(self, framework: Framework, folders: Sequence[FindingFolder], loaded: LoadedRun) -> set[str]:
        """Return the failing keys of the run, looked into or not, that nobody knows yet."""
        overflow = self.records.get(overflow_key(framework))
        known = {*self.listed, *self.known, *(overflow.covers if overflow else ())}
        mine = [folder.finding for folder in folders]
        new = {
            finding.key
            for finding in mine
            if finding.verified
            and record_of(self.records, finding) is None
            and known.isdisjoint((*finding.names, *finding.symptoms))
        }
        # What nobody looked into stands in the run under its symptom.
        known |= {name for finding in mine for name in (*finding.names, *finding.symptoms)} | self.records.keys()
        known |= {name for record in self.records.values() for name in record.symptoms}
        new |= {v.key for v in loaded.verdicts if v.failing and v.framework == framework and v.key not in known}
        return {key for key in new if not is_catch_all(key)}

    def _waiting_since(self, folder: FindingFolder) -> tuple[datetime, str]:
        record = self._record(folder)
        return (record.last_seen if record else self.now, folder.finding.key)

    def _beyond_budget(
        self, framework: Framework, ready: Sequence[FindingFolder], folders: Sequence[FindingFolder]
    ) -> tuple[list[FindingFolder], dict[str, Decision]]:
        """Return the findings that get no record of their own now, and the decision about each."""
        own = [
            record
            for record in {record.key: record for record in self.records.values()}.values()
            if record.framework == framework and not record.covers
        ]
        today = sum(record.filed_in != "" and self.now - record.first_seen < timedelta(hours=24) for record in own)
        room = min(
            self.policy.per_run - sum(record.filed_in == self.run.run for record in self.records.values()),
            self.policy.per_day - today,
        )
        groups: dict[str, list[FindingFolder]] = defaultdict(list)
        for folder in folders:
            if folder.finding.verified and not is_catch_all(folder.finding.key):
                groups[_group(folder)].append(folder)
        where = overflow_key(framework)
        taken = {name for name, group in groups.items() if any(self._is_open(each) for each in group)}
        rest, reasons = [], {}
        for folder in sorted(ready, key=lambda each: (each.finding.regression != "regression", each.finding.key)):
            name = _group(folder)
            if len(groups[name]) > self.policy.crowd and name in taken:
                # One cause, more often than not: the others wait in the list until what is filed is mended.
                reason = f"one of {len(groups[name])} findings of {name}: one gets an issue, {where} lists the others"
            elif room <= 0:
                reason = (
                    f"the budget of {self.policy.per_run} new issues a run and {self.policy.per_day} a day is spent"
                )
                reason += f": listed in {where}"
            else:
                room -= 1
                taken.add(name)
                continue
            rest.append(folder)
            reasons[folder.finding.key] = Decision(key=folder.finding.key, action="delay", reason=reason)
        return rest, reasons

    def _create(self, folder: FindingFolder, decision: Decision, issues: Mapping[str, Issue]) -> Decision:
        issue = issues[folder.finding.key]
        record = new_record(folder.finding, self.now, self.run.run, self.started, folder.script)
        if folder.finding.bisection:
            record = bisected(record, folder.finding.bisection, self.now, self.run.run)
        record = record.model_copy(update={"title": issue.title})
        return self._attempt(decision, lambda: self._new(record, issue.body))

    def _bisected(self, folder: FindingFolder) -> Decision:
        """Tell an open record what a bisection found.  Old builds were run: it is no sighting and reopens nothing."""
        key, result = folder.finding.key, folder.finding.bisection
        record = self._record(folder)
        if result is None:
            return Decision(key=key, action="skip", reason="its folder holds no bisection")
        if record is None or record.state != "open":
            return Decision(key=key, action="skip", reason="no open record: the bisection stands in the run folder")
        if self._told(record):
            return Decision(key=key, action="skip", reason=f"run {self.run.run} is already recorded")
        decision = Decision(key=key, action="update", reason=f"bisected: {conclusion(result)}")
        later = bisected(record, result, self.now, self.run.run)
        note = self._page("comment", "bisected.md.j2", {"told": later.bisected})
        return self._attempt(decision, lambda: self._put(later, note))

    def _again(self, folder: FindingFolder, decision: Decision) -> Decision:
        record = self._record(folder)
        if record is None:
            raise AssertionError("decided about a record that is not there")
        if decision.action in ("update", "remind") and self.edits >= self.policy.edits:
            return decision.model_copy(
                update={
                    "action": "delay",
                    "reason": f"this run has brought {self.edits} up to date: the next one goes on",
                }
            )
        later = seen_again(record, folder.finding, self.now, self.run.run, self.started, folder.script)
        note = ""
        facts: dict[str, Any] = {"build": folder.finding.build.label, "run": self.run.run}
        if decision.action == "reopen":
            facts |= {"closed_on": f"{record.closed_at or record.last_seen:%Y-%m-%d}", "closed_by": record.closed_by}
            note = self._page("comment", "reopened.md.j2", facts)
        elif decision.action == "remind":
            facts |= {"seen": len(later.seen_runs), "since": f"{record.first_seen:%Y-%m-%d}"}
            note = self._page("comment", "reminder.md.j2", facts)
            later = reminded(later, self.now)
        self.edits += 1
        return self._attempt(decision, lambda: self._put(later, note))

    def _close(self, record: Record, item: Evidence) -> None:
        # Asked only here, as it costs a request or two.
        touched = self.tracker.touched(record)
        decision = decide_close(record, item, self.now, self.started, touched, self.policy)
        if decision.action != "close":
            raise _OtherwiseError(decision)
        facts = {"passed": item.passed, "runs": item.runs, "build": item.build.label}
        self._put(closed(record, item, self.now, self.run.run), self._page("comment", "closed.md.j2", facts))
        self.closes += 1

    def _answer(self, record: Record, item: Evidence, decision: Decision) -> None:
        """Tell whoever asked for a retest what came of it where nothing changes: why is what they wait for."""
        if self._told(record):
            return
        event = f"{self.now:%Y-%m-%d %H:%M} retested in run {self.run.run} on {item.build.label}"
        facts = {"passed": item.passed, "runs": item.runs, "build": item.build.label, "reason": decision.reason}
        later = record.model_copy(update={"history": (*record.history, event)})
        self._put(later, self._page("comment", "retested.md.j2", {**facts, "state": record.state}))

    def _told(self, record: Record) -> bool:
        """Return whether this run is recorded already."""
        return self.run.run in record.seen_runs or any(self.run.run in entry for entry in record.history)

    def _overflow(self, framework: Framework, rest: Sequence[FindingFolder], filed: Sequence[str]) -> list[Decision]:
        """Keep the one record that lists what is beyond the budgets: what is filed leaves it, what is new joins."""
        key = overflow_key(framework)
        record = self.records.get(key)
        before = record.covers if record else ()
        now_own = {each for each in (*before, *filed) if each in self.records}
        wanted = [each for each in (*before, *(f.finding.key for f in rest)) if each not in now_own]
        covers = tuple(dict.fromkeys(wanted))[:_LISTED]
        if covers == before:
            return []
        if record is not None and record.ignore and record.state == "closed":
            return [Decision(key=key, action="skip", reason="closed, and a person set it to be ignored")]
        titles = {folder.finding.key: folder.finding.title for folder in rest}
        groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
        rows = _fitting([(each, titles.get(each, "")) for each in covers])
        for each, shown in rows:
            groups[" ".join(each.split("-")[:3])].append((each, shown))
        facts = {
            "marker": marker(key),
            "framework": framework,
            "policy": self.policy,
            "groups": sorted(groups.items()),
            "more": len(dict.fromkeys(wanted)) - len(rows),
        }
        title = title_text(
            f"More on {framework} than d3bot files at once: {len(covers)} finding{'s' * (len(covers) != 1)}", MAX_TITLE
        )
        decision = Decision(key=key, action="update" if record else "file", reason=f"lists {len(covers)} findings")
        return [self._attempt(decision, lambda: self._keep(key, title, "overflow.md.j2", facts, covers))]

    def _panic(self, new: Sequence[str], folders: Sequence[FindingFolder]) -> list[Decision]:
        reason = f"{len(new)} new keys in one run, more than {self.policy.panic}: a bad build; filing stopped"
        facts = {"cause": "panic", "count": len(new), "keys": new[:50], "more": max(0, len(new) - 50)}
        told = self._infrastructure("A build shows far too many new failures", reason, facts, "panic")
        return [told, *(Decision(key=each.finding.key, action="delay", reason=f"panic: {reason}") for each in folders)]

    def _infrastructure(self, title: str, reason: str, facts: Mapping[str, Any], action: Action) -> Decision:
        key = infrastructure_key()
        builds = ", ".join(build.label for build in self.run.builds)
        record = self.records.get(key)
        decision = Decision(key=key, action=action, reason=reason)
        if record is not None and record.ignore:
            return decision.model_copy(
                update={"reason": f"{reason}; a person set the infrastructure record to be ignored"}
            )
        if record is not None and self.run.run and self.run.run in record.seen_runs:
            return decision.model_copy(update={"reason": f"{reason}; recorded already"})
        more = {"marker": marker(key), "run": self.run.run, "builds": builds, **facts}
        return self._attempt(
            decision,
            lambda: self._keep(key, title, "infrastructure.md.j2", more, (), f"{self.now:%Y-%m-%d %H:%M} {reason}"),
        )

    def _keep(
        self, key: str, title: str, template: str, facts: Mapping[str, Any], covers: tuple[str, ...], event: str = ""
    ) -> None:
        """Write one of d3bot's own records, which are rewritten whole and open whenever there is something to say."""
        record = self.records.get(key)
        fresh = record is None
        record = record or Record(key=key, title=title, first_seen=self.now, last_seen=self.now)
        record = record.model_copy(
            update={
                "title": title,
                "state": "open",
                "closed_at": None,
                "closed_by": "",
                "last_seen": self.now,
                "covers": covers,
                "seen_runs": (*record.seen_runs, *filter(None, [self.run.run]))[-50:],
                "history": (*record.history, event or f"{self.now:%Y-%m-%d %H:%M} run {self.run.run}")[-50:],
            }
        )
        body = self._page("issue", template, facts)
        if fresh:
            self._new(record, body)
        else:
            self._put(record, body=body)

    def _file_summary(self, key: str, folders: Sequence[FindingFolder]) -> list[Decision]:
        """Write one record that lists the findings of a first run, in place of a flood nobody could have prevented."""
        decisions = [
            decide(
                None,
                folder.finding,
                self.now,
                self.run.run,
                upstream=_first_of(self.known, folder.finding),
                listed_in=key,
            )
            for folder in folders
        ]
        covers = tuple(
            folder.finding.key
            for folder in folders
            if folder.finding.verified
            and not is_catch_all(folder.finding.key)
            and not _first_of(self.known, folder.finding)
        )
        covers = covers[:_LISTED]
        if not covers:
            return decisions
        rows = [
            (folder.finding.key, folder.finding.title, decision.reason)
            for folder, decision in zip(folders, decisions, strict=True)
        ]
        facts = {
            "marker": marker(key),
            "builds": ", ".join(build.label for build in self.run.builds),
            "run": self.run.run,
            "rows": _fitting(rows),
            "more": len(rows) - len(_fitting(rows)),
        }
        title = title_text(
            f"First run on {self.run.builds[0].label}: {len(covers)} finding{'s' * (len(covers) != 1)}", MAX_TITLE
        )
        event = f"{self.now:%Y-%m-%d %H:%M} filed for run {self.run.run}"
        reason = f"first run on a library: one record lists {len(covers)} findings; `d3bot file --all` files each"
        decision = Decision(key=key, action="file", reason=reason)
        told = self._attempt(decision, lambda: self._keep(key, title, "first-run.md.j2", facts, covers, event))
        return [told, *decisions]

    def _attempt(self, decision: Decision, act: Callable[[], None]) -> Decision:
        """Carry a decision out and return it, or what came of it."""
        if self.spent:
            return decision.model_copy(update={"action": "failed", "reason": f"not tried: {self.spent}"})
        try:
            act()
        except _OtherwiseError as error:
            return error.decision
        except ExhaustedError as error:
            self.spent = line(str(error), 300)
            return decision.model_copy(update={"action": "failed", "reason": self.spent})
        except TrackerError as error:
            return decision.model_copy(update={"action": "failed", "reason": line(str(error), 300)})
        return decision

    def _new(self, record: Record, body: str) -> None:
        self.tracker.create(record, body)
        self.records |= dict.fromkeys((record.key, *record.aliases), record)

    def _put(self, record: Record, note: str = "", body: str = "") -> None:
        self.tracker.update(record, note, body)
        for key in (record.key, *record.aliases):
            self.records[key] = record

    def _page(self, folder: str, template: str, facts: Mapping[str, Any]) -> str:
        page = environment(folder, own=self.templates)
        page.filters.update(plain=plain, code=code)
        return render_page(page, template, facts)


class _OtherwiseError(Exception):
    """Carrying a decision out showed that another one is right."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason)
        self.decision = decision


def _fitting(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return as many rows from the first as take no more than 20,000 bytes when every text in them is escaped."""
    fitting, size = [], 0
    for row in rows:
        size += sum(len(plain(text, 200).encode()) + 8 for text in row)
        if size > _ROWS:
            break
        fitting.append(row)
    return fitting


def _first_of(texts: Mapping[str, str], finding: Finding) -> str:
    """Return the text for the first of a finding's names that has one, its symptoms last; empty if none has."""
    names = (finding.key, *finding.aliases, *finding.symptoms)
    return next((texts[name] for name in names if name in texts), "")


def _group(folder: FindingFolder) -> str:
    return f"{folder.finding.setting.family} {folder.finding.verdict.kind}"


def _read(path: Path, run: Run) -> FindingFolder:
    folder = read_finding(path)
    key, framework = folder.finding.key, folder.finding.build.framework
    own = {summary_key(framework), overflow_key(framework)}
    if not is_key(key) or not key.startswith(f"{framework}-") or key in own:
        raise SpecError(f"{path}: the folder's name is not a key that d3bot makes; run again")
    if framework not in {build.framework for build in run.builds}:
        raise SpecError(f"{path}: is of {framework}, of which the run has no build; run again")
    return folder


def _started(run: Run) -> datetime:
    try:
        started = datetime.fromisoformat(run.started)
    except ValueError as error:
        raise SpecError(f"run {line(run.run)}: started {line(run.started)!r} is no ISO date; run again") from error
    return started if started.tzinfo else started.replace(tzinfo=UTC)


def _dump(run: Run, now: datetime, decisions: Sequence[Decision]) -> str:
    rows = [decision.model_dump() | {"reason": line(decision.reason)} for decision in decisions]
    data = {"schema": SCHEMA, "run": run.run, "decided": now.isoformat(timespec="seconds"), "decisions": rows}
    return dump_json(data, indent=1) + "\n"
