"""The failures of a run looked into, all workers at once: which are one cause, and one finding of each."""

import concurrent.futures
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from d3bot.findings.group import Group
from d3bot.flow.confirm import again, flaky
from d3bot.flow.finding import SMALLEST, Context, Smallest, find_smallest, issue_of, make_finding
from d3bot.flow.harness import Harness, Judged
from d3bot.flow.keying import words
from d3bot.history.finding_folder import FINDINGS, read_finding, write_finding
from d3bot.spec import Finding, Trial, Verdict


@dataclass
class Looked:
    """What came of the failures of one build."""

    findings: list[Finding] = field(default_factory=list)
    changed: dict[str, Verdict] = field(default_factory=dict)
    """Verdicts that confirmation changed, by trial."""
    added: list[Judged] = field(default_factory=list)
    """Trials that shrinking came upon and that fail by another cause: part of the run from now on."""


def look_into(
    harness: Harness,
    groups: Sequence[Group],
    trials: Mapping[str, Trial],
    context: Context,
    before: Sequence[Finding],
    workers: int,
    seconds: float,
    say: Callable[[str], None],
) -> Looked:
    """Shrink and confirm one failure of each group, for `seconds`; return the findings and what they settle.

    A group shares a symptom, and so may hold several causes: what lacks something that the smallest trial needs is a
    group of its own.  Groups whose smallest trials have one name are one finding.  `before` are the findings of the
    previous run, whose smallest trials are tried first.  What there is no time for is said, and planned again.
    """
    desk = _Desk(harness, trials, context, before, time.monotonic() + seconds, say)
    waiting = deque(spread(groups, {symptom for finding in before for symptom in (finding.key, *finding.symptoms)}))
    desk.symptoms.update(group.key for group in groups)
    with concurrent.futures.ThreadPoolExecutor(workers) as threads:
        running: set[concurrent.futures.Future[list[Group]]] = set()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running.add(threads.submit(desk.look, waiting.popleft(), max(1, workers - len(waiting))))
                done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    waiting.extend(future.result())
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
    return desk.close()


def spread(groups: Sequence[Group], known: Collection[str] = ()) -> list[Group]:
    """Return the groups so that each setting's first key comes before any setting's second, and what is known last.

    A setting that is broken as a whole fails under many keys; they must not use up the time of the others, nor must
    what the previous run found already use up that of what it had no time for.
    """
    seen: Counter[str] = Counter()
    turns: list[tuple[bool, int, int]] = []
    for group in groups:
        turns.append((group.key in known, seen[group.representative.setting], len(turns)))
        seen[group.representative.setting] += 1
    return [groups[place] for _, _, place in sorted(turns)]


@dataclass
class _Claim:
    """One cause: the names it is known by, and every group that shows it."""

    small: Smallest
    names: set[str]
    groups: list[Group]
    finding: Finding | None = None

    @property
    def symptoms(self) -> tuple[str, ...]:
        """How its smallest trial was seen to fail."""
        return (self.small.judged.verdict.key, *self.small.judged.verdict.also)


class _Desk:
    """Everything that the looks at one build's failures share."""

    def __init__(
        self,
        harness: Harness,
        trials: Mapping[str, Trial],
        context: Context,
        before: Sequence[Finding],
        ends: float,
        say: Callable[[str], None],
    ):
        self.symptoms: set[str] = set()
        """Symptoms that somebody looks into."""
        self._harness = harness
        self._trials = dict(trials)
        self._context = context
        self._before = before
        self._ends = ends
        self._say = say
        self._lock = threading.Lock()
        self._claims: list[_Claim] = []
        self._looked = Looked()

    def look(self, group: Group, width: int) -> list[Group]:
        """Look into one group; return the groups that it turned out to hold as well."""
        first = group.representative
        if time.monotonic() > self._ends:
            self._say(f"no time left for {group.key}: {first.reason}")
            return []
        trial = self._trials[first.trial]
        claim = self._seen(group.key, trial)
        if claim is not None:
            mine, rest = self._explained(group, claim.small)
            with self._lock:
                claim.groups.append(mine)
            return rest
        self._say(f"looking into {group.key}")
        known = [
            Trial(case=finding.case, setting=finding.setting, origin="previous")
            for finding in self._before
            if group.key in (finding.key, *finding.aliases, *finding.symptoms)
        ]
        keep = self._context.run_dir / SMALLEST / f"{trial.id}.toml"
        seconds = max(1.0, min(self._context.shrink_seconds, self._ends - time.monotonic()))
        small = find_smallest(self._harness, trial, keep, width, seconds, known)
        if small is None:
            with self._lock:
                self._looked.changed[first.trial] = flaky(first, "not seen again when it was looked into")
            return _rest(group, [first])
        mine, rest = self._explained(group, small)
        self._settle(mine, small)
        return [*rest, *self._slipped(small)]

    def close(self) -> Looked:
        """Write what was learnt of each cause after its finding was made; return everything."""
        for claim in self._claims:
            if claim.finding is None:
                continue
            finding = _with_groups(claim.finding, claim.groups)
            if finding != claim.finding:
                folder = read_finding(self._context.run_dir / FINDINGS / finding.key)
                issue = issue_of(replace(folder, finding=finding))
                text = f"# {issue.title}\n\n{issue.body}"
                write_finding(
                    self._context.run_dir, finding, folder.script, folder.output_bad, folder.output_good, text
                )
            self._looked.findings.append(finding)
            for group in claim.groups:
                self._looked.changed |= _settled(group, finding)
        return self._looked

    def _seen(self, symptom: str, trial: Trial) -> _Claim | None:
        """Return the cause whose smallest trial failed in this way as well, if this trial has all that it needs."""
        has = words(trial.case, trial.setting)
        with self._lock:
            return next((c for c in self._claims if symptom in c.symptoms and c.small.names.needs <= has), None)

    def _explained(self, group: Group, small: Smallest) -> tuple[Group, list[Group]]:
        """Return the members that have all that the smallest trial needs, and a group of the others."""
        mine = [
            verdict
            for verdict in group.members
            if verdict is group.representative
            or small.names.needs <= words(self._trials[verdict.trial].case, self._trials[verdict.trial].setting)
        ]
        return replace(group, members=tuple(mine)), _rest(group, mine)

    def _settle(self, group: Group, small: Smallest) -> None:
        """Make a finding of a group, unless its cause has one already."""
        names = {small.names.key, *small.names.aliases}
        with self._lock:
            for claim in self._claims:
                if claim.names & names:
                    claim.names |= names
                    claim.groups.append(group)
                    return
            claim = _Claim(small, names, [group])
            self._claims.append(claim)
        claim.finding = make_finding(self._harness, small, group, self._context)

    def _slipped(self, small: Smallest) -> list[Group]:
        """Return groups of trials that shrinking came upon and that fail as nothing else in the run does."""
        groups = []
        for judged in small.others:
            key = judged.verdict.key
            with self._lock:
                fresh = key not in self.symptoms and time.monotonic() < self._ends
                self.symptoms.add(key)
            steady = again(self._harness, judged) if fresh else None
            if steady is None or not steady.verdict.failing:
                continue
            with self._lock:
                self._trials[judged.trial.id] = judged.trial
                self._looked.added.append(steady)
            groups.append(Group(key, (steady.verdict,)))
        return groups


def _rest(group: Group, taken: Sequence[Verdict]) -> list[Group]:
    rest = tuple(verdict for verdict in group.members if verdict not in taken)
    return [replace(group, members=rest)] if rest else []


def _with_groups(finding: Finding, groups: Sequence[Group]) -> Finding:
    members = [verdict for group in groups for verdict in group.members]
    symptoms = {key for verdict in members for key in (verdict.key, *verdict.also)}
    return finding.model_copy(
        update={
            "trials": tuple(dict.fromkeys(f"{verdict.case} {verdict.setting}" for verdict in members)),
            "symptoms": tuple(sorted(symptoms | set(finding.symptoms))),
        }
    )


def _settled(group: Group, finding: Finding) -> dict[str, Verdict]:
    """Return the group's verdicts after confirmation: by the finding's key, or flaky if it was never seen again."""
    engine = [attempt for attempt in finding.attempts if attempt.how == "engine"]
    if engine and not any(attempt.failed for attempt in engine):
        first = group.representative
        return {first.trial: flaky(first, "not seen again when it was confirmed")}
    update = {"confirmed": finding.verdict.confirmed, "key": finding.key}
    return {
        verdict.trial: verdict.model_copy(
            update={**update, "also": tuple(sorted({*verdict.also, verdict.key} - {finding.key}))}
        )
        for verdict in group.members
    }
