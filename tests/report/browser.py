"""Headless Chromium as a person at the page would use it, over its debugging pipe: no package, no network, no port."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")


class Browser:
    """One page.  Commands go to Chromium's file descriptor 3 and answers come from 4, each a JSON text and a NUL."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 980) -> None:
        assert CHROMIUM
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        self._numbers = itertools.count(1)
        self._rest = b""
        self.complaints: list[str] = []
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', CHROMIUM, *OPTIONS, f"--user-data-dir={folder}"],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a command of the DevTools protocol."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != number:
            self._heard(told)
        assert "error" not in told, told["error"]
        return told["result"]  # type: ignore[no-any-return]

    def open(self, address: str) -> None:
        """Go to an address and wait until it has loaded; another part of the same page is there at once."""
        if "loaderId" not in self.ask("Page.navigate", url=address):
            return
        while (told := self._next()).get("method") != "Page.loadEventFired":
            self._heard(told)

    def js(self, expression: str) -> Any:
        """Return the value of an expression, which the page's policy does not reach."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press a key; `text` is what it types."""
        codes = {"Tab": 9, "Enter": 13}
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), "text": text}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **facts)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **facts)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        for sign in text:
            self.press(sign, sign)

    def look(self, media: str = "", scheme: str = "light") -> None:
        """Show the page on a screen or on paper, to somebody who likes it light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def printed(self) -> bytes:
        """Return the page as a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium ended"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        return json.loads(first)  # type: ignore[no-any-return]

    def _heard(self, told: dict[str, Any]) -> None:
        method, params = told.get("method"), told.get("params", {})
        if method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(params))
