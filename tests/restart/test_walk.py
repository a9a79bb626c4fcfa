"""The seed case, whole and with its process killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from langgraph_handoff import connect, decide, hops
from langgraph_handoff.demo import SEED_CASE, bank, support
from langgraph_handoff.testing import assert_hops, history_faults

WALK = ["triage", "tech", "triage", "billing", "human", "billing", "done"]
CONFIG = {"configurable": {"thread_id": "c1"}}
COMMAND = [sys.executable, "-m", "langgraph_handoff.cli"]


CREDIT = ("A-102", 90.0)


def credits_of(db: Path) -> list[tuple[str, float]]:
    """The credits that were issued, one for each line that the tool ever wrote."""
    file = bank(db)
    lines = file.read_text().splitlines() if file.exists() else []
    return [(each["invoice_id"], each["amount"]) for each in map(json.loads, lines)]


def walked(db: Path) -> list[str]:
    """The hops that a new reader finds in the file."""
    with connect(str(db)) as storage:
        return hops(support(db).compile(storage=storage), CONFIG)


def words_of_billing(db: Path) -> list[str]:
    """Which tools billing called."""
    with connect(str(db)) as storage:
        messages = support(db).compile(storage=storage).get_state(CONFIG).values["messages"]
    assert history_faults(messages) == []
    return [c["name"] for m in messages if m.type == "ai" and m.name == "billing" for c in m.tool_calls]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def stopped_at(is_time: Callable[[str], bool], *args: str, by: signal.Signals = signal.SIGKILL) -> int:
    """Run the command and send it a signal as soon as it prints a line at which it is time. Returns its exit code."""
    env = {**os.environ, "COLUMNS": "400"}
    process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env)
    assert process.stdout is not None
    for line in process.stdout:
        if is_time(line):
            process.send_signal(by)
            break
    process.stdout.read()
    process.stdout.close()
    return process.wait()


def killed_at(marker: str, *args: str) -> bool:
    """Kill the command as soon as it prints the marker. Returns whether it was killed."""
    return stopped_at(lambda line: marker in line, *args) == -signal.SIGKILL


def finish(db: Path) -> list[str]:
    """Go on in a new process; a case of which nothing was stored is said again. Returns the hops."""
    done = run("resume", "c1", "--db", str(db), "--auto", "approve")
    if done.returncode == 2:
        assert not bank(db).exists()
        done = run("demo", "--case", "c1", "--db", str(db), "--auto", "approve")
    assert done.returncode == 0, done.stderr
    return walked(db)


def test_the_seed_case_walks_exactly_this_way(tmp_path: Path) -> None:
    """The case goes triage, tech, triage, billing, human, billing, done, and billing asks nothing that tech solved."""
    db = tmp_path / "cases.db"
    with connect(str(db)) as storage:
        graph = support(db).compile(storage=storage)
        graph.invoke({"messages": SEED_CASE}, CONFIG)
        assert_hops(graph, CONFIG, WALK[:5])
        assert credits_of(db) == []
        out = decide(graph, CONFIG, "approve", by="ana")
        assert_hops(graph, CONFIG, WALK)
    assert credits_of(db) == [CREDIT]
    assert "its successor is valid" in out["messages"][-1].text
    assert words_of_billing(db) == ["get_invoice", "issue_credit", "close_case"]


@pytest.mark.parametrize(
    "marker",
    [
        "user ",
        "tech has the case",
        "key_status(",
        "rotated out yesterday",
        "triage has the case",
        "billing has the case",
        "get_invoice(",
    ],
)
def test_a_kill_before_the_approval_loses_nothing(tmp_path: Path, marker: str) -> None:
    """Killed at any step before the question, the case goes the same way and the credit is issued once."""
    db = tmp_path / "cases.db"
    assert killed_at(marker, "demo", "--case", "c1", "--db", str(db), "--delay", "0.3")
    assert finish(db) == WALK
    assert credits_of(db) == [CREDIT]
    assert words_of_billing(db) == ["get_invoice", "issue_credit", "close_case"]


@pytest.mark.parametrize("marker", ["a person is asked", "decided:", "written:", "were credited", "close_case("])
def test_a_kill_around_the_approval_writes_once(tmp_path: Path, marker: str) -> None:
    """Killed while a person is asked or behind the approval, the case ends the same and the credit is issued once."""
    db = tmp_path / "cases.db"
    assert run("demo", "--case", "c1", "--db", str(db)).returncode == 3
    assert killed_at(marker, "resume", "c1", "--db", str(db), "--auto", "approve", "--delay", "0.3")
    assert finish(db) == WALK
    assert credits_of(db) == [CREDIT]
    assert words_of_billing(db) == ["get_invoice", "issue_credit", "close_case"]


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a step ends with exit code 130, and the case goes on as if nothing had happened."""
    db = tmp_path / "cases.db"
    args = ["demo", "--case", "c1", "--db", str(db), "--auto", "approve", "--delay", "1"]
    assert stopped_at(lambda line: "key_status(" in line, *args, by=signal.SIGINT) == 130
    assert finish(db) == WALK
    assert credits_of(db) == [CREDIT]


def test_kills_at_random_moments_write_once(tmp_path: Path) -> None:
    """Whenever it is killed, the case ends and the credit is issued exactly once."""
    seed = int(os.environ.get("HANDOFF_SEED", random.randrange(10**6)))
    print("seed", seed)
    choose = random.Random(seed)
    killed = 0
    for moment in range(8):
        db = tmp_path / f"cases{moment}.db"
        left = iter(range(choose.randrange(1, 40), 0, -1))
        # Without a pause the process runs on while it is killed, so the kill falls anywhere in a step.
        args = ["demo", "--case", "c1", "--db", str(db), "--auto", "approve", "--delay", choose.choice(["0", "0.02"])]
        killed += stopped_at(lambda _, left=left: next(left) == 1, *args) == -signal.SIGKILL
        assert finish(db) == WALK, f"seed {seed}, moment {moment}"
        assert credits_of(db) == [CREDIT], f"seed {seed}, moment {moment}"
    assert killed, f"seed {seed}: every process ended before it was killed"


def test_the_same_graph_after_a_restart_sees_the_second_turn(tmp_path: Path) -> None:
    """A second process takes a case up where the first left it, with owner, package and talk."""
    db = tmp_path / "cases.db"
    assert run("demo", "The API returns 401", "--case", "c1", "--db", str(db)).returncode == 0
    shown = run("show", "c1", "--db", str(db)).stdout
    assert "triage, tech, done" in shown
    with connect(str(db)) as storage:
        graph = support(db).compile(storage=storage)
        assert hops(graph, CONFIG) == ["triage", "tech", "done"]
        assert graph.get_state(CONFIG).values["handoff"].to_agent == "tech"
