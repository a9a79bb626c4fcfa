"""Memories over every kind of store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, Op
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from langgraph_handoff import CaseMemory, connect
from langgraph_handoff.memory import sqlite

STORES = ["memory", "sqlite", "sqlite-in-memory", "foreign"]


class ForeignStore(BaseStore):
    """A store that is none of the host's, with no index of any kind."""

    def __init__(self) -> None:
        self._held = InMemoryStore()

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        """Do what is asked."""
        return self._held.batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        """Refuse: the memory's async twins must do without."""
        raise NotImplementedError


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """A store of each kind."""
    if request.param == "memory":
        yield InMemoryStore()
    elif request.param == "foreign":
        yield ForeignStore()
    elif request.param == "sqlite":
        with connect(str(tmp_path / "cases.db")) as storage:
            yield storage.store
    else:
        with SqliteStore.from_conn_string(":memory:") as held:
            yield held


@pytest.fixture
def memory(store: BaseStore) -> CaseMemory:
    """A memory over a store of each kind."""
    return CaseMemory(store)


@pytest.fixture(params=["few", "many"])
def ranked_memory(request: pytest.FixtureRequest, memory: CaseMemory, monkeypatch: pytest.MonkeyPatch) -> CaseMemory:
    """A memory that ranks the few entries of a case among themselves, and one that takes every case for a big one."""
    if request.param == "many":
        monkeypatch.setattr(sqlite, "_FEW", 0)
    return memory


def asking(memory: CaseMemory, **given: Any) -> str:
    """Hand something over, with what a test does not care about filled in."""
    fields = {
        "case_id": "case-1",
        "from_agent": "ari",
        "to_agent": "rex",
        "requested_action": "approve",
        "content": "Refund $1,200?",
    }
    return memory.handoff(**{**fields, **given})


def noted(memory: CaseMemory, content: Any, **given: Any) -> str:
    """Record a trace, with what a test does not care about filled in."""
    fields = {"case_id": "case-1", "entry_type": "trace", "agent": "ari"}
    return memory.record(**{**fields, **given}, content=content)
