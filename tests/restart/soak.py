"""Workers, a nemesis and a person: hundreds of cases under SIGKILL and SIGSTOP at random moments.

Workers are processes that share the files of one saver. Each takes any open case one step on: it sends the user's words, continues
what is unfinished, or lets the person answer, who sees only what the API shows. The nemesis follows the workers step by step and,
after a random number of steps, kills one, or stops it and lets it go on when the others have gone further; some workers are told
to fall at a named step. When all cases have ended the checker looks at what is left:

I1  A payment happens as often as the person wants it, once or never, and never more often than it was approved or retried.
I2  No payment happens before its approval, without an approver, or with other arguments than the approved ones.
I3  Every operation of the ledger ends, and every case finishes.
I4  A case has one owner: it is transferred once, its epoch grows by one, the former owner never acts again, and the new one acts
    only when it is stored as the owner.
I5  Every turn of the user whose call returned is in the talk.
I6  Every call has exactly one result, right behind its message.
I7  What became of a write is asked only if a process was killed or stopped at it; an answer that was taken is not asked for again.
I8  The package and the case file are read back as they were written.

`python -m tests.restart.soak FOLDER [--seconds S | --cases N] [--seed S] [--saver NAME]` exits with 1 on a violation; the folder
then holds everything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.restart.invariants import Evidence, violations
from tests.restart.nemesis import Ambush, Nemesis, anywhere
from tests.restart.office import Office
from tests.restart.person import Line
from tests.restart.points import Points
from tests.restart.savers import SAVERS
from tests.restart.worker import Soak, work

WORKERS: Final = 4


def run(
    soak: Soak,
    seed: int,
    enough: Callable[[Nemesis], bool],
    *,
    ambush: Callable[[random.Random], Ambush | None] = anywhere,
    patience: float = 120,
) -> tuple[Nemesis, list[str]]:
    """Soak until it is enough, let all begun cases end in peace, and check.

    Args:
        soak: What to run.
        seed: Of the nemesis and the workers.
        enough: When to begin no new cases.
        ambush: Chooses the named steps at which workers fall.
        patience: Seconds that the begun cases may take to end; only a soak that hangs takes so long.
    """
    soak.mark("").mkdir(parents=True)
    task = lambda points, own: asyncio.run(work(soak, points, own))  # noqa: E731 (what a forked worker does)
    nemesis = Nemesis(task, seed, soak.journal("signals"), soak.journal("faults"), ambush)
    for _ in range(WORKERS):
        nemesis.start()
    while not enough(nemesis):
        nemesis.follow()
    nemesis.calm = True
    soak.mark("closing").touch()
    deadline = time.monotonic() + patience
    while nemesis.workers and time.monotonic() < deadline:
        nemesis.follow()
    for worker in list(nemesis.workers.values()):
        os.kill(worker.pid, signal.SIGKILL)
        os.waitpid(worker.pid, 0)
    hung = [f"I3: {len(nemesis.workers)} workers did not end"] if nemesis.workers else []
    return nemesis, [*hung, *violations(asyncio.run(evidence(soak)))]


async def evidence(soak: Soak) -> Evidence:
    """Read what is left."""
    cases = [soak.office.case(number) for number in soak.begun()]
    async with soak.open(Points()) as (graph, ledger):
        way = "async" if "sync" not in SAVERS[soak.saver].ways else "sync"
        states = {thread: (await Line(graph, thread, way).look()).values for case in cases for thread in case.threads}
        rows = ledger.records()
    return Evidence(
        cases=cases,
        effects=soak.journal("world").lines(),
        questions=soak.journal("questions").lines(),
        turns=soak.journal("turns").lines(),
        acts=soak.journal("acts").lines(),
        faults=soak.journal("faults").lines(),
        killed=frozenset(each["pid"] for each in soak.journal("signals").lines()),
        rows=rows,
        states=states,
    )


def summary(soak: Soak, nemesis: Nemesis, seconds: float) -> str:
    """Return what was done, in one line."""
    cases = soak.begun()
    operations = len(
        {each["op"] for each in soak.journal("questions").lines()} | {each["op"] for each in soak.journal("world").lines()}
    )
    asked = Counter(each["kind"] for each in soak.journal("questions").lines() if each["returned"])
    return (
        f"{len(cases)} cases, {operations} privileged operations, {nemesis.sent['SIGKILL']} SIGKILL, {nemesis.sent['SIGSTOP']} SIGSTOP, "
        f"{nemesis.steps} steps, questions {dict(asked)}, {seconds:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases", type=int, help="end by a number of cases instead")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--saver", choices=SAVERS, default="connect")
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.saver}", flush=True)
    soak = Soak(given.folder, Office(given.seed, SAVERS[given.saver].ways), given.saver)
    began = time.monotonic()

    def enough(_: Nemesis) -> bool:
        return len(soak.begun()) >= given.cases if given.cases else time.monotonic() - began > given.seconds

    nemesis, wrong = run(soak, given.seed, enough)
    for each in wrong:
        print("VIOLATION", each)
    print(f"{summary(soak, nemesis, time.monotonic() - began)}, {len(wrong)} violations, seed {given.seed}")
    if wrong:
        print(f"journals, ledger and checkpoints are kept in {given.folder}")
        sys.exit(1)
    shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
