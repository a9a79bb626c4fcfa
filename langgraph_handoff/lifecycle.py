"""The law: what may follow what in the life of a transfer and of a privileged write.

Everything that decides about an order of states lives here, as data. The tables know nothing of agents, ledgers or
graphs; rooms above look a move up with `advance` and may not invent one. The diagrams in the docs are drawn from them.

*A transfer* is offered by its sender; the destination accepts or declines, or nobody answers in time. An accepted
transfer ends when the case is returned, closed, or moved on by a later transfer.

*A privileged write* is proposed by an agent and approved or denied by a person (or a declared rule). Only `approved` may
start, and a started write ends as `done` or, when nobody can know, as `unknown`. An unknown write is never started
again by itself: somebody has to say that it happened, that it did not, or that it is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from langgraph_handoff.errors import IllegalTransitionError

__all__ = ("TRANSFER", "WRITE", "Table", "advance", "is_final", "mermaid")

Table = Mapping[str, Mapping[str, str]]
"""state → event → next state."""


def _table(rows: dict[str, dict[str, str]]) -> Table:
    return MappingProxyType({state: MappingProxyType(moves) for state, moves in rows.items()})


TRANSFER: Final[Table] = _table(
    {
        "offered": {"accept": "accepted", "decline": "declined", "expire": "expired"},
        # A receiver may still decline on its first turn, before it has done anything.
        "accepted": {"return": "returned", "close": "closed", "supersede": "superseded", "decline": "declined"},
        "declined": {},
        "expired": {},
        "returned": {},
        "closed": {},
        "superseded": {},
    }
)

WRITE: Final[Table] = _table(
    {
        # `revise` replaces the arguments of a question that nobody has answered yet; it stays a question.
        "proposed": {"approve": "approved", "deny": "denied", "revise": "proposed"},
        "approved": {"start": "executing"},
        # `not_applied` is the tool's own word (WriteNotApplied) that nothing happened: the approval stands.
        "executing": {"finish": "done", "lose": "unknown", "not_applied": "approved"},
        "unknown": {"confirm": "done", "retry": "approved", "abandon": "abandoned"},
        "done": {},
        "denied": {},
        "abandoned": {},
    }
)

_NAMES: Final = ((TRANSFER, "TRANSFER"), (WRITE, "WRITE"))


def _name(table: Table) -> str:
    return next((name for known, name in _NAMES if known is table), "custom")


def advance(table: Table, state: str, event: str) -> str:
    """Return the state that follows `state` on `event`.

    Args:
        table: `TRANSFER` or `WRITE`.
        state: The present state.
        event: What happened.

    Raises:
        IllegalTransitionError: If the table has no such state, or no such event in it. Nothing is changed.
    """
    moves = table.get(state, {})
    if event not in moves:
        allowed = ", ".join(moves) or "nothing, this state is final"
        raise IllegalTransitionError(table=_name(table), state=state, event=event, allowed=allowed)
    return moves[event]


def is_final(table: Table, state: str) -> bool:
    """Return whether nothing may follow `state`."""
    return not table[state]


def mermaid(table: Table) -> str:
    """Draw the table as a Mermaid state diagram."""
    first = next(iter(table))
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    for state, moves in table.items():
        lines += [f"    {state} --> {target}: {event}" for event, target in moves.items()]
        if not moves:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)
