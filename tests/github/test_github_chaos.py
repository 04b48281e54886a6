"""Two hundred nights of everything at once: faults of every kind, two filers, people who close and comment."""

import json
import os
import random
import threading
from collections import Counter
from datetime import timedelta

from d3bot.config import TrackerConfig
from d3bot.findings.lifecycle import infrastructure_key, overflow_key
from d3bot.github.body import key_in, record_in
from d3bot.github.tracker import GitHubTracker, Naming
from d3bot.tracker.filing import file_run
from tests.github.nights import failing, night
from tests.github.proxy import Chaos

NIGHTS = int(os.environ.get("D3BOT_TEST_CHAOS_NIGHTS", "20"))
"""20 in CI; 200 by hand."""

POLICY = TrackerConfig().policy()
FAMILIES = ("ddp", "tp", "pp", "fsdp2", "fsdp1", "zero1")
KINDS = ("diverged", "nonfinite", "crashed")


def test_nights_of_chaos_lose_nothing_double_nothing_and_hold_every_cap(hub, tmp_path):
    chance = random.Random(20261130)
    findings = [failing(f"n{i}", KINDS[i % 3], FAMILIES[i % 6]) for i in range(30)]
    hub.proxy.chaos = Chaos(random.Random(7), 0.12)
    silenced: set[str] = set()
    undone = 0
    for number in range(1, NIGHTS + 1):
        seen = chance.sample(findings, chance.randint(0, 9))
        started = hub.clock.now()
        # Two filers at once: a night whose workflow was started by hand as well.
        folders = [night(tmp_path / name, number, started, seen) for name in ("a", "b")]
        clients = [hub.client() for _ in folders]
        before = Counter(hub.proxy.requests)

        def filing(folder, client, now=started, number=number):
            file_run(folder, GitHubTracker(client, Naming(), f"r{number}{folder.parent.name}"), now, policy=POLICY)

        threads = [threading.Thread(target=filing, args=pair) for pair in zip(folders, clients, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = Counter(hub.proxy.requests) - before
        assert all(client.requests_made <= 100 for client in clients)
        assert sum(made.values()) == sum(client.requests_made for client in clients)
        assert made[("POST", f"/repos/{hub.repo}/issues")] <= 2 * (POLICY.per_run + 3)
        failed = []
        for folder in folders:
            rows = json.loads((folder / "decisions.json").read_text())["decisions"]
            assert {each.key for each in seen} <= {row["key"] for row in rows}
            assert all(row["reason"] for row in rows)
            failed.append(any(row["action"] == "failed" for row in rows))
        undone += all(failed)
        if number % 7 == 0 and hub.issues():
            issue = chance.choice([each for each in hub.issues() if each["state"] == "open"] or hub.issues())
            reason = chance.choice(["completed", "not_planned"])
            hub.person("PATCH", f"/issues/{issue['number']}", {"state": "closed", "state_reason": reason})
            silenced.add(key_in(issue["body"]))
        hub.clock.moment = started + timedelta(days=1)
    assert undone <= NIGHTS // 10, f"{undone} nights of {NIGHTS} were filed by neither"
    hub.proxy.chaos = None
    # Quiet nights, so that what waited is filed and what two filers made at once is one again.
    for number in range(NIGHTS + 1, NIGHTS + 11):
        hub.clock.moment += timedelta(days=1)
        file_run(
            night(tmp_path / "c", number, hub.clock.now(), findings), hub.tracker("end"), hub.clock.now(), policy=POLICY
        )
    issues = hub.issues()
    opened = Counter(key_in(issue["body"]) for issue in issues if issue["state"] == "open")
    assert all(count == 1 for count in opened.values()), f"twice open: {opened.most_common(3)}"
    listed = {key for issue in issues if issue["state"] == "open" for key in record_in(issue["body"]).covers}
    own = {key_in(issue["body"]) for issue in issues}
    lost = {each.key for each in findings} - own - listed
    assert not lost
    assert {each.key for each in findings} - silenced <= opened.keys() | listed
    duplicates = [issue for issue in issues if record_in(issue["body"]).duplicate_of]
    assert not duplicates, f"{len(duplicates)} issues were made twice and closed again"
    assert own <= {each.key for each in findings} | {overflow_key("torch"), infrastructure_key()}
