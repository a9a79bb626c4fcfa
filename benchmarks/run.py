"""Ours, langgraph-swarm and a bare hand-written graph, side by side in one run.

A hop is: a model call, one tool call with a result of 200 tokens, and a model call that hands off. The model answers at
once, so that only the framework counts; every contender gets the same model, a SQLite file and `durability="sync"`.
Ours runs twice: on `connect(file)`, and on the host's plain `SqliteSaver` (`plain`), as the other two do.

CPU time, because a disk adds noise, and of interleaved rounds the smallest, because neighbours only ever add; commits,
bytes and tokens come from a round of their own, which nobody times. `--quick` runs fewer hops and rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from gate import gate, report
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from typing_extensions import TypedDict

from langgraph_handoff import Agent, connect, create_handoff_graph

RESULT = "word " * 200
NAMES = ("alice", "bob")
HERE = Path(__file__).parent


@dataclass
class Run:
    """What one run is to do and what it used."""

    hops: int
    content: bool = False
    moved: int = 0
    calls: int = 0
    tokens: int = 0
    phase: dict[str, int] = field(default_factory=dict)


class Instant(BaseChatModel):
    """A model that answers at once: a read, then a handoff, and at the last hop words."""

    agent: str
    target: str
    run_: Any

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        run = self.run_
        run.calls += 1
        run.tokens += count_tokens_approximately(messages)
        phase = run.phase[self.agent] = run.phase.get(self.agent, 0) + 1
        number = run.calls
        if phase % 2:
            said = self._call("look", {"q": "x"}, number)
        elif run.moved >= run.hops:
            said = AIMessage("done", id=f"m{number}")
        else:
            run.moved += 1
            facts = {"reason": "next", "known_facts": {"last": number}} if run.content else {}
            said = self._call(f"transfer_to_{self.target}", facts, number)
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _call(self, name: str, args: dict[str, Any], number: int) -> AIMessage:
        return AIMessage("", id=f"m{number}", tool_calls=[{"name": name, "args": args, "id": f"c{number}", "type": "tool_call"}])


def look(q: str) -> str:
    """Look something up."""
    return RESULT


def _handoff_graph(run: Run) -> Any:
    run.content = True
    agents = [
        Agent(
            name=a, description=a, model=Instant(agent=a, target=b, run_=run), prompt=f"You are {a}.", tools=[look], handoffs=[b]
        )
        for a, b in (NAMES, NAMES[::-1])
    ]
    return create_handoff_graph(agents, default_active_agent="alice", max_handoffs=10**6)


def ours(path: str, run: Run) -> tuple[Any, Callable[[], None]]:
    storage = connect(path)
    return _handoff_graph(run).compile(storage=storage), storage.close


def plain(path: str, run: Run) -> tuple[Any, Callable[[], None]]:
    connection = sqlite3.connect(path, check_same_thread=False)
    return _handoff_graph(run).compile(checkpointer=SqliteSaver(connection)), connection.close


def swarm(path: str, run: Run) -> tuple[Any, Callable[[], None]]:
    from langchain.agents import create_agent
    from langgraph_swarm import create_handoff_tool, create_swarm

    agents = [
        create_agent(
            Instant(agent=a, target=b, run_=run), [look, create_handoff_tool(agent_name=b)], system_prompt=f"You are {a}.", name=a
        )
        for a, b in (NAMES, NAMES[::-1])
    ]
    connection = sqlite3.connect(path, check_same_thread=False)
    return create_swarm(agents, default_active_agent="alice").compile(checkpointer=SqliteSaver(connection)), connection.close


class Bare(TypedDict):
    """The state of the hand-written graph."""

    messages: Annotated[list[AnyMessage], add_messages]
    owner: str


def bare(path: str, run: Run) -> tuple[Any, Callable[[], None]]:
    builder = StateGraph(Bare)

    def node(agent: str, target: str) -> Callable[[Bare], Command[Any]]:
        model = Instant(agent=agent, target=target, run_=run)

        def step(state: Bare) -> Command[Any]:
            said = model.invoke(state["messages"])
            if not said.tool_calls:
                return Command(update={"messages": [said]}, goto=END)
            if said.tool_calls[0]["name"] == "look":
                return Command(update={"messages": [said], "owner": agent}, goto="tools")
            moved = {"role": "tool", "content": "moved", "tool_call_id": said.tool_calls[0]["id"]}
            return Command(update={"messages": [said, moved], "owner": target}, goto=target)

        return step

    for a, b in (NAMES, NAMES[::-1]):
        builder.add_node(a, node(a, b), destinations=("tools", b, END))
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, "alice")
    builder.add_conditional_edges("tools", lambda state: state["owner"], list(NAMES))
    connection = sqlite3.connect(path, check_same_thread=False)
    return builder.compile(checkpointer=SqliteSaver(connection)), connection.close


CONTENDERS: dict[str, Callable[[str, Run], tuple[Any, Callable[[], None]]]] = {
    "ours": ours,
    "plain": plain,
    "swarm": swarm,
    "bare": bare,
}
FIGURES = {"cpu_ms": 2, "bytes": 0, "tokens": 0, "commits": 1}
"""What is measured per hop, with the digits that are shown."""


def measured(name: str, hops: int, *, timed: bool) -> dict[str, float]:
    """Run one contender once. Returns CPU milliseconds per hop, or else bytes, tokens and commits per hop."""
    run = Run(hops)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cases.db")
        graph, close = CONTENDERS[name](file, run)
        commits = 0

        def count(statement: str) -> None:
            nonlocal commits
            commits += statement.upper().startswith("COMMIT")

        saver = graph.checkpointer
        saver.setup()
        if not timed:
            saver.conn.set_trace_callback(count)
        config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 10**6}
        gc.collect()  # each pays for its own garbage, not for that of the one before
        start = time.process_time()
        graph.invoke({"messages": [{"role": "user", "content": "hi"}]}, config, durability="sync")
        used = time.process_time() - start
        saver.conn.set_trace_callback(None)
        close()
        if run.moved != hops:
            raise SystemExit(f"{name} moved {run.moved} times instead of {hops}")
        if timed:
            return {"cpu_ms": 1000 * used / hops}
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
        size = os.path.getsize(file)
    return {"bytes": size / hops, "tokens": run.tokens / hops, "commits": commits / hops}


Results = dict[int, dict[str, dict[str, float]]]


def table(results: Results) -> list[str]:
    """Return the figures as Markdown, ratios against the peers in the last columns."""
    lines = [
        f"| hops | figure per hop | {' | '.join(CONTENDERS)} | ours / swarm | ours / bare | plain / swarm | plain / bare |",
        f"|---:|---|{'---:|' * (len(CONTENDERS) + 4)}",
    ]
    for hops, found in results.items():
        for figure, digits in FIGURES.items():
            value = {name: found[name][figure] for name in CONTENDERS}
            shown = [f"{each:.{digits}f}" for each in value.values()]
            ratios = [f"{value[mine] / value[peer]:.3f}" for mine in ("ours", "plain") for peer in ("swarm", "bare")]
            lines.append(f"| {hops} | {figure} | {' | '.join([*shown, *ratios])} |")
    return lines


def power(results: Results, name: str, figure: str, first: int, last: int) -> float:
    """Return the power of the hops with which a run's whole figure grows between two sizes; 1 is a straight line."""
    total = [hops * results[hops][name][figure] for hops in (first, last)]
    return math.log(total[1] / total[0]) / math.log(last / first)


def goals(results: Results) -> list[dict[str, Any]]:
    """Return what is to be reached and what was, for the sizes that were run."""

    def of(name: str, figure: str, hops: int) -> float:
        return results[hops][name][figure]

    def ratio(figure: str, peer: str, **limits: float) -> None:
        for size, limit in limits.items():
            hops = int(size.removeprefix("h"))
            if hops in results:
                add(f"{figure} / {peer}, {hops} hops", of("ours", figure, hops) / of(peer, figure, hops), limit)

    def add(what: str, found: float, limit: float) -> None:
        stated.append({"goal": what, "found": round(found, 4), "limit": limit, "met": found <= limit})

    stated: list[dict[str, Any]] = []
    first, last = min(results), max(results)
    ratio("cpu_ms", "swarm", h16=0.30, h64=0.18, h128=0.10)
    ratio("cpu_ms", "bare", h16=1.25, h64=0.75)
    if {16, 128} <= set(results):
        add("cpu_ms, 128 hops / 16 hops", of("ours", "cpu_ms", 128) / of("ours", "cpu_ms", 16), 1.10)
        add("bytes, growth power from 16 to 128 hops", power(results, "ours", "bytes", 16, 128), 1.05)
        add("bytes per hop at 128 hops", of("ours", "bytes", 128), 30 * 1024)
    ratio("bytes", "swarm", h128=0.025)
    add(f"commits per hop at {last} hops", of("ours", "commits", last), 4.2)
    ratio("tokens", "swarm", h4=0.45, h16=0.15, h64=0.04)
    add(f"tokens, growth power from {first} to {last} hops", power(results, "ours", "tokens", first, last), 1.0)
    return stated


def goal_table(stated: list[dict[str, Any]]) -> list[str]:
    """Return the goals as Markdown."""
    lines = ["| goal | found | at most | met |", "|---|---:|---:|---|"]
    lines += [f"| {g['goal']} | {g['found']:g} | {g['limit']:g} | {'yes' if g['met'] else '**no**'} |" for g in stated]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer hops and rounds")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    sizes = (4, 16) if quick else (4, 16, 64, 128)
    rounds = 5
    for name in CONTENDERS:  # warm up imports and caches
        measured(name, 2, timed=True)
    results: Results = {}
    for hops in sizes:
        results[hops] = {name: measured(name, hops, timed=False) for name in CONTENDERS}
        spent: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for _ in range(rounds):
            for name in CONTENDERS:
                spent[name].append(measured(name, hops, timed=True)["cpu_ms"])
        for name, seen in spent.items():
            results[hops][name] |= {"cpu_ms": min(seen), "cpu_ms_median": sorted(seen)[rounds // 2]}
        print(f"{hops} hops done", file=sys.stderr, flush=True)
    stated = goals(results)
    print("\n".join([*table(results), "", *goal_table(stated), ""]), flush=True)
    write = gate(5 if quick else 30)
    cost = report(write)
    print("\n".join(cost))
    when = datetime.now(UTC).date().isoformat()
    machine = f"{when}, Python {sys.version.split()[0]}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    name = "quick" if quick else "bench"
    whole = {"machine": machine, "rounds": rounds, "results": results, "goals": stated, "gate": write}
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    text = [f"# {machine}", "", *table(results), "", *goal_table(stated), "", *cost, ""]
    (folder / f"{name}.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
