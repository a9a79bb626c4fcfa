"""The owner's node: build the view, ask the model, sort the reply. There is one such node for each agent, with its name."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Command, Send

from langgraph_handoff.agents import Agent
from langgraph_handoff.context import build_view
from langgraph_handoff.desk import Desk, tell
from langgraph_handoff.notebook import note_results, shown_notes
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.shapes import Waiting
from langgraph_handoff.state import Event, Ownership, event, is_user, ownership_of, unanswered
from langgraph_handoff.steps import Effect, Steps
from langgraph_handoff.tools import NOT_ALONE, REQUEST
from langgraph_handoff.turn import NOT_NOW, REFUSED, TurnPlan, is_empty, is_spent, plan_turn

__all__ = ("owner",)

_NUDGE = "Your last reply was empty. Answer the user, or call one of your tools."


def owner(desk: Desk, agent: Agent, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Take one turn."""
    messages: list[BaseMessage] = list(state.get("messages") or [])
    last, open_ids = unanswered(messages)
    if last is not None and open_ids and desk.catalog.owner(last.name) == agent.name:  # a run was killed in the middle of a turn
        return Command(goto=desk.dispatch(last, open_ids, agent.name))
    direct = _direct_answer(desk, agent.name, messages)
    if direct is not None:
        return _answered(desk, agent.name, state, [direct], [])
    if _exhausted(desk, agent.name, messages):
        spoken = _reply(desk.rules.fallback, agent.name)
        gave_up = event("gave_up", agent.name, spoken.id or "", strikes=desk.strikes(agent.name, messages))
        return _answered(desk, agent.name, state, [spoken], [gave_up])
    held = desk.holds(agent.name, state)
    errand = _errand(desk, agent.name, state, last)
    if errand is not None:
        return _carried_out(desk, agent.name, state, plan_turn(errand, held, used_ids=_used_ids(messages)))
    yield from note_results(desk, state, config)
    remembered = yield from shown_notes(desk, agent.name, state, config)
    view = _view(desk, agent, state, remembered)
    if agent.graph is not None:
        return (yield from _own_graph(desk, agent, state, view, config))
    model = desk.model(agent.name, held)
    reply: AIMessage = yield Effect(lambda: model.invoke(view, config), lambda: model.ainvoke(view, config))
    if is_empty(reply):
        again = [*view, HumanMessage(_NUDGE)]
        reply = yield Effect(lambda: model.invoke(again, config), lambda: model.ainvoke(again, config))
    if is_empty(reply):
        reply = reply.model_copy(update={"content": desk.rules.fallback})
    if any(message.id == reply.id for message in messages):  # a known id would replace its message in the talk
        reply = reply.model_copy(update={"id": None})
    plan = plan_turn(_named(reply, agent.name), held, used_ids=_used_ids(messages))
    return _carried_out(desk, agent.name, state, plan)


def _errand(desk: Desk, agent: str, state: Mapping[str, Any], last: AIMessage | None) -> AIMessage | None:
    """Return the lender's next errand as a reply, when the one before has just come back: its model asked for both at once."""
    ownership = ownership_of(state)
    if ownership.get("how") != "return" or last is None or last.name == agent:
        return None
    asked = desk.errand(agent, ownership)
    return AIMessage("", name=agent, tool_calls=[asked], id=f"{last.id}:errand") if asked else None


def _used_ids(messages: Sequence[BaseMessage]) -> set[str]:
    return {str(call["id"]) for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}


def _view(desk: Desk, agent: Agent, state: Mapping[str, Any], remembered: Sequence[str]) -> list[BaseMessage]:
    spent = desk.budget_spent(agent.name, state)
    package = state.get("handoff")
    edge = None
    if isinstance(package, HandoffPackage) and package.to_agent == agent.name:
        via = (state.get("ownership") or {}).get("via", "")
        edge = desk.catalog.edge_of(package.from_agent, agent.name, via)
    chosen = edge.input_filter if edge else None
    notes = [spent] if spent else []
    limit = desk.rules.max_view_tokens
    shown = build_view(agent, state, notes=notes, remembered=remembered, max_tokens=limit, input_filter=chosen, hidden=is_spent)
    return [*shown]


def _carried_out(desk: Desk, agent: str, state: Mapping[str, Any], plan: TurnPlan) -> Command[Any]:
    """Turn a plan into an update and the next step."""
    happened = [event("forbidden", agent, f"{plan.reply.id}:{name}", tool=name) for name in plan.forbidden]
    happened += [event("withheld", agent, f"{plan.reply.id}:{name}", tool=name) for name in plan.withheld]
    written = [plan.reply, *plan.results]
    if not plan.reply.tool_calls:
        return _answered(desk, agent, state, written, happened)
    update: dict[str, Any] = {"messages": written}
    if happened:
        update["events"] = tell(happened)
    if plan.queued:
        update["ownership"] = _queued(desk, agent, state, plan)
    answered = {each.tool_call_id for each in plan.results}
    open_ids = [str(call["id"]) for call in plan.reply.tool_calls if call["id"] not in answered]
    pending = [*plan.work, *([plan.ending] if plan.ending else [])]
    if any(desk.gated(agent, call["name"]) for call in pending):
        return Command(update=update, goto="approval")
    goto: str | list[Send] = desk.dispatch(plan.reply, open_ids, agent)
    return Command(update=update, goto=goto)


def _answered(
    desk: Desk, agent: str, state: Mapping[str, Any], written: Sequence[BaseMessage], happened: Sequence[Event]
) -> Command[Any]:
    """End the turn with words for the user; a lent case then goes back, which is `transfer`'s business."""
    update: dict[str, Any] = {"messages": list(written)}
    if happened:
        update["events"] = tell(happened)
    lent = desk.return_target(agent, state) is not None
    return Command(update=update, goto="transfer" if lent else END)


def _queued(desk: Desk, agent: str, state: Mapping[str, Any], plan: TurnPlan) -> Ownership:
    ownership = ownership_of(state)
    edges = desk.catalog.edges[agent]
    waiting: list[Waiting] = [
        {"from": agent, "to": edges[call["name"]].to, "tool": call["name"], "content": call["args"], "turn": ownership["turn"]}
        for call in plan.queued
    ]
    held = [item for item in ownership.get("queue") or [] if not any(_same_errand(item, each) for each in waiting)]
    ownership["queue"] = [*held, *waiting]
    return ownership


def _same_errand(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two follow-ups ask the same thing, be it in another turn: it is done once."""
    return all(one[name] == other[name] for name in ("from", "to", "tool", "content"))


def _exhausted(desk: Desk, agent: str, messages: Sequence[BaseMessage]) -> bool:
    calls = 0
    for message in reversed(messages):
        if is_user(message):
            break
        calls += isinstance(message, AIMessage)
    return calls >= desk.rules.max_model_calls or desk.strikes(agent, messages) >= desk.rules.max_refusals


def _direct_answer(desk: Desk, agent: str, messages: Sequence[BaseMessage]) -> AIMessage | None:
    """Return the results as the answer when every call of the last message was of a `return_direct` tool."""
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.insert(0, message)
            continue
        if not isinstance(message, AIMessage) or message.name != agent or not results:
            return None
        tools = desk.catalog.tools[agent]
        direct = all(call["name"] in tools and tools[call["name"]].return_direct for call in message.tool_calls)
        if not direct or any(each.status == "error" for each in results):
            return None
        return _reply("\n".join(str(each.text) for each in results), agent, f"{message.id}:direct")
    return None


def _own_graph(desk: Desk, agent: Agent, state: Mapping[str, Any], view: list[BaseMessage], config: RunnableConfig) -> Steps:
    """Run an agent that is a graph of its own on the view, and take what it added to the talk."""
    graph = agent.graph
    if graph is None:
        raise TypeError(agent.name)
    seen = {message.id for message in view if message.id}
    out = yield Effect(lambda: graph.invoke({"messages": view}, config), lambda: graph.ainvoke({"messages": view}, config))
    fresh: list[BaseMessage] = [each for each in out["messages"][len(view) :] if each.id not in seen]
    written = [_named(each, agent.name) if isinstance(each, AIMessage) else each for each in fresh]
    asked = next((each for each in written if isinstance(each, ToolMessage) and _request(each)), None)
    if asked is None:
        if chosen := _first_of_several(written):
            return Command(update={"messages": chosen}, goto="transfer")
        last = written[-1] if written else None
        if isinstance(last, ToolMessage) and last.status == "error" and last.name in desk.catalog.edges[agent.name]:
            # A handoff that was asked for wrongly ended the inner graph: its model is told, and tries again.
            told = last.model_copy(update={"additional_kwargs": {**last.additional_kwargs, REFUSED: "invalid"}})
            return Command(update={"messages": [*written[:-1], told]}, goto=agent.name)
        if not any(isinstance(each, AIMessage) and str(each.text).strip() for each in written):
            written.append(_reply(desk.rules.fallback, agent.name))
        return _answered(desk, agent.name, state, written, [])
    # The request's result is taken out, so that the call is open and `transfer` gives it its one result.
    cut = written[: written.index(asked)]
    return Command(update={"messages": cut}, goto="transfer")


def _first_of_several(written: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the talk of a graph that ended on several handoffs, with the first of them open; empty when it ended otherwise."""
    start = next((i for i in range(len(written) - 1, -1, -1) if isinstance(written[i], AIMessage)), len(written))
    asked = [each for each in written[start:] if isinstance(each, ToolMessage) and NOT_ALONE in (each.artifact or ())]
    kept: list[BaseMessage] = [each for each in written if each not in asked]
    later = [each.model_copy(update={"content": NOT_NOW, "artifact": None}) for each in asked[1:]]
    return [*kept, *later] if asked else []


def _request(message: ToolMessage) -> Mapping[str, Any] | None:
    artifact = message.artifact
    return artifact.get(REQUEST) if isinstance(artifact, Mapping) else None


def _named(reply: AIMessage, agent: str) -> AIMessage:
    return reply.model_copy(update={"name": agent, "id": reply.id or str(uuid.uuid4())})


def _reply(text: str, agent: str, message_id: str | None = None) -> AIMessage:
    return AIMessage(text, name=agent, id=message_id or str(uuid.uuid4()))
