"""A slice of the crash matrix, and a check that its checker can fail; `make crash` runs every cell."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_handoff import connect
from tests.restart.crash import Points, in_child

MATRIX = Path(__file__).with_name("crash.py")


def test_whatever_is_killed_a_write_happens_once_and_the_case_ends(tmp_path: Path) -> None:
    """Killed at any ledger move, checkpoint or effect, in four shapes, sync and async: one write, a whole history, an end."""
    seed = os.environ.get("HANDOFF_SEED", str(random.randrange(10**6)))
    command = [sys.executable, str(MATRIX), str(tmp_path / "cells"), "--every", "3", "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = re.search(r"(\d+) cells, 0 with violations", done.stdout)
    assert summary
    assert int(summary.group(1)) >= 120
    assert sum(int(each) for each in re.findall(r"(\d+) kills reached", done.stdout)) >= 120


def bare_gate(saver: BaseCheckpointSaver[Any], world: Path, points: Points) -> Any:
    """What people write by hand: a node that asks, a node that writes, nothing else."""

    def ask(_: MessagesState) -> Command[Any]:
        return Command(goto="write" if interrupt("pay?") == "yes" else "__end__")

    def write(_: MessagesState) -> dict[str, Any]:
        with world.open("a") as lines:
            lines.write("A\n")
        points.hit("after the effect")
        return {"messages": [("ai", "done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask, destinations=("write", "__end__"))
    builder.add_node("write", write)
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=saver)


def test_the_checker_sees_the_second_write_of_a_bare_gate(tmp_path: Path) -> None:
    """The same kill makes a hand-written interrupt gate write twice, so the way in which writes are counted can fail."""
    world, config = tmp_path / "world.txt", {"configurable": {"thread_id": "case"}}

    def work(kill: str | None) -> dict[str, Any]:
        with connect(str(tmp_path / "cases.db")) as storage:
            graph = bare_gate(storage.checkpointer, world, Points(kill))
            if not graph.get_state(config).values:
                graph.invoke({"messages": "pay"}, config, durability="sync")  # type: ignore[arg-type]
                graph.invoke(Command(resume="yes"), config, durability="sync")  # type: ignore[arg-type]
            else:
                graph.invoke(Command(resume="yes"), config, durability="sync")  # type: ignore[arg-type]
        return {}

    in_child(lambda: work("after the effect#1"), tmp_path / "killed.json")
    in_child(lambda: work(None), tmp_path / "after.json")
    assert world.read_text().splitlines() == ["A", "A"]
