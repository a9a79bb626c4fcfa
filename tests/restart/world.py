"""The target of the writes: a file that every effect is appended to with fsync, so that nothing in a dead process counts it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Lines of JSON that many processes append to. A line is whole or not there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, **line: Any) -> None:
        """Append a line; it is on the disk when this returns."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def has(self, **wanted: Any) -> bool:
        """Return whether some line says all of this."""
        return any(wanted.items() <= line.items() for line in self.lines())
