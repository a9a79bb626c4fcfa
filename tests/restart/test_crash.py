"""A slice of the crash matrix; `make crash` runs every cell."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

MATRIX = [sys.executable, "-m", "tests.restart.crash"]


def test_whatever_is_killed_a_write_happens_once_and_the_case_ends(tmp_path: Path) -> None:
    """Killed at any ledger move, checkpoint, model's turn or effect: one write, one owner, a whole history, an end."""
    seed = os.environ.get("HANDOFF_SEED", str(random.randrange(10**6)))
    command = [*MATRIX, str(tmp_path / "cells"), "--take", "2", "--seed", seed, "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = re.search(r"(\d+) cells, (\d+) kills reached, 0 violations", done.stdout)
    assert summary
    assert min(int(each) for each in summary.groups()) >= 120
