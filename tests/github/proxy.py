"""What stands between PyGithub and the emulator: GitHub's own rules, GitHub's bad days, and what the emulator lacks.

Every request and every reply is checked against the slice of GitHub's OpenAPI description beside this file; what does
not fit is a violation, and a test that leaves one fails.  Limits that the emulator does not hold are held here.  Times
that d3bot writes follow the test's own clock, as the emulator knows only the machine's.
"""

import hashlib
import http.client
import io
import json
import random
import re
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema_rs

from tests.github.emulator import SPARE

PREFIX = "/api/v3"
SLICE = json.loads((Path(__file__).parent / "openapi" / "slice.json").read_text())
_VALIDATORS: dict[str, Any] = {}


def _validator(schema: dict[str, Any]) -> Any:
    text = json.dumps(schema, sort_keys=True)
    if text not in _VALIDATORS:
        _VALIDATORS[text] = jsonschema_rs.validator_for(
            {**schema, "components": SLICE["components"], "$schema": "http://json-schema.org/draft-07/schema#"}
            if "$ref" not in schema
            else {"allOf": [schema], "components": SLICE["components"]}
        )
    return _VALIDATORS[text]


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path)))


OPERATIONS = [(name.split(" ")[0], _pattern(name.split(" ")[1]), data) for name, data in SLICE["operations"].items()]


@dataclass
class Fault:
    """What goes wrong with requests of a method and path, `times` times.

    `before`: 502 and nothing is done; `after`: done, then 502; `drop`: done, then the connection ends; `slow`: late;
    `limited`: 429 with Retry-After; `limited-bare`: 429 without; `secondary`: 403 that is a limit; any number: that
    status; `empty`: an empty list; `lag`: a list without what was created last.
    """

    kind: str
    method: str = "GET"
    path: str = ".*"
    times: int = 1
    seconds: float = 0.4


@dataclass
class Chaos:
    """Faults at random, from one seed."""

    random: random.Random
    share: float = 0.15

    def fault(self, method: str) -> str:
        if self.random.random() > self.share:
            return ""
        kinds = ["before", "limited", "limited-bare", "secondary", "slow"]
        kinds += ["lag"] if method == "GET" else ["after", "drop"]
        return self.random.choice(kinds)


@dataclass
class Proxy:
    """A running proxy in front of the emulator's port."""

    upstream: int = 0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    faults: list[Fault] = field(default_factory=list)
    chaos: Chaos | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    not_modified: int = 0
    forwarded: int = 0
    """Requests of the bot that the emulator saw."""
    artifacts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Run id -> artifacts: name, data, and optionally expired or `appears_after` listings."""
    uploads: Path | None = None
    """Folder of what workflows uploaded, RUN/NAME/...; those are artifacts as well."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Runs of workflows, newest first, as far as it matters; the rest is what GitHub's description asks for."""
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Pull requests, as far as it matters; the emulator wants real branches for one."""
    times: dict[str, dict[str, str]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.storage = ThreadingHTTPServer(("127.0.0.2", 0), type("Storage", (_Storage,), {"proxy": self}))
        self.storage.daemon_threads = True
        for server in (self.server, self.storage):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        for server in (self.server, self.storage):
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{PREFIX}"

    def clear(self) -> None:
        """Forget faults, counts and what belongs to one test."""
        self.faults.clear()
        self.chaos = None
        self.requests.clear()
        self.violations.clear()
        self.artifacts.clear()
        self.uploads = None
        self.runs.clear()
        self.pulls.clear()
        self.times.clear()
        self.not_modified = 0
        self.now = lambda: datetime.now(UTC)

    def take_uploads(self, run: int) -> None:
        """Make artifacts of the folders that a run uploaded."""
        folders = (
            sorted((self.uploads / str(run)).iterdir()) if self.uploads and (self.uploads / str(run)).is_dir() else []
        )
        for number, folder in enumerate(folders):
            item = {"id": 1000 * run + number, "name": folder.name, "data": packed(folder)}
            kept = [each for each in self.artifacts.get(run, []) if each["name"] != folder.name]
            self.artifacts[run] = [*kept, item]

    def token(self) -> str:
        """Return the token that stands for the bot's: another one before the emulator's limit is reached."""
        with self.lock:
            self.forwarded += 1
            return SPARE[self.forwarded // 4_000 % len(SPARE)]

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method == method and re.search(fault.path, path):
                    fault.times -= 1
                    return fault
            kind = self.chaos.fault(method) if self.chaos else ""
        return Fault(kind, method, seconds=0.01) if kind else None


class _Storage(BaseHTTPRequestHandler):
    """Where artifacts lie: another host, which must never see the token."""

    proxy: Proxy

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if "Authorization" in self.headers:
            self.proxy.violations.append("the token was sent to the host that stores artifacts")
        number = int(self.path.strip("/"))
        data = next(a["data"] for each in self.proxy.artifacts.values() for a in each if a["id"] == number)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PATCH = do_DELETE = do_PUT = do_GET  # noqa: N815  # the names that http.server calls

    def _serve(self) -> None:
        proxy = self.proxy
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        path = parts.path.removeprefix(PREFIX)
        with proxy.lock:
            proxy.requests.append((self.command, path))
        if not parts.path.startswith(PREFIX):
            proxy.violations.append(f"{self.command} {self.path}: not below the API's own address")
        if not self.headers.get("Authorization", "").startswith("token "):
            proxy.violations.append(f"{self.command} {path}: without the token")
        body = json.loads(raw) if raw else None
        operation = self._checked(path, dict(parse_qsl(parts.query, keep_blank_values=True)), body)
        fault = proxy.fault_for(self.command, path)
        kind = fault.kind if fault else ""
        if kind == "slow" and fault:
            time.sleep(fault.seconds)
        if kind == "before":
            return self._reply(502, {"message": "Server Error"})
        if kind in ("limited", "limited-bare"):
            more = {"Retry-After": "2"} if kind == "limited" else {}
            return self._reply(429, {"message": "Too many requests"}, more)
        if kind == "secondary":
            return self._reply(403, {"message": "You have exceeded a secondary rate limit."}, {"Retry-After": "3"})
        if kind.isdecimal():
            return self._reply(int(kind), {"message": "Resource not accessible by integration"})
        refused = _beyond_limits(path, body)
        if refused:
            return self._reply(422, {"message": "Validation Failed", "errors": [{"message": refused}]})
        status, headers, data = self._answer(operation, path, parts.query, raw, body)
        if kind == "empty":
            data = []
        if kind == "lag" and isinstance(data, list):
            newest = max((row["number"] for row in data if "number" in row), default=0)
            data = [row for row in data if row.get("number") != newest]
        if operation is not None:
            self._check_reply(operation, path, status, data)
        if kind == "after":
            return self._reply(502, {"message": "Server Error"})
        if kind == "drop":
            self.close_connection = True
            return None
        return self._reply(status, data, headers)

    def _answer(
        self, operation: dict[str, Any] | None, path: str, query: str, raw: bytes, body: Any
    ) -> tuple[int, dict[str, str], Any]:
        own = self._own(path, dict(parse_qsl(query)))
        if own is not None:
            status, more, data = own
            schema = operation["responses"].get(str(status)) if operation and status == 200 else None
            return status, more, filled(schema, data) if schema else data
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() in ("authorization", "accept")}
        if headers.get("Authorization") == "token bot-token":
            headers["Authorization"] = f"token {self.proxy.token()}"
        with self.proxy.lock:
            connection.request(self.command, f"{path}?{query}" if query else path, raw or None, headers)
            answer = connection.getresponse()
            text = answer.read()
            data = json.loads(text) if text else None
            self._set_times(path, body, data)
        connection.close()
        link = {"Link": answer.headers["Link"]} if answer.headers.get("Link") else {}
        return answer.status, link, self._timed(_mended(data))

    def _own(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], Any] | None:
        """Answer what the emulator lacks: artifacts, runs of workflows, pull requests from forks."""
        proxy = self.proxy
        if match := re.search(r"/actions/runs/(\d+)/artifacts$", path):
            proxy.take_uploads(int(match[1]))
            rows = []
            for item in proxy.artifacts.get(int(match[1]), []):
                item["appears_after"] = item.get("appears_after", 0) - 1
                if item["appears_after"] < 0:
                    rows.append(_artifact(item, proxy.url))
            return 200, {}, {"total_count": len(rows), "artifacts": rows}
        if match := re.search(r"/actions/artifacts/(\d+)/zip$", path):
            item = next((a for each in proxy.artifacts.values() for a in each if a["id"] == int(match[1])), None)
            if item is None or item.get("expired"):
                return 410 if item else 404, {}, {"message": "Gone"}
            if item.get("missing", 0) > 0:
                item["missing"] -= 1
                return 404, {}, {"message": "Not Found"}
            port = proxy.storage.server_address[1]
            return 302, {"Location": f"http://127.0.0.2:{port}/{match[1]}"}, None
        if re.search(r"/actions/workflows/[^/]+/runs$", path):
            wanted = {name: query[name] for name in ("event", "branch") if name in query}
            rows = [
                run
                for run in proxy.runs
                if all(run.get(n if n == "event" else "head_branch") == v for n, v in wanted.items())
            ]
            if query.get("status") == "success":
                rows = [run for run in rows if run["conclusion"] == "success"]
            return 200, {}, {"total_count": len(rows), "workflow_runs": rows}
        if match := re.search(r"/pulls/(\d+)$", path):
            pull = proxy.pulls.get(int(match[1]))
            return (200, {}, pull) if pull else (404, {}, {"message": "Not Found"})
        if path.endswith("/pulls"):
            return 200, {}, [p for p in proxy.pulls.values() if query.get("head") in (None, p["head"]["label"])]
        return None

    def _checked(self, path: str, query: dict[str, str], body: Any) -> dict[str, Any] | None:
        """Check a request and return its operation."""
        where = f"{self.command} {path}"
        for method, pattern, operation in OPERATIONS:
            match = pattern.fullmatch(path)
            if method != self.command or not match:
                continue
            for kind, given in (("path", match.groupdict()), ("query", query)):
                for name, text in given.items():
                    if name not in operation[kind]:
                        self.proxy.violations.append(f"{where}: there is no parameter {name}")
                    elif not any(
                        _validator(operation[kind][name]).is_valid(value) for value in _readings(unquote(text))
                    ):
                        self.proxy.violations.append(f"{where}: {name}={text} does not fit")
            if operation["request"] is not None and body is not None:
                self._check(f"{where} request", operation["request"], body)
            elif body is not None:
                self.proxy.violations.append(f"{where}: takes no body")
            return operation
        self.proxy.violations.append(f"{where}: not among the operations of the slice")
        return None

    def _check_reply(self, operation: dict[str, Any], path: str, status: int, data: Any) -> None:
        schema = operation["responses"].get(str(status))
        if schema is not None and status < 400:
            self._check(f"{self.command} {path} reply {status}", schema, data)

    def _check(self, where: str, schema: dict[str, Any], data: Any) -> None:
        error = next(_validator(schema).iter_errors(data), None)
        if error is not None:
            self.proxy.violations.append(f"{where}: {error.message[:300]} at {list(error.instance_path)}")

    def _reply(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        text = b"" if data is None else json.dumps(data).encode()
        tag = f'"{hashlib.sha256(text).hexdigest()[:20]}"'
        if status == 200 and self.command == "GET" and self.headers.get("If-None-Match") == tag:
            self.proxy.not_modified += 1
            status, text = 304, b""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status in (200, 304):
            self.send_header("ETag", tag)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _set_times(self, path: str, body: Any, data: Any) -> None:
        """Remember when a write happened by the test's clock."""
        if self.command not in ("POST", "PATCH") or not isinstance(data, dict) or "url" not in data:
            return
        moment = f"{self.proxy.now():%Y-%m-%dT%H:%M:%SZ}"
        known = self.proxy.times.setdefault(_name(data["url"]), {})
        if self.command == "POST":
            known["created_at"] = moment
        known["updated_at"] = moment
        if isinstance(body, dict) and body.get("state") == "closed":
            known["closed_at"] = moment
        if "/comments" in path:
            self.proxy.times.setdefault(_name(path.rsplit("/comments", 1)[0]), {})["updated_at"] = moment

    def _timed(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._timed(row) for row in data]
        if isinstance(data, dict) and isinstance(data.get("url"), str):
            known = self.proxy.times.get(_name(data["url"]), {})
            return {
                **data,
                **{n: v for n, v in known.items() if n in data and (n != "closed_at" or data.get("state") == "closed")},
            }
        return data


def packed(folder: Path) -> bytes:
    """Return a folder as upload-artifact packs it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return data.getvalue()


def filled(schema: dict[str, Any], given: Any = None) -> Any:
    """Return what is given with all that GitHub's description requires beside it, each as plain as it may be."""
    if "$ref" in schema:
        return filled(SLICE["components"]["schemas"][schema["$ref"].rpartition("/")[2]], given)
    for part in schema.get("allOf", ()):
        given = filled(part, given)
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    if options:
        nothing = given is None and any(option.get("type") == "null" for option in options)
        return None if nothing else filled(options[0], given)
    if isinstance(given, list) and "items" in schema:
        return [filled(schema["items"], each) for each in given]
    if schema.get("type") == "object" or "properties" in schema:
        told = {} if given is None else given
        parts = schema.get("properties", {})
        wanted = {name: filled(parts[name], told.get(name)) for name in schema.get("required", ()) if name in parts}
        return told | wanted | {name: filled(parts[name], told[name]) for name in told if name in parts}
    if given is not None:
        return given
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("format") in _TEXTS:
        return _TEXTS[schema["format"]]
    return {"string": "x", "integer": 0, "number": 0, "boolean": False, "array": []}.get(schema.get("type", ""))


_TEXTS = {"date-time": "2026-01-01T00:00:00Z", "uri": "http://127.0.0.1/x", "email": "x@example.org"}


def _name(url: str) -> str:
    return url[url.index("/repos/") :] if "/repos/" in url else url


def _readings(text: str) -> list[Any]:
    return [text, int(text)] if text.isdecimal() else [text, text == "true"]


def _beyond_limits(path: str, body: Any) -> str:
    """Return which of GitHub's limits a request breaks; empty if none."""
    if not isinstance(body, dict):
        return ""
    if re.search(r"/(issues|comments)(/\d+)?$", path):
        if len(body.get("body") or "") > 65_536:
            return "body is too long (maximum is 65536 characters)"
        if len(body.get("title") or "") > 256:
            return "title is too long (maximum is 256 characters)"
    if "/check-runs" in path:
        output = body.get("output") or {}
        if len(output.get("annotations") or []) > 50:
            return "annotations exceeds a maximum quantity of 50"
        if any(len(output.get(name) or "") > 65_535 for name in ("summary", "text")):
            return "summary is too long"
    if "/labels" in path and len(body.get("description") or "") > 100:
        return "description is too long (maximum is 100 characters)"
    return ""


def _mended(data: Any) -> Any:
    """Return a reply without the emulator's own departures from GitHub's description."""
    if isinstance(data, list):
        # GitHub knows no event "opened".
        return [_mended(row) for row in data if not (isinstance(row, dict) and row.get("event") == "opened")]
    if isinstance(data, dict):
        if "commit_id" in data and "event" in data:
            data = {n: v for n, v in data.items() if v is not None or n.startswith("commit_")}
            data = {**data, "performed_via_github_app": None}
            data.pop("issue", None)
        if "role_name" in data and isinstance(data.get("user"), dict):
            data = {**data, "user": {**data["user"], "role_name": data["role_name"]}}
        if "annotations_count" in data:
            data = {**data, "annotations_url": "http://127.0.0.1/annotations"}
        return {name: _mended(value) for name, value in data.items()}
    if isinstance(data, str) and data.startswith("http") and " " not in data:
        return data.replace("[bot]", "%5Bbot%5D")
    return data


def _artifact(item: dict[str, Any], url: str) -> dict[str, Any]:
    day = datetime.now(UTC)
    return {
        "id": item["id"],
        "node_id": "A",
        "name": item["name"],
        "size_in_bytes": len(item["data"]),
        "url": f"{url}/artifacts/{item['id']}",
        "archive_download_url": f"{url}/artifacts/{item['id']}/zip",
        "expired": bool(item.get("expired")),
        "created_at": f"{day:%Y-%m-%dT%H:%M:%SZ}",
        "expires_at": f"{day + timedelta(days=9):%Y-%m-%dT%H:%M:%SZ}",
        "updated_at": f"{day:%Y-%m-%dT%H:%M:%SZ}",
    }
