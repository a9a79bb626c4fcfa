"""How a record stands in a table: a column for each field, JSON as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from langgraph_handoff.ledger.base import FIELDS, WriteRecord, storable

__all__ = ("as_record", "column")

_JSON: Final = frozenset({"args", "result"})
"""Text rather than a database's own JSON, which may refuse NUL or spell numbers in its own way."""


def column(name: str, value: Any) -> Any:
    """Return a field's value as its column holds it."""
    return value if value is None or name not in _JSON else storable(json.dumps(value, ensure_ascii=False))


def as_record(row: Sequence[Any]) -> WriteRecord:
    """Return the record of a row whose columns are `FIELDS`."""
    values = dict(zip(FIELDS, row, strict=True))
    for name in _JSON:
        values[name] = None if values[name] is None else json.loads(values[name])
    values["bare"] = bool(values["bare"])
    return WriteRecord(**values)
