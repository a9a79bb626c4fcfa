"""What an approved write costs: ours beside LangChain's human-in-the-loop middleware, and the ledger beside the bare disk.

An approved write is one user message: the model asks for it, the run stops, a person approves, the tool runs, the model answers.
It is timed on new threads and on threads of 50 turns, in interleaved rounds; wall time, since its commits wait for the disk.
`ungated` is our graph with the same tool as a plain one: what is above it is the gate. All store with `durability="sync"`.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from langgraph_handoff import Agent, connect, create_handoff_graph, privileged

TURNS = 50


class Clerk(BaseChatModel):
    """Pays when it is asked to, and says so."""

    @property
    def _llm_type(self) -> str:
        return "clerk"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        last = messages[-1]
        said = AIMessage("ok")
        if last.type == "human" and "pay" in str(last.content):
            order = str(last.content).split()[-1]
            call = {"name": "pay", "args": {"order": order, "amount": 90.0}, "id": f"call-{order}", "type": "tool_call"}
            said = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


def pay(order: str, amount: float) -> str:
    """Pay an order."""
    return f"paid {amount} for {order}"


@contextmanager
def _ours(path: str, tool: Any) -> Iterator[Any]:
    clerk = Agent(name="clerk", description="Pays", model=Clerk(), prompt="You pay.", tools=[tool])
    with connect(path) as storage:
        yield create_handoff_graph([clerk], default_active_agent="clerk").compile(storage=storage)


@contextmanager
def _langchain(path: str) -> Iterator[Any]:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": {"allowed_decisions": ["approve", "edit", "reject"]}})
    with SqliteSaver.from_conn_string(path) as saver:
        yield create_agent(Clerk(), [pay], system_prompt="You pay.", middleware=[gate], checkpointer=saver)


CONTENDERS: dict[str, Callable[[str], Any]] = {
    "ours": lambda path: _ours(path, privileged(pay)),
    "ungated": lambda path: _ours(path, pay),
    "langchain": _langchain,
}


def _say(graph: Any, config: Any, text: str) -> dict[str, Any]:
    out: dict[str, Any] = graph.invoke({"messages": [{"role": "user", "content": text}]}, config, durability="sync")
    return out


def _write(graph: Any, config: Any, order: int) -> float:
    """Return the milliseconds of one approved write."""
    start = time.perf_counter()
    asked = _say(graph, config, f"pay {order}").get("__interrupt__")
    if asked:
        named = {"request_id": asked[0].value["handoff"]["request_id"]} if "handoff" in asked[0].value else {}
        graph.invoke(Command(resume={"decisions": [{"type": "approve", **named}]}), config, durability="sync")
    spent = 1000 * (time.perf_counter() - start)
    results = [each for each in graph.get_state(config).values["messages"] if each.type == "tool"]
    if results[-1].content != f"paid 90.0 for {order}":
        raise SystemExit(f"the write of order {order} gave {results[-1].content!r}")
    return spent


def _bytes(folder: Path) -> int:
    """Return the size of all databases in a folder without what SQLite may take back."""
    for file in folder.glob("*.db"):
        with sqlite3.connect(file) as held:
            held.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            held.execute("VACUUM")
        held.close()
    return sum(os.path.getsize(file) for file in folder.glob("*.db"))


def approved_writes(rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds and bytes of an approved write for each contender, on new threads and after 50 turns."""
    found: dict[str, dict[str, float]] = {}
    spent: dict[str, dict[str, list[float]]] = {name: {"new": [], "old": []} for name in CONTENDERS}
    with tempfile.TemporaryDirectory() as given:
        folders = {name: Path(given) / name for name in CONTENDERS}
        opened: dict[str, Any] = {}
        for name, make in CONTENDERS.items():
            folders[name].mkdir()
            opened[name] = make(str(folders[name] / "cases.db"))
        graphs = {name: each.__enter__() for name, each in opened.items()}
        old: Any = {"configurable": {"thread_id": "old"}}
        for graph in graphs.values():
            for turn in range(TURNS):
                _say(graph, old, f"hello {turn}")
            _write(graph, {"configurable": {"thread_id": "warm"}}, 0)
        for number in range(rounds):
            for name, graph in graphs.items():
                new: Any = {"configurable": {"thread_id": f"new-{number}"}}
                spent[name]["new"].append(_write(graph, new, number))
        before = {name: _bytes(folder) for name, folder in folders.items()}
        for number in range(rounds):
            for name, graph in graphs.items():
                spent[name]["old"].append(_write(graph, old, number))
        for name, each in opened.items():
            each.__exit__(None, None, None)
            sizes = (_bytes(folders[name]) - before[name]) / rounds
            times = {f"{age}_{share}": at(seen, value) for age, seen in spent[name].items() for share, value in SHARES.items()}
            found[name] = {**times, "old_min": min(spent[name]["old"]), "new_min": min(spent[name]["new"]), "bytes": sizes}
    return found


SHARES = {"p50": 0.5, "p99": 0.99}


def at(values: list[float], share: float) -> float:
    """Return a quantile."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def ledger_alone(rounds: int) -> dict[str, float]:
    """Return the milliseconds of an approved write's moves in the ledger, beside a bare commit with fsync of the same disk."""
    from langgraph_handoff.ledger import Proposal, SqliteLedger, identity_key, owner_token

    spent: list[float] = []
    disk: list[float] = []
    with tempfile.TemporaryDirectory() as folder, SqliteLedger(Path(folder) / "ledger.db") as ledger:
        plain = sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)
        plain.execute("PRAGMA journal_mode=WAL")
        plain.execute("PRAGMA synchronous=FULL")
        plain.execute("CREATE TABLE t (n INTEGER)")
        for number in range(rounds):
            key = identity_key(tenant="", case_id="c", tool="pay", schema_version=1, identity={"n": number})
            given = Proposal(
                key=key, kind="write", case_id="c", tenant="", thread_id="c", call_id=str(number), agent="a", tool="pay",
                args={"n": number}, reason="", expires_at=None,
            )  # fmt: skip
            start = time.perf_counter()
            record, _ = ledger.propose(given, seq=1)
            record = ledger.move(record, "approve", decision="approve", approver="a", decided_at=0.0)
            record = ledger.move(record, "start", token=owner_token(), started_at=0.0)
            ledger.move(record, "finish", result="ok", finished_at=0.0)
            spent.append(1000 * (time.perf_counter() - start))
            start = time.perf_counter()
            plain.execute("INSERT INTO t VALUES (?)", [number])
            disk.append(1000 * (time.perf_counter() - start))
        plain.close()
    return {"p50": at(spent, 0.5), "p99": at(spent, 0.99), "disk_p50": at(disk, 0.5), "disk_p99": at(disk, 0.99)}


def gate(rounds: int) -> dict[str, Any]:
    """Measure an approved write in all ways."""
    return {"ledger": ledger_alone(10 * rounds), "writes": approved_writes(rounds)}


def report(found: dict[str, Any]) -> list[str]:
    """Return the figures as Markdown."""
    writes, ledger = found["writes"], found["ledger"]
    ours, peer, free = writes["ours"], writes["langchain"], writes["ungated"]
    columns = ("new_p50", "new_p99", "old_p50", "old_p99", "bytes")
    lines = [
        "| an approved write | ms, new thread, p50 | p99 | ms, after 50 turns, p50 | p99 | bytes |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, held in writes.items():
        shown = [f"{held[each]:.1f}" for each in columns[:-1]]
        lines.append(f"| {name} | {' | '.join(shown)} | {held['bytes']:.0f} |")
    summary = (
        f"Ours / LangChain after 50 turns: time {ours['old_p50'] / peer['old_p50']:.2f} (goal 0.8), bytes "
        f"{ours['bytes'] / peer['bytes']:.3f} (goal 0.03); after 50 turns against a new thread: "
        f"{ours['old_p50'] / ours['new_p50']:.2f} (goal 1.2). The gate above an ungated tool: p50 "
        f"{ours['new_p50'] - free['new_p50']:.1f} ms (goal 10), p99 {ours['new_p99'] - free['new_p50']:.1f} ms (goal 30)."
    )
    alone = (
        f"Of it the ledger's 4 commits with synchronous=FULL: p50 {ledger['p50']:.1f} ms, p99 {ledger['p99']:.1f} ms; one plain "
        f"commit of this disk: p50 {ledger['disk_p50']:.1f} ms, p99 {ledger['disk_p99']:.1f} ms."
    )
    return [*lines, "", summary, "", alone]


if __name__ == "__main__":
    print("\n".join(report(gate(30))))
