"""The law of transfers and writes, cell by cell."""

from __future__ import annotations

import pytest

from langgraph_handoff.errors import IllegalTransitionError
from langgraph_handoff.lifecycle import TRANSFER, WRITE, Table, advance, is_final, mermaid

# Written out once more, so that a changed cell of the table does not change its own test.
TRANSFERS = {
    ("offered", "accept"): "accepted",
    ("offered", "decline"): "declined",
    ("offered", "expire"): "expired",
    ("accepted", "return"): "returned",
    ("accepted", "close"): "closed",
    ("accepted", "supersede"): "superseded",
    ("accepted", "decline"): "declined",
}
WRITES = {
    ("proposed", "approve"): "approved",
    ("proposed", "deny"): "denied",
    ("proposed", "revise"): "proposed",
    ("approved", "start"): "executing",
    ("executing", "finish"): "done",
    ("executing", "lose"): "unknown",
    ("executing", "not_applied"): "approved",
    ("unknown", "confirm"): "done",
    ("unknown", "retry"): "approved",
    ("unknown", "abandon"): "abandoned",
}
TABLES = {"TRANSFER": (TRANSFER, TRANSFERS), "WRITE": (WRITE, WRITES)}
STATES = {
    "TRANSFER": ("offered", "accepted", "declined", "expired", "returned", "closed", "superseded"),
    "WRITE": ("proposed", "approved", "executing", "unknown", "done", "denied", "abandoned"),
}
EVENTS = sorted({event for _, event in (*TRANSFERS, *WRITES)})
CELLS = [(name, state, event) for name, states in STATES.items() for state in states for event in EVENTS]
BOTH = pytest.mark.parametrize(("table", "moves"), TABLES.values(), ids=TABLES)


@pytest.mark.parametrize(("name", "state", "event"), CELLS)
def test_every_cell_of_the_matrix_is_the_law(name: str, state: str, event: str) -> None:
    """A move leads where the law says, and a move that the law does not name is refused with what is allowed."""
    table, moves = TABLES[name]
    if (state, event) in moves:
        assert advance(table, state, event) == moves[state, event]
        return
    with pytest.raises(IllegalTransitionError) as caught:
        advance(table, state, event)
    error = caught.value
    assert (error.fields["table"], error.fields["state"], error.fields["event"]) == (name, state, event)
    allowed = [known for origin, known in moves if origin == state]
    assert error.fields["allowed"] == (", ".join(allowed) or "nothing, this state is final")


@pytest.mark.parametrize("name", TABLES)
def test_the_states_are_the_ones_named_here(name: str) -> None:
    """The tables have exactly the states of the law, beginning with the first."""
    assert tuple(sorted(TABLES[name][0])) == tuple(sorted(STATES[name]))
    assert next(iter(TABLES[name][0])) == STATES[name][0]


@BOTH
def test_a_state_that_the_table_does_not_have_moves_nowhere(table: Table, moves: dict[tuple[str, str], str]) -> None:
    """An unknown state takes no event at all, whichever table it is looked up in."""
    for event in EVENTS:
        with pytest.raises(IllegalTransitionError):
            advance(table, "lost", event)


@BOTH
def test_final_states_are_those_that_nothing_leaves(table: Table, moves: dict[tuple[str, str], str]) -> None:
    """A state is final exactly when the law names no move out of it."""
    leaving = {state for state, _ in moves}
    assert {state for state in table if is_final(table, state)} == set(table) - leaving


@BOTH
def test_every_state_can_be_reached_and_can_end(table: Table, moves: dict[tuple[str, str], str]) -> None:
    """Each state lies on some way from the first state to a final one."""
    reached = {next(iter(table))}
    for _ in table:
        reached |= {target for (state, _), target in moves.items() if state in reached}
    ending = {state for state in table if is_final(table, state)}
    for _ in table:
        ending |= {state for (state, _), target in moves.items() if target in ending}
    assert reached == ending == set(table)


def test_only_an_approved_write_starts() -> None:
    """The one way into `executing` leads from `approved`, and the one ways into `approved` from a decision or a non-event."""
    assert [state for (state, _), target in WRITES.items() if target == "executing"] == ["approved"]
    into_approved = {cell for cell, target in WRITES.items() if target == "approved"}
    assert into_approved == {("proposed", "approve"), ("executing", "not_applied"), ("unknown", "retry")}


@BOTH
def test_the_tables_cannot_be_changed(table: Table, moves: dict[tuple[str, str], str]) -> None:
    """Nobody can add a move while the program runs."""
    with pytest.raises(TypeError):
        table["new"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        table[next(iter(table))]["new"] = "new"  # type: ignore[index]


@BOTH
def test_the_diagram_draws_every_edge_and_nothing_else(table: Table, moves: dict[tuple[str, str], str]) -> None:
    """The diagram has one line for each move, one into the first state and one out of each final state."""
    head, *lines = mermaid(table).splitlines()
    edges = {f"{state} --> {target}: {event}" for (state, event), target in moves.items()}
    ends = {f"{state} --> [*]" for state in table if is_final(table, state)}
    assert head == "stateDiagram-v2"
    assert len(lines) == len(edges) + len(ends) + 1
    assert {line.strip() for line in lines} == edges | ends | {f"[*] --> {next(iter(table))}"}


def test_the_refusal_says_what_is_allowed() -> None:
    """The whole text of a refused move names the table, the event, the state and the way out."""
    with pytest.raises(IllegalTransitionError) as caught:
        advance(WRITE, "proposed", "start")
    assert str(caught.value) == (
        "In the `WRITE` table the event `start` may not follow the state `proposed`. Allowed here: approve, deny, revise."
    )
