"""The front door: a builder that compiles with storage, a compiled graph that checks every run, and how to answer it."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeGuard, cast, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt, Send, StateSnapshot, StateUpdate

from langgraph_handoff.agents import Catalog
from langgraph_handoff.beside import abeside, achosen_ledger, beside, chosen_ledger
from langgraph_handoff.desk import LEDGER_KEY, Desk
from langgraph_handoff.errors import (
    CatalogError,
    CheckpointerMissingError,
    DurabilityError,
    NoOpenRequestError,
    RolledBackError,
    StaleRequestError,
)
from langgraph_handoff.ledger import Ledger, WriteRecord
from langgraph_handoff.state import HandoffChannel, as_messages, check_update
from langgraph_handoff.trace import interrupts_in

if TYPE_CHECKING:
    from langgraph_handoff.storage import Storage

__all__ = ("Answer", "CompiledHandoffGraph", "HandoffGraph", "adecide", "decide")

Answer = Literal["approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"]
"""What a person may decide; the last three are about a write of unknown outcome."""


_INTERRUPT_ID: Final = re.compile(r"[0-9a-f]{32}")
_LONGEST_THREAD_ID: Final = 512
_COORDINATES: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map")
"""Keys by which a call says that it means checkpoints of its own, not those of the node around it."""


class HandoffGraph(StateGraph[Any, Any, Any, Any]):
    """A `StateGraph` that compiles with storage and a ledger. Its nodes come from `add_handoffs`."""

    desk: Desk | None = None

    def compile(
        self,
        checkpointer: Any = None,
        *,
        storage: Storage | None = None,
        ledger: Ledger | None = None,
        store: Any = None,
        **kwargs: Any,
    ) -> CompiledHandoffGraph:
        """Compile the graph.

        Args:
            checkpointer: As in the host.
            storage: What `connect` returned: checkpointer, store and ledger in one.
            ledger: The write ledger. Without one, the ledger that belongs to a known checkpointer is taken, or the one
                that HANDOFF_LEDGER_URL names.
            store: As in the host.
            kwargs: The host's other keywords.

        Raises:
            CatalogError: If the builder has no agents.
            CheckpointerMissingError: If a graph that asks people is given `checkpointer=False`.
        """
        if storage is not None:
            checkpointer = checkpointer if checkpointer is not None else storage.checkpointer
            store = store if store is not None else storage.store
            ledger = ledger if ledger is not None else storage.ledger
        if self.desk is None:
            raise CatalogError(problem="the builder has no agents; call `add_handoffs` on it first")
        if checkpointer is False and self.desk.catalog.asks_people:  # whoever asks would not find its place again
            raise CheckpointerMissingError
        compiled = super().compile(checkpointer, store=store, **kwargs)
        return CompiledHandoffGraph(desk=self.desk, ledger=ledger, **compiled.__dict__)


class CompiledHandoffGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph with a front door: every run goes through `stream` or `astream`, which check it first."""

    def __init__(self, *, desk: Desk, ledger: Ledger | None = None, **kwargs: Any) -> None:
        """Take over a compiled graph's attributes; see `HandoffGraph.compile`."""
        super().__init__(**kwargs)
        self.desk = desk
        self.ledger = ledger

    @property
    def catalog(self) -> Catalog:
        """The agents, people and edges of this graph."""
        return self.desk.catalog

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the graph as the host does, behind the front door's checks.

        Raises:
            CheckpointerMissingError: If the graph asks people and has nothing to wait with.
            DurabilityError: If an approved write could be repeated after a crash.
            NoOpenRequestError: If an answer comes and nothing was asked.
            RolledBackError: If the thread's checkpoints are older than its last privileged write.
            StaleRequestError: If an answer names a request that is not open.
            StateUpdateError: If the input writes something to state that would not be taken.
            ThreadBusyError: If another run works on the thread. Nothing was stored.
        """
        config = self._checked(config)
        if not _is_nested(config.get("configurable") or {}):
            self._check_written(input)
        saver = self._saver(config)
        near = beside(saver)
        ledger = chosen_ledger(self._own_ledger(config), near)
        thread_id = _own_thread(config)
        with near.leases.hold(thread_id) if near and thread_id else nullcontext():
            if self._watches(ledger) and saver and thread_id and (known := ledger.latest_checkpoint(thread_id)):
                stored = saver.get_tuple(_latest(config))
                if _is_older(stored, known):
                    self._not_older(stored, ledger.records(thread_id=thread_id), thread_id, ledger)
            # Only what is asked is needed here; `get_state` would build the whole talk as well.
            asked = interrupts_in(saver.get_tuple(config)) if saver and self._resumes(input, config) else None
            prepared, kwargs = self._prepared(input, config, asked, saver, kwargs)
            yield from super().stream(prepared, _with_ledger(config, ledger), **kwargs)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Run the graph as the host does, behind the front door's checks; see `stream` for what it raises."""
        config = self._checked(config)
        if not _is_nested(config.get("configurable") or {}):
            self._check_written(input)
        saver = self._saver(config)
        near = await abeside(saver)
        ledger = await achosen_ledger(self._own_ledger(config), near)
        thread_id = _own_thread(config)
        async with near.leases.ahold(thread_id) if near and thread_id else nullcontext():
            if self._watches(ledger) and saver and thread_id and (known := await ledger.alatest_checkpoint(thread_id)):
                stored = await saver.aget_tuple(_latest(config))
                if _is_older(stored, known):
                    self._not_older(stored, await ledger.arecords(thread_id=thread_id), thread_id, ledger)
            asked = interrupts_in(await saver.aget_tuple(config)) if saver and self._resumes(input, config) else None
            prepared, kwargs = self._prepared(input, config, asked, saver, kwargs)
            async for chunk in super().astream(prepared, _with_ledger(config, ledger), **kwargs):
                yield chunk

    def _saver(self, config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
        """Return what stores this run: the saver that an outer graph or a server hands down, else the graph's own."""
        if self.checkpointer is False:
            return None
        handed_down = [each for each in (config.get("configurable") or {}).values() if isinstance(each, BaseCheckpointSaver)]
        saver = handed_down[0] if handed_down else self.checkpointer
        return saver if isinstance(saver, BaseCheckpointSaver) else None

    def _own_ledger(self, config: RunnableConfig) -> Ledger | None:
        """Return the graph's own ledger, else the one that an outer graph hands down."""
        handed_down = (config.get("configurable") or {}).get(LEDGER_KEY)
        return self.ledger or (handed_down if isinstance(handed_down, Ledger) else None)

    def _not_older(self, stored: CheckpointTuple | None, rows: Sequence[WriteRecord], thread_id: str, ledger: Ledger) -> None:
        """Refuse checkpoints that end before what the ledger has seen of them; other tenants' threads may have the same name.

        Raises:
            RolledBackError: If the thread has no checkpoint from the time of its last privileged write, or later.
        """
        seen = [each.checkpoint_id for each in rows if each.tenant == self.desk.rules.tenant and each.checkpoint_id]
        known = max(seen, default="")
        if _is_older(stored, known):
            found = stored.checkpoint["id"] if stored else "nothing"
            raise RolledBackError(thread_id=thread_id, known=known, found=found, location=ledger.location)

    def bulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        """Update state as the host does, if it is an update that the state takes; `update_state` comes by here too.

        Raises:
            StateUpdateError: If it is not; nothing was stored.
            PackageError: If it holds a package that is not valid; nothing was stored.
        """
        self._check_written([each.values for step in supersteps for each in step])
        return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]) -> RunnableConfig:
        """Update state as the host does, if it is an update that the state takes; see `bulk_update_state`."""
        self._check_written([each.values for step in supersteps for each in step])
        return await super().abulk_update_state(config, supersteps)

    def _check_written(self, given: Any) -> None:
        """Refuse what a client writes to state if it would not be taken: once stored it would stay."""
        for update in _updates_in(given):
            check_update(update)
            if "handoff" in update and isinstance(channel := self.channels.get("handoff"), HandoffChannel):
                channel.read(update["handoff"])

    def _checked(self, config: RunnableConfig | None) -> RunnableConfig:
        configurable = _whole(self.config, config)
        config = cast("RunnableConfig", {**(config or {}), "configurable": configurable})
        if _is_nested(configurable):
            return config
        if self.checkpointer is None and self.catalog.asks_people and LEDGER_KEY not in configurable:
            raise CheckpointerMissingError
        thread_id = configurable.get("thread_id")
        if thread_id is not None:
            text = str(thread_id)
            if not text.strip() or len(text) > _LONGEST_THREAD_ID or not text.isprintable():
                raise ValueError(f"thread_id must be 1 to {_LONGEST_THREAD_ID} printable characters, not {text[:40]!r}.")
        return config

    def _watches(self, ledger: Ledger | None) -> TypeGuard[Ledger]:
        """Return whether the ledger has a say: a graph without privileged tools does not even open it."""
        return ledger is not None and bool(self.catalog.privileges)

    def _resumes(self, input: Any, config: RunnableConfig) -> bool:
        return isinstance(input, Command) and input.resume is not None and not _is_nested(config.get("configurable") or {})

    def _prepared(
        self, input: Any, config: RunnableConfig, asked: Sequence[Interrupt] | None, saver: object, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        prepared = input
        if isinstance(input, Mapping) and input.get("messages") is not None:
            prepared = {**input, "messages": _with_ids(input["messages"])}
        elif asked is not None:
            prepared = _bound(input, asked, str((config.get("configurable") or {}).get("thread_id")))
        durability = kwargs.get("durability")
        if durability == "exit" and self.catalog.privileges:
            raise DurabilityError(durability=durability)
        if saver is not None and durability != "exit":  # within another graph too: it hands its own durability down
            kwargs = {**kwargs, "durability": "sync"}
        return prepared, kwargs


def _with_ledger(config: RunnableConfig, ledger: Ledger | None) -> RunnableConfig:
    """Hand the ledger to the nodes."""
    if ledger is None:
        return config
    return {**config, "configurable": {**(config.get("configurable") or {}), LEDGER_KEY: ledger}}


def _latest(config: RunnableConfig) -> RunnableConfig:
    """Return the address of a thread's latest checkpoint, whichever one a run begins at."""
    return {"configurable": {"thread_id": (config.get("configurable") or {}).get("thread_id"), "checkpoint_ns": ""}}


def _is_older(stored: CheckpointTuple | None, known: str) -> bool:
    """Return whether a thread's latest checkpoint is from before a known one; checkpoint ids sort by time."""
    return bool(known) and (stored is None or stored.checkpoint["id"] < known)


def _whole(bound: RunnableConfig | None, given: RunnableConfig | None) -> dict[str, Any]:
    """Return what a run can be configured with, as the host will put it together.

    What is bound to the graph (`with_config`) counts, and inside another graph's node what that node runs with, unless the
    call names a thread of its own.
    """
    named = {**((bound or {}).get("configurable") or {}), **((given or {}).get("configurable") or {})}
    if any(named.get(key) for key in _COORDINATES):
        return named
    try:
        around = get_config()
    except RuntimeError:  # no node around this call
        return named
    return {**(around.get("configurable") or {}), **named}


def _updates_in(given: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every update of state that an input, a command, or what a command sends to a node holds."""
    if isinstance(given, Command):
        yield from _updates_in([given.update, given.goto])
    elif isinstance(given, Send):
        yield from _updates_in(given.arg)
    elif isinstance(given, Mapping):
        yield given
    elif isinstance(given, list | tuple):
        if all(isinstance(each, tuple) and len(each) == 2 for each in given):  # a command's update as pairs
            given = [{key: value} for key, value in given]
        for each in given:
            yield from _updates_in(each)


def _is_nested(configurable: Mapping[str, Any]) -> bool:
    """A run inside another graph's node has that node's namespace; the outer graph's door was passed already."""
    return bool(configurable.get("checkpoint_ns"))


def _own_thread(config: RunnableConfig) -> str | None:
    """Return the thread that this run works on by itself; a nested run works under its outer run's lease."""
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    return None if thread_id is None or _is_nested(configurable) else str(thread_id)


def _with_ids(given: Any) -> Any:
    """Give an id to every message before it is stored: a delta channel replays stored writes and must find the same one."""
    return [each if each.id else each.model_copy(update={"id": str(uuid.uuid4())}) for each in as_messages(given)]


def _bound(command: Command[Any], interrupts: Sequence[Interrupt], thread_id: str) -> Command[Any]:
    """Bind an answer to the question that is open now, so that it can answer no other one.

    Raises:
        NoOpenRequestError: If nothing is asked.
        StaleRequestError: If the answer names another question.
    """
    if not interrupts:
        raise NoOpenRequestError(thread_id=thread_id)
    answer = command.resume
    opened = [each.id for each in interrupts]
    if isinstance(answer, dict) and answer and all(isinstance(key, str) and _INTERRUPT_ID.fullmatch(key) for key in answer):
        stale = [key for key in answer if key not in opened]
        if stale:
            raise StaleRequestError(
                request_id=stale[0], thread_id=thread_id, problem="it was answered or replaced", open=", ".join(opened)
            )
        return command
    if len(interrupts) > 1:
        return command
    return Command(graph=command.graph, update=command.update, goto=command.goto, resume={opened[0]: answer})


def decide(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    decision: Answer,
    *,
    by: str,
    request_id: str | None = None,
    args: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> Any:
    """Answer the open request of a case and run on.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
        decision: approve, edit, reject or respond; for an unknown outcome done, did_not_happen or abandon.
        by: Who decides; it is recorded.
        request_id: The request that was looked at; give it wherever somebody looked at a screen. None takes the one that is
            open now, so a second click would answer the next question.
        args: For an edit, all arguments as they shall run.
        message: The reason, or for respond the answer that the model gets.

    Returns:
        What `invoke` returns.

    Raises:
        NoOpenRequestError: If nothing is asked.
        StaleRequestError: If `request_id` is not an open request, or none is given and several are open.
        ValueError: If `decision` is not one of the seven words.
    """
    command = _decision(graph.get_state(config), config, decision, by, request_id, args, message)
    return graph.invoke(command, config)


async def adecide(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    decision: Answer,
    *,
    by: str,
    request_id: str | None = None,
    args: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> Any:
    """Answer the open request of a case and run on; the async twin of `decide`."""
    command = _decision(await graph.aget_state(config), config, decision, by, request_id, args, message)
    return await graph.ainvoke(command, config)


def _decision(
    snapshot: StateSnapshot,
    config: RunnableConfig,
    decision: Answer,
    by: str,
    request_id: str | None,
    args: Mapping[str, Any] | None,
    message: str | None,
) -> Command[Any]:
    thread_id = str((config.get("configurable") or {}).get("thread_id"))
    if decision not in get_args(Answer):
        raise ValueError(f"decision must be one of {', '.join(get_args(Answer))}, not {decision!r}.")
    asked = {each.value["handoff"]["request_id"]: each for each in snapshot.interrupts if _is_ours(each.value)}
    if not asked:
        raise NoOpenRequestError(thread_id=thread_id)
    problem = "it was answered or replaced"
    if request_id is None:  # in a graph around several desks more than one may be open, and only one was looked at
        request_id = next(iter(asked)) if len(asked) == 1 else None
        problem = "several are open, so name one with `request_id`"
    if request_id not in asked:
        raise StaleRequestError(request_id=request_id, thread_id=thread_id, problem=problem, open=", ".join(asked))
    chosen = asked[request_id]
    shown = chosen.value["handoff"]
    answer: dict[str, Any] = {"type": decision, "by": by, "request_id": request_id}
    if shown.get("digest"):
        answer |= {"digest": shown["digest"], "epoch": shown["epoch"]}
    if args is not None:
        tool = next((each["name"] for each in chosen.value.get("action_requests") or ()), "")
        answer["edited_action"] = {"name": tool, "args": dict(args)}
    if message is not None:
        answer["message"] = message
    return Command(resume={chosen.id: {"decisions": [answer]}})


def _is_ours(asked: Any) -> bool:
    """Return whether a question is one of ours; a tool or a node of the user's may ask questions of its own beside it."""
    about = asked.get("handoff") if isinstance(asked, Mapping) else None
    return isinstance(about, Mapping) and "request_id" in about
