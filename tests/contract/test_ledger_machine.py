"""Two owners, crashes behind any commit, a clock that jumps, and a person: gate and ledger as a state machine, explored by Hypothesis.

The owners ask the gate where a call stands, as the graph's nodes do, and may act much later on what they were told. The person answers
questions that may be long closed, tells the truth about what happened, and wants each payment once.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore

from langgraph_handoff import Agent, create_handoff_graph, privileged
from langgraph_handoff.errors import IllegalTransitionError, LedgerConflictError
from langgraph_handoff.gate import Asked, standing
from langgraph_handoff.ledger import Ledger, MemoryLedger, SqliteLedger, WriteRecord, memory, sqlite
from langgraph_handoff.ledger import postgres as in_postgres
from langgraph_handoff.ledger.moves import moved
from langgraph_handoff.lifecycle import WRITE, is_final
from langgraph_handoff.steps import Node
from langgraph_handoff.testing import ScriptedChatModel, call
from tests import postgres
from tests.restart.careless import MemoryCallLedger, StoreLedger

MEMORY_DISK = Path("/dev/shm")
"""Death of a process is tried here, not loss of power, so the rows need no disk."""
OWNERS = st.sampled_from(["one", "two"])
ORDERS = st.sampled_from(["A", "B"])
CALLS = st.sampled_from(["c0", "c1"])
DEATHS = st.sampled_from(["no", "no", "before the effect", "after the effect"])
TOO_LATE = (LedgerConflictError, IllegalTransitionError)


def pay(order: str) -> str:
    """Pay an order."""
    return order


ALICE = Agent(name="alice", description="A", model=ScriptedChatModel(), tools=[privileged(pay)])
DESK: Any = create_handoff_graph([ALICE], default_active_agent="alice").desk


class Machine(RuleBasedStateMachine):
    """Owners that may act on what they were told long ago, and may die behind any commit."""

    make: Any = lambda folder: MemoryLedger()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None)
        self.now = 1_000_000.0
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now, sleep=lambda _: None)
        self.clocks = [mock.patch.object(module, "time", clock) for module in (memory, sqlite, in_postgres)]
        for each in self.clocks:
            each.start()
        self.ledger: Ledger = type(self).make(Path(self.folder.name))
        self.told: dict[str, dict[tuple[str, str], Asked]] = {"one": {}, "two": {}}
        self.at_work: dict[str, list[WriteRecord]] = {"one": [], "two": []}
        self.questions: list[tuple[str, str, str, WriteRecord]] = []
        """Order, call, kind and row of everything that the person was ever shown."""
        self.answered: set[str] = set()
        self.world: list[tuple[str, str, int]] = []
        """Order, operation and epoch of every effect."""
        self.wanted: Counter[str] = Counter()
        """How often the person has approved a payment, without being told that it is a repeat."""

    def _look(self, order: str, call_id: str) -> Asked:
        """Ask the gate where a call stands, as a node does that has just begun."""
        made = call("pay", order=order, call_id=call_id)
        state = {
            "messages": [AIMessage("", name="alice", id=f"m-{order}-{call_id}", tool_calls=[made])],
            "case": {"case_id": "c"},
        }
        node = Node("look", lambda state, config: standing(DESK, self.ledger, state, config, made, "alice"))
        asked: Asked = node.invoke(state, {})
        return asked

    def _ask(self, asked: Asked) -> tuple[WriteRecord, bool]:
        """Put the question into the ledger, as `approval` does; it is shown from then on."""
        if asked.kind == "unknown" and asked.record is not None:
            return asked.record, False
        return self.ledger.propose(asked.proposal, seq=asked.seq)

    @rule(owner=OWNERS, order=ORDERS, call_id=CALLS)
    def look(self, owner: str, order: str, call_id: str) -> None:
        """An owner asks where a call stands."""
        self.told[owner][order, call_id] = self._look(order, call_id)

    @rule(order=ORDERS, call_id=CALLS)
    def ask(self, order: str, call_id: str) -> None:
        """A node asks the person, if the gate says that there is something to ask."""
        asked = self._look(order, call_id)
        if asked.barred or (asked.record is not None and asked.record.state not in ("proposed", "unknown")):
            return
        record, _ = self._ask(asked)
        if record.state in ("proposed", "unknown"):
            name = f"{record.request_id}.{asked.kind}"
            assert name not in self.answered  # I7: what was answered is not asked again
            self.questions.append((order, call_id, asked.kind, record))

    @rule(number=st.integers(0, 40), yes=st.booleans(), dies=st.booleans())
    def answer(self, number: int, yes: bool, dies: bool) -> None:
        """The person answers a question that it was shown; the node that asked runs again first."""
        if not self.questions:
            return
        order, call_id, kind, shown = self.questions[number % len(self.questions)]
        asked = self._look(order, call_id)
        if asked.barred or asked.kind != kind or (asked.record is not None and asked.record.state not in ("proposed", "unknown")):
            return
        record, fresh = self._ask(asked)
        if fresh or dies or record.request_id != shown.request_id or record.state not in ("proposed", "unknown"):
            return
        event = self._decision(order, kind, record, yes=yes)
        decided = self.ledger.move(record, event, approver="ana", decision=event, decided_at=self.now)
        self.answered.add(f"{record.request_id}.{kind}")
        if event == "approve" and decided.state == "approved":
            self.wanted[order] += 1

    def _decision(self, order: str, kind: str, record: WriteRecord, *, yes: bool) -> str:
        if kind == "unknown":
            happened = (order, record.op, record.epoch) in self.world
            return "confirm" if happened else "retry" if yes else "abandon"
        return "approve" if yes and kind == "write" else "deny"

    @rule(owner=OWNERS, order=ORDERS, call_id=CALLS, dies=DEATHS)
    def start(self, owner: str, order: str, call_id: str, dies: str) -> None:
        """An owner claims, if what it was told says so, and writes; it may die in between."""
        asked = self.told[owner].get((order, call_id))
        if asked is None or asked.record is None or asked.record.state != "approved":
            return
        try:
            claimed = self.ledger.move(asked.record, "start", token=owner, started_at=self.now)
        except TOO_LATE:
            return
        if dies == "before the effect":
            return
        self.world.append((order, claimed.op, claimed.epoch))
        if dies == "no":
            self.at_work[owner].append(claimed)

    @rule(order=ORDERS, call_id=CALLS)
    def start_at_once(self, order: str, call_id: str) -> None:
        """Both owners claim, the second one while the first one's move is under way, where the ledger has a gap for it."""
        for owner in ("one", "two"):
            self.look(owner, order, call_id)
        gap = getattr(self.ledger, "gap", None)
        if gap is not None:

            def meanwhile(_: str) -> None:
                self.ledger.gap = gap  # type: ignore[attr-defined]
                self.start("two", order, call_id, "no")

            self.ledger.gap = meanwhile  # type: ignore[attr-defined]
        self.start("one", order, call_id, "no")
        self.start("two", order, call_id, "no")

    @rule(owner=OWNERS, event=st.sampled_from(["finish", "finish", "lose"]))
    def end(self, owner: str, event: str) -> None:
        """An owner ends what it has begun, or loses track of it."""
        if self.at_work[owner]:
            claimed = self.at_work[owner].pop()
            self.ledger.move(claimed, event, result="ok", finished_at=self.now)

    @rule(order=ORDERS, call_id=CALLS)
    def find_orphan(self, order: str, call_id: str) -> None:
        """A node finds a claim whose process is dead and calls it unknown."""
        record = self._look(order, call_id).record
        if record is not None and record.state == "executing" and not self._is_at_work(record):
            self.ledger.move(record, "lose", error="died")

    def _is_at_work(self, record: WriteRecord) -> bool:
        return any(record.op == each.op for held in self.at_work.values() for each in held)

    @rule(owner=OWNERS)
    def crash(self, owner: str) -> None:
        """An owner dies and begins anew: it knows nothing."""
        self.told[owner], self.at_work[owner] = {}, []

    @rule(seconds=st.floats(-1e5, 1e5))
    def jump(self, seconds: float) -> None:
        """The clock is set."""
        self.now += seconds

    @invariant()
    def no_payment_without_an_approval(self) -> None:
        """I1, I2: the person tells the truth and wants each payment once, so each happens at most once, and behind an approval."""
        for order, times in Counter(order for order, _, _ in self.world).items():
            assert times == 1
            assert self.wanted[order]
        rows = {each.op: each for each in self.ledger.records()}
        for _, op, _ in self.world:
            assert rows[op].approver == "ana"
            assert rows[op].state not in ("proposed", "denied", "abandoned")

    def teardown(self) -> None:
        """I3: whatever was left behind, everything comes to an end; what was approved and not given up has happened."""
        try:
            self._finish()
        finally:
            for each in self.clocks:
                each.stop()
            self.ledger.close()
            self.folder.cleanup()

    def _finish(self) -> None:
        self.crash("one")
        self.crash("two")
        for _ in range(10):
            for record in self.ledger.records():
                if not is_final(WRITE, record.state):
                    self._take_on(record)
        for record in self.ledger.records():
            assert is_final(WRITE, record.state)
            happened = any(op == record.op for _, op, _ in self.world)
            assert happened is (record.state == "done")
        self.no_payment_without_an_approval()

    def _take_on(self, record: WriteRecord) -> None:
        order = record.args["order"]
        if record.state in ("executing", "proposed"):
            event = "lose" if record.state == "executing" else "deny"
        elif record.state == "unknown":
            event = self._decision(order, "unknown", record, yes=True)
        else:
            claimed = self.ledger.move(record, "start", token="last")
            self.world.append((order, claimed.op, claimed.epoch))
            record, event = claimed, "finish"
        self.ledger.move(record, event, approver=record.approver or "ana")


def explore(make: Any, examples: int, **more: Any) -> int:
    """Let Hypothesis try to break a ledger. Returns the steps that were taken."""
    steps = 0

    class Counting(Machine):
        def check_invariants(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            return super().check_invariants(*args, **kwargs)

    Counting.make = staticmethod(make)
    run_state_machine_as_test(Counting, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None, **more))
    return steps


@pytest.mark.parametrize(
    ("make", "examples", "steps"),
    [
        (lambda folder: MemoryLedger(), 220, 10_000),
        (lambda folder: SqliteLedger(folder / "l.db"), 220, 10_000),
        (lambda folder: in_postgres.PostgresLedger(postgres.server().empty()), 40, 1_500),
    ],
    ids=["memory", "sqlite", "postgres"],
)
def test_no_order_of_steps_pays_twice_or_without_an_approval(make: Any, examples: int, steps: int) -> None:
    """Over thousands of steps of two owners, crashes, clock jumps and late answers each payment happens as often as it was wanted."""
    assert explore(make, examples) >= steps


class Careless(MemoryLedger):
    """Moves a row without comparing it with what was read."""

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move blindly."""
        self._rows[record.op] = dataclasses.replace(record, **moved(record, event, changes))
        return self._rows[record.op]


@pytest.mark.parametrize(
    "make",
    [lambda folder: Careless(), lambda folder: StoreLedger(InMemoryStore()), lambda folder: MemoryCallLedger()],
    ids=["does not compare", "get, then put", "keyed by call"],
)
def test_the_machine_finds_a_careless_ledger(make: Any) -> None:
    """A ledger that does not compare, that compares too early, or that knows a write by its call is found."""
    with pytest.raises((AssertionError, LedgerConflictError)):
        explore(make, 500, phases=[Phase.generate], database=None)  # found is enough, it need not be made small
