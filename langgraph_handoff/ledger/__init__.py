"""The write ledger: which privileged writes were asked for, decided, begun and ended."""

from __future__ import annotations

from typing import Final

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
    "POSTGRES",
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


POSTGRES: Final = ("postgresql", "postgres")
"""Schemes of an address of a Postgres database."""


def open_ledger(url: str) -> Ledger:
    """Open a ledger.

    Args:
        url: A path, "sqlite:///path", "postgresql://user:password@host/database", or ":memory:".

    Raises:
        StorageError: If there is no ledger for such an address, or the extra that it needs is not installed.
    """
    path = url.removeprefix("sqlite:///")
    scheme, found, _ = path.partition("://")
    if found and scheme in POSTGRES:
        from langgraph_handoff.ledger.postgres import PostgresLedger  # noqa: PLC0415 (needs the extra `postgres`)

        return PostgresLedger(url)
    if found:  # only the scheme is shown, since the rest may hold a password
        raise StorageError(url=f"{scheme}://...", problem="ledgers are kept in SQLite files, in Postgres and in memory")
    return MemoryLedger() if path == ":memory:" else SqliteLedger(path)
