"""A ledger in memory: for tests, and for graphs whose checkpoints are in memory too."""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Collection
from typing import Any

from langgraph_handoff.ledger.base import Ledger, Proposal, WriteRecord
from langgraph_handoff.ledger.moves import asked_again, conflict, filters, moved, new_record

__all__ = ("MemoryLedger",)


class MemoryLedger(Ledger):
    """Keeps rows in a dictionary under a lock. They end with the process, as its checkpoints do.

    Rows go out as copies: their arguments are what was approved, and a caller must not be able to change them.
    """

    def __init__(self) -> None:
        """Make an empty ledger."""
        self._rows: dict[str, WriteRecord] = {}
        self._lock = threading.Lock()

    @property
    def location(self) -> str:
        """Where the rows are."""
        return ":memory:"

    def propose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once; see `Ledger.propose`."""
        with self._lock:
            made = new_record(proposal, seq, time.time())
            held = self._rows.get(made.op)
            stored = made if held is None else asked_again(held, made) or held
            self._rows[made.op] = stored
            return copy.deepcopy(stored), stored is not held

    def get(self, op: str) -> WriteRecord | None:
        """Return a row."""
        with self._lock:
            return copy.deepcopy(self._rows.get(op))

    def records(
        self,
        *,
        case_id: str | None = None,
        key: str | None = None,
        call_id: str | None = None,
        thread_id: str | None = None,
        states: Collection[str] | None = None,
    ) -> list[WriteRecord]:
        """Return the rows that fit all given filters."""
        asked = filters(case_id=case_id, key=key, call_id=call_id, thread_id=thread_id)
        with self._lock:
            rows = list(self._rows.values())
        found = [row for row in rows if all(getattr(row, name) == value for name, value in asked.items())]
        chosen = [copy.deepcopy(row) for row in found if states is None or row.state in states]
        return sorted(chosen, key=lambda row: (row.proposed_at, row.seq))

    def move(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row; see `Ledger.move`."""
        after = moved(record, event, changes)
        with self._lock:
            held = self._rows.get(record.op)
            if held is None or (held.state, held.epoch, held.token) != (record.state, record.epoch, record.token):
                raise conflict(record, event, held, self.location)
            self._rows[record.op] = dataclasses.replace(held, **after)
            return copy.deepcopy(self._rows[record.op])

    def close(self) -> None:
        """Do nothing: nothing is open, and the rows stay as long as the ledger does."""

    async def apropose(self, proposal: Proposal, *, seq: int) -> tuple[WriteRecord, bool]:
        """Store a proposal once; memory does not block, so no thread is needed."""
        return self.propose(proposal, seq=seq)

    async def aget(self, op: str) -> WriteRecord | None:
        """Return a row."""
        return self.get(op)

    async def arecords(self, **filters: Any) -> list[WriteRecord]:
        """Return the rows that fit all given filters."""
        return self.records(**filters)

    async def alatest_checkpoint(self, thread_id: str) -> str | None:
        """Return the latest checkpoint of a thread from which an operation was begun."""
        return self.latest_checkpoint(thread_id)

    async def amove(self, record: WriteRecord, event: str, **changes: Any) -> WriteRecord:
        """Move a row."""
        return self.move(record, event, **changes)
