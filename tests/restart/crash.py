"""Kills a process at every step of a gated write and lets an operator, who sees only what the API shows, finish the case.

Each cell forks one child that kills itself with SIGKILL at a named point (a ledger move, a checkpoint, the effect), then children
without a kill until the case has ended. The effect is a line in a file with fsync, so that nothing in a dead process counts it.

`python tests/restart/crash.py FOLDER [--every N] [--seed S]` prints the cells of each shape and exits with 1 on a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph

from langgraph_handoff import Agent, HandoffState, adecide, connect, create_handoff_graph, decide, privileged
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults

SHAPES = ("tool", "two tools", "write beside handoff", "nested in a parent graph")
WAYS = ("sync", "async")
CONFIG: Any = {"configurable": {"thread_id": "case"}}
LEDGER_MOVES = ("propose", "move")
SAVER_CALLS = ("put", "put_writes")


class Points:
    """Names each step that is passed, and dies at the chosen one."""

    def __init__(self, kill: str | None) -> None:
        self.kill, self.passed = kill, []  # type: ignore[var-annotated]
        self.count: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        self.count[name] += 1
        point = f"{name}#{self.count[name]}"
        self.passed.append(point)
        if point == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, thing: Any, names: tuple[str, ...]) -> None:
        for name in names:
            setattr(thing, name, self._watched(name, getattr(thing, name)))

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            label = f"{name} {args[1]}" if name == "move" else name
            self.hit(f"before {label}")
            out = original(*args, **kwargs)
            self.hit(f"after {label}")
            return out

        return watched


def graph_of(shape: str, storage: Storage, world: Path, points: Points) -> Any:
    def pay(order: str) -> str:
        """Pay an order."""
        points.hit("before the effect")
        with world.open("a") as lines:
            lines.write(order + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        points.hit("after the effect")
        return f"paid {order}"

    orders = ["A", "B"] if shape == "two tools" else ["A"]
    calls = [call("pay", order=order) for order in orders]
    beside = shape == "write beside handoff"
    turn = [*calls, *([call("transfer_to_bob", reason="r")] if beside else [])]

    def alice(messages: list[Any]) -> Any:
        return "done" if any(m.type == "tool" for m in messages) else turn

    agents = [
        Agent(
            name="alice",
            description="A",
            model=ScriptedChatModel([alice], loop=True, agent="alice"),
            tools=[privileged(pay)],
            handoffs=["bob"] if beside else [],
        ),
        Agent(name="bob", description="B", model=ScriptedChatModel(["done"], loop=True, agent="bob")),
    ]
    builder = create_handoff_graph(agents, default_active_agent="alice")
    if shape != "nested in a parent graph":
        return builder.compile(storage=storage)
    outer = StateGraph(HandoffState)
    outer.add_node("desk", builder.compile(ledger=storage.ledger))
    outer.add_edge(START, "desk")
    return outer.compile(checkpointer=storage.checkpointer)


def step(graph: Any, given: Any, way: str) -> Any:
    if way == "async":
        return asyncio.run(graph.ainvoke(given, CONFIG, durability="sync"))
    return graph.invoke(given, CONFIG, durability="sync")


def answer(graph: Any, way: str, decision: Any, request_id: str) -> None:
    if way == "async":
        asyncio.run(adecide(graph, CONFIG, decision, by="ana", request_id=request_id))
    else:
        decide(graph, CONFIG, decision, by="ana", request_id=request_id)


def operate(shape: str, way: str, folder: Path, kill: str | None) -> dict[str, Any]:
    """Work on the case until it has ended: send the message if it is not stored, answer what is asked, continue what is unfinished."""
    points, world = Points(kill), folder / "world.txt"
    asked: list[str] = []
    with connect(str(folder / "cases.db")) as storage:
        points.watch(storage.ledger, LEDGER_MOVES)
        points.watch(storage.checkpointer, SAVER_CALLS)
        graph = graph_of(shape, storage, world, points)
        for _ in range(12):
            snapshot = graph.get_state(CONFIG)
            talk = snapshot.values.get("messages") or []
            if not talk:
                step(graph, {"messages": [{"role": "user", "content": "pay", "id": "user-1"}]}, way)
            elif snapshot.interrupts:
                shown = snapshot.interrupts[0].value
                about = shown["handoff"]
                asked.append(about["kind"])
                order = shown["action_requests"][0]["args"]["order"]
                done = world.exists() and order in world.read_text().splitlines()
                truth = "done" if done else "did_not_happen"
                answer(graph, way, truth if about["kind"] == "unknown" else "approve", about["request_id"])
            elif talk[-1].type == "ai" and talk[-1].text == "done":
                break
            else:
                step(graph, None, way)
        values = graph.get_state(CONFIG).values
        records = [(r.state, r.epoch, r.approver) for r in storage.ledger.records()]
    written = world.read_text().splitlines() if world.exists() else []
    return {
        "points": points.passed,
        "asked": asked,
        "written": written,
        "records": records,
        "faults": history_faults(values.get("messages") or []),
        "said": values["messages"][-1].text if values.get("messages") else "",
        "owner": values.get("active_agent"),
    }


def in_child(work: Callable[[], dict[str, Any]], report: Path) -> int:
    """Fork, work, leave the outcome in a file. Returns the child's wait status."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            report.write_text(json.dumps(work()))
            code = 0
        except BaseException:
            report.with_suffix(".error").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def claimed(folder: Path) -> bool:
    """Return whether the dead process had claimed a write and not ended it: a checkpoint's thread may die in the middle of one."""
    file = folder / "cases.ledger.db"
    if not file.exists():
        return False
    with closing(sqlite3.connect(file)) as ledger:
        table = ledger.execute("SELECT count(*) FROM sqlite_master WHERE name = 'handoff_ops'").fetchone()[0]
        return bool(table and ledger.execute("SELECT count(*) FROM handoff_ops WHERE state = 'executing'").fetchone()[0])


def violations(shape: str, unknown: bool, found: dict[str, Any]) -> list[str]:
    """Return what must never be: the checker of the matrix.

    Args:
        shape: The shape of the case.
        unknown: Whether nobody could know if the write had happened, so that a person must be asked.
        found: What the operator left.
    """
    orders = ["A", "B"] if shape == "two tools" else ["A"]
    wrong = []
    if sorted(found["written"]) != orders:
        wrong.append(f"written {found['written']}")
    if found["said"] != "done":
        wrong.append(f"ended with {found['said']!r}")
    if found["faults"]:
        wrong.append(f"history: {found['faults']}")
    if [state for state, _, _ in found["records"]] != ["done"] * len(orders):
        wrong.append(f"ledger {found['records']}")
    if found["owner"] != ("bob" if shape == "write beside handoff" else "alice"):
        wrong.append(f"owner {found['owner']}")
    if ("unknown" in found["asked"]) != unknown:
        wrong.append(f"asked {found['asked']}")
    if "repeat" in found["asked"]:
        wrong.append("asked again what was decided")
    return wrong


def cell(shape: str, way: str, kill: str, folder: Path) -> tuple[bool, list[str]]:
    """Kill at one point, finish the case. Returns whether the point was reached, and the violations."""
    folder.mkdir(parents=True)
    status = in_child(lambda: operate(shape, way, folder, kill), folder / "killed.json")
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        return False, []
    unknown = claimed(folder)
    if in_child(lambda: operate(shape, way, folder, None), folder / "after.json") != 0:
        return True, [(folder / "after.error").read_text().splitlines()[-1]]
    return True, violations(shape, unknown, json.loads((folder / "after.json").read_text()))


def matrix(folder: Path, every: int, seed: int, report: Callable[[str], None]) -> int:
    """Run the cells. Returns the number of violations."""
    bad = cells = 0
    choose = random.Random(seed)
    for shape in SHAPES:
        for way in WAYS:
            dry = folder / f"{shape}-{way}-dry"
            dry.mkdir(parents=True)
            if in_child(lambda: operate(shape, way, dry, None), dry / "dry.json") != 0:  # noqa: B023 (runs at once)
                raise SystemExit((dry / "dry.error").read_text())
            points = json.loads((dry / "dry.json").read_text())["points"]
            chosen = points if every == 1 else sorted(choose.sample(points, len(points) // every), key=points.index)
            reached = 0
            for number, kill in enumerate(chosen):
                hit, wrong = cell(shape, way, kill, folder / f"{shape}-{way}-{number}")
                reached += hit
                bad += bool(wrong)
                for each in wrong:
                    report(f"VIOLATION {shape}, {way}, killed {kill}: {each}")
            cells += len(chosen)
            report(f"{shape}, {way}: {len(chosen)} cells of {len(points)} points, {reached} kills reached")
    report(f"{cells} cells, {bad} with violations, seed {seed}")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take one of N points, at random")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    sys.exit(min(1, matrix(given.folder, given.every, given.seed, lambda line: print(line, flush=True))))


if __name__ == "__main__":
    main()
