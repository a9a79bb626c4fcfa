"""Kills a process at every step of a case and lets a person, who sees only what the API shows, finish it.

Each cell forks one child that kills itself with SIGKILL at a named point (a ledger move, a checkpoint, a model's turn, the effect),
then a child without a kill that goes on until the case has ended. A column of the matrix is a shape of desk, a saver, a way to run
and a durability; its cells are the points that a run without a kill passes.

`python -m tests.restart.crash FOLDER [--take N] [--seed S] [--only TEXT] [--jobs N]` prints the kills that were reached in each
column and exits with 1 on a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from langgraph_handoff.ledger import WriteRecord
from langgraph_handoff.testing import history_faults
from tests.restart.desks import CARELESS, FIRST_USER_MESSAGE, FLAT, NESTED, SHAPES, Shape, Stage, build
from tests.restart.person import Answer, Line, Person
from tests.restart.points import Points
from tests.restart.savers import SAVERS
from tests.restart.world import Journal

MOST_STEPS = 15
"""Answers and continuations after which a case counts as one that never ends."""


@dataclass(frozen=True)
class Column:
    """A column of the matrix."""

    shape: str
    saver: str
    way: str
    durability: str = "sync"

    def __str__(self) -> str:
        return f"{self.shape}, {self.saver}, {self.way}, durability {self.durability}"


def columns() -> list[Column]:
    """Return every column: the table of what is killed."""
    kept = [(name, way) for name, saver in SAVERS.items() for way in saver.ways]
    flat = [Column(shape, *each) for shape, each in itertools.product(FLAT, kept)]
    inner = [Column(shape, *each, how) for shape, each, how in itertools.product(NESTED, kept, ("sync", "async"))]
    # The front door raises async to sync and refuses exit where there are writes; elsewhere exit is the user's choice.
    loose = [Column("handoff", *each, how) for each, how in itertools.product(kept, ("async", "exit"))]
    return [*flat, *inner, *loose, *(Column("nested handoff", *each, "exit") for each in kept)]


def will(shape: Shape) -> Callable[[str, Any], Answer]:
    """Return what the person of a shape wants."""
    return lambda tool, args: ("edit", shape.edit) if shape.edit and args != shape.edit else ("approve", None)


async def operate(column: Column, folder: Path, kill: str | None) -> dict[str, Any]:
    """Work on the case until it has ended: send the message if it is not stored, answer what is asked, continue what is unfinished."""
    shape, saver, points = SHAPES[column.shape], SAVERS[column.saver], Points(kill)
    asked = Journal(folder / "asked.jsonl")

    def stored_owner() -> str | None:
        owners = [each.checkpoint["channel_values"].get("active_agent") for each in saver.stored(folder, "case", None)]
        return "bob" if "bob" in owners else next(filter(None, owners), None)

    async with saver.open(folder) as kept:
        points.watch(kept.checkpointer, kept.ledger)
        stage = Stage(kept, folder, points, stored_owner)
        line = Line(build(shape, stage), way=column.way, durability=column.durability, bare=shape.gate is not None)
        person = Person(stage.world, will(shape))
        at_first = _inside(await line.look(subgraphs=shape.nested))
        for _ in range(MOST_STEPS):
            snapshot = await line.look()
            talk = snapshot.values.get("messages") or []
            if snapshot.interrupts:
                shown = snapshot.interrupts[0].value
                asked.add(kind=shown["handoff"]["kind"])
                decision, args = person.answer(shown)
                await line.decide(decision, shown["handoff"]["request_id"], by="ana", args=args)
            elif not talk:
                await line.run({"messages": [{"role": "user", "content": "pay", "id": FIRST_USER_MESSAGE}]})
            elif talk[-1].type == "ai" and talk[-1].text == "done":
                break
            else:
                await line.run(None)
        values = (await line.look()).values
        records = kept.ledger.records()
    return {
        "points": points.passed,
        "asked": [each["kind"] for each in asked.lines()],
        "written": [each["order"] for each in stage.world.lines()],
        "amounts": [each["amount"] for each in stage.world.lines()],
        "acts": stage.acts.lines(),
        "rows": [(each.kind, each.state, each.approver) for each in records],
        "faults": history_faults(values.get("messages") or []),
        "users": [each.id for each in values.get("messages") or [] if each.type == "human"],
        "said": values["messages"][-1].text if values.get("messages") else "",
        "at first": at_first,
        "in the end": _owned(values),
    }


def _inside(snapshot: Any) -> dict[str, Any]:
    """Return who owns the case, from the desk's own state where it is a node that has not ended."""
    inner = [each.state.values for each in snapshot.tasks if hasattr(each.state, "values")]
    return _owned(inner[0] if inner else snapshot.values)


def _owned(values: Any) -> dict[str, Any]:
    package = values.get("handoff")
    arrived = [each for each in values.get("messages") or [] if each.type == "tool" and each.text == "bob has the case now."]
    return {
        "owner": values.get("active_agent"),
        "package": package["to_agent"] if isinstance(package, dict) else getattr(package, "to_agent", None),
        "epoch": (values.get("ownership") or {}).get("epoch", 0),
        "arrivals": len(arrived),
    }


def in_child(work: Callable[[], Any], report: Path) -> int:
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


def claimed(column: Column, folder: Path) -> bool:
    """Return whether the dead process had claimed a write and not ended it: a checkpoint's thread may die in the middle of one."""

    async def rows() -> list[WriteRecord]:
        async with SAVERS[column.saver].open(folder) as kept:
            return kept.ledger.records(states=["executing"])

    return any(each.kind != "transfer" for each in asyncio.run(rows()))


def violations(shape: Shape, column: Column, claimed: bool, found: dict[str, Any]) -> Iterator[str]:
    """Say what must never be: the checker of the matrix.

    Args:
        shape: What the case must come to.
        column: Where it ran.
        claimed: Whether the process died between the claim of a write and its end.
        found: What the operator left.
    """
    if sorted(found["written"]) != sorted(shape.written):
        yield f"written {found['written']}, not {list(shape.written)}"
    if shape.edit and found["amounts"] != [shape.edit["amount"]]:
        yield f"written with {found['amounts']}"
    if found["said"] != "done":
        yield f"ended with {found['said']!r}"
    if found["faults"]:
        yield f"history {found['faults']}"
    if found["users"] != [FIRST_USER_MESSAGE]:
        yield f"the user's turns {found['users']}"
    if sorted(state for _, state, _ in found["rows"]) != sorted(shape.states):
        yield f"ledger {found['rows']}"
    if any(approver is None for _, _, approver in found["rows"]):
        yield f"nobody approved {found['rows']}"
    if ("unknown" in found["asked"]) != (claimed if shape.unknown is None else shape.unknown):
        yield f"asked {found['asked']}"
    if "repeat" in found["asked"] and not shape.repeats:
        yield "asked again what was decided"
    for when in ("at first", "in the end"):
        yield from _owner_faults(when, found[when])
    if found["in the end"]["owner"] != shape.owner:
        yield f"owner {found['in the end']}"
    if column.durability != "exit" and any(each["stored"] != each["agent"] for each in found["acts"]):
        yield f"acted before the transfer was stored {found['acts']}"


def _owner_faults(when: str, case: dict[str, Any]) -> Iterator[str]:
    """I4: an owner that was given the case has its package, and it was given once."""
    given = case["owner"] == "bob"
    if case["owner"] not in (None, "alice", "bob") or given != (case["package"] == "bob") or case["arrivals"] != given:
        yield f"{when}: {case}"
    if case["epoch"] != (case["owner"] is not None) + given:
        yield f"{when}: the epoch does not fit {case}"


def cell(column: Column, kill: str, folder: Path) -> tuple[bool, list[str]]:
    """Kill at one point, finish the case. Returns whether the point was reached, and the violations."""
    folder.mkdir(parents=True)
    status = in_child(lambda: asyncio.run(operate(column, folder, kill)), folder / "killed.json")
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        error = folder / "killed.error"
        return False, [error.read_text().splitlines()[-1]] if error.exists() else []
    lost = claimed(column, folder)
    if in_child(lambda: asyncio.run(operate(column, folder, None)), folder / "after.json") != 0:
        return True, [(folder / "after.error").read_text().splitlines()[-1]]
    return True, list(violations(SHAPES[column.shape], column, lost, json.loads((folder / "after.json").read_text())))


def run_column(column: Column, folder: Path, take: int, seed: int) -> tuple[int, int, list[str]]:
    """Run the cells of a column, or some of them. Returns cells, kills reached, and lines to print."""
    dry = folder / "dry"
    dry.mkdir(parents=True)
    if in_child(lambda: asyncio.run(operate(column, dry, None)), dry / "dry.json") != 0:
        return 1, 0, [f"VIOLATION {column}, not killed: {(dry / 'dry.error').read_text().splitlines()[-1]}"]
    found = json.loads((dry / "dry.json").read_text())
    wrong = [f"VIOLATION {column}, not killed: {each}" for each in violations(SHAPES[column.shape], column, False, found)]
    points = found["points"]
    chosen = random.Random(f"{seed} {column}").sample(points, min(take, len(points))) if take else points
    reached = 0
    for number, kill in enumerate(chosen):
        hit, faults = cell(column, kill, folder / str(number))
        reached += hit
        wrong += [f"VIOLATION {column}, killed {kill}: {each}" for each in faults]
    return len(chosen), reached, [*wrong, f"{column}: {len(chosen)} cells of {len(points)} points, {reached} kills reached"]


def matrix(chosen: Iterable[Column], folder: Path, take: int, seed: int, jobs: int, report: Callable[[str], None]) -> int:
    """Run columns side by side. Returns the number of violations."""
    began, cells, kills, bad = time.monotonic(), 0, 0, 0
    # Forked, so that a cell costs no imports; each worker runs one cell at a time and has no threads of its own.
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        jobs_ = [pool.submit(run_column, each, folder / str(number), take, seed) for number, each in enumerate(chosen)]
        for job in jobs_:
            count, reached, lines = job.result()
            cells, kills = cells + count, kills + reached
            bad += sum(line.startswith("VIOLATION") for line in lines)
            for line in lines:
                report(line)
    report(f"{cells} cells, {kills} kills reached, {bad} violations, seed {seed}, {time.monotonic() - began:.0f} s")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--take", type=int, default=0, help="take N points of each column, at random")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="columns whose name holds this text")
    parser.add_argument("--careless", action="store_true", help="gates with a fault instead, to see that they are found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    table = [Column(shape, "connect", "sync") for shape in CARELESS] if given.careless else columns()
    chosen = [each for each in table if given.only in str(each)]
    bad = matrix(chosen, given.folder, given.take, given.seed, given.jobs, lambda line: print(line, flush=True))
    sys.exit(min(1, bad))


if __name__ == "__main__":
    main()
