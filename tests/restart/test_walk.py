"""The seed case, whole and with its process killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from langgraph_handoff import connect, decide, hops
from langgraph_handoff.demo import SEED_CASE, bank, support
from langgraph_handoff.testing import assert_hops, history_faults

WALK = ["triage", "tech", "triage", "billing", "human", "billing", "done"]
CONFIG = {"configurable": {"thread_id": "c1"}}
COMMAND = [sys.executable, "-m", "langgraph_handoff.cli"]


def credits_of(db: Path) -> list[dict[str, object]]:
    file = bank(db)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def killed_at(marker: str, *args: str) -> bool:
    """Run the command and kill it as soon as it prints the marker. Returns whether it was killed."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "400"}
    process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env)
    assert process.stdout is not None
    for line in process.stdout:
        if marker in line:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.stdout.close()
    return process.wait() == -signal.SIGKILL


def finish(db: Path, auto: str = "approve") -> str:
    """Resume in new processes until the case has ended; an unknown outcome is answered too."""
    for _ in range(5):
        done = run("resume", "c1", "--db", str(db), "--auto", auto)
        assert done.returncode in (0, 3), done.stderr
        trail = run("hops", "c1", "--db", str(db)).stdout.strip()
        if trail.endswith("done"):
            return trail
    raise AssertionError(f"the case did not end: {trail}")


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
    assert credits_of(db) == [{"invoice_id": "A-102", "amount": 90.0}]
    assert history_faults(out["messages"]) == []
    assert "its successor is valid" in out["messages"][-1].text
    asked_by_billing = [c["name"] for m in out["messages"] if m.type == "ai" and m.name == "billing" for c in m.tool_calls]
    assert asked_by_billing == ["get_invoice", "issue_credit", "close_case"]


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
    if marker == "user ":  # nothing of the case may be stored yet: the user says it again
        run("demo", "--case", "c1", "--db", str(db)) if run("show", "c1", "--db", str(db)).returncode else None
    assert finish(db) == ", ".join(WALK)
    assert credits_of(db) == [{"invoice_id": "A-102", "amount": 90.0}]


@pytest.mark.parametrize("marker", ["a person is asked", "decided:", "written:", "were credited", "close_case("])
def test_a_kill_around_the_approval_writes_once(tmp_path: Path, marker: str) -> None:
    """Killed while a person is asked or behind the approval, the case ends the same and the credit is issued once."""
    db = tmp_path / "cases.db"
    assert run("demo", "--case", "c1", "--db", str(db)).returncode == 3
    assert killed_at(marker, "resume", "c1", "--db", str(db), "--auto", "approve", "--delay", "0.3")
    assert finish(db) == ", ".join(WALK)
    assert credits_of(db) == [{"invoice_id": "A-102", "amount": 90.0}]


def test_kills_at_random_moments_write_once(tmp_path: Path) -> None:
    """Whenever it is killed, the case ends and the credit is issued exactly once."""
    seed = int(os.environ.get("HANDOFF_SEED", random.randrange(10**6)))
    print("seed", seed)
    choose = random.Random(seed)
    for round_ in range(4):
        db = tmp_path / f"cases{round_}.db"
        lines = choose.randrange(3, 40)
        args = ["demo", "--case", "c1", "--db", str(db), "--auto", "approve", "--delay", "0.01"]
        process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
        if run("show", "c1", "--db", str(db)).returncode:
            run("demo", "--case", "c1", "--db", str(db))
        assert finish(db).endswith("done"), f"seed {seed}, round {round_}"
        assert len(credits_of(db)) == 1, f"seed {seed}, round {round_}"


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
