"""The careful client: one way to ask GitHub for something, with PyGithub below it.

What was measured and matters here: PyGithub's own retry sends POST again after a 502 although the server stored the
first one, does not retry a 429 without Retry-After, and sleeps until a limit resets.  So it gets no retry and no
throttle, and this module decides: reads and edits are repeated, a creation never blindly, waits are bounded.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import requests
from github import Auth, Github, GithubException
from github.Repository import Repository

from d3bot import __version__
from d3bot.findings.markdown import line
from d3bot.github.place import Place
from d3bot.spec import SpecError
from d3bot.tracker.base import ExhaustedError, TrackerError

T = TypeVar("T")

PER_PAGE = 100
MAX_PAGES = 50
"""Pages of one listing; a repository with more issues of ours than 5,000 needs a person, not another page."""

_TRIES = 4
_PAUSE_S = 2.0
"""First pause after a server error; each further one is twice as long."""
_LIMIT_PAUSE_S = 60.0
"""Pause after a limit that does not say how long: GitHub asks for at least a minute."""
_LONGEST_WAIT_S = 300.0
"""All waits for limits in one run together; beyond that a later run is the better idea."""
_WRITE_GAP_S = 1.0
"""Between two writes, as GitHub asks."""
_LOOKS = 3
"""Listings after a creation of unknown outcome before it is tried again: what was stored may show late."""


class RefusedError(TrackerError):
    """GitHub answered, and the answer is no."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: GitHub answers {status}: {line(message, 200)}")
        self.status = status


class _UnknownOutcomeError(Exception):
    """A request may or may not have been carried out."""


@dataclass
class Client:
    """Requests to one repository.  `max_requests` bounds a run; `sleep` and `now` are the clock."""

    place: Place
    repo_name: str
    max_requests: int = 100
    timeout_s: int = 30
    sleep: Callable[[float], None] = lambda seconds: time.sleep(seconds)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    log: Callable[[str], None] = lambda text: None
    requests_made: int = 0
    reserved: int = 4
    """Requests kept back for letting go of the tracker at the end."""
    _waited: float = 0.0
    _wrote: bool = False
    _pages: dict[str, tuple[str, Any, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.place.token:
            raise SpecError("GITHUB_TOKEN: not given; pass the token of the job in its environment")
        self._github = Github(
            auth=Auth.Token(self.place.token),
            base_url=self.place.api_url,
            timeout=self.timeout_s,
            user_agent=f"d3bot/{__version__}",
            per_page=PER_PAGE,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
            lazy=True,
        )
        self.repo: Repository = self._github.get_repo(self.repo_name)

    def read(self, what: str, ask: Callable[[], T]) -> T:
        """Return the answer to a question; it is asked again after a failure of the server."""
        return self._repeat(what, ask)

    def write(self, what: str, act: Callable[[], T]) -> T:
        """Return the answer to an edit or a deletion, which may be repeated: twice is the same as once."""
        self._pace()
        return self._repeat(what, act)

    def create(self, what: str, post: Callable[[], T], find: Callable[[], T | None]) -> T:
        """Return what a POST created.  It is sent again only after `find` did not see it in several listings."""
        for attempt in range(2):
            self._pace()
            try:
                return self._limited(what, post)
            except _UnknownOutcomeError as error:
                self.log(f"{what}: {error}; looking whether it was done")
                for look in range(_LOOKS):
                    self.sleep(_PAUSE_S * 2**look)
                    found = find()
                    if found is not None:
                        return found
                if attempt:
                    raise TrackerError(f"{what}: {error}; not found afterwards, the next run looks again") from error
        raise AssertionError("unreachable")

    def pages(self, path: str, parameters: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
        """Yield the pages of a listing, from the first; what did not change since it was last read costs no limit."""
        for number in range(1, MAX_PAGES + 1):
            given = {**parameters, "per_page": PER_PAGE, "page": number}
            rows, more = self.read(f"listing {path}", lambda given=given: self._page(path, given))  # type: ignore[misc]
            yield rows
            if not more:
                return
        raise TrackerError(f"listing {path}: more than {MAX_PAGES * PER_PAGE} entries; close or relabel old ones")

    def get(self, path: str) -> dict[str, Any]:
        """Return one object below the repository; RefusedError with the status if there is none."""

        def ask() -> dict[str, Any]:
            _, data = self.repo.requester.requestJsonAndCheck("GET", f"{self.repo.url}{path}")
            return data if isinstance(data, dict) else {}

        return self.read(f"reading {path}", ask)

    def _page(self, path: str, parameters: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        name = json.dumps([path, dict(parameters)], sort_keys=True)
        known = self._pages.get(name)
        headers = {"If-None-Match": known[0]} if known else {}
        requester = self.repo.requester
        status, answer, text = requester.requestJson("GET", f"{self.repo.url}{path}", dict(parameters), headers)
        if status == 304 and known:
            return known[1], known[2]
        try:
            data = json.loads(text) if text else None
        except ValueError as error:
            raise _UnknownOutcomeError("the answer is no JSON") from error
        if status >= 400:
            raise requester.createException(status, answer, data if isinstance(data, dict) else {})
        if not isinstance(data, list):
            raise _UnknownOutcomeError("the answer is no list")
        more = 'rel="next"' in answer.get("link", "")
        if answer.get("etag"):
            self._pages[name] = (answer["etag"], data, more)
        return data, more

    def _repeat(self, what: str, act: Callable[[], T]) -> T:
        for attempt in range(_TRIES):
            try:
                return self._limited(what, act)
            except _UnknownOutcomeError as error:
                if attempt == _TRIES - 1:
                    raise ExhaustedError(f"{what}: {error}, {_TRIES} times; the next run tries again") from error
                self.log(f"{what}: {error}; asking again")
                self.sleep(_PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")

    def _limited(self, what: str, act: Callable[[], T]) -> T:
        """Carry a request out, waiting where GitHub says so: a request that a limit stopped was not carried out."""
        while True:
            if self.requests_made >= self.max_requests - self.reserved:
                raise ExhaustedError(
                    f"{what}: the {self.max_requests} requests of this run are spent; the next one goes on"
                )
            self.requests_made += 1
            try:
                return act()
            except GithubException as error:
                pause = self._limit(error)
                if pause is None:
                    if error.status >= 500 or error.status == 408:
                        raise _UnknownOutcomeError(f"GitHub answers {error.status}") from error
                    raise RefusedError(what, error.status, _message(error)) from error
                if self._waited + pause > _LONGEST_WAIT_S:
                    raise ExhaustedError(
                        f"{what}: GitHub's limit asks for {pause:.0f} s more; the next run goes on"
                    ) from error
                self.log(f"{what}: GitHub's limit, waiting {pause:.0f} s")
                self._waited += pause
                self.sleep(pause)
            except requests.exceptions.RequestException as error:
                raise _UnknownOutcomeError(f"no answer ({type(error).__name__})") from error

    def _limit(self, error: GithubException) -> float | None:
        """Return how many seconds to wait if a limit stopped the request; None if something else did."""
        headers = {name.lower(): str(value) for name, value in (error.headers or {}).items()}
        spent = headers.get("x-ratelimit-remaining") == "0"
        after = headers.get("retry-after", "")
        said = "rate limit" in _message(error).lower() or "abuse" in _message(error).lower()
        if error.status != 429 and not (error.status == 403 and (spent or after or said)):
            return None
        if after.isdecimal():
            return max(1.0, float(after))
        if after:
            try:
                return max(1.0, (parsedate_to_datetime(after) - self.now()).total_seconds())
            except (TypeError, ValueError):
                return _LIMIT_PAUSE_S
        reset = headers.get("x-ratelimit-reset", "")
        if spent and reset.isdecimal():
            return max(1.0, float(reset) - self.now().timestamp())
        return _LIMIT_PAUSE_S

    def _pace(self) -> None:
        if self._wrote:
            self.sleep(_WRITE_GAP_S)
        self._wrote = True


def _message(error: GithubException) -> str:
    data = error.data
    message = data.get("message", "") if isinstance(data, dict) else data
    return str(message or error.message or "")
