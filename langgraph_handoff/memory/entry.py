"""What a memory holds: an entry, checked when it is made, and its stored form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self, get_args
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from langgraph_handoff.errors import EntryError
from langgraph_handoff.package import DEFAULT_MAX_BYTES, RequestedAction, Verdict, explain
from langgraph_handoff.plain import storable

__all__ = ("ENTRY_TYPES", "Entry", "EntryType", "plain_text", "stamp")

EntryType = Literal["handoff", "feedback", "trace", "fact", "lesson"]
"""A request to an agent, an answer to one, what a tool did, what is known, what was learned."""

ENTRY_TYPES: Final[tuple[EntryType, ...]] = get_args(EntryType)

_MAJOR: Final = "1"
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class Entry(BaseModel):
    """One thing that somebody said, did or learned in a case. It is never changed once it is stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry_id: _Name
    """Unique in a memory."""
    entry_type: EntryType
    case_id: _Name
    agent: _Name
    """Who says it; of a lesson, whom it concerns."""
    content: JsonValue
    """A text, or plain data; of a feedback its comments, which may be empty."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """More about it. The memory adds `to_agent` and `requested_action`, `handoff_id` and `verdict`, and `task_id`."""
    created_at: AwareDatetime
    sources: tuple[_Name, ...] = ()
    """Ids of the entries, calls or records that it rests on."""
    schema_version: str = f"{_MAJOR}.0"

    @classmethod
    def of(cls, *, entry_type: str, entry_id: str | None = None, created_at: datetime | None = None, **given: Any) -> Self:
        """Return a checked entry, with an id and a time if none are given.

        Raises:
            EntryError: If a field is missing, empty, too large or not plain JSON; the text names it.
        """
        given["content"] = _checked("content", given.get("content"))
        given["metadata"] = _checked("metadata", given.get("metadata") or {})
        made = {"entry_id": entry_id if entry_id is not None else f"{entry_type}-{uuid4().hex}"}
        try:
            entry = cls(**made, entry_type=entry_type, created_at=created_at or datetime.now(UTC), **given)  # type: ignore[arg-type]
        except ValidationError as error:
            raise EntryError(problem=explain(error)) from None
        if entry.entry_type != "feedback" and entry.content in ("", [], {}, None):
            raise EntryError(problem="content: it is empty")
        return entry

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Self:
        """Return a stored entry.

        Raises:
            EntryError: If a later release wrote it in a shape that this one does not read, or it is not an entry.
        """
        version = str(stored.get("schema_version"))
        if version.split(".", 1)[0] != _MAJOR:
            raise EntryError(problem=f"`{stored.get('entry_id')}` has schema version {version}; this code reads {_MAJOR}.x")
        try:
            return cls.model_validate({name: stored[name] for name in cls.model_fields if name in stored})
        except ValidationError as error:
            raise EntryError(problem=f"`{stored.get('entry_id')}` as it is stored: {explain(error)}") from None

    def dump(self) -> dict[str, Any]:
        """Return the stored form, plain JSON."""
        return {**self.model_dump(mode="json"), "created_at": stamp(self.created_at)}

    def says(self) -> dict[str, Any]:
        """Return what makes it this entry and no other: everything but the time."""
        return {name: value for name, value in self.dump().items() if name not in ("created_at", "schema_version")}

    @property
    def text(self) -> str:
        """The content as a person reads it."""
        return plain_text(self.content)

    @property
    def to_agent(self) -> str | None:
        """Of a handoff: to whom."""
        return self._named("to_agent")

    @property
    def task_id(self) -> str | None:
        """The task it belongs to, if it was given one."""
        return self._named("task_id")

    @property
    def handoff_id(self) -> str | None:
        """Of a feedback: the handoff it answers."""
        return self._named("handoff_id")

    @property
    def requested_action(self) -> RequestedAction | None:
        """Of a handoff: what its receiver is asked to do."""
        return self._named("requested_action")  # type: ignore[return-value]

    @property
    def verdict(self) -> Verdict | None:
        """Of a feedback: what it says."""
        return self._named("verdict")  # type: ignore[return-value]

    def _named(self, name: str) -> str | None:
        held = self.metadata.get(name)
        return held if isinstance(held, str) else None


def stamp(moment: datetime) -> str:
    """Return a moment as a text of fixed width, so that texts sort as the moments do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def plain_text(value: JsonValue) -> str:
    """Return plain data as lines that a person reads."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {plain_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "\n".join(f"- {plain_text(item)}" for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def _checked(name: str, value: Any) -> JsonValue:
    plain = _plain(name, value)
    size = len(json.dumps(plain, ensure_ascii=False).encode())
    if size > DEFAULT_MAX_BYTES:
        raise EntryError(problem=f"{name}: it has {size} bytes; the cap is {DEFAULT_MAX_BYTES}. Store a pointer to it instead")
    return plain


def _plain(name: str, value: Any) -> JsonValue:
    """Return plain JSON that every store takes and gives back as it was."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise EntryError(problem=f"{name}: the key {wrong!r} is not a text")
        return {storable(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise EntryError(
        problem=f"{name}: {type(value).__name__} is not plain JSON (texts, finite numbers up to 64 bits, lists, objects)"
    )
