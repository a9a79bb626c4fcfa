"""The nemesis: starts workers, follows them step by step, and after random numbers of steps kills one or stops it for a while."""

from __future__ import annotations

import os
import random
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.restart.points import Points
from tests.restart.world import Journal

STEPS: Final = 110
"""Steps of a worker between two signals, on average."""
AMBUSHES: Final = (
    "before propose",
    "before move approve",
    "before move start",
    "after move start",
    "before the effect",
    "after the effect",
    "before move finish",
    "before put",
    "after put",
    "before put_writes",
    "after put_writes",
    "bob acts",
)
LONGEST_STOP: Final = 0.3
"""Seconds after which a stopped worker goes on although the others make no steps: it may hold a file's lock."""


Ambush = tuple[str, signal.Signals]


def anywhere(choose: random.Random) -> Ambush | None:
    """Choose an ambush for every second worker."""
    way = signal.SIGKILL if choose.random() < 0.6 else signal.SIGSTOP
    return (f"{choose.choice(AMBUSHES)}#{choose.randrange(1, 9)}", way) if choose.random() < 0.5 else None


@dataclass
class Worker:
    """A worker process, as its nemesis sees it."""

    pid: int
    steps: int
    """The reading end of the pipe that it writes a byte to at every step."""
    fuse: int
    """Steps until its next signal."""
    stopped: float | None = None
    away: int = 0
    """Steps of the others since it was stopped."""


@dataclass
class Nemesis:
    """Starts the workers, follows their steps and sends the signals. All of its choices come from the seed."""

    task: Callable[[Points, str], None]
    """What a worker does, given its steps' names to pass and a seed of its own."""
    seed: int
    signals: Journal
    faults: Journal
    ambush: Callable[[random.Random], Ambush | None] = anywhere
    """Chooses for each worker a named step and the signal that it gets there."""
    calm: bool = False
    workers: dict[int, Worker] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    steps: int = 0

    def __post_init__(self) -> None:
        self.choose = random.Random(self.seed)

    def start(self) -> None:
        """Fork a worker."""
        self.sent["workers"] += 1
        seed = f"{self.seed}/{self.sent['workers']}"
        ambush = None if self.calm else self.ambush(self.choose)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._be_a_worker(seed, writing, ambush)
        os.close(writing)
        self.workers[pid] = Worker(pid, reading, self._fuse())

    def _be_a_worker(self, seed: str, pipe: int, ambush: Ambush | None) -> None:
        def passing(point: str) -> None:
            os.write(pipe, b".")
            if ambush is not None and point == ambush[0]:
                self.signals.add(pid=os.getpid(), signal=ambush[1].name, at=point)
                os.kill(os.getpid(), ambush[1])

        code = 1
        try:
            self.task(Points(passing=passing), seed)
            code = 0
        except BaseException:
            self.faults.add(thread=None, error=traceback.format_exc())
        finally:
            os._exit(code)

    def _fuse(self) -> int:
        return int(self.choose.expovariate(1 / STEPS)) + 1

    def follow(self) -> None:
        """Read the steps that the workers have taken, send the signals that are due, and replace the dead."""
        ready, _, _ = select.select([each.steps for each in self.workers.values()], [], [], 0.05)
        for worker in list(self.workers.values()):
            taken = len(os.read(worker.steps, 65536)) if worker.steps in ready else 0
            self.steps += taken
            worker.fuse -= taken
            for other in self.workers.values():
                other.away += taken if other is not worker else 0
            if worker.fuse <= 0 and worker.stopped is None and not self.calm:
                self._strike(worker)
            late = worker.stopped is not None and time.monotonic() - worker.stopped > LONGEST_STOP
            if worker.stopped is not None and (self.calm or late or worker.away > STEPS):
                worker.stopped = None
                os.kill(worker.pid, signal.SIGCONT)
            self._look_at(worker)

    def _strike(self, worker: Worker) -> None:
        way = signal.SIGKILL if self.choose.random() < 0.65 else signal.SIGSTOP
        worker.fuse = self._fuse()
        self.signals.add(pid=worker.pid, signal=way.name, at=None)
        os.kill(worker.pid, way)

    def _look_at(self, worker: Worker) -> None:
        pid, status = os.waitpid(worker.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            self.sent["SIGSTOP"] += 1
            worker.stopped, worker.away = time.monotonic(), 0
            return
        self.sent["SIGKILL"] += os.WIFSIGNALED(status)
        os.close(worker.steps)
        del self.workers[worker.pid]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            self.faults.add(thread=None, error=f"a worker died of signal {os.WTERMSIG(status)}")
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != 0:
            self.start()
