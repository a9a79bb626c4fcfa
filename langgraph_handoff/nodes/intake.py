"""intake: a new case, a case that was closed, or a case whose owner does not exist any more gets an owner."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from langgraph_handoff.desk import Desk, case_id_of
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.routing import Route, Router, RouteRequest
from langgraph_handoff.state import Ownership, event, last_user_text, ownership_of, unanswered, user_turn
from langgraph_handoff.steps import Effect, Steps
from langgraph_handoff.turn import refusal

__all__ = ("intake", "needs_intake")


def needs_intake(desk: Desk, state: Mapping[str, Any]) -> bool:
    """Return whether nobody owns the case: it is new, it was closed, or its owner is gone or renamed."""
    ownership = state.get("ownership") or {}
    active = state.get("active_agent")
    return not ownership.get("epoch") or bool(ownership.get("closed")) or desk.catalog.owner(active) != active


def intake(desk: Desk, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Choose an owner and open the case. A case that has an owner is left to it: only a client's `goto` brings it here."""
    if not needs_intake(desk, state):
        return Command(goto=str(state["active_agent"]))
    previous = state.get("active_agent")
    held: Ownership = dict(state.get("ownership") or {})  # type: ignore[assignment]
    catalog = desk.catalog
    route: Route | None
    if held.get("epoch") and not held.get("closed"):
        owner = catalog.owner(previous) or catalog.default
        route = Route(to=owner, reason=f"the former owner {previous!r} is not there any more")
        kind = "stale_owner"
    else:
        route = yield from _routed(desk, state)
        kind = "reopened" if held.get("closed") else "opened"
    owner = catalog.owner(route.to if route else None) or catalog.default
    messages = state.get("messages") or []
    epoch = held.get("epoch", 0) + 1
    configurable = config.get("configurable") or {}
    known = (state.get("case") or {}).get("case_id") or configurable.get("case_id") or configurable.get("thread_id")
    case_id = case_id_of(state, config) if known else str(uuid.uuid4())
    happened = event(kind, owner, f"{case_id}:{epoch}", previous=previous, reason=route.reason if route else "default")
    ownership = Ownership(
        epoch=epoch,
        hop=held.get("hop", 0),
        turn=user_turn(messages),
        turn_hops=0,
        stack=[],
        queue=[],
        given={},
        closed=False,
    )
    update: dict[str, Any] = {"active_agent": owner, "ownership": ownership, "case": {"case_id": case_id}, "events": [happened]}
    if kind == "stale_owner" and catalog.owner(previous) is not None:  # only renamed: it keeps what it was given
        update["ownership"] = Ownership(**{**ownership_of(state), "epoch": epoch})
        package = state.get("handoff")
        if isinstance(package, HandoffPackage) and package.to_agent == previous:
            update["handoff"] = package.model_copy(update={"to_agent": owner}).dump()
    reply, open_ids = unanswered(messages)
    if kind == "stale_owner" and reply is not None and catalog.owner(reply.name) != owner:
        text = f"{reply.name} is not there any more, so this call was not taken further."
        update["messages"] = [refusal(call, text) for call in reply.tool_calls if call["id"] in open_ids]
    return Command(update=update, goto=owner)


def _routed(desk: Desk, state: Mapping[str, Any]) -> Any:
    router = desk.router
    if router is None:
        wanted = desk.catalog.owner(state.get("active_agent")) if not (state.get("ownership") or {}).get("epoch") else None
        return Route(to=wanted, reason="the input names it") if wanted else None
    request = RouteRequest(text=last_user_text(state.get("messages") or []), state=state, catalog=desk.catalog)
    if isinstance(router, Router):
        return (yield Effect(_call(router.route, request), _acall(router.aroute, request)))
    name = router(state)
    return Route(to=name, reason="the router's choice") if name else None


def _call(function: Callable[[RouteRequest], Any], request: RouteRequest) -> Callable[[], Any]:
    return lambda: function(request)


def _acall(function: Callable[[RouteRequest], Awaitable[Any]], request: RouteRequest) -> Callable[[], Awaitable[Any]]:
    return lambda: function(request)
