"""The write ledger: which privileged writes were asked for, decided, begun and ended."""

from __future__ import annotations

from langgraph_handoff.errors import StorageError
from langgraph_handoff.ledger.base import (
    Ledger,
    Proposal,
    WriteRecord,
    attempt,
    canonical_json,
    digest_of,
    identity_key,
    owner_alive,
    owner_token,
)
from langgraph_handoff.ledger.memory import MemoryLedger
from langgraph_handoff.ledger.sqlite import SqliteLedger

__all__ = (
    "Ledger",
    "MemoryLedger",
    "Proposal",
    "SqliteLedger",
    "WriteRecord",
    "attempt",
    "canonical_json",
    "digest_of",
    "identity_key",
    "open_ledger",
    "owner_alive",
    "owner_token",
)


def open_ledger(url: str) -> Ledger:
    """Open a ledger.

    Args:
        url: A path, "sqlite:///path", or ":memory:".

    Raises:
        StorageError: If this release has no ledger for the address.
    """
    path = url.removeprefix("sqlite:///")
    scheme, found, _ = path.partition("://")
    if found:  # only the scheme is shown, since the rest may hold a password
        raise StorageError(
            url=f"{scheme}://...", problem=f"this release keeps ledgers in SQLite files and in memory, not yet in {scheme}"
        )
    return MemoryLedger() if path == ":memory:" else SqliteLedger(path)
