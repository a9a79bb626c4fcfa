"""One contract for every ledger. A backend is added by one line in `BACKENDS`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_handoff import connect
from langgraph_handoff.errors import (
    IllegalTransitionError,
    LedgerConflictError,
    LedgerError,
    LedgerVersionError,
    NotJsonError,
    StorageError,
)
from langgraph_handoff.ledger import (
    Ledger,
    MemoryLedger,
    Proposal,
    SqliteLedger,
    WriteRecord,
    attempt,
    canonical_json,
    digest_of,
    identity_key,
    open_ledger,
    owner_alive,
    owner_token,
)
from langgraph_handoff.ledger.postgres import PostgresLedger
from langgraph_handoff.lifecycle import WRITE, advance
from tests import postgres

BACKENDS: dict[str, Callable[[Path], Ledger]] = {
    "memory": lambda folder: MemoryLedger(),
    "sqlite": lambda folder: SqliteLedger(folder / "cases.ledger.db"),
    "postgres": lambda folder: PostgresLedger(postgres.server().empty()),
}
SHARED: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: str(folder / "cases.ledger.db"),
    "postgres": lambda folder: postgres.server().fresh(),
}
"""Addresses of ledgers that processes share, and that nobody has opened yet."""
WAYS = ("sync", "async")
EVENTS = sorted({event for moves in WRITE.values() for event in moves})
PATHS: dict[str, tuple[str, ...]] = {
    "proposed": (),
    "approved": ("approve",),
    "denied": ("deny",),
    "executing": ("approve", "start"),
    "unknown": ("approve", "start", "lose"),
    "done": ("approve", "start", "finish"),
    "abandoned": ("approve", "start", "lose", "abandon"),
}
"""How a row gets into each state."""


def proposal(**changes: Any) -> Proposal:
    """Return a proposal to refund order 7."""
    fields: dict[str, Any] = {
        "key": identity_key(tenant="t", case_id="case-1", tool="refund", schema_version=1, identity={"order": 7}),
        "kind": "write",
        "case_id": "case-1",
        "tenant": "t",
        "thread_id": "thread-1",
        "call_id": "message-1/call-1",
        "agent": "billing",
        "tool": "refund",
        "args": {"order": 7, "lines": [{"amount": 12.5}]},
        "reason": "The parcel never came.",
        "expires_at": None,
    }
    return Proposal(**{**fields, **changes})


class Way:
    """Calls a ledger's methods, or their async twins."""

    def __init__(self, ledger: Ledger, way: str) -> None:
        self.ledger, self.way = ledger, way

    async def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.way == "async":
            return await getattr(self.ledger, f"a{name}")(*args, **kwargs)
        return getattr(self.ledger, name)(*args, **kwargs)

    async def reach(self, state: str, **changes: Any) -> WriteRecord:
        """Return a row that was moved into `state`."""
        record, _ = await self("propose", proposal(**changes), seq=1)
        for event in PATHS[state]:
            record = await self("move", record, event, **({"token": "somebody"} if event == "start" else {}))
        assert isinstance(record, WriteRecord)
        assert record.state == state
        return record


@pytest.fixture(params=BACKENDS)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger of each backend."""
    with BACKENDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, ledger: Ledger) -> Way:
    """A ledger used in each of the two ways."""
    return Way(ledger, request.param)


@pytest.fixture(params=SHARED)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a ledger that processes share."""
    return SHARED[request.param](tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a SQLite ledger will be."""
    return tmp_path / "cases.ledger.db"


# Moves.


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", PATHS)
async def test_every_cell_of_the_write_table_is_kept_by_move(way: Way, state: str, event: str) -> None:
    """A legal move ends where the table says and is stored; an illegal one raises and the row is exactly as before."""
    before = await way.reach(state)
    if event not in WRITE[state]:
        with pytest.raises(IllegalTransitionError):
            await way("move", before, event, comment="should not be kept")
        assert await way("get", before.op) == before
        return
    after = await way("move", before, event, comment="kept")
    another_question = event in ("retry", "revise")
    assert after == dataclasses.replace(
        before, state=advance(WRITE, state, event), epoch=before.epoch + another_question, comment="kept"
    )
    assert await way("get", before.op) == after


@pytest.mark.parametrize("stale", ["state", "epoch", "token", "missing"])
async def test_a_move_from_a_row_that_is_no_longer_so_is_refused(way: Way, stale: str) -> None:
    """Whoever read an older state, epoch or claim, or a row that is not there, moves nothing and learns what stands there."""
    held = await way.reach("executing")
    if stale == "state":
        seen = dataclasses.replace(held, state="approved")
    elif stale == "epoch":
        seen = dataclasses.replace(held, epoch=7)
    elif stale == "token":
        seen = dataclasses.replace(held, token="somebody else")
    else:
        seen = dataclasses.replace(held, op="none-1")
    event = "start" if stale == "state" else "finish"
    with pytest.raises(LedgerConflictError) as caught:
        await way("move", seen, event, result="mine")
    told = ("missing", 0) if stale == "missing" else ("executing", 1)
    assert (caught.value.fields["state"], caught.value.fields["epoch"]) == told
    assert await way("records") == [held]


async def test_a_paused_owner_cannot_end_a_write_that_was_tried_again(way: Way) -> None:
    """After `lose`, `retry` and a new claim, the first owner's `finish` is refused and the second one's is kept."""
    first = await way.reach("executing")
    again = await way("move", await way("move", first, "lose"), "retry")
    second = await way("move", again, "start", token="second")
    with pytest.raises(LedgerConflictError):
        await way("move", first, "finish", result="from the first")
    assert (await way("move", second, "finish", result="from the second")).result == "from the second"


async def test_an_owner_whose_claim_was_given_back_cannot_end_the_next_one(way: Way) -> None:
    """`not_applied` leaves the epoch as it is, so the token alone keeps the old owner out of the new claim."""
    first = await way.reach("executing")
    again = await way("move", first, "not_applied")
    second = await way("move", again, "start", token="second")
    assert second.epoch == first.epoch
    with pytest.raises(LedgerConflictError):
        await way("move", first, "finish", result="from the first")


async def test_a_move_sets_what_it_is_given(way: Way) -> None:
    """Decision, approver, times, claim, result and error come back as they were given."""
    record, _ = await way("propose", proposal(), seq=1)
    decided = {"decision": "edit", "approver": "ana", "decided_at": 12.5, "comment": "half", "bare": True}
    approved = await way("move", record, "approve", **decided)
    started = await way("move", approved, "start", token="host:boot:1:2:3", started_at=13.0)
    result = {"content": [{"type": "text", "text": "ok"}], "n": 1, "none": None}
    done = await way("move", started, "finish", result=result, error="", finished_at=14.0)
    stored = await way("get", record.op)
    assert stored == done
    given = {**decided, "token": "host:boot:1:2:3", "started_at": 13.0, "result": result, "error": "", "finished_at": 14.0}
    assert {name: getattr(stored, name) for name in given} == given


@pytest.mark.parametrize("name", ["state", "epoch", "args", "digest", "op", "nonsense"])
async def test_a_move_cannot_set_anything_else(way: Way, name: str) -> None:
    """What was approved, and the state itself, are out of reach of a move's changes."""
    before = await way.reach("proposed")
    with pytest.raises(TypeError, match=name):
        await way("move", before, "approve", **{name: "x"})
    assert await way("get", before.op) == before


async def test_a_result_that_is_not_json_moves_nothing(way: Way) -> None:
    """A result that no file can keep is refused before the row is touched."""
    before = await way.reach("executing")
    with pytest.raises(NotJsonError):
        await way("move", before, "finish", result={1, 2})
    assert await way("get", before.op) == before


# Proposals.


async def test_a_proposal_is_stored_once(way: Way) -> None:
    """The first proposal makes a row in its first epoch, and the same one again returns that row untouched."""
    began = time.time()
    record, fresh = await way("propose", proposal(expires_at=99.0), seq=3)
    given = dataclasses.asdict(proposal(expires_at=99.0))
    assert fresh
    assert {name: getattr(record, name) for name in given} == given
    assert (record.op, record.seq, record.state, record.epoch) == (f"{record.key}-3", 3, "proposed", 1)
    assert record.digest == digest_of("refund", proposal().args)
    assert record.request_id == f"{record.key}-3.1"
    assert began <= record.proposed_at <= time.time()
    assert await way("propose", proposal(expires_at=1.0, reason="again"), seq=3) == (record, False)
    assert await way("records") == [record]


@pytest.mark.parametrize(
    "changes", [{"args": {"order": 7, "lines": []}}, {"call_id": "message-2/call-1", "agent": "care", "reason": "Now."}]
)
async def test_an_open_question_that_is_asked_otherwise_is_another_question(way: Way, changes: dict[str, Any]) -> None:
    """Other arguments or another call take the open row over, in a new epoch, and count as fresh."""
    first, _ = await way("propose", proposal(), seq=1)
    second, fresh = await way("propose", proposal(**changes), seq=1)
    assert fresh
    assert (second.op, second.state, second.epoch) == (first.op, "proposed", 2)
    assert {name: getattr(second, name) for name in changes} == changes
    assert second.digest == digest_of("refund", second.args)
    assert await way("records") == [second]
    with pytest.raises(LedgerConflictError):
        await way("move", first, "approve")
    assert (await way("get", first.op)).state == "proposed"


@pytest.mark.parametrize("state", [state for state in PATHS if state != "proposed"])
async def test_a_decided_row_is_not_touched_by_a_proposal(way: Way, state: str) -> None:
    """Once somebody has decided, no later proposal changes the row, whatever its arguments are."""
    before = await way.reach(state)
    assert await way("propose", proposal(args={"order": 7, "amount": 1_000_000}, call_id="other"), seq=1) == (before, False)
    assert await way("get", before.op) == before


async def test_another_sequence_number_is_another_operation(way: Way) -> None:
    """A write that is rightly done twice has two rows under one key."""
    first = await way.reach("done")
    second, fresh = await way("propose", proposal(call_id="message-9/call-1"), seq=2)
    assert fresh
    assert second.op != first.op
    assert await way("records", key=first.key) == [first, second]


@pytest.mark.parametrize("bad", [{"x": float("nan")}, {"x": float("inf")}, {"x": object()}, {"x": {1: "a"}}, {"x": {None: "a"}}])
async def test_arguments_that_are_not_json_are_refused(way: Way, bad: dict[str, Any]) -> None:
    """A proposal whose arguments no file can keep raises an error that names the matter, and leaves no row."""
    with pytest.raises(NotJsonError, match="not plain JSON"):
        await way("propose", proposal(args=bad), seq=1)
    assert await way("records") == []


async def test_nobody_can_change_a_row_from_outside(way: Way) -> None:
    """The ledger shares nothing with its callers: what was proposed stays what was proposed."""
    args = {"order": 7, "lines": [1]}
    record, _ = await way("propose", proposal(args=args), seq=1)
    args["lines"] = [1, 2]
    record.args["lines"].append(3)
    (await way("get", record.op)).args["lines"].append(4)
    (await way("records"))[0].args["lines"].append(5)
    assert (await way("get", record.op)).args == {"order": 7, "lines": [1]}


@pytest.mark.parametrize(("odd", "kept"), [("caf\udce9", "caf\\udce9"), ("caf\x00e", "caf\\x00e")], ids=["surrogate", "nul"])
async def test_text_that_no_database_takes_does_not_stop_a_move(way: Way, odd: str, kept: str) -> None:
    """A lone surrogate or NUL in a reason, an argument, an error or a result is stored, and found again by the same filter."""
    record, _ = await way("propose", proposal(reason=odd, call_id=odd, args={"name": odd}), seq=1)
    assert await way("records", call_id=odd) == [record]
    assert (await way("get", record.op)).args == {"name": odd}
    assert await way("propose", proposal(reason=odd, call_id=odd, args={"name": odd}), seq=1) == (record, False)
    started = await way("move", await way("move", record, "approve", comment=odd), "start")
    lost = await way("move", started, "lose", error=odd)
    assert (lost.state, lost.error) == ("unknown", kept)
    assert (await way("move", lost, "confirm", result={"content": odd})).result == {"content": odd}
    assert await way("get", record.op) == (await way("records"))[0]


# Reading.


async def test_records_are_found_by_every_filter(way: Way) -> None:
    """Each filter narrows, filters add up, and rows come in the order in which they were proposed."""
    rows = []
    for number, (case_id, thread_id) in enumerate([("a", "x"), ("a", "y"), ("b", "x")]):
        record, _ = await way(
            "propose", proposal(key=f"key-{number}", case_id=case_id, thread_id=thread_id, call_id=f"c{number}"), seq=1
        )
        rows.append(record)
    rows[1] = await way("move", rows[1], "approve")
    assert await way("records") == rows
    assert await way("records", case_id="a") == rows[:2]
    assert await way("records", thread_id="x") == [rows[0], rows[2]]
    assert await way("records", key="key-2") == [rows[2]]
    assert await way("records", call_id="c1") == [rows[1]]
    assert await way("records", states=("approved", "denied")) == [rows[1]]
    assert await way("records", case_id="a", states={"proposed"}) == [rows[0]]
    assert await way("records", states=()) == []
    assert await way("records", case_id="nobody") == []


async def test_a_row_that_is_not_there_is_none(way: Way) -> None:
    """Reading an operation that nobody proposed gives None."""
    assert await way("get", "none-1") is None


async def test_a_ledger_is_a_context_manager(tmp_path: Path) -> None:
    """A ledger opens with `with` and `async with`, and says where it is."""
    for name, make in BACKENDS.items():
        with make(tmp_path) as held:
            places = {"memory": ":memory:", "sqlite": str(tmp_path / "cases.ledger.db")}
            assert held.location == places.get(name, f"postgresql://{postgres.server().folder / 'data'}/postgres")
        async with make(tmp_path) as held:
            assert await held.aget("none-1") is None


# Races.


def test_of_two_threads_that_claim_one_operation_one_wins(ledger: Ledger) -> None:
    """Many threads that start the same approved write at once make exactly one claim; the others get a conflict."""
    record, _ = ledger.propose(proposal(), seq=1)
    approved = ledger.move(record, "approve")
    gate = threading.Barrier(8)

    def claim(number: int) -> WriteRecord | LedgerConflictError:
        gate.wait()
        try:
            return ledger.move(approved, "start", token=f"t{number}")
        except LedgerConflictError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(claim, range(8)))
    won = [each for each in outcomes if isinstance(each, WriteRecord)]
    assert len(won) == 1
    assert ledger.get(record.op) == won[0]


async def test_of_many_tasks_that_claim_one_operation_one_wins(ledger: Ledger) -> None:
    """Many tasks that start the same approved write at once make exactly one claim."""
    approved = ledger.move(ledger.propose(proposal(), seq=1)[0], "approve")
    claims = [ledger.amove(approved, "start", token=f"t{number}") for number in range(8)]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    won = [each for each in outcomes if isinstance(each, WriteRecord)]
    lost = [each for each in outcomes if isinstance(each, LedgerConflictError)]
    assert (len(won), len(lost)) == (1, 7)
    assert ledger.get(approved.op) == won[0]


def _claim(address: str, op: str, gate: Any, outcomes: Any) -> None:
    """Claim an operation in a process of its own, when all are ready."""
    with open_ledger(address) as held:
        record = held.get(op)
        assert record is not None
        gate.wait(30)
        try:
            outcomes.put(held.move(record, "start", token=owner_token()).token)
        except LedgerConflictError:
            outcomes.put(None)


def _first_use(address: str, gate: Any, outcomes: Any) -> None:
    """Propose in a ledger that nobody has opened yet, when all are ready."""
    gate.wait(30)
    try:
        with open_ledger(address) as held:
            outcomes.put(held.propose(proposal(), seq=1)[1])
    except Exception as error:
        outcomes.put(repr(error))


def run_together(count: int, target: Callable[..., None], *args: Any) -> list[Any]:
    context: Any = multiprocessing.get_context("fork")  # others do not start at the same moment
    gate, outcomes = context.Barrier(count), context.Queue()
    processes = [context.Process(target=target, args=(*args, gate, outcomes)) for _ in range(count)]
    for each in processes:
        each.start()
    found = [outcomes.get(timeout=60) for _ in processes]
    for each in processes:
        each.join(60)
    return found


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to start processes at the same moment")
def test_of_two_processes_that_claim_one_operation_one_wins(address: str) -> None:
    """Two processes that start the same approved write at once make exactly one claim, and it is the one that is stored."""
    with open_ledger(address) as held:
        for seq in range(1, 4):
            approved = held.move(held.propose(proposal(), seq=seq)[0], "approve")
            won = [each for each in run_together(2, _claim, address, approved.op) if each is not None]
            stored = held.get(approved.op)
            assert stored is not None
            assert [stored.token] == won


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to start processes at the same moment")
@pytest.mark.parametrize("backend", SHARED)
def test_processes_that_make_a_ledger_together_do_not_disturb_each_other(tmp_path: Path, backend: str) -> None:
    """When several processes are the first to use a ledger, one makes the row and none fails on what another one makes."""
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = run_together(6, _first_use, SHARED[backend](folder))
        assert sorted(found, key=str) == [False] * 5 + [True]


def test_the_first_use_waits_for_whoever_makes_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change to WAL, for which SQLite itself does not wait, is tried again until the other process is done."""
    with sqlite3.connect(file) as maker:
        maker.isolation_level = None
        maker.execute("BEGIN IMMEDIATE")
        waits: Iterator[Callable[[], object]] = iter([lambda: None, lambda: maker.execute("ROLLBACK")])
        clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda seconds: next(waits)())
        monkeypatch.setattr("langgraph_handoff.ledger.sqlite.time", clock)
        with SqliteLedger(file) as held:
            assert held.propose(proposal(), seq=1)[1]
    maker.close()
    assert next(waits, None) is None


def test_the_first_use_does_not_wait_for_ever(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that stays locked while it is made is a named error in the end."""
    monkeypatch.setattr("langgraph_handoff.ledger.sqlite._BUSY", 0.02)
    with sqlite3.connect(file) as maker:
        maker.isolation_level = None
        maker.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="database is locked"):
            SqliteLedger(file).propose(proposal(), seq=1)
    maker.close()


async def test_a_cancelled_move_has_settled_when_its_caller_learns_of_it(file: Path) -> None:
    """A cancellation arrives only after the commit, so that what is read then is what stays."""
    with SqliteLedger(file) as held, sqlite3.connect(file) as blocker:
        approved = held.move(held.propose(proposal(), seq=1)[0], "approve")
        blocker.isolation_level = None
        blocker.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(held.amove(approved, "start", token="mine"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done
        blocker.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await task
        stored = held.get(approved.op)
    blocker.close()
    assert stored is not None
    assert (stored.state, stored.token) == ("executing", "mine")


async def test_async_use_does_not_block_the_loop(file: Path) -> None:
    """While a move waits for another process's lock, the loop runs on."""
    with SqliteLedger(file) as held, sqlite3.connect(file) as blocker:
        record, _ = held.propose(proposal(), seq=1)
        blocker.isolation_level = None
        blocker.execute("BEGIN IMMEDIATE")
        moving = asyncio.create_task(held.amove(record, "approve"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not moving.done()
        blocker.execute("ROLLBACK")
        assert (await moving).state == "approved"
    blocker.close()


# The file.


def test_a_new_process_reads_equal_records(address: str) -> None:
    """What one process stored, another one reads back equal, field by field."""
    with open_ledger(address) as held:
        record, _ = held.propose(proposal(args={"text": "Grüße 你好", "n": 1.0, "none": None}, expires_at=1.25), seq=1)
        approved = held.move(record, "approve", approver="ana", decided_at=time.time(), bare=True)
        held.move(held.move(approved, "start", token=owner_token()), "finish", result=[1, {"a": None}])
        held.propose(proposal(key="other"), seq=1)
        expected = [dataclasses.asdict(each) for each in held.records()]
    code = (
        "import dataclasses, json, sys; from langgraph_handoff.ledger import open_ledger;"
        "print(json.dumps([dataclasses.asdict(each) for each in open_ledger(sys.argv[1]).records()]))"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), paths))}
    ran = subprocess.run([sys.executable, "-c", code, address], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == expected
    assert len(expected) == 2


def test_the_file_is_kept_as_promised(file: Path) -> None:
    """The ledger is in WAL mode, waits ten seconds for a lock, syncs every commit, and bears its schema version."""
    with SqliteLedger(file) as held:
        held.propose(proposal(), seq=1)
        with held._used() as connection:
            pragmas = {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "busy_timeout", "user_version")
            }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 10_000, "user_version": 2}


def test_a_file_of_a_newer_release_is_refused_and_left_as_it_is(file: Path) -> None:
    """A ledger with a newer schema is not read, not changed, and named in the error."""
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version=3")
    other.close()
    before = file.read_bytes()
    with pytest.raises(LedgerVersionError) as caught:
        SqliteLedger(file).records()
    assert str(caught.value) == (
        f"The write ledger at {file} has schema version 3; this code reads 2. Install the release that wrote it. "
        "Nothing in it was changed."
    )
    assert file.read_bytes() == before


def test_a_file_of_the_first_schema_is_brought_up(file: Path) -> None:
    """A ledger without checkpoint ids keeps its rows and gets the column."""
    with SqliteLedger(file) as held:
        record, _ = held.propose(proposal(), seq=1)
    with sqlite3.connect(file) as other:
        other.execute("ALTER TABLE handoff_ops DROP COLUMN checkpoint_id")
        other.execute("PRAGMA user_version=1")
    other.close()
    with SqliteLedger(file) as held:
        assert held.records() == [record]
        approved = held.move(record, "approve")
        assert held.latest_checkpoint(record.thread_id) is None
        held.move(approved, "start", checkpoint_id="c1")
        assert held.latest_checkpoint(record.thread_id) == "c1"


async def test_the_latest_checkpoint_of_a_thread_is_the_greatest(ledger: Ledger) -> None:
    """Of several operations of a thread the latest checkpoint counts, of another thread's none."""
    for number, checkpoint in enumerate(["c1", "c3", "c2"]):
        record, _ = ledger.propose(proposal(key=f"k{number}", thread_id="t1"), seq=1)
        ledger.move(ledger.move(record, "approve"), "start", checkpoint_id=checkpoint)
    assert ledger.latest_checkpoint("t1") == await ledger.alatest_checkpoint("t1") == "c3"
    assert ledger.latest_checkpoint("t2") is None


@pytest.mark.parametrize("name", ["get", "records", "propose", "move", "aget", "arecords", "apropose", "amove"])
async def test_a_missing_folder_is_a_named_error_in_every_method(tmp_path: Path, name: str) -> None:
    """A ledger in a folder that does not exist says so, and how to go on, wherever it is first used."""
    held = SqliteLedger(tmp_path / "nowhere" / "cases.db")
    record, _ = MemoryLedger().propose(proposal(), seq=1)
    given: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "get": (("x",), {}),
        "records": ((), {}),
        "propose": ((proposal(),), {"seq": 1}),
        "move": ((record, "approve"), {}),
    }
    args, kwargs = given[name.removeprefix("a")]
    use = Way(held, "async" if name.startswith("a") else "sync")
    with pytest.raises(LedgerError, match=r"nowhere/cases\.db could not be used: the folder .*nowhere does not exist\. Nothing"):
        await use(name.removeprefix("a"), *args, **kwargs)
    assert not (tmp_path / "nowhere").exists()


def test_a_file_that_is_no_ledger_is_a_named_error(file: Path) -> None:
    """Errors of SQLite come out as the ledger's own, with the file in them."""
    file.write_bytes(b"this is no database, it is a letter" * 100)
    with pytest.raises(LedgerError, match=r"cases\.ledger\.db could not be used: file is not a database"):
        SqliteLedger(file).get("x")


def test_a_locked_file_is_a_named_error_and_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process holds the file for too long, the move fails by name, and works once the file is free."""
    monkeypatch.setattr("langgraph_handoff.ledger.sqlite._BUSY", 0.02)
    with SqliteLedger(file) as held, sqlite3.connect(file) as blocker:
        record, _ = held.propose(proposal(), seq=1)
        blocker.isolation_level = None
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="database is locked"):
            held.move(record, "approve")
        assert held.get(record.op) == record
        blocker.execute("ROLLBACK")
        assert held.move(record, "approve").state == "approved"
    blocker.close()


def test_a_failed_commit_leaves_no_open_transaction(file: Path) -> None:
    """A commit that fails takes the whole move back, and the next move works on the same connection."""
    with SqliteLedger(file) as held:
        record, _ = held.propose(proposal(), seq=1)
        with held._used() as connection:
            # A deferred foreign key is the one fault that only the commit itself can find.
            connection.executescript(
                "PRAGMA foreign_keys=ON; CREATE TABLE parent (a PRIMARY KEY);"
                "CREATE TABLE child (a REFERENCES parent DEFERRABLE INITIALLY DEFERRED);"
                "CREATE TRIGGER fault AFTER UPDATE ON handoff_ops BEGIN INSERT INTO child VALUES (1); END;"
            )
        with pytest.raises(LedgerError, match="FOREIGN KEY"):
            held.move(record, "approve")
        assert held.get(record.op) == record
        with held._used() as connection:
            connection.execute("DROP TRIGGER fault")
        assert held.move(record, "approve").state == "approved"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 warns of forks beside threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_a_connection_of_its_own(file: Path) -> None:
    """A child that was forked while another thread held the ledger moves a row, and its parent sees it."""
    with SqliteLedger(file) as held:
        record, _ = held.propose(proposal(), seq=1)
        taken, free = threading.Event(), threading.Event()

        def hold() -> None:
            with held._used():
                taken.set()
                free.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait(30)
        child = multiprocessing.get_context("fork").Process(target=held.move, args=(record, "approve"))
        child.start()
        child.join(20)
        stuck = child.is_alive()
        child.kill()
        free.set()
        holder.join(30)
        assert (stuck, child.exitcode) == (False, 0)
        assert (held.get(record.op) or record).state == "approved"
        assert held.move(held.get(record.op) or record, "start").state == "executing"


def test_a_closed_ledger_opens_again_when_it_is_used(file: Path) -> None:
    """Closing gives the file back and forgets nothing."""
    held = SqliteLedger(file)
    record, _ = held.propose(proposal(), seq=1)
    held.close()
    held.close()
    assert held.get(record.op) == record
    held.close()


# Addresses.


@pytest.mark.parametrize("url", ["{0}/a.db", "sqlite:///{0}/a.db"])
def test_an_address_of_a_file_opens_that_file(tmp_path: Path, url: str) -> None:
    """A path and a SQLite address name the same ledger."""
    with open_ledger(url.format(tmp_path)) as held:
        assert isinstance(held, SqliteLedger)
        assert held.location == str(tmp_path / "a.db")


@pytest.mark.parametrize("url", [":memory:", "sqlite:///:memory:"])
def test_memory_is_an_address(url: str) -> None:
    """The address of memory gives a ledger that leaves no file."""
    assert isinstance(open_ledger(url), MemoryLedger)


@pytest.mark.parametrize("url", ["mysql://ana:secret@host/cases", "postgresql+psycopg://host/cases?password=secret"])
def test_an_address_that_nothing_opens_is_refused_without_its_password(url: str) -> None:
    """Another kind of database is refused with what there is, and a password in the address is not repeated."""
    for opening in (open_ledger, connect):
        with pytest.raises(StorageError, match=r"kept in SQLite files, in Postgres and in memory") as caught:
            opening(url)
        assert "secret" not in str(caught.value)


# Identity.

TEXT = st.text(max_size=8)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=5)


def _turned_round(value: Any) -> Any:
    """Return the same value with the keys of every object in the other order."""
    if isinstance(value, dict):
        return {key: _turned_round(value[key]) for key in reversed(value)}
    return [_turned_round(each) for each in value] if isinstance(value, list) else value


def _spelled_otherwise(value: Any) -> Any:
    """Return the same value with every whole number of a float's range written as a float, where that is exact."""
    if isinstance(value, dict):
        return {key: _spelled_otherwise(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_spelled_otherwise(each) for each in value]
    exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return float(value) if exact else value


def key_of(identity: dict[str, Any], **changes: Any) -> str:
    """Return the key of a refund in case c of tenant t."""
    fields: dict[str, Any] = {"tenant": "t", "case_id": "c", "tool": "refund", "schema_version": 1}
    return identity_key(**{**fields, **changes}, identity=identity)


@given(OBJECTS)
def test_spelling_does_not_change_what_a_write_is(value: dict[str, Any]) -> None:
    """The order of keys, and whole numbers as `1` or `1.0`, change neither text, key nor digest."""
    for other in (_turned_round(value), _spelled_otherwise(value)):
        assert canonical_json(other) == canonical_json(value)
        assert key_of(other) == key_of(value)
        assert digest_of("refund", other) == digest_of("refund", value)


@given(OBJECTS)
def test_the_canonical_text_means_the_value(value: dict[str, Any]) -> None:
    """Read back, the canonical text is the value again, and writing that once more gives the same text."""
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(OBJECTS, OBJECTS)
def test_different_writes_have_different_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two identities have one key exactly when their canonical texts are one."""
    assert (key_of(one) == key_of(other)) == (canonical_json(one) == canonical_json(other))


@pytest.mark.parametrize("changes", [{"tenant": "u"}, {"case_id": "d"}, {"tool": "credit"}, {"schema_version": 2}])
def test_every_part_of_the_identity_counts(changes: dict[str, Any]) -> None:
    """Tenant, case, tool and schema version each make another write."""
    assert key_of({"order": 7}, **changes) != key_of({"order": 7})


def test_the_key_and_the_digest_are_fixed() -> None:
    """Keys stand in files, so a release must compute the ones of its predecessor."""
    assert canonical_json({"b": [1.0, -0.0, 2.5, True, None], "a": "é\n"}) == '{"a":"é\\n","b":[1,0,2.5,true,null]}'
    assert key_of({"order": 7}) == "38d85687a23dc28efd7374fa130b2218ca08e94118a91b4956b9dbd15701aece"
    assert digest_of("refund", {"order": 7}) == "f6f6a4f0065db70c88616384f7749824ca377cccb1903d13c8a8b64bccbbf9f7"


def test_true_is_not_one() -> None:
    """A flag and a number are different arguments, although Python compares them equal."""
    assert len({canonical_json(True), canonical_json(1), canonical_json("1")}) == 3


def test_endless_values_are_refused() -> None:
    """A value that contains itself is refused by name, as everything that is not JSON."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJsonError):
        canonical_json(endless)


# Owners.


def _token(**changes: str) -> str:
    """Return this process's token with some parts replaced."""
    host, boot, pid, started, nonce = owner_token().rsplit(":", 4)
    parts = {"host": host, "boot": boot, "pid": pid, "started": started, "nonce": nonce, **changes}
    return ":".join(parts.values())


def test_a_running_process_is_alive() -> None:
    """An attempt of this process is alive while it is at work and dead when it ended, however it ended."""
    with attempt() as token:
        assert owner_alive(token)
    assert not owner_alive(token)
    with pytest.raises(RuntimeError), attempt() as token:
        raise RuntimeError
    assert not owner_alive(token)
    assert owner_token() != owner_token()
    assert _token().count(":") == 4


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_dead_process_is_dead() -> None:
    """A child's token is alive while it runs, dead as soon as it ended unreaped, and dead when nothing is left of it."""
    code = "import sys; from langgraph_handoff.ledger import owner_token; print(owner_token(), flush=True); sys.stdin.read()"
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[2]), paths))}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        token = child.stdout.readline().strip()
        assert owner_alive(token)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the process table
        assert not owner_alive(token)
    assert not owner_alive(token)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_process_number_that_was_given_again_is_another_process() -> None:
    """The same process number with another start time is not the owner."""
    assert not owner_alive(_token(started="1"))


def test_a_process_from_before_the_reboot_is_dead() -> None:
    """A token of another boot of this host cannot belong to a running process."""
    assert not owner_alive(_token(boot="another-boot"))


def test_a_process_on_another_host_counts_as_alive() -> None:
    """What cannot be seen from here is not declared dead, so that nothing runs twice."""
    assert owner_alive(_token(host="not-" + socket.gethostname(), pid="999999999"))


@pytest.mark.parametrize("token", ["", "nonsense", "a:b:c"])
def test_a_token_that_is_none_belongs_to_nobody(token: str) -> None:
    """A claim without a readable owner has no live owner."""
    assert not owner_alive(token)
