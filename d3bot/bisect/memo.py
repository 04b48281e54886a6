"""What a bisection already knows: one JSON file, rewritten whole after every answer, so that it can be resumed."""

import json
import os
import tempfile
import threading
from pathlib import Path

from pydantic import ValidationError

from d3bot.spec import Point


class Memo:
    """Answers by build spec.  Only answers of the library are kept: what could not be had may be there next time."""

    def __init__(self, path: Path):
        """Read the file if it is there; one that cannot be read is begun anew."""
        self.path = path
        self._points: dict[str, Point] = {}
        self._lock = threading.Lock()
        try:
            data = json.loads(path.read_text())
            self._points = {spec: Point.model_validate(item) for spec, item in data.items()}
        except (OSError, ValueError, ValidationError, AttributeError):
            self._points = {}

    def get(self, spec: str) -> Point | None:
        """Return what is known of a build."""
        return self._points.get(spec)

    def put(self, point: Point) -> None:
        """Keep an answer, on disk before this returns."""
        with self._lock:
            self._points[point.spec] = point
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({spec: item.model_dump(mode="json") for spec, item in self._points.items()}, indent=1)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix=".memo-", delete=False) as file:
                file.write(text + "\n")
            os.replace(file.name, self.path)
