"""The checkers checked: a suite that lets a careless gate or ledger pass is broken."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from langgraph.store.sqlite import SqliteStore

from langgraph_handoff.ledger import Ledger
from tests.restart.careless import SqliteCallLedger, StoreLedger, bare_gate, conditional_gate
from tests.restart.crash import Column, run_column
from tests.restart.nemesis import Ambush
from tests.restart.office import Office
from tests.restart.points import Points
from tests.restart.soak import run
from tests.restart.worker import Soak


@pytest.mark.parametrize("gate", ["bare gate", "conditional gate"])
def test_the_crash_matrix_finds_a_careless_gate(tmp_path: Path, gate: str) -> None:
    """Killed at each of its points, a gate made by hand writes twice or not at all, and the matrix says so."""
    _, _, lines = run_column(Column(gate, "connect", "sync"), tmp_path, 0, 0)
    assert [line for line in lines if ": written [" in line]


def in_a_store(kept: Any, folder: Path, points: Points) -> Ledger:
    connection = sqlite3.connect(folder / "store.db", check_same_thread=False, isolation_level=None, timeout=30)
    store = SqliteStore(connection)
    with FileLock(folder / "store.lock"):
        store.setup()
    ledger = StoreLedger(store)
    ledger.gap = lambda event: points.hit(f"between get and put {event}")
    return ledger


CARELESS: dict[str, tuple[dict[str, Any], Ambush | None]] = {
    "bare gate": (
        {"build": lambda desk: bare_gate(desk.checkpointer, desk.due, desk.pay_bare), "bare": True},
        ("after the effect#1", signal.SIGKILL),
    ),
    "conditional gate": (
        {"build": lambda desk: conditional_gate(desk.checkpointer, desk.ledger, desk.due, desk.pay_bare), "bare": True},
        ("before the effect#1", signal.SIGKILL),
    ),
    "store ledger": ({"ledger": in_a_store}, ("between get and put start#1", signal.SIGSTOP)),
    "ledger keyed by call": ({"ledger": lambda kept, folder, points: SqliteCallLedger(folder / "calls.db")}, None),
    "none of these": ({}, ("before move start#1", signal.SIGSTOP)),
}


@pytest.mark.parametrize("name", CARELESS)
def test_the_soak_finds_a_careless_gate_or_ledger(tmp_path: Path, name: str) -> None:
    """Workers on both threads of a case, some of which fall at the worst step: each of these pays an order twice or never."""
    how, ambush = CARELESS[name]
    office = Office(1, wishes=("approve",), twins=0.0 if "bare" in how else 1.0)
    soak = Soak(tmp_path / "soak", office, open_cases=1, **how)
    _, found = run(soak, 1, lambda nemesis: len(soak.begun()) >= 5 or nemesis.sent["SIGKILL"] >= 5, ambush=lambda _: ambush)
    assert bool([each for each in found if each.startswith("I1")]) is (name != "none of these"), found
