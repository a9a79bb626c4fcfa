"""A store that is older than the other one is refused, and nothing is written twice for it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_handoff import Handoff, connect, decide, privileged
from langgraph_handoff.errors import LedgerBehindError, RolledBackError
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.testing import call
from tests.conftest import Desk, run, say

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def pay(order: str) -> str:
    """Pay an order."""
    ran.append(order)
    return "paid"


def _files(folder: Path, pattern: str) -> list[Path]:
    return [each for each in folder.glob(pattern) if each.is_file()]


def _kept(folder: Path, pattern: str) -> Path:
    """Copy the files away, as a backup does."""
    backup = folder / "backup"
    shutil.rmtree(backup, ignore_errors=True)
    backup.mkdir()
    for each in _files(folder, pattern):
        shutil.copy(each, backup)
    return backup


def _restored(folder: Path, pattern: str) -> None:
    for each in _files(folder, pattern):
        each.unlink()
    for each in (folder / "backup").iterdir():
        shutil.copy(each, folder)


CHECKPOINTS, LEDGER = "cases.db*", "cases.ledger.db*"


def _opened(desk: Desk, folder: Path, *turns: Any) -> Any:
    """Return storage and a graph as a new process has them."""
    storage = connect(str(folder / "cases.db"))
    return storage, desk(alice={"turns": turns, "tools": [privileged(pay)]}, storage=storage)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("state", ["rolled back", "emptied"])
async def test_checkpoints_older_than_the_last_write_are_refused(
    desk: Desk, config: Any, tmp_path: Path, state: str, way: str
) -> None:
    """A checkpoint file from before a privileged write is refused by name on that thread, and works when it is whole again."""
    storage, graph = _opened(desk, tmp_path, call("pay", order="A"))
    with storage:
        graph.invoke(say("hi"), config)
    _kept(tmp_path, CHECKPOINTS)
    storage, graph = _opened(desk, tmp_path, "one")
    with storage:
        decide(graph, config, "approve", by="ana")
    whole = tmp_path / "whole"
    whole.mkdir()
    for each in _files(tmp_path, CHECKPOINTS):
        shutil.copy(each, whole)
    if state == "emptied":
        shutil.rmtree(tmp_path / "backup")
        (tmp_path / "backup").mkdir()
    _restored(tmp_path, CHECKPOINTS)
    storage, graph = _opened(desk, tmp_path, call("pay", order="A"))
    with storage:
        for given in (say("again"), None):
            with pytest.raises(RolledBackError) as caught:
                await run(graph, given, config, way)
            assert caught.value.fields["thread_id"] == config["configurable"]["thread_id"]
        other = {"configurable": {"thread_id": "another"}}
        assert "__interrupt__" in await run(graph, say("hi"), other, way)
    assert ran == ["A"]
    for each in _files(tmp_path, CHECKPOINTS):
        each.unlink()
    for each in whole.iterdir():
        shutil.copy(each, tmp_path)
    storage, graph = _opened(desk, tmp_path, "on")
    with storage:
        assert graph.get_state(config).values["messages"][-1].text == "one"
        await run(graph, say("again"), config, way)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("state", ["rolled back", "missing"])
async def test_a_ledger_older_than_the_case_is_refused(desk: Desk, config: Any, tmp_path: Path, state: str, way: str) -> None:
    """A ledger that forgot the last write of a case gets no other privileged call asked or run, and nothing of it is stored."""
    storage, graph = _opened(desk, tmp_path, call("pay", order="A"))
    with storage:
        graph.invoke(say("hi"), config)
    _kept(tmp_path, LEDGER)
    storage, graph = _opened(desk, tmp_path, "one")
    with storage:
        decide(graph, config, "approve", by="ana")
    if state == "missing":
        shutil.rmtree(tmp_path / "backup")
        (tmp_path / "backup").mkdir()
    _restored(tmp_path, LEDGER)
    storage, graph = _opened(desk, tmp_path, call("pay", order="A"))
    with storage:
        with pytest.raises(LedgerBehindError, match="rolled back, emptied or replaced"):
            await run(graph, say("again"), config, way)
        asked = storage.ledger.records(case_id=config["configurable"]["thread_id"], states=["proposed"])
        assert len(asked) == (state == "rolled back")  # only the question that the backup held
    assert ran == ["A"]


def test_a_decision_is_remembered_by_both_sides(desk: Desk, config: Any) -> None:
    """A ledger that does not know the last decision is refused, also when nothing was written."""
    saver = InMemorySaver()
    turns = [call("pay", order="A"), "kept", call("pay", order="A"), "kept"]

    def opened() -> Any:
        graph = desk(alice={"turns": turns, "tools": [privileged(pay)]})
        graph.checkpointer, graph.ledger = saver, MemoryLedger()
        return graph

    graph = opened()
    graph.invoke(say("hi"), config)
    decide(graph, config, "reject", by="ana")
    with pytest.raises(LedgerBehindError):
        opened().invoke(say("again"), config)
    assert ran == []


def test_a_fork_and_a_copy_are_not_taken_for_a_rollback(desk: Desk, config: Any) -> None:
    """Running on from an older checkpoint, which is still there, is no rollback; nor is a thread that was copied."""
    graph = desk(alice={"turns": [call("pay", order="A"), "one", "again", "two"], "tools": [privileged(pay)]})
    first = graph.invoke(say("hi"), config)
    assert "__interrupt__" in first
    decide(graph, config, "approve", by="ana")
    oldest = list(graph.get_state_history(config))[-2]
    out = graph.invoke(say("from the start"), oldest.config)
    assert out["messages"][-1].text == "again"
    assert graph.invoke(say("on"), config)["messages"][-1].text == "two"
    assert ran == ["A"]


def test_a_graph_without_privileged_tools_opens_no_ledger(desk: Desk, config: Any, tmp_path: Path) -> None:
    """The check costs nothing where nothing can be written: no ledger file appears."""
    from sqlite3 import connect as opened

    graph = desk(alice={"turns": [call("transfer_to_bob")], "handoffs": [Handoff(to="bob")]}, bob={"turns": ["b"]})
    graph.checkpointer = SqliteSaver(opened(tmp_path / "cases.db", check_same_thread=False))
    assert graph.invoke(say("hi"), config)["messages"][-1].text == "b"
    assert not (tmp_path / "cases.ledger.db").exists()
