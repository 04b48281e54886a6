"""A static package index on this machine's loopback, with small wheels of a toy library that calls itself torch.

The toy has one distributed operation, `all_reduce`, over threads of one process; from the version `broken_from` on it
returns the first rank's value times the number of ranks instead of the sum.
"""

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Literal

ANY = "py3-none-any"
ELSEWHERE = "cp39-cp39-win_amd64"
"""A tag that no machine on which these tests run can install."""

SUM = "def all_reduce(values):\n    return [sum(values)] * len(values)\n"
FIRST = "def all_reduce(values):\n    return [values[0] * len(values)] * len(values)\n"
RAISES = "def all_reduce(values):\n    raise RuntimeError('out of order')\n"


@dataclass
class ToyIndex:
    """Projects and their files; `url` ends with a slash, as the address of an index does."""

    folder: Path
    url: str = ""
    down: bool = False
    asked: list[str] = field(default_factory=list)
    _links: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, str] | None = None,
        tag: str = ANY,
        hashed: Literal["right", "wrong", "none"] = "right",
        yanked: str | None = None,
        gone: bool = False,
    ) -> Path:
        """Add a wheel; `gone` lists it without serving it."""
        path = wheel(self.folder, name, version, files or {f"{name.replace('-', '_')}/__init__.py": ""}, tag)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        digest = digest[::-1] if hashed == "wrong" else digest
        fragment = "" if hashed == "none" else f"#sha256={digest}"
        attribute = "" if yanked is None else f' data-yanked="{escape(yanked)}"'
        link = f'<a href="/files/{path.name}{fragment}"{attribute}>{path.name}</a><br>'
        self._links.setdefault(name, []).append(link)
        if gone:
            path.unlink()
        return path

    def add_torch(self, version: str, reduce: str = SUM, commit: str = "cafe1234", **options: object) -> Path:
        """Add the toy in one version; `options` are those of `add`."""
        return self.add("torch", version, toy(version, reduce, commit), **options)  # type: ignore[arg-type]

    def page(self, name: str) -> str | None:
        """Return the project's page, or None if there is no such project."""
        links = self._links.get(name)
        return None if links is None else f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"


def toy(version: str, reduce: str = SUM, commit: str = "cafe1234") -> dict[str, str]:
    """Return the files of the toy."""
    return {
        "torch/__init__.py": f"from torch import version\n__version__ = {version!r}\n{reduce}",
        "torch/version.py": f"git_version = {commit!r}\ncuda = None\n",
    }


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str], tag: str = ANY) -> Path:
    """Write a wheel that pip and uv accept; return its path."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = dict(files)
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*contents, f"{info}/RECORD"])
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in contents.items():
            archive.writestr(inside, text)
    return path


@contextmanager
def serve(folder: Path) -> Iterator[ToyIndex]:
    """Serve an empty index on a port of its own until the block ends."""
    index = ToyIndex(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            index.asked.append(self.path)
            parts = self.path.strip("/").split("/")
            body: bytes | None = None
            if parts[0] == "files" and (folder / parts[-1]).is_file():
                body = (folder / parts[-1]).read_bytes()
            elif parts[0] == "simple" and (page := index.page(parts[-1])) is not None:
                body = page.encode()
            code = 503 if index.down else 200 if body is not None else 404
            self.send_response(code)
            self.send_header("Content-Type", "text/html" if parts[0] == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body or b"") if code == 200 else 0))
            self.end_headers()
            if code == 200:
                self.wfile.write(body or b"")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
