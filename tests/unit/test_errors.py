"""Errors say what happened, where, and what to do; their texts are golden."""

from __future__ import annotations

import pytest

from langgraph_handoff import errors
from langgraph_handoff.errors import HandoffError

GOLDEN = {
    "StaleRequestError": (
        {"request_id": "r.1", "thread_id": "t", "problem": "it was answered", "open": "r.2"},
        "The request `r.1` is not open on thread `t`: it was answered. Open now: r.2. Read the open request again and decide on that one.",
    ),
    "NoOpenRequestError": (
        {"thread_id": "t"},
        "The thread `t` has no open request to answer. Read `get_state(config).interrupts` first; to go on with an unfinished run, "
        "invoke the graph with `None`.",
    ),
    "LedgerMissingError": (
        {"tool": "pay"},
        'The tool `pay` is a privileged write and this graph has no write ledger. Compile with `storage=connect("cases.db")`, with '
        "`ledger=...`, or set HANDOFF_LEDGER_URL.",
    ),
    "LedgerError": (
        {"location": "cases.ledger.db", "problem": "the disk is full"},
        "The write ledger at cases.ledger.db could not be used: the disk is full. Nothing was written; free the file or disk, or bring the "
        "server back, and run the case again.",
    ),
    "LedgerUnsettledError": (
        {"location": "postgresql://host/cases", "problem": "the line went dead"},
        "The write ledger at postgresql://host/cases was lost in the middle of a move: the line went dead. Whether the move is stored will "
        "show when the ledger can be read again: run the case again then, and it goes on from what is stored.",
    ),
    "ExtraMissingError": (
        {"url": "postgresql://...", "problem": "No module named 'psycopg'", "extra": "postgres"},
        "The storage at postgresql://... needs an optional part of the package (No module named 'psycopg'). Install it: "
        '`pip install "langgraph-handoff[postgres]"`.',
    ),
    "ThreadBusyError": (
        {"thread_id": "t"},
        "Another run is working on thread `t`. Wait until it ends, then send this input again.",
    ),
    "CheckpointerMissingError": (
        {},
        'This graph asks people for approval and needs a checkpointer to wait for them. Compile with `storage=connect("cases.db")` or '
        "`checkpointer=...`, and give a `thread_id`.",
    ),
    "DurabilityError": (
        {"durability": "exit"},
        "The durability `exit` stores nothing before the run ends, so an approved write could be repeated after a crash. Use "
        '`durability="sync"` in graphs with privileged tools.',
    ),
    "EntryError": (
        {"problem": "content: it is empty"},
        "The memory entry is not valid: content: it is empty. Nothing was stored; correct it and record it again.",
    ),
    "EntryConflictError": (
        {"entry_id": "h-1"},
        "The memory already holds an entry `h-1` that says something else. Entries are never changed: give another `entry_id`, or none.",
    ),
    "UnknownHandoffError": (
        {"handoff_id": "h-1"},
        "The memory holds no handoff `h-1`. Take the id that `handoff` returned or that `receive_handoffs` lists.",
    ),
    "NoModelError": (
        {"method": "recall(evidence_only=False)"},
        "`recall(evidence_only=False)` needs a model to put evidence into words, and this memory has none. Build it with "
        "`CaseMemory(store, model=...)`, or ask for evidence only.",
    ),
    "WriteInProgressError": (
        {"op": "o", "tool": "pay", "token": "host:1"},
        "The operation o (`pay`) is being carried out by another running process (host:1). Wait for it, then run the case again.",
    ),
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_whole_text_of_an_error(name: str) -> None:
    """The text is the class docstring with its fields, and the fields are attributes."""
    fields, text = GOLDEN[name]
    error = getattr(errors, name)(**fields)
    assert str(error) == text
    assert {key: getattr(error, key) for key in fields} == fields


@pytest.mark.parametrize("name", sorted(errors.__all__))
def test_every_error_is_one_of_ours_and_says_what_to_do(name: str) -> None:
    """Every exception has one root, and a docstring that is its message."""
    kind = getattr(errors, name)
    assert issubclass(kind, HandoffError)
    assert str(kind()).endswith((".", ">"))


def test_a_missing_field_does_not_hide_the_error() -> None:
    """An error that was raised without a field still has a text."""
    assert "<thread_id>" in str(errors.NoOpenRequestError())


def test_a_message_of_one_s_own_is_taken_as_it_is() -> None:
    """Raised with a text, an error keeps that text: braces in it are not placeholders."""
    assert str(errors.WriteNotApplied("the {bank} is closed")) == "the {bank} is closed"
