"""write: the one caller of privileged functions. One approved write, at most once, alone in its place."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import ValidationError

from langgraph_handoff.agents import Privilege
from langgraph_handoff.desk import Desk, tell
from langgraph_handoff.errors import LedgerError, WriteInProgressError, WriteNotApplied
from langgraph_handoff.gate import Asked, ledger_call, recorded, standing
from langgraph_handoff.ledger import Ledger, WriteRecord, attempt, canonical_json, owner_alive
from langgraph_handoff.nodes.tools import one_result
from langgraph_handoff.state import event, unanswered
from langgraph_handoff.steps import Effect, Steps
from langgraph_handoff.turn import next_work, refusal

__all__ = ("write",)

PROBE: Final = "probe"
"""Who approved another attempt when a tool's probe said that the write did not happen."""
_T = TypeVar("_T")


def write(desk: Desk, runners: Mapping[str, ToolNode], state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Carry out the turn's next write if the ledger says that it is approved."""
    messages: list[BaseMessage] = list(state.get("messages") or [])
    reply, open_ids = unanswered(messages)
    agent = desk.author(reply, state)
    if agent is None:
        return Command(goto="intake")
    work = next_work(reply, open_ids, desk.kinds(agent)) if reply else None
    if reply is None or work is None or work.kind != "write":
        return Command(goto=agent if reply is None else desk.dispatch(reply, open_ids, agent))
    call = work.calls[0]
    ledger = desk.ledger_of(config, call["name"])
    try:
        asked: Asked = yield from standing(desk, ledger, state, config, call, agent)
    except ValidationError:  # the stored arguments were changed; approval says so
        return Command(goto="approval")
    record = asked.record
    if record is None or record.state in ("proposed", "denied", "abandoned"):
        return Command(goto="approval")
    desk_write = _Write(desk, ledger, runners[agent], call, config)
    if record.state == "executing":
        record = yield from desk_write.orphaned(record)
    if record.state == "unknown":
        record = yield from desk_write.probed(record)
    if record.state == "unknown":
        return Command(goto="approval")
    left = [each for each in open_ids if each != call["id"]]
    if record.state == "done":
        message, update, replayed = desk_write.recorded(record), {}, True
    else:
        outcome = yield from desk_write.execute(record)
        if outcome is None:
            return Command(goto="write")  # unknown now: the next pass asks the probe, then a person
        message, update = outcome
        replayed = False
    return _done(desk, reply, left, agent, record, message, update, replayed=replayed)


def _done(
    desk: Desk,
    reply: AIMessage,
    left: list[str],
    agent: str,
    record: WriteRecord,
    message: ToolMessage,
    update: Mapping[str, Any],
    *,
    replayed: bool,
) -> Command[Any]:
    applied = message.status != "error"
    kind, detail = "written" if applied else "not_written", {"tool": record.tool, "op": record.op, "replayed": replayed}
    told = tell([event(kind, agent, record.request_id, **detail)])
    changes = {**update, "messages": [*update.get("messages", []), message], "events": told}
    if applied:
        given = ", ".join(f"{key}={value!r}" for key, value in record.args.items())
        line = f"{record.tool}({given}) -> {str(message.text)[:400]}"
        changes["case"] = {**update.get("case", {}), "completed_actions": [line]}
    return Command(update=changes, goto=desk.dispatch(reply, left, agent))


class _Write:
    """One operation of the ledger on its way to an end."""

    def __init__(self, desk: Desk, ledger: Ledger, runner: ToolNode, call: ToolCall, config: RunnableConfig) -> None:
        self.ledger, self.runner, self.call, self.config = ledger, runner, call, config
        self.privilege: Privilege = desk.catalog.privileges[call["name"]]

    def execute(self, record: WriteRecord) -> Steps:
        """Claim the operation, run the tool, record what came of it. Returns None when nobody can know."""
        with attempt() as token:
            return (yield from self._attempt(record, token))

    def _attempt(self, record: WriteRecord, token: str) -> Steps:
        try:
            begun = {"token": token, "started_at": time.time(), "checkpoint_id": _checkpoint_of(self.config, record)}
            claimed: WriteRecord = yield ledger_call(self.ledger, "move", record, "start", **begun)
        except BaseException:
            yield from self._given_back(record.op, token)
            raise
        call = self._call(claimed)
        try:
            out, cancelled = yield Effect(
                lambda: (self.runner.invoke([call], self.config), False),
                lambda: _to_the_end(self.runner.ainvoke([call], self.config)),
            )
            message, update = one_result(self.call, out)
        except WriteNotApplied as error:
            yield ledger_call(self.ledger, "move", claimed, "not_applied", error=str(error))
            return refusal(self.call, f"The write was not applied: {error}. The approval still stands."), {}
        except GraphBubbleUp:
            # The tool paused itself. Whether it did something before is not known, and running it again would guess.
            yield ledger_call(self.ledger, "move", claimed, "lose", error="the tool interrupted itself")
            return None
        except Exception as error:  # noqa: BLE001 (whatever it was, the write may have happened)
            yield ledger_call(self.ledger, "move", claimed, "lose", error=f"{type(error).__name__}: {error}"[:1000])
            return None
        except BaseException as error:  # a cancelled or interrupted process may live on, so the claim must not
            yield ledger_call(self.ledger, "move", claimed, "lose", error=f"{type(error).__name__}: {error}"[:1000])
            raise
        recorded = {"content": _plain(message.content), "status": message.status}
        yield ledger_call(self.ledger, "move", claimed, "finish", result=recorded, finished_at=time.time())
        if cancelled:  # the write is whole and recorded; whoever resumes the case gets its recorded result
            raise asyncio.CancelledError
        return self._explained(message, record), update

    def _given_back(self, op: str, token: str) -> Steps:
        """Give back a claim that was stored although the run was cancelled: the tool did not begin, and this process lives on."""
        held: WriteRecord | None = yield ledger_call(self.ledger, "get", op)
        if held is not None and held.state == "executing" and held.token == token:
            yield ledger_call(self.ledger, "move", held, "not_applied", error="cancelled before it began")

    def orphaned(self, record: WriteRecord) -> Steps:
        """Return the operation that another attempt began, as unknown if that attempt is dead.

        Raises:
            WriteInProgressError: If it is alive.
        """
        if owner_alive(record.token or ""):
            raise WriteInProgressError(op=record.op, tool=record.tool, token=record.token)
        return (yield ledger_call(self.ledger, "move", record, "lose", error="the process that carried it out died"))

    def probed(self, record: WriteRecord) -> Steps:
        """Ask the tool's probe whether an operation of unknown outcome happened."""
        probe = self.privilege.probe
        if probe is None:
            return record
        try:
            # As the tool gets them: the operation's id tells an approved repeat from the same write done before.
            args = self._call(record)["args"]
            found = yield Effect(lambda: _at_once(probe, args), lambda: _maybe_awaited(probe, args))
        except Exception:  # noqa: BLE001 (a probe that fails cannot tell)
            return record
        # Once more on the probe's word, then a person: a tool that fails every time would run without end under one approval.
        # Without the operation's id a probe cannot tell an approved repeat from the same write done before.
        blind = record.seq > 1 and not self.privilege.idempotency_key and found is not False
        if found is None or blind or (found is False and record.approver == PROBE):
            return record
        if found is False:
            return (yield ledger_call(self.ledger, "move", record, "retry", approver=PROBE, decided_at=time.time()))
        said = "The probe found that it happened." if found is True else found
        return (yield ledger_call(self.ledger, "move", record, "confirm", result=said, finished_at=time.time()))

    def recorded(self, record: WriteRecord) -> ToolMessage:
        """Return the result that was recorded, marked as such."""
        return self._explained(recorded(self.call, record), record).model_copy(
            update={"additional_kwargs": {"handoff_replayed": True}}
        )

    def _call(self, record: WriteRecord) -> ToolCall:
        """Return the call as approved: the ledger's arguments, never the state's."""
        args = dict(record.args)
        if self.privilege.idempotency_key:
            args[self.privilege.idempotency_key] = record.op
        return ToolCall(name=record.tool, args=args, id=self.call["id"], type="tool_call")

    def _explained(self, message: ToolMessage, record: WriteRecord) -> ToolMessage:
        """Say in the result when a person's edit ran instead of what the model asked for."""
        if record.decision != "edit" or not isinstance(message.content, str):
            return message
        text = f"[The reviewer changed the arguments; it ran with {record.args}. Do not call it again.]\n{message.content}"
        return message.model_copy(update={"content": text})


def _checkpoint_of(config: RunnableConfig, record: WriteRecord) -> str | None:
    """Return the outermost graph's checkpoint from which this step runs; a copy's says nothing of the thread that asked."""
    configurable = config.get("configurable") or {}
    if str(configurable.get("thread_id") or "") != record.thread_id:
        return record.checkpoint_id
    return (configurable.get("checkpoint_map") or {}).get("")


def _plain(content: Any) -> Any:
    """Return a result's content as the ledger can keep it: the write is done, so nothing about its result may fail now."""
    try:
        canonical_json(content)
    except LedgerError:
        return str(content)
    return content


async def _to_the_end(running: Awaitable[_T]) -> tuple[_T, bool]:
    """Wait for a write to end even when this task is cancelled: half a write is worse than a late one.

    Returns:
        What the write returned, and whether the task was cancelled meanwhile.
    """
    task = asyncio.ensure_future(running)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
        except Exception:  # noqa: BLE001, S110 (`result` raises it below)
            pass
    return task.result(), cancelled


def _at_once(function: Any, *args: Any) -> Any:
    """Return what a function answers at once. A sync run cannot wait for an async probe, which therefore cannot tell."""
    out = function(*args)
    if not inspect.iscoroutine(out):
        return out
    out.close()
    return None


async def _maybe_awaited(function: Any, *args: Any) -> Any:
    out = await asyncio.to_thread(function, *args)
    return await out if hasattr(out, "__await__") else out
