"""Two owners, crashes after any commit, and a person: the ledger as a state machine, explored by Hypothesis."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from langgraph_handoff.errors import IllegalTransitionError, LedgerConflictError
from langgraph_handoff.ledger import Ledger, MemoryLedger, Proposal, SqliteLedger, WriteRecord, identity_key
from langgraph_handoff.ledger.moves import moved
from langgraph_handoff.ledger.postgres import PostgresLedger
from tests import postgres

OWNERS = st.sampled_from(["one", "two"])
ORDERS = st.sampled_from(["A", "B"])


def proposal(order: str, call_id: str) -> Proposal:
    key = identity_key(tenant="", case_id="c", tool="pay", schema_version=1, identity={"order": order})
    return Proposal(
        key=key, kind="write", case_id="c", tenant="", thread_id="t", call_id=call_id, agent="a", tool="pay", args={"order": order}, reason="",
        expires_at=None,
    )  # fmt: skip


class LedgerMachine(RuleBasedStateMachine):
    """Owners that read, may act on what they read long ago, and may die behind any commit."""

    make: Any = MemoryLedger

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.ledger: Ledger = type(self).make(Path(self.folder.name))
        self.seen: dict[str, dict[str, WriteRecord]] = {"one": {}, "two": {}}
        self.running: dict[str, dict[str, WriteRecord]] = {"one": {}, "two": {}}
        self.effects: dict[str, int] = {}
        self.permits: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        """Propose both writes."""
        for order in ("A", "B"):
            self.ledger.propose(proposal(order, "c0"), seq=1)

    @rule(owner=OWNERS, order=ORDERS)
    def read(self, owner: str, order: str) -> None:
        """An owner reads a row; it may act on that much later."""
        for record in self.ledger.records(key=proposal(order, "").key):
            self.seen[owner][order] = record

    @rule(owner=OWNERS, order=ORDERS, call_id=st.sampled_from(["c0", "c1"]), seq=st.integers(1, 2))
    def propose(self, owner: str, order: str, call_id: str, seq: int) -> None:
        """An owner asks, perhaps by another call or for another time."""
        record, fresh = self.ledger.propose(proposal(order, call_id), seq=seq)
        assert not fresh or record.state == "proposed"
        self.seen[owner][order] = record

    @rule(owner=OWNERS, order=ORDERS, event=st.sampled_from(["approve", "deny", "retry", "confirm", "abandon"]))
    def decide(self, owner: str, order: str, event: str) -> None:
        """A person answers what an owner shows, which may be stale."""
        if (record := self.seen[owner].get(order)) is None:
            return
        try:
            moved = self.ledger.move(record, event, approver="ana", decision=event, decided_at=1.0)
        except (LedgerConflictError, IllegalTransitionError):
            return
        self.seen[owner][order] = moved
        if event in ("approve", "retry"):
            self.permits[moved.op] = self.permits.get(moved.op, 0) + 1

    @rule(owner=OWNERS, order=ORDERS, dies=st.sampled_from(["no", "before the effect", "after the effect"]))
    def start(self, owner: str, order: str, dies: str) -> None:
        """An owner claims and writes, and may die in between."""
        if (record := self.seen[owner].get(order)) is None:
            return
        try:
            claimed = self.ledger.move(record, "start", token=owner, started_at=1.0)
        except (LedgerConflictError, IllegalTransitionError):
            return
        if dies == "before the effect":
            return
        self.effects[claimed.op] = self.effects.get(claimed.op, 0) + 1
        if dies == "no":
            self.running[owner][order] = claimed

    @rule(owner=OWNERS, order=ORDERS, event=st.sampled_from(["finish", "lose"]))
    def end(self, owner: str, order: str, event: str) -> None:
        """An owner that lives ends what it began."""
        claimed = self.running[owner].pop(order, None)
        if claimed is not None:
            try:
                self.ledger.move(claimed, event, result="ok", finished_at=1.0)
            except LedgerConflictError:
                assert self.ledger.get(claimed.op) != claimed  # somebody declared it lost meanwhile

    @rule(owner=OWNERS, order=ORDERS)
    def find_orphan(self, owner: str, order: str) -> None:
        """An owner finds a claim whose process is dead and calls it unknown."""
        for record in self.ledger.records(key=proposal(order, "").key, states=["executing"]):
            alive = any(record.op == each.op for held in self.running.values() for each in held.values())
            if not alive:
                self.seen[owner][order] = self.ledger.move(record, "lose", error="died")

    @invariant()
    def no_write_without_a_permit(self) -> None:
        """I1, I2: never more effects than approvals and justified retries, and none without somebody's name."""
        for record in self.ledger.records():
            assert self.effects.get(record.op, 0) <= self.permits.get(record.op, 0)
            if self.effects.get(record.op):
                assert record.approver == "ana"
            if record.state in ("proposed", "denied"):
                assert not self.effects.get(record.op)

    def teardown(self) -> None:
        """Close the files."""
        self.ledger.close()
        self.folder.cleanup()


@pytest.mark.parametrize(
    ("make", "examples"),
    [
        (lambda folder: MemoryLedger(), 200),
        (lambda folder: SqliteLedger(folder / "l.db"), 60),
        (lambda folder: PostgresLedger(postgres.server().empty()), 40),
    ],
    ids=["memory", "sqlite", "postgres"],
)
def test_no_order_of_steps_writes_without_a_permit(make: Any, examples: int) -> None:
    """Over 10,000 steps of two owners, crashes and late answers no write happens without an approval of its own."""
    machine = type("Machine", (LedgerMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None))


class Careless(MemoryLedger):
    """Moves a row without comparing it with what was read."""

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move blindly."""
        self._rows[record.op] = dataclasses.replace(record, **moved(record, event, changes))
        return self._rows[record.op]


@pytest.mark.parametrize(("kind", "caught"), [(MemoryLedger, False), (Careless, True)])
def test_the_machine_s_invariant_sees_a_ledger_that_does_not_compare(kind: Any, caught: bool) -> None:
    """When two owners claim from what they both read, a careful ledger lets one write; a careless one is seen by the invariant."""
    machine = type("Machine", (LedgerMachine,), {"make": staticmethod(lambda folder: kind())})()
    machine.begin()
    machine.read("one", "A")
    machine.decide("one", "A", "approve")
    machine.read("two", "A")
    machine.start("one", "A", "after the effect")
    machine.start("two", "A", "after the effect")
    if caught:
        with pytest.raises(AssertionError):
            machine.no_write_without_a_permit()
    else:
        machine.no_write_without_a_permit()
        assert machine.effects == dict.fromkeys(machine.effects, 1)
    machine.teardown()
