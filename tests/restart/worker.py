"""A worker of the soak: a client with a graph and a person, who takes any open case one step on."""

from __future__ import annotations

import fcntl
import random
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph_handoff.errors import (
    LedgerConflictError,
    NoOpenRequestError,
    StaleRequestError,
    ThreadBusyError,
    WriteInProgressError,
)
from langgraph_handoff.ledger import Ledger
from tests.restart.office import Case, Desk, Office
from tests.restart.person import Line, Person
from tests.restart.points import Points
from tests.restart.savers import SAVERS, Kept
from tests.restart.world import Journal

SOMEBODY_ELSE: Final = (ThreadBusyError, WriteInProgressError, LedgerConflictError, StaleRequestError, NoOpenRequestError)
"""What a client is told when another one is at work on the case; it looks again later."""


@dataclass(frozen=True)
class Soak:
    """A soak in a folder."""

    folder: Path
    office: Office
    saver: str = "connect"
    open_cases: int = 10
    """Cases that are worked on side by side; few, so that workers meet."""
    build: Callable[[Desk], Any] = lambda desk: desk.graph
    bare: bool = False
    """Whether the graph is a gate made by hand, whose questions take a bare yes or no."""
    ledger: Callable[[Kept, Path, Points], Ledger] = lambda kept, *_: kept.ledger
    """Which ledger is used instead of the saver's own."""

    @asynccontextmanager
    async def open(self, points: Points) -> AsyncIterator[tuple[Any, Ledger]]:
        """Open the files. Gives the graph and its ledger."""
        async with SAVERS[self.saver].open(self.folder) as kept:
            ledger = self.ledger(kept, self.folder, points)
            points.watch(kept.checkpointer, ledger)
            yield self.build(self._desk(Kept(kept.checkpointer, ledger), points)), ledger

    def journal(self, name: str) -> Journal:
        return Journal(self.folder / f"{name}.jsonl", durable=name == "world")

    def mark(self, name: str) -> Path:
        return self.folder / "marks" / name

    def _desk(self, kept: Kept, points: Points) -> Desk:
        def stored_owner(thread: str) -> str | None:
            rows = SAVERS[self.saver].stored(self.folder, thread, 1)
            return rows[0].checkpoint["channel_values"].get("active_agent") if rows else None

        return Desk(
            self.office, kept.checkpointer, kept.ledger, self.journal("world"), self.journal("acts"), points, stored_owner
        )

    def begun(self) -> list[int]:
        return sorted(int(each.name.split("-")[1]) for each in self.mark("").glob("begun-*"))


async def work(soak: Soak, points: Points, seed: str) -> None:
    """Take open cases on, one step at a time, until all that were begun have ended and no new ones are."""
    choose, first = random.Random(seed), 0
    async with soak.open(points) as (graph, _):
        while True:
            while soak.mark(f"ended-{first}").exists():
                first += 1
            closing = soak.mark("closing").exists()
            candidates = soak.begun() if closing else range(first, first + soak.open_cases)
            open_ = [number for number in candidates if not soak.mark(f"ended-{number}").exists()]
            if not open_:
                return
            case = soak.office.case(choose.choice(open_))
            soak.mark(f"begun-{case.number}").touch()
            thread = choose.choice(case.threads)
            line = Line(graph, thread, case.way, durability=None, more={"case_id": f"case-{case.number}"}, bare=soak.bare)
            try:
                await visit(soak, case, line)
            except SOMEBODY_ELSE:
                points.hit("busy")
            except Exception:
                soak.journal("faults").add(thread=thread, error=traceback.format_exc())
            if all(soak.mark(f"quiet-{each}").exists() for each in case.threads):
                soak.mark(f"ended-{case.number}").touch()


async def visit(soak: Soak, case: Case, line: Line) -> None:
    """Take one thread of a case one step on."""
    person = Person(soak.journal("world"), soak.office.will)
    looked = time.time()
    snapshot = await line.look()
    talk = snapshot.values.get("messages") or []
    heard = [each.id for each in talk if each.type == "human"]
    last = talk[-1].text if talk and talk[-1].type == "ai" else ""
    if snapshot.interrupts:
        await _answer(soak, case, line, person, snapshot.interrupts[0].value, looked)
    elif talk and last != f"done {len(heard)}":
        await line.run(None)
    elif len(heard) < len(case.parts):
        await _say(soak, case, line)
    else:
        soak.mark(f"quiet-{line.thread_id}").touch()


async def _say(soak: Soak, case: Case, line: Line) -> None:
    """Send the user's next words. A user has one mouth: whoever lends it is alone, and looks again before."""
    with soak.mark(f"mouth-{line.thread_id}").open("w") as mouth:
        try:
            fcntl.flock(mouth, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        talk = (await line.look()).values.get("messages") or []
        heard = sum(each.type == "human" for each in talk)
        if heard and talk[-1].text != f"done {heard}":
            return
        said = case.said(heard + 1)
        await line.run({"messages": [said]})
        soak.journal("turns").add(thread=line.thread_id, message=said["id"])


async def _answer(soak: Soak, case: Case, line: Line, person: Person, shown: Any, looked: float) -> None:
    about, args = shown["handoff"], shown["action_requests"][0]["args"]
    made_before = "was made before" in about["note"]  # the other thread's edit has led to just this payment
    decision, edited = ("reject", None) if made_before else person.answer(shown)
    token = str(about["evidence"].get("token") or "::::").split(":")
    question = {
        "thread": line.thread_id, "request_id": about["request_id"], "kind": about["kind"], "order": args.get("order"),
        "op": about["request_id"].split(".")[0], "answer": decision, "note": about["note"], "twin": len(case.threads) > 1,
        "by": int(token[2]) if token[2].isdecimal() else None,
        "looked": looked,
    }  # fmt: skip
    soak.journal("questions").add(**question, at=time.time(), returned=False)
    await line.decide(decision, about["request_id"], by="ana", args=edited)
    soak.journal("questions").add(**question, at=time.time(), returned=True)
