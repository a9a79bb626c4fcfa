"""Several processes, one SQLite file."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from langgraph_handoff import CaseMemory, connect
from tests.memory.conftest import asking

WRITERS, EACH = 8, 500


def write_many(path: str, writer: int) -> None:
    """Write entries of one's own, and one that every writer tries to write under the same id."""
    with connect(path) as storage:
        memory = CaseMemory(storage.store)
        for number in range(EACH):
            memory.record(case_id=f"case-{number % 3}", entry_type="fact", agent=f"w{writer}", content=f"note {writer} {number}")
        memory.record(case_id="shared", entry_type="fact", agent="all", content="the same", entry_id="shared-1")


def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    """Eight processes that write 500 entries each to one new file at once: all are there, in store and indexes, each once."""
    path = str(tmp_path / "cases.db")
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(write_many, path, writer) for writer in range(WRITERS)]:
            done.result()
    with connect(path) as storage:
        memory = CaseMemory(storage.store)
        expected = {f"note {writer} {number}" for writer in range(WRITERS) for number in range(EACH)} | {"the same"}
        listed = memory.recall(case_id=None, limit=10_000)
        assert len(listed) == len(expected)
        assert {entry.content for entry in listed} == expected
        worded = memory.recall(case_id=None, query="note", limit=10_000) + memory.recall(case_id=None, query="same")
        assert {entry.content for entry in worded} == expected
        assert sum(each.entries for each in memory.cases()) == len(expected)


async def test_the_store_of_a_file_serves_async_tools_too(tmp_path: Path) -> None:
    """What `connect` opens for async graphs has a store that async code can use."""
    with connect(str(tmp_path / "cases.db")) as storage:
        await storage.store.aput(("mine",), "k", {"v": 1})
        item = await storage.store.aget(("mine",), "k")
        assert item is not None
        assert item.value == {"v": 1}


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """Whoever comes first makes the tables, and the others find them."""
    start = threading.Barrier(6)

    def opened(number: int) -> None:
        start.wait()
        with connect(str(tmp_path / f"{number}.db")) as storage:
            CaseMemory(storage.store).record(case_id="c", entry_type="fact", agent="a", content="x")

    with ThreadPoolExecutor(6) as pool:
        for number in range(15):
            for done in [pool.submit(opened, number) for _ in range(6)]:
                done.result()
            with connect(str(tmp_path / f"{number}.db")) as storage:
                assert [each.entries for each in CaseMemory(storage.store).cases()] == [6]


REX = """
import sys
from langgraph_handoff import CaseMemory, connect

with connect(sys.argv[1]) as storage:
    memory = CaseMemory(storage.store)
    (request,) = memory.receive_handoffs(agent_id="rex")
    found = memory.recall(case_id=request.case_id, query="credit for the CSV export incident", entry_types=["trace"])
    verdict, comments = ("block", f"{found[0].text}: resubmit for $800") if found else ("approve", "")
    memory.feedback(handoff_id=request.entry_id, from_agent="rex", verdict=verdict, comments=comments)
"""


def test_a_reviewer_in_another_process_blocks(tmp_path: Path) -> None:
    """Ari waits; Rex, in a process of his own on the same file, finds the earlier credit and blocks; Ari reads why."""
    path = str(tmp_path / "cases.db")
    with connect(path) as storage:
        memory = CaseMemory(storage.store)
        memory.record(
            case_id="case-1", entry_type="trace", agent="ari", content={"tool": "issue_credit", "result": "$400 goodwill credit"}
        )
        handoff = asking(memory, content="Refund Acme $1,200 for the CSV export incident.")
        rex = subprocess.Popen([sys.executable, "-c", REX, path])
        verdict = memory.await_verdict(handoff_id=handoff, timeout=120)
        assert rex.wait(120) == 0
        assert verdict == "block"
        (why,) = memory.notes(agent_id="ari", case_id="case-1")["feedback"]
        assert "$400 goodwill credit: resubmit for $800" in why.text.replace("\n", " ").replace("result: ", "")


def test_the_same_agent_reads_it_in_another_process_later(tmp_path: Path) -> None:
    """What was asked, answered and learned is there for whoever opens the file next."""
    path = str(tmp_path / "cases.db")
    with connect(path) as storage:
        memory = CaseMemory(storage.store)
        handoff = asking(memory)
        memory.feedback(handoff_id=handoff, from_agent="rex", verdict="block", comments="Check for credits first.")
        memory.reflect(case_id="case-1")
    read = (
        "import sys; from langgraph_handoff import CaseMemory, connect; m = CaseMemory(connect(sys.argv[1]).store); "
        "print(m.await_verdict(handoff_id=sys.argv[2], timeout=0), m.notes(agent_id='ari', case_id='case-2')['lessons'][0].content)"
    )
    done = subprocess.run([sys.executable, "-c", read, path, handoff], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "block Check for credits first."
