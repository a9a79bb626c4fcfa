"""Processes that do the same thing at the same time: they meet at a barrier, so that no test waits for luck."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    """The host's tables are made once, whoever comes first; nobody sees a half-made file."""

    def opened(path: Path) -> Callable[[Any], str]:
        def work(barrier: Any) -> str:
            barrier.wait(60)
            with connect(str(path)) as storage:
                storage.store.put(("a",), "b", {"c": 1})
            return "opened"

        return work

    for trial in range(5):
        assert at_once([opened(tmp_path / f"{trial}.db")] * 4) == ["opened"] * 4
