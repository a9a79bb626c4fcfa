"""What may never be, however often processes are killed and stopped. The numbers are those of the soak's docstring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_handoff.ledger import WriteRecord
from langgraph_handoff.lifecycle import WRITE, is_final
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.testing import history_faults
from tests.restart.office import Case

_Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is left when all processes have ended."""

    cases: Sequence[Case]
    effects: _Lines
    questions: _Lines
    """What the person was shown, and the answers whose call returned."""
    turns: _Lines
    """The user's turns whose call returned."""
    acts: _Lines
    """Who acted, and who was stored as the owner at that moment."""
    faults: _Lines
    """Errors that a client must never see."""
    killed: frozenset[int]
    """Processes that got a signal."""
    rows: Sequence[WriteRecord]
    states: Mapping[str, Mapping[str, Any]]
    """Thread → the values of its last state."""


def _once(evidence: Evidence) -> Iterator[str]:
    paid = Counter((each["order"], each["amount"]) for each in evidence.effects)
    wanted = Counter((order.name, order.paid) for case in evidence.cases for order in case.orders if order.paid is not None)
    for order in paid.keys() | wanted.keys():
        if paid[order] != wanted[order]:
            yield f"{order} was paid {paid[order]} times, not {wanted[order]}"
    operations = Counter(each["op"] for each in evidence.effects if "op" in each)
    retries = Counter(each["op"] for each in evidence.questions if each["answer"] == "did_not_happen")
    for op, times in operations.items():
        if times > 1 + retries[op]:
            yield f"{op} ran {times} times with {retries[op]} retries"


def _approved(evidence: Evidence) -> Iterator[str]:
    rows = {each.op: each for each in evidence.rows}
    ruled = {order.name for case in evidence.cases for order in case.orders if order.wish == "rule"}
    said_yes: dict[str, float] = {}
    for question in evidence.questions:
        if question["answer"] in ("approve", "edit"):
            said_yes.setdefault(question["order"], question["at"])
    for effect in evidence.effects:
        row, order = rows.get(effect.get("op", "")), effect["order"]
        if row is None or not row.approver or row.decided_at is None:
            yield f"{effect} has no approval"
        elif row.args != {"order": order, "amount": effect["amount"]}:
            yield f"{effect} is not what was approved, {row.args}"
        elif (row.decided_at if order in ruled else said_yes.get(order, effect["at"] + 1)) > effect["at"] and not row.error:
            yield f"{effect} is older than its approval"


def _ended(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows:
        if not is_final(WRITE, row.state):
            yield f"{row.tool} {row.args} is left {row.state}"
    for case in evidence.cases:
        for thread in case.threads:
            talk = evidence.states[thread].get("messages") or []
            if not talk or talk[-1].text != f"done {len(case.parts)}":
                yield f"thread {thread} ended with {talk[-1].text if talk else 'nothing'!r}"


def _owned(evidence: Evidence) -> Iterator[str]:
    given: set[str] = set()
    for act in evidence.acts:
        given |= {act["thread"]} if act["agent"] == "bob" else set()
        if act["thread"] in given and (act["agent"] != "bob" or act["stored"] != "bob"):
            yield f"{act} after the case was given to bob"
    for case in evidence.cases:
        for thread in case.threads:
            values = evidence.states[thread]
            arrived = sum(each.text == "bob has the case now." for each in values.get("messages") or [])
            epoch = (values.get("ownership") or {}).get("epoch")
            if (values.get("active_agent"), epoch, arrived) != ("bob", 2, 1):
                yield f"thread {thread} is {values.get('active_agent')}'s, epoch {epoch}, transferred {arrived} times"


def _heard(evidence: Evidence) -> Iterator[str]:
    for turn in evidence.turns:
        if turn["message"] not in [each.id for each in evidence.states[turn["thread"]].get("messages") or []]:
            yield f"{turn} was accepted and is lost"


def _answered(evidence: Evidence) -> Iterator[str]:
    for thread, values in evidence.states.items():
        for fault in history_faults(values.get("messages") or []):
            yield f"thread {thread}: {fault}"


def _asked(evidence: Evidence) -> Iterator[str]:
    settled: dict[tuple[str, str], float] = {}
    for question in evidence.questions:
        name = (question["thread"], question["request_id"])
        if question["returned"]:
            settled.setdefault(name, question["at"])
        elif question["looked"] > settled.get(name, question["looked"]) and not (question["note"] and question["twin"]):
            yield f"{question} was asked again"
        elif question["kind"] == "unknown" and question["by"] not in evidence.killed:
            yield f"{question}: its process was not killed"


def _remembered(evidence: Evidence) -> Iterator[str]:
    for case in evidence.cases:
        for thread in case.threads:
            values = evidence.states[thread]
            package = values.get("handoff")
            if not isinstance(package, HandoffPackage) or package.known_facts != case.facts:
                yield f"thread {thread} has the package {package}"
            elif (values.get("case") or {}).get("facts") != case.facts:
                yield f"thread {thread} has the case file {values.get('case')}"


def _worked(evidence: Evidence) -> Iterator[str]:
    yield from (str(each) for each in evidence.faults)


INVARIANTS: Final[Mapping[str, Callable[[Evidence], Iterator[str]]]] = {
    "I1": _once,
    "I2": _approved,
    "I3": _ended,
    "I4": _owned,
    "I5": _heard,
    "I6": _answered,
    "I7": _asked,
    "I8": _remembered,
    "errors": _worked,
}


def violations(evidence: Evidence) -> list[str]:
    """Return every violation, with the invariant's number."""
    return [f"{name}: {each}" for name, check in INVARIANTS.items() for each in check(evidence)]
