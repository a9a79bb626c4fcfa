"""The write ledger: which privileged writes were asked for, decided, begun and ended."""

from __future__ import annotations

from langgraph_handoff.errors import StorageError
from langgraph_handoff.ledger.base import (
    Ledger,
    Proposal,
    WriteRecord,
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
    if url == ":memory:":
        return MemoryLedger()
    if "://" in url and not url.startswith("sqlite:///"):
        raise StorageError(
            url=url.rsplit("@", maxsplit=1)[-1], problem="this release keeps ledgers in SQLite files and memory only"
        )
    return SqliteLedger(url.removeprefix("sqlite:///"))
