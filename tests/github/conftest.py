"""A GitHub for every test: a fresh repository on the emulator, behind the proxy that checks and disturbs."""

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings

from d3bot.github.client import Client
from d3bot.github.place import Place
from d3bot.github.tracker import GitHubTracker, Naming
from tests.github.emulator import Emulator
from tests.github.proxy import Proxy

settings.register_profile("d3bot", deadline=None)
settings.load_profile("d3bot")

_COUNT = itertools.count(1)


class Clock:
    """A clock that only sleeping, and the test, moves."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 11, 30, 3, 17, tzinfo=UTC)
        self.slept = 0.0

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.slept += seconds


class Hub:
    """What a test works with: a repository, the people in it, and clients of the bot."""

    def __init__(self, emulator: Emulator, proxy: Proxy, repo: str) -> None:
        self.emulator, self.proxy, self.repo = emulator, proxy, repo
        self.clock = Clock()
        proxy.now = self.clock.now

    def place(self, **facts: Any) -> Place:
        server = self.proxy.url.removesuffix("/api/v3")
        given = {"api_url": self.proxy.url, "server_url": server, "repository": self.repo, "token": "bot-token"}
        return Place(**(given | {"run_id": 7, "sha": "a" * 40} | facts))

    def client(self, **facts: Any) -> Client:
        given: dict[str, Any] = {"timeout_s": 5, "sleep": self.clock.sleep, "now": self.clock.now}
        return Client(facts.pop("place", self.place()), self.repo, **(given | facts))

    def tracker(self, run: str = "r1", naming: Naming | None = None, **facts: Any) -> GitHubTracker:
        return GitHubTracker(self.client(**facts), naming or Naming(), run)

    def issues(self) -> list[Any]:
        return self.emulator.every(f"/repos/{self.repo}/issues?state=all&sort=created&direction=asc")

    def comments(self, number: int) -> list[Any]:
        return self.emulator.every(f"/repos/{self.repo}/issues/{number}/comments")

    def person(self, method: str, path: str, data: Any = None, token: str = "owner-token") -> Any:
        """Do something as a person would, at the test's time."""
        answer = self.emulator.ask(method, f"/repos/{self.repo}{path}", data, token)
        if isinstance(answer, dict) and "url" in answer:
            moment = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"
            known = self.proxy.times.setdefault(answer["url"][answer["url"].index("/repos/") :], {})
            known |= {"updated_at": moment, **({"created_at": moment} if method == "POST" else {})}
            if isinstance(data, dict) and data.get("state") == "closed":
                known["closed_at"] = moment
        return answer


@pytest.fixture(scope="session")
def _machinery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Emulator, Proxy]]:
    proxy = Proxy()
    proxy.start()
    emulator = Emulator(tmp_path_factory.mktemp("emulator"), proxy.url)
    proxy.upstream = emulator.port
    yield emulator, proxy
    emulator.close()
    proxy.close()


@pytest.fixture
def hub(_machinery: tuple[Emulator, Proxy]) -> Iterator[Hub]:
    emulator, proxy = _machinery
    proxy.clear()
    made = Hub(emulator, proxy, emulator.new_repo(f"lib{os.getpid()}-{next(_COUNT)}"))
    yield made
    violations = list(dict.fromkeys(proxy.violations))
    assert not violations, "\n".join(violations[:10])


@pytest.fixture
def log() -> tuple[list[str], Callable[[str], None]]:
    lines: list[str] = []
    return lines, lines.append
