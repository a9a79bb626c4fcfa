"""A slice of the soak, counted in cases so that a slow machine runs the same; `make soak` runs it for a minute."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.restart.office import Office
from tests.restart.soak import run
from tests.restart.worker import Soak


def test_workers_that_are_killed_and_stopped_settle_every_case_once(tmp_path: Path) -> None:
    """Over two dozen cases under SIGKILL and SIGSTOP at random moments no invariant is violated."""
    seed = int(os.environ.get("HANDOFF_SEED", random.randrange(10**6)))
    soak = Soak(tmp_path / "soak", Office(seed, twins=0.3))
    _, wrong = run(
        soak, seed, lambda nemesis: len(soak.begun()) >= 24 and min(nemesis.sent["SIGKILL"], nemesis.sent["SIGSTOP"]) >= 5
    )
    assert wrong == [], f"seed {seed}"
