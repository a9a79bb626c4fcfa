"""The rules that every backend follows, as pure functions of rows. A backend only adds atomicity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from langgraph_handoff.ledger.base import CHANGES, Proposal, WriteRecord, canonical_json, digest_of
from langgraph_handoff.lifecycle import WRITE, advance

__all__ = ("asked_again", "moved", "new_record")


def new_record(proposal: Proposal, seq: int, now: float) -> WriteRecord:
    """Return the row of a proposal that nobody has made before."""
    given = {each.name: getattr(proposal, each.name) for each in dataclasses.fields(proposal)}
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
        LedgerError: If the result is not JSON.
    """
    unknown = changes.keys() - CHANGES
    if unknown:
        raise TypeError(f"A move does not set {', '.join(sorted(unknown))}.")
    state = advance(WRITE, record.state, event)
    if "result" in changes:
        canonical_json(changes["result"])
    return {**changes, "state": state, "epoch": record.epoch + (event == "retry")}
