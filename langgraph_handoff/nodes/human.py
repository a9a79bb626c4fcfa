"""human: a person owns the case. The node waits for what the person says or does; there is one for each `Human`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Command, interrupt

from langgraph_handoff.agents import Human
from langgraph_handoff.decisions import words_in
from langgraph_handoff.desk import Desk, case_id_of, tell, timestamp, user_messages
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.redaction import redacted
from langgraph_handoff.state import Ownership, event, last_user_text, ownership_of
from langgraph_handoff.steps import Steps

__all__ = ("human",)

_LONGEST: Final = 8_000
"""Characters of a person's or the user's words that go into a package."""


def human(desk: Desk, person: Human, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Show the case and wait for a reply to the user, or for the case to be handed to an agent."""
    yield from ()
    messages = state.get("messages") or []
    ownership = ownership_of(state)
    package = state.get("handoff")
    package = package if isinstance(package, HandoffPackage) and package.to_agent == person.name else None
    # Named by the last message, so that an answer to what stood there before is not taken for this one.
    request_id = f"{case_id_of(state, config)}:{ownership.get('epoch', 0)}:{(messages[-1].id or '') if messages else ''}"
    given = interrupt(_payload(desk, person, state, package, request_id), response_schema=_schema(desk, person))
    answer = _answer(given)
    if answer.get("request_id") not in (None, request_id):
        answer = {}
    who = str(answer.get("by") or person.name)
    wanted = answer.get("transfer_to")
    target = desk.catalog.owner(wanted) if isinstance(wanted, str) else None
    if target is not None and target != person.name:
        return _handed_back(desk, person, state, config, target, str(answer.get("message") or ""), who)
    words = str(answer.get("message") or "").strip()
    if not words:
        return Command(update={"messages": user_messages(words_in(given))}, goto=person.name)
    said = AIMessage(words, name=person.name, id=f"{request_id}:said")
    told = tell([event("answered", person.name, request_id, by=who)])
    if answer.get("close"):
        ownership["closed"], ownership["stack"], ownership["queue"] = True, [], []
        closed = tell([event("closed", person.name, request_id, by=who)])
        return Command(update={"messages": [said], "events": [*told, *closed], "ownership": ownership}, goto=END)
    lent = desk.return_target(person.name, state) is not None
    return Command(update={"messages": [said], "events": told}, goto="transfer" if lent else END)


def _payload(
    desk: Desk, person: Human, state: Mapping[str, Any], package: HandoffPackage | None, request_id: str
) -> dict[str, Any]:
    """Return the question in the shape that approval screens show: the reply is the argument to edit."""
    words = last_user_text(state.get("messages") or [])
    brief = package.brief() if package else ""
    action = {"name": "reply_to_user", "args": {"message": ""}, "arguments": {"message": ""}}
    allowed = ["edit", "respond", "reject"]
    return {
        "action_requests": [{**action, "description": f"**{person.name} owns this case.**\n\nThe user said: {words}\n\n{brief}"}],
        "review_configs": [
            {
                "action_name": "reply_to_user",
                "actionName": "reply_to_user",
                "allowed_decisions": allowed,
                "allowedDecisions": allowed,
            }
        ],
        "handoff": {
            "kind": "owner",
            "request_id": request_id,
            "agent": person.name,
            "queue": person.queue,
            "latest_user_message": words,
            "may_transfer_to": [name for name in desk.catalog.names if name != person.name],
            "package": package.dump() if package else None,
        },
    }


def _schema(desk: Desk, person: Human) -> dict[str, Any]:
    """Return the JSON Schema of an answer: shown, not enforced, as for decisions."""
    others = [name for name in desk.catalog.names if name != person.name]
    words = {"type": "string"}
    properties = {
        "message": words,
        "transfer_to": {"enum": others},
        "close": {"type": "boolean"},
        "by": words,
        "request_id": words,
    }
    return {"type": "object", "properties": properties, "anyOf": [{"required": ["message"]}, {"required": ["transfer_to"]}]}


def _answer(given: Any) -> dict[str, Any]:
    """Read a person's words out of the shapes that screens send; anything else is no answer and is asked again."""
    if isinstance(given, Mapping) and "decisions" in given:
        decisions = given["decisions"]
        if not isinstance(decisions, list) or len(decisions) != 1 or not isinstance(decisions[0], Mapping):
            return {}
        given = {**given, **decisions[0]}
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], Mapping):
        inner = given[0].get("args")
        if given[0].get("type") == "response" and isinstance(inner, str):
            return {"message": inner}
        given = {"type": given[0].get("type"), "edited_action": inner}
    if not isinstance(given, Mapping):
        return {}
    edited = given.get("edited_action") or given.get("editedAction")
    if isinstance(edited, Mapping) and isinstance(edited.get("args"), Mapping):
        return {**given, **edited["args"]}
    return dict(given) if isinstance(given.get("message") or given.get("transfer_to"), str) else {}


def _handed_back(
    desk: Desk, person: Human, state: Mapping[str, Any], config: RunnableConfig, target: str, reason: str, who: str
) -> Command[Any]:
    held = ownership_of(state)
    epoch = held.get("epoch", 0) + 1
    case_id = case_id_of(state, config)
    longest = min(_LONGEST, desk.rules.max_package_bytes // 16)
    words = {"reason": reason[:longest] or f"{who} hands the case over."}
    content = {name: redacted(value, desk.rules.redactors) for name, value in words.items()}
    package = HandoffPackage.from_content(
        content,
        handoff_id=f"{case_id}:{epoch}",
        case_id=case_id,
        from_agent=person.name,
        to_agent=target,
        hop=held.get("hop", 0) + 1,
        epoch=epoch,
        created_at=timestamp(),
        user_request=str(redacted(last_user_text(state.get("messages") or [])[:longest], desk.rules.redactors)),
    )
    stack = [*itertools.takewhile(lambda item: item["agent"] != target, held.get("stack") or [])]  # see `transfer`
    ownership: Ownership = {
        **held,
        "epoch": epoch,
        "hop": package.hop,
        "how": "handoff",
        "via": "",
        "stack": stack,
        "closed": False,
    }
    told = tell(
        [event("accepted", target, f"{case_id}:{epoch}", **{"from": person.name, "to": target, "by": who, "reason": reason})]
    )
    return Command(
        update={"active_agent": target, "handoff": package.dump(), "ownership": ownership, "events": told}, goto=target
    )
