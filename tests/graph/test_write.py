"""The write node against the ledger: at most once per approval, and never a guess."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph

from langgraph_handoff import Agent, HandoffState, add_handoffs, adecide, connect, create_handoff_graph, decide, privileged
from langgraph_handoff.errors import (
    CheckpointerMissingError,
    DurabilityError,
    LedgerError,
    LedgerMissingError,
    NoOpenRequestError,
    StorageError,
    WriteInProgressError,
    WriteNotApplied,
)
from langgraph_handoff.graph import HandoffGraph
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.conftest import Desk, model_of, run, say

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def pay(order: str, amount: float = 1.0) -> str:
    """Pay an order."""
    ran.append((order, amount))
    return f"paid {amount} for {order}"


def look(what: str) -> str:
    """Look."""
    ran.append(what)
    return what


def fail(order: str) -> str:
    """Fail after the effect."""
    ran.append(order)
    raise ConnectionError("the line went dead")


def request(graph: Any, config: Any) -> dict[str, Any]:
    (interrupt,) = graph.get_state(config).interrupts
    return interrupt.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_reads_and_writes_keep_the_order_of_the_message(desk: Desk, storage: Storage, config: Any, way: str) -> None:
    """Decisions are asked first; then reads run side by side and each write alone, in the order of the message."""
    turn = [
        call("look", what="a"),
        call("pay", order="1"),
        call("look", what="b"),
        call("look", what="c"),
        call("pay", order="2"),
    ]
    graph = desk(storage=storage, alice={"turns": [turn, "done"], "tools": [look, privileged(pay)]})
    await run(graph, say("hi"), config, way)
    assert ran == []
    for _ in range(2):
        out = await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    assert ran[0] == "a"
    assert ran[1] == ("1", 1.0)
    assert sorted(ran[2:4]) == ["b", "c"]
    assert ran[4] == ("2", 1.0)
    assert history_faults(out["messages"]) == []


def test_the_same_write_by_a_new_call_is_asked_as_a_repeat(desk: Desk, storage: Storage, config: Any) -> None:
    """The same write asked by another call, of another agent too, shows the earlier one; a rejection gives its result, an approval runs it again."""
    with pytest.warns(match="held by"):
        graph = desk(
            storage=storage,
            alice={
                "turns": [call("pay", order="A"), call("transfer_to_bob", reason="r")],
                "tools": [privileged(pay)],
                "handoffs": ["bob"],
            },
            bob={"turns": [call("pay", order="A"), call("pay", order="A"), "done"], "tools": [privileged(pay)]},
        )
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    shown = request(graph, config)
    assert shown["handoff"]["kind"] == "repeat"
    assert shown["handoff"]["evidence"]["agent"] == "alice"
    assert "paid 1.0 for A" in shown["action_requests"][0]["description"]
    out = decide(graph, config, "reject", by="ana", message="enough")
    assert ran == [("A", 1.0)]
    told = [m for m in out["messages"] if m.name == "pay"][-1]
    assert (told.status, told.text.splitlines()[-1]) == ("success", "paid 1.0 for A")
    assert "enough" in told.text
    assert request(graph, config)["handoff"]["kind"] == "repeat"
    decide(graph, config, "approve", by="ana")
    assert ran == [("A", 1.0), ("A", 1.0)]


def test_a_write_is_known_by_its_identity_not_by_its_spelling(desk: Desk, config: Any) -> None:
    """`"10"`, `10` and `10.0` are one write, and arguments outside the identity do not make it another."""

    @tool
    def book(seat: int, note: str = "") -> str:
        """Book a seat."""
        ran.append(seat)
        return "booked"

    graph = desk(
        alice={
            "turns": [call("book", seat=10, note="x"), call("book", seat="10", note="y"), "done"],
            "tools": [privileged(book, identity=("seat",))],
        }
    )
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    assert request(graph, config)["handoff"]["kind"] == "repeat"
    assert ran == [10]


def test_a_write_rejected_twice_is_refused_by_rule(desk: Desk, config: Any) -> None:
    """A person is asked about one write at most twice; the third call is refused without asking."""
    graph = desk(alice={"turns": [*[call("pay", order="A")] * 3, "I give up"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "reject", by="ana", message="no")
    out = decide(graph, config, "reject", by="ana", message="still no")
    assert out["messages"][-1].text == "I give up"
    assert "2 times" in [m.text for m in out["messages"] if m.type == "tool"][-1]
    assert ran == []


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(("answer", "runs"), [("done", 1), ("abandon", 1), ("did_not_happen", 2)])
async def test_an_exception_in_a_write_is_an_unknown_outcome(
    desk: Desk, storage: Storage, config: Any, way: str, answer: Any, runs: int
) -> None:
    """A write that failed in the middle is never tried again by itself: a person says what happened."""
    graph = desk(storage=storage, alice={"turns": [call("fail", order="A"), "told"], "tools": [privileged(fail)]})
    await run(graph, say("hi"), config, way)
    await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    shown = request(graph, config)
    assert ran == ["A"]
    assert shown["handoff"]["kind"] == "unknown"
    assert "went dead" in shown["handoff"]["evidence"]["error"]
    decide(graph, config, answer, by="ana")
    assert len(ran) == runs
    if answer != "did_not_happen":
        assert graph.get_state(config).values["messages"][-1].text == "told"
    else:
        assert request(graph, config)["handoff"]["kind"] == "unknown"


@pytest.mark.parametrize(
    ("bare", "state"), [({"type": "approve"}, "done"), ({"type": "reject"}, "abandoned"), ({"type": "did_not_happen"}, "unknown")]
)
def test_a_bare_answer_never_starts_an_unknown_write_again(desk: Desk, config: Any, bare: Any, state: str) -> None:
    """About an unknown outcome a bare approval means that it happened, a bare rejection gives up, and neither runs it."""
    from langgraph.types import Command

    ledger = MemoryLedger()
    graph = desk(alice={"turns": [call("fail", order="A"), "told"], "tools": [privileged(fail)]})
    graph.ledger = ledger
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    graph.invoke(Command(resume=bare), config)
    assert ran == ["A"]
    assert [r.state for r in ledger.records()] == [state]


@pytest.mark.parametrize(
    ("found", "runs", "asks"), [(True, 1, False), ("paid as no. 7", 1, False), (False, 2, False), (None, 1, True)]
)
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_probe_clears_up_an_unknown_outcome(desk: Desk, config: Any, found: Any, runs: int, asks: bool, way: str) -> None:
    """With a probe nobody is asked unless the probe cannot tell: found means done, not found means once more."""
    failures = iter([True, False])

    def flaky(order: str) -> str:
        """Fail the first time."""
        ran.append(order)
        if next(failures):
            raise TimeoutError("slow")
        return "paid at last"

    graph = desk(alice={"turns": [call("flaky", order="A"), "told"], "tools": [privileged(flaky, probe=lambda args: found)]})
    await run(graph, say("hi"), config, way)
    await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    snapshot = graph.get_state(config)
    assert len(ran) == runs
    assert bool(snapshot.interrupts) is asks
    if not asks:
        assert snapshot.values["messages"][-1].text == "told"
        assert history_faults(snapshot.values["messages"]) == []
    if isinstance(found, str):
        assert found in [m.text for m in snapshot.values["messages"] if m.type == "tool"][0]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_write_that_fails_every_time_is_tried_once_more_and_then_asked_about(desk: Desk, config: Any, way: str) -> None:
    """A probe that finds nothing allows one more attempt; when that fails too, a person decides."""
    graph = desk(alice={"turns": [call("fail", order="A"), "told"], "tools": [privileged(fail, probe=lambda args: False)]})
    await run(graph, say("hi"), config, way)
    await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    assert ran == ["A", "A"]
    (asked,) = graph.get_state(config).interrupts
    assert asked.value["handoff"]["kind"] == "unknown"
    decide(graph, config, "abandon", by="ana")
    assert ran == ["A", "A"]
    assert graph.get_state(config).values["messages"][-1].text == "told"


def test_a_probe_tells_an_approved_repeat_from_the_write_before_it(desk: Desk, config: Any) -> None:
    """The probe is called as the tool is, with the operation's id: the first write is no proof of its approved repeat."""
    paid: list[str] = []
    failures = iter([False, True, False])

    def pay(order: str, operation: str) -> str:
        """Pay, but for the second attempt, which fails before anything happens."""
        if next(failures):
            raise ConnectionError("the line went dead")
        paid.append(operation)
        return "paid"

    tool = privileged(pay, idempotency_key="operation", probe=lambda args: args["operation"] in paid)
    graph = desk(alice={"turns": [call("pay", order="A"), "told", call("pay", order="A"), "told again"], "tools": [tool]})
    graph.invoke(say("pay A"), config)
    decide(graph, config, "approve", by="ana")
    graph.invoke(say("pay A once more"), config)
    decide(graph, config, "approve", by="ana")
    assert len(paid) == len(set(paid)) == 2
    assert graph.get_state(config).values["messages"][-1].text == "told again"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("event", "runs"), [("approve", 1), ("start", 1), ("finish", 1)])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_ledger_that_fails_once_neither_repeats_nor_loses_a_write(
    desk: Desk, config: Any, when: str, event: str, runs: int, way: str
) -> None:
    """An I/O error before or after any move ends the run with an error; the case goes on in the same process, the write runs once."""

    class Faulty(MemoryLedger):
        broken = True

        def move(self, record: Any, event_: str, **changes: Any) -> Any:
            fails = self.broken and event_ == event
            if fails:
                self.broken = False
            if fails and when == "before":
                raise LedgerError(location="disk", problem="full")
            out = super().move(record, event_, **changes)
            if fails:
                raise LedgerError(location="disk", problem="full")
            return out

    graph = desk(alice={"turns": [call("pay", order="A"), "told"], "tools": [privileged(pay)]})
    graph.ledger = ledger = Faulty()
    await run(graph, say("hi"), config, way)
    with pytest.raises(LedgerError, match="full"):
        await adecide(graph, config, "approve", by="ana") if way == "async" else decide(graph, config, "approve", by="ana")
    for _ in range(4):
        snapshot = graph.get_state(config)
        if snapshot.interrupts:
            kind = request(graph, config)["handoff"]["kind"]
            happened = "done" if ran else "did_not_happen"
            decide(graph, config, happened if kind == "unknown" else "approve", by="ana")
        elif snapshot.values["messages"][-1].text != "told":
            await run(graph, None, config, way)
    values = graph.get_state(config).values
    assert values["messages"][-1].text == "told"
    assert len(ran) == runs
    assert [r.state for r in ledger.records()] == ["done"]
    assert history_faults(values["messages"]) == []


def test_a_write_that_says_it_was_not_applied_keeps_its_approval(desk: Desk, config: Any) -> None:
    """`WriteNotApplied` is no unknown outcome: the model is told, and its next call runs under the same approval."""
    failures = iter([True, False])

    def polite(order: str) -> str:
        """Refuse the first time."""
        if next(failures):
            raise WriteNotApplied("the bank is closed")
        ran.append(order)
        return "paid"

    graph = desk(alice={"turns": [call("polite", order="A"), call("polite", order="A"), "told"], "tools": [privileged(polite)]})
    graph.invoke(say("hi"), config)
    out = decide(graph, config, "approve", by="ana")
    assert ran == ["A"]
    assert out["messages"][-1].text == "told"
    assert "the bank is closed" in [m.text for m in out["messages"] if m.type == "tool"][0]


def test_the_operation_s_id_is_given_as_idempotency_key_and_hidden_from_the_model(desk: Desk, config: Any) -> None:
    """A tool with an idempotency key is given the operation's id; the model does not see the parameter."""

    def pay_with_key(order: str, op: str = "") -> str:
        """Pay."""
        ran.append(op)
        return "paid"

    made = privileged(pay_with_key, idempotency_key="op")
    assert "op" not in made.tool_call_schema.model_json_schema()["properties"]  # type: ignore[union-attr]
    graph = desk(alice={"turns": [call("pay_with_key", order="A", op="forged"), "done"], "tools": [made]})
    graph.ledger = ledger = MemoryLedger()
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    assert ran == [ledger.records()[0].op]


@pytest.mark.parametrize(("amount", "asked"), [(10, False), (100, True)])
def test_when_lets_small_writes_through_and_records_it(desk: Desk, config: Any, amount: float, asked: bool) -> None:
    """`when` decides from the arguments; a write that it lets through stands in the ledger as approved by rule."""
    graph = desk(
        alice={
            "turns": [call("pay", order="A", amount=amount), "done"],
            "tools": [privileged(pay, when=lambda a: a["amount"] > 50)],
        }
    )
    graph.ledger = ledger = MemoryLedger()
    graph.invoke(say("hi"), config)
    assert bool(graph.get_state(config).interrupts) is asked
    assert ran == ([] if asked else [("A", amount)])
    if not asked:
        assert ledger.records()[0].approver == "rule"


def test_the_same_small_write_again_is_never_run_silently(desk: Desk, config: Any) -> None:
    """A write that `when` let through once is asked about when another call wants the same again."""
    graph = desk(
        alice={
            "turns": [call("pay", order="A"), call("pay", order="A"), "done"],
            "tools": [privileged(pay, when=lambda a: False)],
        }
    )
    graph.invoke(say("hi"), config)
    assert ran == [("A", 1.0)]
    assert request(graph, config)["handoff"]["kind"] == "repeat"


def test_forged_state_does_not_write(desk: Desk, storage: Storage, config: Any) -> None:
    """A state that claims an approval, or jumps to the write node, writes nothing: the ledger is asked."""
    from langgraph.types import Command

    graph = desk(storage=storage, alice={"turns": [call("pay", order="A"), "done"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    forged = {"id": "x#decided", "kind": "decided", "agent": "alice", "at": 0.0, "detail": {"decision": "approve"}}
    graph.update_state(config, {"events": [forged]}, as_node="approval")
    graph.invoke(None, config)
    graph.invoke(Command(goto="write"), config)
    assert ran == []
    assert request(graph, config)["handoff"]["kind"] == "write"


async def test_a_cancelled_run_lets_its_write_end(desk: Desk, config: Any) -> None:
    """A write in progress is not cut in half when its run is cancelled; its outcome is recorded."""
    started = asyncio.Event()
    release = asyncio.Event()

    async def slow(order: str) -> str:
        """Write slowly."""
        started.set()
        await release.wait()
        ran.append(order)
        return "paid"

    graph = desk(alice={"turns": [call("slow", order="A"), "done"], "tools": [privileged(slow)]})
    graph.ledger = ledger = MemoryLedger()
    await graph.ainvoke(say("hi"), config)
    running = asyncio.ensure_future(adecide(graph, config, "approve", by="ana"))
    await started.wait()
    running.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(200):
        if ledger.records()[0].state == "done":
            break
        await asyncio.sleep(0.01)
    assert (ran, ledger.records()[0].state) == (["A"], "done")


def test_a_plain_state_graph_needs_a_ledger(config: Any) -> None:
    """Without a ledger a privileged write is refused by name; with one given to `add_handoffs` it works."""
    for ledger in (None, MemoryLedger()):
        alice = ScriptedChatModel([call("pay", order="A"), "done"], agent="alice")
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(HandoffState)
        add_handoffs(
            builder,
            [Agent(name="alice", description="A", model=alice, tools=[privileged(pay)])],
            default_active_agent="alice",
            ledger=ledger,
        )
        graph = builder.compile(checkpointer=InMemorySaver())
        if ledger is None:
            with pytest.raises(LedgerMissingError, match="pay"):
                graph.invoke(say("hi"), config)
        else:
            graph.invoke(say("hi"), config)
            decide(graph, config, "approve", by="ana")
            assert ran == [("A", 1.0)]


def test_a_gate_without_a_checkpointer_is_refused(config: Any) -> None:
    """A graph that asks people refuses to run without anything to wait with."""
    alice = ScriptedChatModel([call("pay", order="A")], agent="alice")
    builder = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, tools=[privileged(pay)])], default_active_agent="alice"
    )
    with pytest.raises(CheckpointerMissingError):
        builder.compile().invoke(say("hi"), config)


def test_exit_durability_is_refused_with_privileged_tools(desk: Desk, config: Any) -> None:
    """`durability="exit"` could repeat an approved write and is refused; without privileged tools it is allowed."""
    graph = desk(alice={"turns": ["x"], "tools": [privileged(pay)]})
    with pytest.raises(DurabilityError):
        graph.invoke(say("hi"), config, durability="exit")
    free = desk(alice={"turns": ["x"]})
    assert free.invoke(say("hi"), config, durability="exit")["messages"][-1].text == "x"


def test_a_builder_without_agents_does_not_compile() -> None:
    """A `HandoffGraph` without agents says what is missing."""
    from langgraph_handoff.errors import CatalogError

    with pytest.raises(CatalogError, match="add_handoffs"):
        HandoffGraph(HandoffState).compile()


RACER = """
import sys, time
from langgraph_handoff import Agent, connect, create_handoff_graph, privileged
from langgraph_handoff.testing import ScriptedChatModel, call
from langgraph.types import Command
def pay(order: str) -> str:
    "Pay."
    with open(sys.argv[2], "a") as bank: bank.write(order + "\\n")
    time.sleep(0.3)
    return "paid"
storage = connect(sys.argv[1])
model = ScriptedChatModel(["done"] if sys.argv[3] == "race" else [call("pay", order="A")], agent="alice")
graph = create_handoff_graph([Agent(name="alice", description="A", model=model, tools=[privileged(pay)])], default_active_agent="alice").compile(storage=storage)
config = {"configurable": {"thread_id": "1"}}
if sys.argv[3] == "ask":
    graph.invoke({"messages": "hi"}, config)
else:
    answer = Command(resume={graph.get_state(config).interrupts[0].id: {"decisions": [{"type": "approve", "by": "ana"}]}})
    sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
    graph.invoke(answer, config)
"""


def test_two_processes_that_resume_one_approval_write_once(tmp_path: Path) -> None:
    """Two processes that answer one question at the same moment write once; the loser has a typed error or the result."""
    script, bank = tmp_path / "racer.py", tmp_path / "bank.txt"
    script.write_text(RACER)
    args = [sys.executable, str(script), str(tmp_path / "cases.db"), str(bank)]
    home = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([*args, "ask"], check=True, timeout=60, env=home)
    racers = [
        subprocess.Popen(
            [*args, "race"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=home
        )
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    errors = [racer.communicate(timeout=60)[1] for racer in racers]
    assert bank.read_text().splitlines() == ["A"]
    for racer, error in zip(racers, errors, strict=True):
        refused = ("ThreadBusyError", "StaleRequestError", "NoOpenRequestError")
        assert racer.returncode == 0 or any(name in error for name in refused), error


def test_an_in_memory_and_a_file_saver_find_their_ledgers(desk: Desk, tmp_path: Path, config: Any) -> None:
    """Compiled with a plain checkpointer, the ledger that belongs to it is found: the approval survives a new graph object."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    alice = [
        Agent(
            name="alice",
            description="A",
            model=ScriptedChatModel([call("pay", order="A")], agent="alice"),
            tools=[privileged(pay)],
        )
    ]
    connection = sqlite3.connect(tmp_path / "plain.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    create_handoff_graph(alice, default_active_agent="alice").compile(checkpointer=saver).invoke(say("hi"), config)
    assert (tmp_path / "plain.ledger.db").exists()
    again = [Agent(name="alice", description="A", model=ScriptedChatModel(["done"], agent="alice"), tools=[privileged(pay)])]
    graph = create_handoff_graph(again, default_active_agent="alice").compile(checkpointer=saver)
    assert decide(graph, config, "approve", by="ana")["messages"][-1].text == "done"
    assert ran == [("A", 1.0)]
    connection.close()


def test_a_server_s_ledger_is_named_by_the_environment(
    desk: Desk, tmp_path: Path, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HANDOFF_LEDGER_URL names the ledger of a graph that was given none; an address that cannot be used is an error, not an open gate."""
    monkeypatch.setenv("HANDOFF_LEDGER_URL", f"sqlite:///{tmp_path / 'shared.db'}")
    graph = desk(alice={"turns": [call("pay", order="A"), "done"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    assert ran == [("A", 1.0)]
    assert (tmp_path / "shared.db").exists()
    monkeypatch.setenv("HANDOFF_LEDGER_URL", "mysql://host/db")
    with pytest.raises(StorageError):
        graph.invoke(say("more"), config)


async def test_an_async_sqlite_saver_finds_its_ledger(tmp_path: Path, config: Any) -> None:
    """AsyncSqliteSaver works with the gate too, and its ledger stands beside its file."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver:
        alice = Agent(
            name="alice",
            description="A",
            model=ScriptedChatModel([call("pay", order="A"), "done"], agent="alice"),
            tools=[privileged(pay)],
        )
        graph = create_handoff_graph([alice], default_active_agent="alice").compile(checkpointer=saver)
        await graph.ainvoke(say("hi"), config)
        out = await adecide(graph, config, "approve", by="ana")
    assert out["messages"][-1].text == "done"
    assert ran == [("A", 1.0)]
    assert (tmp_path / "async.ledger.db").exists()


def test_a_copied_thread_does_not_write_again(desk: Desk, tmp_path: Path, config: Any) -> None:
    """Replaying a finished case from a checkpoint before its write gives the recorded result, not a second write."""
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = desk(storage=storage, alice={"turns": [call("pay", order="A"), "done", "done again"], "tools": [privileged(pay)]})
        graph.invoke(say("hi"), config)
        decide(graph, config, "approve", by="ana")
        before = next(s for s in graph.get_state_history(config) if s.next == ("write",))
        out = graph.invoke(None, before.config)
    assert ran == [("A", 1.0)]
    assert out["messages"][-1].text == "done again"
    assert next(m for m in out["messages"] if m.type == "tool").text == "paid 1.0 for A"
    assert model_of(graph, "alice").prompts


def test_a_write_that_pauses_itself_is_an_unknown_outcome(desk: Desk, config: Any) -> None:
    """A write that calls `interrupt` in its middle is not run again to get behind it: a person says what happened."""
    from langgraph.types import interrupt

    def odd(order: str) -> str:
        """Do half of it and ask."""
        ran.append(order)
        interrupt("go on?")
        return "done"

    graph = desk(alice={"turns": [call("odd", order="A"), "told"], "tools": [privileged(odd)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    shown = request(graph, config)["handoff"]
    assert (shown["kind"], shown["evidence"]["error"]) == ("unknown", "the tool interrupted itself")
    assert decide(graph, config, "done", by="ana")["messages"][-1].text == "told"
    assert ran == ["A"]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_response_answers_the_call_in_the_tool_s_place(desk: Desk, config: Any, way: str) -> None:
    """Where `respond` is allowed, the person's words are the call's ordinary result and the tool does not run."""
    held = privileged(pay, allowed_decisions=("approve", "respond"))
    graph = desk(alice={"turns": [call("pay", order="A"), "told"], "tools": [held]})
    graph.ledger = ledger = MemoryLedger()
    await run(graph, say("hi"), config, way)
    given: Any = {"by": "ana", "message": "paid by hand, no. 7"}
    out = await adecide(graph, config, "respond", **given) if way == "async" else decide(graph, config, "respond", **given)
    (result,) = [m for m in out["messages"] if m.type == "tool"]
    assert (result.text, result.status) == ("paid by hand, no. 7", "success")
    assert (ran, [r.state for r in ledger.records()]) == ([], ["denied"])


def test_a_case_on_two_threads_knows_its_writes(desk: Desk, storage: Storage) -> None:
    """A write belongs to the case, not to the thread: the same one on another thread of the case is asked as a repeat, of another case as new."""
    graph = desk(
        storage=storage,
        alice={"turns": [call("pay", order="A"), "done"] + [call("pay", order="A")] * 2, "tools": [privileged(pay)]},
    )
    threads: list[Any] = [{"configurable": {"thread_id": str(n), "case_id": case}} for n, case in enumerate(["K", "K", "L"])]
    graph.invoke(say("hi"), threads[0])
    decide(graph, threads[0], "approve", by="ana")
    kinds = []
    for thread in threads[1:]:
        graph.invoke(say("hi"), thread)
        kinds.append(request(graph, thread)["handoff"]["kind"])
    assert kinds == ["repeat", "write"]
    assert ran == [("A", 1.0)]


async def test_a_write_in_progress_is_not_begun_a_second_time(desk: Desk, config: Any) -> None:
    """While a living attempt carries a write out, the same write of another thread of the case is refused by name, and then asked as a repeat."""
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(order: str) -> str:
        """Write slowly."""
        ran.append(order)
        started.set()
        await release.wait()
        return "paid slowly"

    graph = desk(alice={"turns": [call("slow", order="A"), call("slow", order="A"), "done", "done"], "tools": [privileged(slow)]})
    graph.ledger = MemoryLedger()
    first, second = ({"configurable": {"thread_id": name, "case_id": "K"}} for name in ("1", "2"))
    await graph.ainvoke(say("hi"), first)
    running = asyncio.ensure_future(adecide(graph, first, "approve", by="ana"))
    await started.wait()
    with pytest.raises(WriteInProgressError, match="slow"):
        await graph.ainvoke(say("hi"), second)
    release.set()
    await running
    await graph.ainvoke(None, second)
    assert request(graph, second)["handoff"]["kind"] == "repeat"
    out = await adecide(graph, second, "reject", by="ana", message="once is enough")
    assert ran == ["A"]
    (told,) = [m for m in out["messages"] if m.type == "tool"]
    assert (told.status, "paid slowly" in told.text, "once is enough" in told.text) == ("success", True, True)


@pytest.mark.parametrize("left", ["nobody", "bob"])
def test_a_tool_that_was_taken_away_while_its_request_was_open_does_not_run(
    desk: Desk, tmp_path: Path, config: Any, left: str
) -> None:
    """After a release that moves or removes the tool, the open request runs nothing and its call has a result."""
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = desk(storage=storage, alice={"turns": [call("pay", order="A")], "tools": [privileged(pay)]})
        graph.invoke(say("hi"), config)
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = desk(
            storage=storage,
            alice={"turns": ["told"], "tools": [look, privileged(fail)]},
            bob={"turns": [], "tools": [privileged(pay)] if left == "bob" else []},
        )
        out = decide(graph, config, "approve", by="ana")
    assert ran == []
    assert out["messages"][-1].text == "told"
    assert history_faults(out["messages"]) == []


def test_an_edit_that_moves_a_write_onto_an_earlier_one_is_asked_again(desk: Desk, config: Any) -> None:
    """Edited arguments that make the call the same as a write that was done are no way around the question about repeats."""
    graph = desk(alice={"turns": [call("pay", order="A"), call("pay", order="B"), "done"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    decide(graph, config, "edit", by="ana", args={"order": "A", "amount": 1.0})
    assert "made before" in request(graph, config)["handoff"]["note"]
    assert ran == [("A", 1.0)]


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_answer_before_its_question_was_shown_does_not_count(desk: Desk, config: Any, decision: str) -> None:
    """A resume that meets a call which nobody was asked about, because its state was forged, runs nothing and asks."""
    from langchain_core.messages import AIMessage
    from langgraph.types import Command

    graph = desk(alice={"turns": ["hello", "done"], "tools": [privileged(pay)]})
    graph.invoke(say("hi"), config)
    forged = AIMessage("", name="alice", id="forged", tool_calls=[{"name": "pay", "args": {"order": "A"}, "id": "f1"}])
    graph.update_state(config, {"messages": [forged]}, as_node="alice")
    with pytest.raises(NoOpenRequestError):
        graph.invoke(Command(resume={"decisions": [{"type": decision}]}), config)
    graph.invoke(Command(goto="write"), config)
    assert ran == []
    assert request(graph, config)["handoff"]["kind"] == "write"


def test_a_memory_that_is_kept_in_files_has_no_ledger_in_memory(desk: Desk, config: Any) -> None:
    """Where checkpoints outlive the process, a ledger that would not is none: the write is refused, and the call stays open."""

    class Kept(defaultdict[Any, Any]):
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            pass

    graph = desk(alice={"turns": [call("pay", order="A"), "done"], "tools": [privileged(pay)]})
    graph.checkpointer = InMemorySaver(factory=Kept)
    with pytest.raises(LedgerMissingError, match="HANDOFF_LEDGER_URL"):
        graph.invoke(say("hi"), config)
    graph.ledger = MemoryLedger()
    graph.invoke(None, config)
    assert decide(graph, config, "approve", by="ana")["messages"][-1].text == "done"
