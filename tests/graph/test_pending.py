"""What waits for a person, over all cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_handoff import Agent, Handoff, apending, connect, create_handoff_graph, decide, pending, privileged
from langgraph_handoff.errors import CheckpointerMissingError, LedgerMissingError
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.testing import ScriptedChatModel, call
from tests.conftest import Desk, say


def pay(order: str) -> str:
    """Pay an order."""
    if order == "odd":
        raise TimeoutError("gateway")
    return "paid"


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def cases(desk: Desk, storage: Any) -> Any:
    """Open a case for each kind of question, and one that ends."""

    def graph(*turns: Any) -> Any:
        agent = {"turns": list(turns), "tools": [privileged(pay)], "handoffs": [Handoff(to="bob", approval=True)]}
        return desk(alice=agent, bob={"turns": ["b"]}, storage=storage)

    graph(call("pay", order="A")).invoke(say("hi"), thread("write"))
    graph(call("transfer_to_bob", reason="r")).invoke(say("hi"), thread("transfer"))
    unknown = graph(call("pay", order="odd"))
    unknown.invoke(say("hi"), thread("unknown"))
    decide(unknown, thread("unknown"), "approve", by="ana")
    again = graph(call("pay", order="A"), call("pay", order="A"))
    again.invoke(say("hi"), thread("repeat"))
    decide(again, thread("repeat"), "approve", by="ana")
    done = graph(call("pay", order="A"), "done")
    done.invoke(say("hi"), thread("done"))
    decide(done, thread("done"), "approve", by="ana")
    graph("no tool").invoke(say("hi"), thread("quiet"))
    return done


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_every_open_question_is_listed_with_what_screens_show(desk: Desk, tmp_path: Path, kind: str) -> None:
    """Over all cases, each open request stands there once with its thread and its kind, the same from graph and storage."""
    with connect(str(tmp_path / "cases.db") if kind == "file" else ":memory:") as storage:
        graph = cases(desk, storage)
        found = pending(storage)
        assert [(each.thread_id, each.kind) for each in found] == [
            (name, name) for name in ("write", "transfer", "unknown", "repeat")
        ]
        assert pending(graph) == found == await apending(graph) == await apending(storage)
        for each in found:
            (asked,) = graph.get_state(thread(each.thread_id)).interrupts
            assert each.request == asked.value
            assert each.request_id == asked.value["handoff"]["request_id"]
            assert each.args == asked.value["action_requests"][0]["args"]
        assert [each.thread_id for each in pending(storage, case_id="unknown")] == ["unknown"]


def test_a_listed_request_is_answered_by_its_id(desk: Desk, tmp_path: Path) -> None:
    """What is listed can be decided, in a process of its own, and is not listed any more then."""
    with connect(str(tmp_path / "cases.db")) as storage:
        cases(desk, storage)
    with connect(str(tmp_path / "cases.db")) as storage:
        turns = {"turns": ["done"], "tools": [privileged(pay)], "handoffs": [Handoff(to="bob", approval=True)]}
        graph = desk(alice=turns, bob={"turns": ["b"]}, storage=storage)
        (first, *others) = pending(storage)
        out = decide(graph, thread(first.thread_id), "approve", by="ana", request_id=first.request_id)
        assert out["messages"][-1].text == "done"
        assert pending(storage) == others


class Dying(MemoryLedger):
    """Ends the run behind an approval, as a kill would."""

    def move(self, record: Any, event: str, **changes: Any) -> Any:
        """Move, and end the run behind an approval."""
        out = super().move(record, event, **changes)
        if event == "approve":
            raise KeyboardInterrupt
        return out


def test_an_approved_write_whose_run_died_is_not_forgotten(desk: Desk, config: Any) -> None:
    """A write that was approved and not carried out is listed as unfinished until somebody goes on with the run."""
    graph = desk(alice={"turns": [call("pay", order="A"), "done"], "tools": [privileged(pay)]})
    graph.ledger = Dying()
    graph.invoke(say("hi"), config)
    with pytest.raises(KeyboardInterrupt):
        decide(graph, config, "approve", by="ana")
    (left,) = pending(graph)
    assert (left.kind, left.tool, left.request) == ("unfinished", "pay", None)
    assert graph.invoke(None, config)["messages"][-1].text == "done"
    assert pending(graph) == []


async def test_the_host_s_async_saver_is_read_too(tmp_path: Path) -> None:
    """With the host's async SQLite saver the ledger beside it is read."""
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "cases.db")) as saver:
        model = ScriptedChatModel([call("pay", order="A")], agent="alice")
        alice = Agent(name="alice", description="A", model=model, tools=[privileged(pay)])
        graph = create_handoff_graph([alice], default_active_agent="alice").compile(checkpointer=saver)
        await graph.ainvoke(say("hi"), thread("t"))
        assert [(each.thread_id, each.kind) for each in await apending(graph)] == [("t", "write")]


def test_a_graph_that_keeps_nothing_is_named(desk: Desk) -> None:
    """A graph without a checkpointer, and one whose checkpointer has no ledger, say so."""
    graph = desk(alice={"turns": []})
    graph.checkpointer = BaseCheckpointSaver()
    with pytest.raises(LedgerMissingError):
        pending(graph)
    graph.checkpointer = None
    with pytest.raises(CheckpointerMissingError):
        pending(graph)
