"""Processes that do the same thing at the same time: they meet at a barrier, so that no test waits for luck."""

from __future__ import annotations

import functools
import multiprocessing
import sqlite3
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_handoff import connect

FORK: Any = multiprocessing.get_context("fork")


def at_once(works: list[Callable[[Any], Any]]) -> list[Any]:
    """Run each work in a process of its own; each is given a barrier of all of them. Returns results, or texts of errors."""
    barrier, results = FORK.Barrier(len(works)), FORK.Manager().list([None] * len(works))

    def child(number: int) -> None:
        try:
            results[number] = works[number](barrier)
        except BaseException:
            results[number] = traceback.format_exc()

    running = [FORK.Process(target=child, args=(number,)) for number in range(len(works))]
    for each in running:
        each.start()
    for each in running:
        each.join(120)
        assert each.exitcode == 0
    return list(results)


class SlowConnection(sqlite3.Connection):
    """Takes its time between the steps of a migration."""

    def executescript(self, script: str) -> Any:
        """Run the script, then wait."""
        out = super().executescript(script)
        time.sleep(0.02)
        return out


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's tables are made once, whoever comes first; nobody sees a half-made file."""
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=SlowConnection))

    def opened(barrier: Any) -> str:
        barrier.wait(60)
        with connect(str(tmp_path / "cases.db")) as storage:
            storage.store.put(("a",), "b", {"c": 1})
        return "opened"

    assert at_once([opened] * 4) == ["opened"] * 4
