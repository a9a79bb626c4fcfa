"""tools: one read, in a task of its own, by the host's ToolNode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from langchain_core.messages import AnyMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from langgraph_handoff.desk import Desk
from langgraph_handoff.state import REMOVED_BY, WRITTEN_BY, as_messages
from langgraph_handoff.steps import Effect, Steps
from langgraph_handoff.turn import refusal, result

__all__ = ("RUNTIME_KEYS", "one_result", "tools")

RUNTIME_KEYS = frozenset({"active_agent", "ownership", "handoff", "events"})
"""State that tools may read but only nodes write: a tool cannot move a case."""
_EXTRA = frozenset({"human", "system", "remove"})
"""Messages that a tool may write besides its result."""
_THEN = frozenset({"write", "transfer"})
"""Where it may go on besides the owner."""


def tools(desk: Desk, runners: Mapping[str, ToolNode], sent: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Run one call and give it exactly one result.

    Args:
        desk: What nodes share.
        runners: A ToolNode for each agent.
        sent: `{"call", "agent", "then"}`, as `Desk.dispatch` makes it. ToolNode reads the state from the channels, so
            nothing of it is copied into the checkpoint.
        config: The run's config.
    """
    call, agent = sent.get("call"), desk.catalog.owner(sent.get("agent"))
    if agent is None or not _is_call(call):  # gone meanwhile, or a client's `goto` that brings no call
        return Command(goto="intake")
    then = sent.get("then") if sent.get("then") in _THEN else agent
    runner = runners.get(agent)
    if runner is None:
        text = f"{agent} does not hold {call['name']} any more, so this call was not taken further."
        return Command(update={"messages": [refusal(call, text)]}, goto=then)
    out = yield Effect(lambda: runner.invoke([call], config), lambda: runner.ainvoke([call], config))
    message, update = one_result(call, out)
    return Command(update={**update, "messages": [*update.get("messages", []), message]}, goto=then)


def _is_call(given: Any) -> TypeGuard[ToolCall]:
    return isinstance(given, Mapping) and isinstance(given.get("args"), Mapping) and bool(given.get("name") and given.get("id"))


def one_result(call: Any, out: Any) -> tuple[ToolMessage, dict[str, Any]]:
    """Return the one result of a call, and what else its tool writes to state.

    A tool may answer with a `Command`; its update is kept, whatever form its `goto` has. Results for other calls are
    dropped, since each call has a task and a result of its own; a missing result is made.
    """
    update: dict[str, Any] = {}
    answers: list[ToolMessage] = []
    others: list[AnyMessage] = []
    for each in _outputs(out):
        written = each.update if isinstance(each, Command) else {"messages": [each]}
        if not isinstance(written, Mapping):
            continue
        for key, value in written.items():
            if key != "messages" and key not in RUNTIME_KEYS:
                update[key] = value
        for message in as_messages(written.get("messages") or []):
            if not isinstance(message, ToolMessage):
                others.append(message)  # type: ignore[arg-type]
            elif message.tool_call_id == call["id"]:
                answers.append(message)
    extra = [_marked(call, each) for each in others if each.type in _EXTRA]
    if extra:
        update["messages"] = extra
    chosen = answers[0] if answers else result(call, "Done; the tool gave no result.")
    return chosen.model_copy(update={"id": f"{call['id']}:result", "name": call["name"]}), update


def _marked(call: Any, message: Any) -> Any:
    """Say in a message that a tool wrote or removed it: it is not the user who speaks, and its own call is spared."""
    key = REMOVED_BY if isinstance(message, RemoveMessage) else WRITTEN_BY
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, key: call["id"]}})


def _outputs(out: Any) -> list[Any]:
    if isinstance(out, Mapping):
        return list(out.get("messages") or [])
    return list(out) if isinstance(out, list) else [out]
