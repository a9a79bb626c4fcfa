"""What a graph writes into its case memory, and what an owner is shown of it. Nothing of this happens unless a graph asks for it.

Nodes run again after a crash, so every entry has an id that is made from checkpointed ids, and stands in the memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime

from langgraph_handoff.desk import Desk, case_id_of, memory_over
from langgraph_handoff.memory import CaseMemory, Entry
from langgraph_handoff.package import ASKS_FOR_VERDICT, HandoffPackage, Verdict
from langgraph_handoff.state import last_user_text, unanswered
from langgraph_handoff.steps import Effect, Steps

__all__ = ("RECALL", "note_move", "note_results", "note_verdict", "recall_tool", "shown_notes")

RECALL: Final = "recall_case"
_ABOUT_RECALL: Final = (
    "Look behind the brief: what was done, asked and decided in this case, by any agent: tool results, handoffs, verdicts, facts."
)
_FOUND: Final = 5
"""Entries that a recall gives to a model."""
_SHOWN: Final = 400
"""Characters of an entry in a view."""
_WHOLE: Final = 60_000
"""Characters of a tool's result that a trace keeps."""


def note_results(desk: Desk, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Record what the tools of the last reply gave, as traces that later owners can recall."""
    memory = desk.memory()
    messages: Sequence[BaseMessage] = state.get("messages") or []
    reply, _ = unanswered(messages)
    if memory is None or reply is None or not reply.tool_calls:
        return
    traces = [*_traces(desk, reply, messages, case_id_of(state, config))]
    if traces:
        yield Effect(lambda: memory.append(traces), lambda: memory.aappend(traces))


def note_move(desk: Desk, package: HandoffPackage, how: str, held: HandoffPackage | None) -> Steps:
    """Record a change of owner: what is asked of whom, that it was taken up, or that it was declined and why.

    Args:
        desk: What nodes share.
        package: What the new owner is given.
        how: handoff, return or decline.
        held: What the former owner was given.
    """
    memory = desk.memory()
    if memory is None:
        return
    if how == "handoff":
        yield _call(
            memory,
            "handoff",
            case_id=package.case_id,
            from_agent=package.from_agent,
            to_agent=package.to_agent,
            requested_action=package.requested_action,
            content=package.content() or package.user_request or "No reason was given.",
            sources=[each.source for each in package.evidence if each.source.strip()],
            entry_id=package.handoff_id,
        )
        if package.requested_action not in ASKS_FOR_VERDICT:  # to take the case up is the answer
            yield _answer(memory, package, "acknowledge", "")
    if how == "decline" and held is not None:
        yield _answer(memory, held, "request_changes", package.reason)


def note_verdict(desk: Desk, package: HandoffPackage, verdict: Verdict, comments: str, call_id: str) -> Steps:
    """Record a verdict on what the owner was asked."""
    memory = desk.memory()
    if memory is not None:
        yield _answer(memory, package, verdict, comments, call_id)


def shown_notes(desk: Desk, agent: str, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Return the lines that an owner reads from the memory: requests to it, verdicts on its own requests, and lessons."""
    memory = desk.memory()
    if memory is None:
        return ()
    about = last_user_text(state.get("messages") or ())
    found = yield _call(memory, "notes", agent_id=agent, case_id=case_id_of(state, config), query=about)
    told = [each for each in found["feedback"] if each.verdict != "acknowledge" or each.text.strip()]
    return (
        *_section("Requests to you that have no verdict yet:", found["handoffs"], _asked),
        *_section("Verdicts on your requests:", told, _said),
        *_section("Lessons from earlier work:", found["lessons"], lambda entry: entry.text),
    )


def recall_tool() -> BaseTool:
    """Return the tool by which an agent looks behind the brief: what any agent's tools gave, what was asked and decided."""

    def recall(query: str, runtime: ToolRuntime) -> str:
        return _listed(_open(runtime).recall(**_asked_of(query, runtime)))

    async def arecall(query: str, runtime: ToolRuntime) -> str:
        return _listed(await _open(runtime).arecall(**_asked_of(query, runtime)))

    return StructuredTool.from_function(func=recall, coroutine=arecall, name=RECALL, description=_ABOUT_RECALL)


def _traces(desk: Desk, reply: AIMessage, messages: Sequence[BaseMessage], case_id: str) -> Iterator[Entry]:
    agent = desk.author(reply, {}) or str(reply.name)
    kinds, calls = desk.kinds(agent), {call["id"]: call for call in reply.tool_calls}
    for message in messages:
        call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if call is None or kinds.get(call["name"]) not in ("read", "write") or call["name"] == RECALL:
            continue
        place = f"{reply.id}/{call['id']}"
        content = {"tool": call["name"], "args": call["args"], "result": str(message.text)[:_WHOLE]}
        yield Entry.of(
            entry_type="trace",
            entry_id=f"{case_id}:{place}",
            case_id=case_id,
            agent=agent,
            content=content,
            metadata={"status": message.status},  # type: ignore[attr-defined]
            sources=(place,),
        )


def _answer(memory: CaseMemory, package: HandoffPackage, verdict: Verdict, comments: str, call_id: str = "") -> Effect:
    return _call(
        memory,
        "feedback",
        handoff_id=package.handoff_id,
        from_agent=package.to_agent,
        verdict=verdict,
        comments=comments,
        entry_id=f"{package.handoff_id}:{call_id or verdict}",
    )


def _call(memory: CaseMemory, name: str, **given: Any) -> Effect:
    return Effect(lambda: getattr(memory, name)(**given), lambda: getattr(memory, f"a{name}")(**given))


def _open(runtime: ToolRuntime) -> CaseMemory:
    return memory_over(runtime.store)


def _asked_of(query: str, runtime: ToolRuntime) -> dict[str, Any]:
    case_id = case_id_of(runtime.state, runtime.config)
    return {"case_id": case_id, "query": query, "limit": _FOUND, "include_linked_runs": True}


def _section(title: str, entries: Sequence[Entry], line: Callable[[Entry], str]) -> tuple[str, ...]:
    return (title, *(f"- {_one_line(line(entry))}" for entry in entries)) if entries else ()


def _asked(entry: Entry) -> str:
    return f"{entry.agent} asks you to {entry.requested_action}: {entry.text}"


def _said(entry: Entry) -> str:
    return f"{entry.agent}: {entry.verdict}. {entry.text}"


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} [shortened; `{RECALL}` finds the whole]"


def _listed(found: Sequence[Entry]) -> str:
    told = [
        f"[{entry.entry_id}] {entry.entry_type} by {entry.agent}, {entry.created_at:%Y-%m-%d %H:%M}:\n{entry.text}"
        for entry in found
    ]
    return "\n\n".join(told) or "Nothing fits. Try other words."
