"""The shapes of what a case's state holds, and what is left of a write that has another one.

A client may write state directly (`update_state`, `Command(update=...)`), and the host folds a stored write in again whenever
the thread is read. A fold that fails on it would close the thread for good. So what has the wrong shape is not taken; the front
door names it before anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

__all__ = ("Event", "Given", "Lender", "Ownership", "Waiting", "fits", "problem_of", "sound")

_Count = Annotated[int, Field(strict=True, ge=0, le=2**53)]
_exact: Final = with_config(ConfigDict(strict=True))


@_exact
class Event(TypedDict):
    """One thing that happened to a case."""

    id: str
    """Made from checkpointed ids only, so that a node that runs again writes the same event."""
    kind: str
    agent: str
    at: float
    """Unix seconds."""
    detail: NotRequired[dict[str, Any]]


class Lender(TypedDict):
    """An owner who gets the case back."""

    agent: str
    rule: Literal["return", "report"]


Waiting = TypedDict(
    "Waiting", {"from": str, "to": str, "tool": NotRequired[str], "content": dict[str, Any], "turn": NotRequired[str]}
)
Given = TypedDict("Given", {"from": str, "to": str, "message": str, "known": list[str], "asked": str}, total=False)


@_exact
class Ownership(TypedDict, total=False):
    """What belongs to `active_agent` and is written in the same update."""

    epoch: _Count
    """Grows by one with every change of owner."""
    hop: _Count
    """Handoffs in this case so far."""
    turn: str
    """Id of the user's message that the present turn answers."""
    turn_hops: _Count
    """Handoffs in the present turn."""
    stack: list[Lender]
    """Owners who get the case back, outermost first."""
    queue: list[Waiting]
    """Destinations that were asked for but not carried out yet."""
    given: Given
    """The last change of owner, by which a bounce is known; of a return also what was `asked`."""
    how: str
    """How the owner got the case: handoff, return or decline."""
    via: str
    """Tool over whose edge the owner got the case."""
    closed: bool


@_exact
class _Case(TypedDict, total=False):
    """The parts of the case file that the runtime reads; a user's own keys may hold anything."""

    case_id: str | None
    facts: dict[str, Any]
    artifacts: dict[str, Any]
    constraints: list[Any] | tuple[Any, ...]
    completed_actions: list[Any] | tuple[Any, ...]
    open_questions: list[Any] | tuple[Any, ...]
    refused: list[Any] | tuple[Any, ...]


_SHAPES: Final[Mapping[str, TypeAdapter[Any]]] = {
    "event": TypeAdapter(Event),
    "ownership": TypeAdapter(Ownership),
    "case": TypeAdapter(_Case),
}
Shape = Literal["event", "ownership", "case"]


def fits(shape: Shape, value: Any) -> bool:
    """Return whether a value has the shape."""
    return _SHAPES[shape].validator.isinstance_python(value)


def problem_of(shape: Shape, value: Any) -> str:
    """Return what is wrong with a value, one line per wrong part and without the value itself; empty when nothing is."""
    return "; ".join(f"{'.'.join(map(str, place)) or 'value'}: {said}" for place, said in _wrong(shape, value))


def sound(shape: Shape, value: Any) -> dict[str, Any]:
    """Return the value without the parts that have the wrong shape; empty when it is no object at all."""
    if not isinstance(value, Mapping):
        return {}
    wrong = {place[0] for place, _ in _wrong(shape, value) if place}
    return {key: item for key, item in value.items() if isinstance(key, str) and key not in wrong}


def _wrong(shape: Shape, value: Any) -> list[tuple[tuple[int | str, ...], str]]:
    try:
        _SHAPES[shape].validate_python(value)
    except ValidationError as error:
        return [(item["loc"], item["msg"]) for item in error.errors(include_url=False, include_input=False)]
    return []
