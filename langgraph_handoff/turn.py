"""One reply of the owner's model, sorted: what is wrong, what is read, what is written, what ends the turn.

Everything here is a pure function of the reply and of what the agent holds. `plan_turn` runs once, right after the model; the
order of the work that follows is found again from the stored reply by `next_work`, so nothing about it needs a channel.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from pydantic import ValidationError

from langgraph_handoff.agents import normal_args
from langgraph_handoff.package import explain
from langgraph_handoff.plain import unstorable

__all__ = (
    "NOT_NOW",
    "REFUSED",
    "Ending",
    "Held",
    "Kind",
    "TurnPlan",
    "Work",
    "is_empty",
    "is_spent",
    "next_work",
    "plan_turn",
    "refusal",
    "result",
)

Ending = Literal["transfer", "return", "close", "escalate", "decline", "verdict"]
Kind = Literal["read", "write"] | Ending

REFUSED: Final = "handoff_refused"
"""Key in a result's `additional_kwargs` that says that the runtime, not the tool, answered with a refusal, and of which kind."""

NOT_NOW: Final = "Not carried out in this turn; still available."
"""Result of a handoff that stood behind another one."""
_WORK: Final = ("read", "write")
_SPENT: Final = ("withheld", "budget", "bounce")


@dataclass(frozen=True, slots=True)
class Held:
    """A tool as its agent holds it in this turn."""

    kind: Kind
    tool: BaseTool
    withheld: str = ""
    """Why it is not offered now; empty when it is."""
    asks: bool = False
    """Whether a person is asked about each call."""


@dataclass(frozen=True, slots=True)
class Work:
    """The next thing to carry out: reads side by side, one write, or the ending call."""

    kind: Kind
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """A sorted reply.

    Attributes:
        reply: The reply, repaired so that every call has an id of its own and readable arguments.
        results: Results that are known already: errors and neutral records, one per call that is not carried out.
        work: Calls to carry out, in the order of the message, without the ending one.
        ending: The call that ends the turn, after all work.
        queued: Further destinations; they were answered and wait as follow-ups.
        forbidden: Names of tools that the agent does not hold.
        withheld: Names of tools that it holds but may not use now.
    """

    reply: AIMessage
    results: tuple[ToolMessage, ...] = ()
    work: tuple[ToolCall, ...] = ()
    ending: ToolCall | None = None
    queued: tuple[ToolCall, ...] = ()
    forbidden: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def plan_turn(reply: AIMessage, held: Mapping[str, Held], *, used_ids: Collection[str] = ()) -> TurnPlan:
    """Sort a reply.

    Args:
        reply: What the model said.
        held: What the agent holds, by tool name. Control tools are known by their place here, not by a prefix.
        used_ids: Call ids that stand in the talk already.

    Returns:
        A plan in which each call is either answered, carried out, or the ending; never two of these.
    """
    reply, malformed = _repaired(reply, used_ids)
    results: list[ToolMessage] = []
    work: list[ToolCall] = []
    queued: list[ToolCall] = []
    forbidden: list[str] = []
    withheld: list[str] = []
    ending: ToolCall | None = None
    seen: dict[str, str] = {}
    for call in reply.tool_calls:
        tool = held.get(call["name"])
        mark = json.dumps([call["name"], call["args"]], sort_keys=True, default=str)
        if tool is None:
            forbidden.append(call["name"])
            results.append(refusal(call, _unknown(call["name"], held)))
        elif tool.withheld:
            withheld.append(call["name"])
            results.append(refusal(call, tool.withheld, "withheld"))
        elif call["id"] in malformed:
            results.append(refusal(call, f"The arguments could not be read: {malformed[call['id']]}. Send one JSON object."))
        elif problem := _not_to_ask(tool, call):
            results.append(refusal(call, problem))
        elif tool.kind not in _WORK:
            if ending is None:
                ending = call
            else:
                queued += [call] if tool.kind == "transfer" and call["name"] != ending["name"] else []
                results.append(result(call, NOT_NOW))
        elif mark in seen:
            results.append(
                result(call, f"The same call as {seen[mark]} in this message; it was carried out once. See its result.")
            )
        else:
            seen[mark] = str(call["id"])
            work.append(call)
    return TurnPlan(reply, tuple(results), tuple(work), ending, tuple(queued), tuple(forbidden), tuple(withheld))


def next_work(
    reply: AIMessage, open_ids: Collection[str], kinds: Mapping[str, Kind], *, after: Sequence[ToolCall] = ()
) -> Work | None:
    """Return what is to be carried out next of a stored reply, or None when every call has its result.

    Args:
        reply: A repaired reply.
        open_ids: Ids of its calls that have no result yet.
        kinds: What each tool of its agent is, by name; an unknown one is left to the host's ToolNode, which says so.
        after: Calls that are being carried out now and count as answered.
    """
    done = {call["id"] for call in after}
    left = [
        (kinds.get(call["name"], "read"), call) for call in reply.tool_calls if call["id"] in open_ids and call["id"] not in done
    ]
    work = [(kind, call) for kind, call in left if kind in _WORK]
    if not work:
        return Work(left[0][0], (left[0][1],)) if left else None
    if work[0][0] == "write":
        return Work("write", (work[0][1],))
    return Work("read", tuple(call for _, call in itertools.takewhile(lambda each: each[0] == "read", work)))


def is_empty(reply: AIMessage) -> bool:
    """Return whether a reply says nothing and calls nothing. Thinking alone says nothing."""
    if reply.tool_calls or reply.invalid_tool_calls or str(reply.text).strip():
        return False
    blocks = reply.content if isinstance(reply.content, list) else []
    return all(_block_type(block) in {"text", "reasoning", "thinking", "redacted_thinking"} for block in blocks)


def result(call: ToolCall, text: str, **extra: Any) -> ToolMessage:
    """Return the runtime's own result for a call."""
    return ToolMessage(text, tool_call_id=str(call["id"]), name=call["name"], id=f"{call['id']}:result", **extra)


def refusal(call: ToolCall, text: str, kind: str = "refused") -> ToolMessage:
    """Return an error result that says that the call was not carried out, and why."""
    return result(call, text, status="error", additional_kwargs={REFUSED: kind})


def is_spent(message: ToolMessage) -> bool:
    """Return whether a result refuses a handoff for a reason that ends with the user's turn: a new turn need not be told."""
    return message.additional_kwargs.get(REFUSED) in _SPENT


def _not_to_ask(held: Held, call: ToolCall) -> str:
    """Return why a person is not to be asked about a call: its arguments are wrong. Other calls are checked where they run."""
    if not held.asks:
        return ""
    try:
        normal_args(held.tool, call["args"])
    except ValidationError as error:
        return f"The arguments of {call['name']} are not valid: {explain(error)}. Nothing was done; correct them and call again."
    return ""


def _unknown(name: str, held: Mapping[str, Held]) -> str:
    offered = sorted(tool for tool, each in held.items() if not each.withheld)
    near = difflib.get_close_matches(name, offered, n=1, cutoff=0.5) or [tool for tool in offered if tool.endswith(name)][:1]
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"You hold no tool called {name!r}; it was not run.{hint} Your tools: {', '.join(offered) or 'none'}."


def _repaired(reply: AIMessage, used_ids: Collection[str]) -> tuple[AIMessage, dict[str | None, str]]:
    """Give every call an id of its own, and turn calls that could not be parsed into calls that can be answered.

    Providers differ in whether they send unparsed calls back to their model, so an unparsed call with a result is an
    orphan for one and required by another. As an ordinary call it is right for both.
    """
    calls: list[ToolCall] = []
    malformed: dict[str | None, str] = {}
    taken = set(used_ids)
    changed = bool(reply.invalid_tool_calls)
    prefix = reply.id or "call"
    given: list[tuple[str | None, str, Any, str]] = [(c["id"], c["name"], c["args"], "") for c in reply.tool_calls]
    given += [
        (c.get("id"), c.get("name") or "unnamed", {}, c.get("error") or "not a JSON object") for c in reply.invalid_tool_calls
    ]
    for index, (call_id, name, sent, fault) in enumerate(given):
        fresh = call_id if call_id and call_id not in taken else _call_id(f"{prefix}:{index}")
        while fresh in taken:
            fresh = _call_id(fresh)
        taken.add(fresh)
        changed = changed or fresh != call_id
        problem = fault or unstorable(sent) if isinstance(sent, dict) else "they are not an object"
        if problem:
            malformed[fresh] = " ".join(problem.split())[:200]
            changed = True
        calls.append(ToolCall(name=name, args={} if problem else sent, id=fresh, type="tool_call"))
    if not changed:
        return reply, malformed
    content = reply.content
    if isinstance(content, list):
        content = [block for block in content if _block_type(block) not in {"tool_use", "tool_call", "function_call"}]
    extra = {key: value for key, value in reply.additional_kwargs.items() if key not in {"tool_calls", "function_call"}}
    update = {"tool_calls": calls, "invalid_tool_calls": [], "content": content, "additional_kwargs": extra}
    return reply.model_copy(update=update), malformed


def _call_id(seed: str) -> str:
    """Return an id that every hosted provider takes: letters, digits and underscores, at most 40."""
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def _block_type(block: Any) -> str:
    return str(block.get("type", "")) if isinstance(block, dict) else "text"
