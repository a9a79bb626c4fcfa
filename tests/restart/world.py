"""The target of the writes, and other journals: files that processes append to, so that nothing in a dead process counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Lines of JSON that many processes append to. A line is whole or not there, whenever its process is killed."""

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self.path, self.durable = path, durable

    def add(self, **line: Any) -> None:
        """Append a line; of a durable journal it is on the disk when this returns."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, (json.dumps(line) + "\n").encode())
            if self.durable:
                os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def has(self, **wanted: Any) -> bool:
        """Return whether some line says all of this."""
        return any(wanted.items() <= line.items() for line in self.lines())
