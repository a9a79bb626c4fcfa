"""The rules that every backend follows, as pure functions of rows. A backend only adds atomicity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from langgraph_handoff.errors import LedgerConflictError
from langgraph_handoff.ledger.base import CHANGES, Proposal, WriteRecord, digest_of, json_copy, storable
from langgraph_handoff.lifecycle import WRITE, advance

__all__ = ("asked_again", "conflict", "filters", "moved", "new_record")

_ANOTHER_QUESTION: Final = frozenset({"revise", "retry"})
"""Events after which an answer to the old question no longer counts."""


def new_record(proposal: Proposal, seq: int, now: float) -> WriteRecord:
    """Return the row of a proposal that nobody has made before.

    Raises:
        NotJsonError: If the arguments are not JSON.
    """
    given = {each.name: _clean(each.name, getattr(proposal, each.name)) for each in dataclasses.fields(proposal)}
    digest = digest_of(proposal.tool, proposal.args)
    return WriteRecord(op=f"{proposal.key}-{seq}", seq=seq, state="proposed", epoch=1, digest=digest, proposed_at=now, **given)


def asked_again(held: WriteRecord, made: WriteRecord) -> WriteRecord | None:
    """Return the row that replaces an open question by another one; None when the row stays as it is."""
    same = held.digest == made.digest and held.call_id == made.call_id
    if held.state != "proposed" or same:
        return None
    return dataclasses.replace(made, state=advance(WRITE, held.state, "revise"), epoch=held.epoch + 1)


def moved(record: WriteRecord, event: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a move sets.

    Raises:
        IllegalTransitionError: If the WRITE table does not have that move.
        TypeError: If a field is not one that a move may set.
        NotJsonError: If the result is not JSON.
    """
    unknown = changes.keys() - CHANGES
    if unknown:
        raise TypeError(f"A move does not set {', '.join(sorted(unknown))}.")
    state = advance(WRITE, record.state, event)
    given = {name: _clean(name, value) for name, value in changes.items()}
    return {**given, "state": state, "epoch": record.epoch + (event in _ANOTHER_QUESTION)}


def conflict(record: WriteRecord, event: str, held: WriteRecord | None, location: str) -> LedgerConflictError:
    """Return the error of a move that came too late: `held` is what stands in the ledger."""
    state, epoch = (held.state, held.epoch) if held else ("missing", 0)
    return LedgerConflictError(op=record.op, state=state, epoch=epoch, event=event, location=location)


def filters(**wanted: str | None) -> dict[str, str]:
    """Return the filters that were given, spelled as the rows spell them."""
    return {name: storable(value) for name, value in wanted.items() if value is not None}


def _clean(name: str, value: Any) -> Any:
    if name in ("args", "result"):
        return json_copy(value)
    return storable(value) if isinstance(value, str) else value
