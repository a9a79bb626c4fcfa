"""Replays recorded cases and single turns through a graph, with models that make the recorded calls."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, Handoff, adecide, create_handoff_graph, decide, privileged
from langgraph_handoff.testing import ScriptedChatModel, call

DATA = Path(os.environ.get("HANDOFF_DATA") or Path(__file__).parents[3] / "shared" / "data")
"""Folder of the recorded data; HANDOFF_DATA names another one."""


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file, or nothing when it is not there."""
    file = DATA / name
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


@dataclass
class World:
    """What the tools did, in order."""

    journal: list[tuple[str, str]] = field(default_factory=list)
    results: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def tool(self, name: str, arguments: set[str]) -> BaseTool:
        """Return a tool that answers what was recorded and notes that it ran."""

        def run(**args: Any) -> str:
            key = (name, json.dumps(args, sort_keys=True))
            self.journal.append(key)
            left = self.results.get(key) or ["ok"]
            return left.pop(0) if len(left) > 1 else left[0]

        schema = {"type": "object", "properties": {each: {} for each in sorted(arguments)}}
        return StructuredTool.from_function(func=run, name=name, description=f"The recorded tool {name}.", args_schema=schema)


@dataclass
class Case:
    """A recorded case as scripts for its agents, cut into turns of the user where the customer acts."""

    scripts: dict[str, list[Any]]
    turns: int
    expected: list[list[tuple[str, str]]]
    """What must run, in order: each write alone, and the reads that stand side by side in one message, in any order."""
    owners: list[str]
    kinds: list[str]
    """What a person must be asked, in order."""
    written: set[tuple[str, str]]


def script(row: dict[str, Any], *, mixed: bool) -> Case:
    """Turn a recorded case into scripts.

    Args:
        row: The case.
        mixed: Put all calls of a visit and the transfer after them into one message, instead of one call a message.
    """
    moves = {each["before_step"]: each["to"] for each in row["handoffs"]}
    owner = (
        row["handoffs"][0]["from"]
        if row["handoffs"]
        else next((s["agent"] for s in row["steps"] if s["requestor"] == "assistant"), "triage")
    )
    scripts: dict[str, list[Any]] = {}
    owners, pending, turns = [owner], [], 1
    expected: list[list[tuple[str, str]]] = []
    kinds: list[str] = []
    written: set[tuple[str, str]] = set()
    beside = False  # whether the next read may run together with the one before

    def flush(extra: Any = None) -> None:
        nonlocal beside
        beside = False
        calls = [*pending, *([extra] if extra else [])]
        pending.clear()
        if calls:
            scripts.setdefault(owner, []).append(calls)

    for number, step in enumerate(row["steps"]):
        if number in moves and moves[number] != owner:
            flush(call(f"transfer_to_{moves[number]}", reason=f"step {number}", known_facts={f"step{number}": number}))
            owner = moves[number]
            owners.append(owner)
        if step["requestor"] == "user":
            flush()
            scripts.setdefault(owner, []).append(f"Please do: {step['tool']}.")
            turns += 1
            continue
        made = call(step["tool"], **step["args"])
        if not mixed or any(each["name"] == made["name"] and each["args"] == made["args"] for each in pending):
            flush()
        pending.append(made)
        key = (step["tool"], json.dumps(step["args"], sort_keys=True))
        if step["is_write"]:
            kinds.append("repeat" if key in written else "write")
            written.add(key)
        if beside and not step["is_write"]:
            expected[-1].append(key)
        else:
            expected.append([key])
        beside = not step["is_write"]
    flush()
    scripts.setdefault(owner, []).append("Everything is settled.")
    return Case(scripts, turns, expected, owners, kinds, written)


def build(row: dict[str, Any], case: Case, world: World) -> Any:
    """Build the graph of a case: the agents hold their recorded tools, writes are privileged."""
    held: dict[str, dict[str, BaseTool]] = {}
    writers = {tool for tool, _ in case.written}

    def needs_a_person(tool: str) -> Any:
        # Some recorded tools read or write depending on their arguments.
        return lambda args: (tool, json.dumps(args, sort_keys=True)) in case.written

    for step in row["steps"]:
        if step["requestor"] == "assistant":
            key = (step["tool"], json.dumps(step["args"], sort_keys=True))
            world.results.setdefault(key, []).append(step.get("result") or "ok")
            arguments = {name for s in row["steps"] if s["tool"] == step["tool"] for name in s["args"]}
            made = world.tool(step["tool"], arguments)
            gated = step["tool"] in writers
            held.setdefault(step["agent"], {})[step["tool"]] = (
                privileged(made, when=needs_a_person(step["tool"])) if gated else made
            )
    names = list(dict.fromkeys([*case.owners, *held]))
    agents = [
        Agent(
            name=name,
            description=f"{name} of the desk",
            model=ScriptedChatModel(case.scripts.get(name, []), agent=name),
            tools=list(held.get(name, {}).values()),
            handoffs=[other for other in names if other != name],
        )
        for name in names
    ]
    return create_handoff_graph(agents, default_active_agent=case.owners[0]).compile(checkpointer=InMemorySaver())


async def play(graph: Any, case: Case, row: dict[str, Any], world: World, *, way: str) -> tuple[Any, list[str]]:
    """Run all turns of a case and approve every request by its id. Returns the last output and what was asked."""
    config: Any = {"configurable": {"thread_id": row["id"]}}
    first = row.get("first_user_message") or str((row.get("intent") or {}).get("reason_for_call") or "Please help me.")
    asked: list[str] = []
    out: Any = None
    for turn in range(case.turns):
        given = {"messages": [{"role": "user", "content": first if turn == 0 else f"I did it ({turn})."}]}
        out = await graph.ainvoke(given, config) if way == "async" else graph.invoke(given, config)
        while "__interrupt__" in out:
            shown = out["__interrupt__"][0].value["handoff"]
            request_id = shown["request_id"]
            ran = sum(key in case.written for key in world.journal)
            assert ran <= len(asked), f"{row['id']}: {ran} writes ran on {len(asked)} approvals"
            asked.append(shown["kind"])
            if way == "async":
                out = await adecide(graph, config, "approve", by="ana", request_id=request_id)
            else:
                out = decide(graph, config, "approve", by="ana", request_id=request_id)
    return out, asked


def message_of(row: dict[str, Any]) -> AIMessage:
    """Return a recorded turn as the message that a chat model integration makes of it."""
    given = row.get("message") or row
    calls: list[Any] = []
    invalid: list[Any] = [
        {
            "name": each.get("name"),
            "args": each.get("args"),
            "id": each.get("id"),
            "error": each.get("error"),
            "type": "invalid_tool_call",
        }
        for each in given.get("invalid_tool_calls") or []
    ]
    for each in given.get("tool_calls") or []:
        raw = each["args_raw"] if "args_raw" in each else json.dumps(each["args"])
        try:
            args = json.loads(raw) if raw is not None else None
        except ValueError:
            args = None
        entry = {"name": each["name"], "id": each.get("id")}
        if isinstance(args, dict):
            calls.append({**entry, "args": args, "type": "tool_call"})
        else:
            invalid.append({**entry, "args": raw, "error": "not a JSON object", "type": "invalid_tool_call"})
    return AIMessage(given.get("content") or "", tool_calls=calls, invalid_tool_calls=invalid)


def survive(row: dict[str, Any], roles: dict[str, str], held: list[str]) -> tuple[Any, World, set[str]]:
    """Let an agent say a recorded turn first and plain words afterwards; approve every request. Returns what came of it."""
    world = World()
    reply = message_of(row)
    handoffs = [
        Handoff(to=f"expert_{number}", tool_name=name) for number, name in enumerate(n for n in held if roles.get(n) == "handoff")
    ]
    arguments = {name: {key for each in reply.tool_calls if each["name"] == name for key in each["args"]} for name in held}
    tools = [world.tool(name, arguments[name]) for name in held if roles.get(name) != "handoff"]
    gated = [privileged(each) if roles.get(each.name) == "write" else each for each in tools]
    owner = ScriptedChatModel([reply, "That is all."], agent="owner", loop=True)
    agents = [Agent(name="owner", description="Owns it", model=owner, tools=gated, handoffs=handoffs)]
    for edge in handoffs:
        model = ScriptedChatModel(["I have it now."], agent=edge.to, loop=True)
        agents.append(Agent(name=edge.to, description="Another one", model=model))
    graph = create_handoff_graph(agents, default_active_agent="owner").compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": str(row["id"])}}
    out = graph.invoke({"messages": "Hello, please help me."}, config)
    before = {name for name, _ in world.journal if roles.get(name) == "write"}
    for _ in range(10):
        if "__interrupt__" not in out:
            break
        out = decide(graph, config, "approve", by="ana")
    for agent in graph.catalog.agents.values():
        out.setdefault("prompts", []).extend(agent.model.prompts)
    return out, world, before
