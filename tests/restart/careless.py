"""Gates and ledgers as people write them by hand, each with a fault. The suites of this package must find every one of them."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from langgraph_handoff.ledger import Ledger, MemoryLedger, Proposal, SqliteLedger, WriteRecord, attempt, identity_key
from langgraph_handoff.ledger.moves import asked_again, conflict, filters, moved, new_record

Payment = tuple[str, int]
"""An order and its amount."""
Due = Callable[[Mapping[str, Any], Any], Sequence[Payment]]
"""Given a graph's state and config, what is to be paid in this turn."""
Pay = Callable[[str, int], object]


class Till(MessagesState):
    """The state of a gate made by hand."""

    settled: Annotated[list[str], operator.add]


def bare_gate(checkpointer: Any, due: Due, pay: Pay) -> Any:
    """A node that asks and a node that writes: a run that is killed behind the write asks, and writes, again."""

    def ask(state: Till, config: RunnableConfig) -> Command[Any]:
        payment = _next(state, due(state, config))
        if payment is None:
            return Command(update=_done(state), goto="__end__")
        if interrupt(_question("write", payment)) == "yes":
            return Command(goto="write")
        return Command(update={"settled": [payment[0]]}, goto="ask")

    def write(state: Till, config: RunnableConfig) -> Command[Any]:
        payment = _next(state, due(state, config))
        assert payment is not None
        pay(*payment)
        return Command(update={"settled": [payment[0]]}, goto="ask")

    builder = StateGraph(Till)
    builder.add_node("ask", ask, destinations=("ask", "write", "__end__"))
    builder.add_node("write", write, destinations=("ask",))
    builder.add_edge(START, "ask")
    return builder.compile(checkpointer=checkpointer)


def conditional_gate(checkpointer: Any, ledger: Ledger, due: Due, pay: Pay) -> Any:
    """A good ledger behind questions that depend on it: an old yes to "may it?" answers "did it happen?"."""

    def settle(state: Till, config: RunnableConfig) -> Command[Any]:
        payment = _next(state, due(state, config))
        if payment is None:
            return Command(update=_done(state), goto="__end__")
        record, _ = ledger.propose(_proposal(payment), seq=1)
        if record.state == "proposed":
            event = "approve" if interrupt(_question("write", payment)) == "yes" else "deny"
            record = ledger.move(record, event, approver="ana", decided_at=time.time())
        if record.state == "executing":
            record = ledger.move(record, "lose")
        if record.state == "unknown":
            event = "confirm" if interrupt(_question("unknown", payment)) == "yes" else "retry"
            record = ledger.move(record, event)
        if record.state == "approved":
            with attempt() as token:
                claimed = ledger.move(record, "start", token=token)
                pay(*payment)
                ledger.move(claimed, "finish", result="ok")
        return Command(update={"settled": [payment[0]]}, goto="settle")

    builder = StateGraph(Till)
    builder.add_node("settle", settle, destinations=("settle", "__end__"))
    builder.add_edge(START, "settle")
    return builder.compile(checkpointer=checkpointer)


def _next(state: Till, due: Sequence[Payment]) -> Payment | None:
    return next((each for each in due if each[0] not in state.get("settled", ())), None)


def _done(state: Till) -> dict[str, Any]:
    heard = sum(each.type == "human" for each in state["messages"])
    return {"messages": [("ai", "done" if heard == 1 and state["messages"][0].text == "pay" else f"done {heard}")]}


def _question(kind: str, payment: Payment) -> dict[str, Any]:
    args = {"order": payment[0], "amount": payment[1]}
    about = {"kind": kind, "request_id": f"{payment[0]}.{kind}", "note": "", "evidence": {}}
    return {"handoff": about, "action_requests": [{"name": "pay", "args": args}]}


def _proposal(payment: Payment) -> Proposal:
    args = {"order": payment[0], "amount": payment[1]}
    key = identity_key(tenant="", case_id="", tool="pay", schema_version=1, identity=args)
    return Proposal(
        key=key, kind="write", case_id="", tenant="", thread_id="", call_id="", agent="", tool="pay", args=args, reason="", expires_at=None
    )  # fmt: skip


class StoreLedger(Ledger):
    """A ledger over a store, which has no compare-and-set: it gets a row, compares, and puts another one."""

    def __init__(self, store: BaseStore) -> None:
        self.store = store
        self.gap: Callable[[str], object] = lambda event: None
        """What happens between get and put of a move."""

    @property
    def location(self) -> str:
        """The store."""
        return "store"

    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal, if it is not there."""
        made = new_record(proposal, seq, time.time())
        held = self.get(made.op)
        stored = made if held is None else asked_again(held, made) or held
        if stored is not held:
            self._put(stored)
        return stored, stored is not held

    def get(self, op: str) -> WriteRecord | None:
        """Return a row."""
        item = self.store.get(("ledger",), op)
        return WriteRecord(**item.value) if item else None

    def records(self, *, states: Collection[str] | None = None, **wanted: Any) -> list[WriteRecord]:
        """Return the rows that fit."""
        rows = [WriteRecord(**each.value) for each in self.store.search(("ledger",), limit=100_000)]
        fitting = [each for each in rows if filters(**wanted).items() <= dataclasses.asdict(each).items()]
        return sorted((each for each in fitting if states is None or each.state in states), key=lambda row: row.proposed_at)

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Get, compare, put."""
        held, after = self.get(record.op), moved(record, event, changes)
        if held is None or (held.state, held.epoch, held.token) != (record.state, record.epoch, record.token):
            raise conflict(record, event, held, self.location)
        self.gap(event)
        self._put(dataclasses.replace(held, **after))
        return dataclasses.replace(held, **after)

    def close(self) -> None:
        """Do nothing."""

    def _put(self, record: WriteRecord) -> None:
        self.store.put(("ledger",), record.op, dataclasses.asdict(record))


class _ByCall(Ledger):
    """Knows a write by the call that asked for it: a model that is asked again gives its call another id."""

    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Propose under the call's key."""
        return super().propose(dataclasses.replace(proposal, key=hashlib.sha256(proposal.call_id.encode()).hexdigest()), seq=seq)  # type: ignore[safe-super]


class MemoryCallLedger(_ByCall, MemoryLedger):
    """In memory."""


class SqliteCallLedger(_ByCall, SqliteLedger):
    """In a file."""
