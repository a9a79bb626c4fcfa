"""What is stored of a case: channels, their reducers, and helpers that read them.

Every reducer is a fold that goes by key, so that a write may be replayed, batched otherwise or stored twice without
changing what comes out: `fold(fold(s, xs), ys) == fold(s, xs + ys)`. `DeltaChannel` relies on that when it rebuilds a value from
stored writes. Channels hold plain JSON apart from `messages`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Self, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue
from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError, InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from typing_extensions import TypedDict

from langgraph_handoff.errors import PackageError, StateUpdateError, UnknownPackageTypeError
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.shapes import Event, Ownership, fits, problem_of, sound

__all__ = (
    "DELTA",
    "Event",
    "HandoffChannel",
    "HandoffState",
    "Ownership",
    "append_events",
    "append_messages",
    "as_messages",
    "check_update",
    "event",
    "is_user",
    "last_user_text",
    "merge_case",
    "ownership_of",
    "unanswered",
    "user_turn",
)

DELTA: Final = os.environ.get("HANDOFF_DELTA_CHANNEL", "true").lower() not in {"0", "false", "no"}
"""Whether `messages` and `events` are stored as deltas. The host calls that channel beta; the environment variable
HANDOFF_DELTA_CHANNEL=false, read at import, goes back to the ordinary reducer and reads the same threads."""

WRITTEN_BY: Final = "handoff_written_by"
"""Key in a message's `additional_kwargs`: the call whose tool wrote it."""

REMOVED_BY: Final = "handoff_removed_by"
"""Key in a `RemoveMessage`'s `additional_kwargs`: the call whose tool asks for the removal."""

SNAPSHOT_FREQUENCY: Final = 100
"""Writes of a delta channel between two whole copies in storage."""


def as_messages(written: Any) -> list[BaseMessage]:
    """Return whatever may be written to `messages` as a list of messages."""
    items = list(written) if isinstance(written, list) else [written]
    return list(convert_to_messages(items))


def _with_id(message: BaseMessage, position: int) -> BaseMessage:
    """Give an id to a message that came without; it depends on position and content only, as a replay must find it again."""
    if message.id:
        return message
    seed = f"{position}|{message.type}|{message.content!r}|{getattr(message, 'tool_call_id', '')}"
    return message.model_copy(update={"id": f"msg-{hashlib.sha256(seed.encode()).hexdigest()[:24]}"})


def append_messages(state: Sequence[BaseMessage], writes: Iterable[Any]) -> list[BaseMessage]:
    """Fold writes into the talk.

    A known id replaces its message in place. A tool result goes right behind the call that it answers, in the order of
    the calls, also when the user has said something meanwhile: providers refuse any other order. `RemoveMessage` takes a
    message out; an unknown id there is ignored, since a removal may be replayed. A removal that a tool asks for spares the
    message that called the tool: providers refuse a result without its call, and its other calls are still to be answered.
    """
    talk = list(state)
    known = {message.id: index for index, message in enumerate(talk)}
    for write in writes:
        for given in as_messages(write):
            if isinstance(given, RemoveMessage):
                spared = _turn_of(talk, given.additional_kwargs.get(REMOVED_BY))
                gone = {each.id for each in talk if given.id in (each.id, REMOVE_ALL_MESSAGES)} - spared
                talk = [each for each in talk if each.id not in gone]
                known = {message.id: index for index, message in enumerate(talk)}
                continue
            message = _with_id(given, len(talk))
            if message.id in known:
                talk[known[message.id]] = message
                continue
            place = _place(talk, message)
            talk.insert(place, message)
            if place == len(talk) - 1:
                known[message.id] = place
            else:
                known = {each.id: index for index, each in enumerate(talk)}
    return talk


def _turn_of(talk: Sequence[BaseMessage], call_id: str | None) -> set[str | None]:
    """Return the ids of the message that makes a call and of the results that it has so far."""
    for message in reversed(talk):
        calls = {call["id"] for call in message.tool_calls} if isinstance(message, AIMessage) else set()
        if call_id in calls:
            return {message.id, *(each.id for each in talk if isinstance(each, ToolMessage) and each.tool_call_id in calls)}
    return set()


def _place(talk: Sequence[BaseMessage], message: BaseMessage) -> int:
    if not isinstance(message, ToolMessage):
        return len(talk)
    for index in range(len(talk) - 1, -1, -1):
        asking = talk[index]
        if isinstance(asking, AIMessage):
            order = [call["id"] for call in asking.tool_calls]
            if message.tool_call_id in order:
                return _among_results(talk, index, order, order.index(message.tool_call_id))
    return len(talk)


def _among_results(talk: Sequence[BaseMessage], asking: int, order: Sequence[str | None], mine: int) -> int:
    place = asking + 1
    while place < len(talk):
        other = talk[place]
        if not isinstance(other, ToolMessage) or other.tool_call_id not in order:
            break
        if order.index(other.tool_call_id) > mine:
            break
        place += 1
    return place


def append_events(state: Sequence[Event], writes: Iterable[Any]) -> list[Event]:
    """Fold writes into the log; an event id that is there already is not added again, and what is no event is left out."""
    log = list(state)
    known = {event["id"] for event in log}
    for write in writes:
        for event in write if isinstance(write, list) else [write]:
            if fits("event", event) and event["id"] not in known:
                known.add(event["id"])
                log.append(event)
    return log


def merge_case(case: Mapping[str, Any] | None, write: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge a write into the case file.

    Dictionaries are merged by key, a later value wins; lists gain what they do not hold yet and lose nothing, so that a
    constraint can only be added; anything else is replaced. What has not the shape of its part is left out.
    """
    merged = sound("case", case)
    for key, value in sound("case", write).items():
        held = merged.get(key)
        if isinstance(held, dict) and isinstance(value, Mapping):
            merged[key] = {**held, **value}
        elif isinstance(value, list | tuple) and (held is None or isinstance(held, list)):
            merged[key] = list(held or [])
            merged[key] += [item for index, item in enumerate(value) if item not in merged[key] and item not in value[:index]]
        else:
            merged[key] = value
    return merged


def _append_messages(state: Sequence[BaseMessage], write: Any) -> list[BaseMessage]:
    return append_messages(state, [write])


def _append_events(state: Sequence[Event], write: Any) -> list[Event]:
    return append_events(state, [write])


class OwnershipChannel(LastValue[Ownership]):
    """Holds the ownership record: one write a step, and of that the parts that have their shape."""

    def update(self, values: Sequence[Any]) -> bool:
        """Take the step's one write."""
        return super().update([cast("Ownership", sound("ownership", each)) for each in values])


class HandoffChannel(BaseChannel[HandoffPackage | None, Any, dict[str, Any]]):
    """Holds the current package: validated on write, plain JSON in storage, a `HandoffPackage` again on read.

    It is given the package classes of the catalogue and finds the right one by its stored name. Class paths are never
    stored, so a moved module does no harm.
    """

    __slots__ = ("_types", "_value")

    def __init__(self, types: Any = (), key: str = "") -> None:
        """Make a channel for these package classes; the base class is always among them."""
        super().__init__(HandoffPackage, key)
        given = types if isinstance(types, tuple) else ()
        self._types: dict[str, type[HandoffPackage]] = {each.__name__: each for each in (HandoffPackage, *given)}
        self._value: HandoffPackage | None = None

    def __eq__(self, other: object) -> bool:
        """Channels of this class are interchangeable when a schema is added to a graph a second time."""
        return isinstance(other, HandoffChannel)

    def __hash__(self) -> int:
        """Hash by class, as equality goes by class."""
        return hash(HandoffChannel)

    @property
    def ValueType(self) -> Any:  # noqa: N802 (the host's name)
        """A package, or None while there is none."""
        return HandoffPackage | None

    @property
    def UpdateType(self) -> Any:  # noqa: N802 (the host's name)
        """A package or its stored form."""
        return HandoffPackage | dict[str, Any] | None

    def checkpoint(self) -> Any:
        """Return the stored form: a JSON dict, or None."""
        return self._value.dump() if self._value is not None else None

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a channel that holds the stored package, upcast to this release's shape.

        Raises:
            UnsupportedSchemaVersionError: If its major version is not known here.
            UnknownPackageTypeError: If no declared class has its name.
        """
        fresh = type(self)(tuple(self._types.values()), self.key)
        if isinstance(checkpoint, Mapping):
            fresh._value = self._load(checkpoint)
        return fresh

    def copy(self) -> Self:
        """Return a copy; a package is frozen, so it is shared."""
        fresh = type(self)(tuple(self._types.values()), self.key)
        fresh._value = self._value
        return fresh

    def get(self) -> HandoffPackage | None:
        """Return the package.

        Raises:
            EmptyChannelError: If there has been none.
        """
        if self._value is None:
            raise EmptyChannelError
        return self._value

    def is_available(self) -> bool:
        """Return whether there is a package."""
        return self._value is not None

    def update(self, values: Sequence[Any]) -> bool:
        """Take the step's one write.

        A package that claims to be one of ours must be valid: without it its owner may not go on. Anything else that is no
        package was written by a client, and is not taken.

        Raises:
            InvalidUpdateError: If two nodes wrote a package in one step.
            PackageError: If a stored package is not valid. The channel keeps what it had.
        """
        if not values:
            return False
        if len(values) > 1:
            raise InvalidUpdateError(f"`{self.key}` takes one package a step and was given {len(values)}.")
        try:
            self._value = self.read(values[0])
        except PackageError:
            if isinstance(values[0], Mapping) and "package_type" in values[0]:
                raise
            return False
        return True

    def read(self, value: Any) -> HandoffPackage | None:
        """Return what would be taken: a package, given as such or in its stored form, or None.

        Raises:
            PackageError: If it is not valid; the channel keeps what it had.
        """
        return value if isinstance(value, HandoffPackage) or value is None else self._load(value)

    def _load(self, stored: Any) -> HandoffPackage:
        if not isinstance(stored, Mapping):
            raise PackageError(problem=f"it is a {type(stored).__name__}, not an object")
        name = str(stored.get("package_type") or HandoffPackage.__name__)
        if name not in self._types:
            raise UnknownPackageTypeError(package=name, known=", ".join(sorted(self._types)))
        return self._types[name].load(stored)


def _messages_channel() -> Any:
    if DELTA:
        return DeltaChannel(append_messages, list, snapshot_frequency=SNAPSHOT_FREQUENCY)
    return BinaryOperatorAggregate(list, _append_messages)


def _events_channel() -> Any:
    if DELTA:
        return DeltaChannel(append_events, list, snapshot_frequency=SNAPSHOT_FREQUENCY)
    return BinaryOperatorAggregate(list, _append_events)


class HandoffState(TypedDict, total=False):
    """The state of a case. Extend it with keys of your own."""

    messages: Annotated[list[AnyMessage], _messages_channel()]
    """The talk, every agent's."""
    active_agent: str
    """Name of the owner."""
    handoff: Annotated[HandoffPackage | None, HandoffChannel()]
    """The package that the owner was given."""
    case: Annotated[dict[str, Any], merge_case]
    """The case file: ids, facts, constraints, artifacts, completed actions, open questions."""
    events: Annotated[list[Event], _events_channel()]
    """What happened."""
    ownership: Annotated[Ownership, OwnershipChannel]
    """Epoch, budget, return stack and follow-ups; written together with `active_agent`."""


def check_update(update: Mapping[str, Any]) -> None:
    """Refuse a write to state that would not be taken as it is.

    Args:
        update: Channel → value; channels that are not known here may hold anything.

    Raises:
        StateUpdateError: If a value has not the shape of its channel; the text names the wrong parts.
    """
    for channel, value in update.items():
        problem = ""
        if channel == "messages":
            problem = _no_messages(value)
        elif channel == "events":
            problem = "; ".join(
                filter(None, (problem_of("event", each) for each in (value if isinstance(value, list) else [value])))
            )
        elif channel == "ownership":
            problem = problem_of("ownership", value)
        elif channel == "case" and value is not None:
            problem = problem_of("case", value)
        elif channel == "active_agent" and not isinstance(value, str | None):
            problem = f"it is a {type(value).__name__}, not a name"
        if problem:
            raise StateUpdateError(channel=channel, problem=problem)


def _no_messages(value: Any) -> str:
    try:
        as_messages(value)
    except Exception as error:  # noqa: BLE001 (the host raises whatever its converters raise)
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return ""


def ownership_of(state: Mapping[str, Any]) -> Ownership:
    """Return the ownership record, with the counters of the present turn at zero if the user has spoken since."""
    held: Ownership = dict(state.get("ownership") or {})  # type: ignore[assignment]
    turn = user_turn(state.get("messages") or ())
    if held.get("turn") != turn:
        held["turn"], held["turn_hops"] = turn, 0
    return held


def is_user(message: BaseMessage) -> bool:
    """Return whether the user speaks; a summary, say, that a tool wrote in the user's form is not the user."""
    return message.type == "human" and WRITTEN_BY not in message.additional_kwargs


def user_turn(messages: Sequence[BaseMessage]) -> str:
    """Return the id of the user's last message, which names the present turn."""
    return next((m.id or "" for m in reversed(messages) if is_user(m)), "")


def last_user_text(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the user's last message; images and files in it are left out."""
    return next((str(m.text) for m in reversed(messages) if is_user(m)), "")


def unanswered(messages: Sequence[BaseMessage]) -> tuple[AIMessage | None, list[str]]:
    """Return the last message of an agent and the ids of its calls that have no result yet, in order."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message, [call["id"] for call in message.tool_calls if call["id"] and call["id"] not in answered]
    return None, []


def event(kind: str, agent: str, event_id: str, /, **detail: Any) -> Event:
    """Return an entry for the log.

    Args:
        kind: What happened: opened, offered, accepted, declined, returned, asked, decided, written, forbidden, ...
        agent: Whose doing it is.
        event_id: What it is about, made from checkpointed ids; together with `kind` it is the entry's id.
        detail: JSON values that say more.
    """
    return Event(id=f"{event_id}#{kind}", kind=kind, agent=agent, at=time.time(), detail=detail)
