"""Persistence, restart, concurrency (faults of group G), with each saver that a user may bring and real processes that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_handoff import Agent, Handoff, Human, connect, create_handoff_graph, privileged
from langgraph_handoff.errors import NoOpenRequestError, ThreadBusyError
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.conftest import run, say
from tests.restart.crash import in_child

CONFIG: Any = {"configurable": {"thread_id": "case"}}
FILES = [("connect", "sync"), ("connect", "async"), ("SqliteSaver", "sync"), ("AsyncSqliteSaver", "async")]
"""Savers that outlive a process, in the ways in which they run."""
on_files = pytest.mark.parametrize(("kind", "way"), FILES, ids=lambda each: each)
NESTED = [None, "shared state", "memory of its own"]
"""The desk itself, and the desk as a node of a parent graph that has the saver and the host's default durability."""


@asynccontextmanager
async def opened(kind: str, file: Path) -> AsyncIterator[Any]:
    """Open a saver as a new process does."""
    if kind == "connect":
        with connect(str(file)) as storage:
            yield storage.checkpointer
    elif kind == "SqliteSaver":
        with SqliteSaver.from_conn_string(str(file)) as saver:
            yield saver
    else:
        async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
            yield saver


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def compiled(agents: list[Any], saver: Any, nested: str | None = None) -> Any:
    """Compile a desk on a saver: alone, or as the one node of a plain parent graph."""
    builder = create_handoff_graph(agents, default_active_agent="alice")
    if nested is None:
        return builder.compile(checkpointer=saver)
    outer = StateGraph(MessagesState)
    outer.add_node("desk", builder.compile(checkpointer=True if nested == "memory of its own" else None))
    outer.add_edge(START, "desk")
    return outer.compile(checkpointer=saver)


def agent(name: str, *turns: Any, **more: Any) -> Agent:
    return Agent(**{"name": name, "description": name, "model": ScriptedChatModel(turns, agent=name), **more})


async def state_of(graph: Any, way: str) -> Any:
    return await graph.aget_state(CONFIG) if way == "async" else graph.get_state(CONFIG)


async def answered(graph: Any, decision: str, way: str) -> Any:
    """Answer the open question by its id, as a careful screen does."""
    (asked,) = (await state_of(graph, way)).interrupts
    about = asked.value["handoff"]
    given = {"type": decision, "by": "ana", "request_id": about["request_id"]}
    return await run(graph, Command(resume={asked.id: {"decisions": [given]}}), CONFIG, way)


def process(tmp_path: Path, work: Callable[[], Any]) -> Any:
    """Do something in a process of its own. Returns what it returned, None if it was killed."""
    report = tmp_path / "report.json"
    report.unlink(missing_ok=True)
    status = in_child(lambda: asyncio.run(work()), report)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, report.with_suffix(".error").read_text()
    return json.loads(report.read_text())


def bank_of(tmp_path: Path) -> list[str]:
    bank = tmp_path / "bank.txt"
    return bank.read_text().splitlines() if bank.exists() else []


def payer(tmp_path: Path, kill: str = "") -> Any:
    """A write that leaves one line in a file, and may end its process before it or behind it."""

    def pay(order: str) -> str:
        """Pay an order."""
        if kill == "before":
            die()
        with (tmp_path / "bank.txt").open("a") as lines:
            lines.write(order + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        if kill == "after":
            die()
        return "paid"

    return pay


@on_files
@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("durability", [None, "async"])
@pytest.mark.parametrize("kill", ["before", "after"])
def test_g1_a_write_whose_process_died_is_not_repeated(
    tmp_path: Path, kind: str, way: str, nested: str | None, durability: Any, kill: str
) -> None:
    """G1: killed inside an approved write, the next process asks what became of it, and the bank has one line whatever the truth was."""
    said = {} if durability is None else {"durability": durability}

    async def step(given: Any, turns: list[Any], dying: str = "") -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            graph = compiled([agent("alice", *turns, tools=[privileged(payer(tmp_path, dying))])], saver, nested)
            if isinstance(given, str):
                out = await answered(graph, given, way)
            else:
                out = await run(graph, given, CONFIG, way, **said)
            asked = [each.value["handoff"]["kind"] for each in (await state_of(graph, way)).interrupts]
            return [asked, out["messages"][-1].text, history_faults(out["messages"]) if not asked else []]

    assert process(tmp_path, lambda: step(say("pay"), [call("pay", order="A")]))[0] == ["write"]
    assert process(tmp_path, lambda: step("approve", [], kill)) is None
    assert process(tmp_path, lambda: step(None, []))[0] == ["unknown"]
    assert bank_of(tmp_path) == (["A"] if kill == "after" else [])
    truth = "done" if kill == "after" else "did_not_happen"
    assert process(tmp_path, lambda: step(truth, ["done"])) == [[], "done", []]
    assert bank_of(tmp_path) == ["A"]


@on_files
@pytest.mark.parametrize("kill", ["before", "after"])
@pytest.mark.parametrize("given", [None, "well?"])
def test_g1_with_a_probe_nobody_is_asked_again(tmp_path: Path, kind: str, way: str, kill: str, given: str | None) -> None:
    """G1: where a probe can tell, the next run ends the case by itself, without a second approval and with one line in the bank."""

    def probe(args: Any) -> bool:
        return args["order"] in bank_of(tmp_path)

    async def step(sent: Any, turns: list[Any], dying: str = "") -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            gated = privileged(payer(tmp_path, dying), probe=probe)
            graph = compiled([agent("alice", *turns, tools=[gated])], saver)
            out = await (answered(graph, sent, way) if isinstance(sent, str) else run(graph, sent, CONFIG, way))
            return [out["messages"][-1].text, len((await state_of(graph, way)).interrupts)]

    assert process(tmp_path, lambda: step(say("pay"), [call("pay", order="A")]))[1] == 1
    assert process(tmp_path, lambda: step("approve", [], kill)) is None
    assert process(tmp_path, lambda: step(say(given) if given else None, ["done"])) == ["done", 0]
    assert bank_of(tmp_path) == ["A"]


@pytest.fixture(params=["memory", "two graphs on one memory", "connect", "SqliteSaver"])
def savers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """Savers for two graphs that share their threads: one saver for both, or one each on one file."""
    file, one = str(tmp_path / "cases.db"), InMemorySaver()
    if request.param == "connect":
        with connect(file) as first, connect(file) as second:
            yield first.checkpointer, second.checkpointer
    elif request.param == "SqliteSaver":
        with SqliteSaver.from_conn_string(file) as left, SqliteSaver.from_conn_string(file) as right:
            yield left, right
    else:
        yield one, one


@pytest.mark.parametrize("resuming", [False, True])
def test_g2_of_two_overlapping_runs_one_is_refused_and_both_answers_are_stored(savers: tuple[Any, Any], resuming: bool) -> None:
    """G2: a question, or a late approval, that comes while another run works on the thread is refused by name; sent again it is answered."""
    inside, leave = threading.Event(), threading.Event()

    def slow(_: Any) -> str:
        inside.set()
        assert leave.wait(30)
        return "first answer"

    first = compiled([agent("alice", slow)], savers[0])
    second = compiled([agent("alice", "second answer")], savers[1])
    running = threading.Thread(target=first.invoke, args=(say("Q1"), CONFIG))
    running.start()
    assert inside.wait(30)
    given = Command(resume={"decisions": [{"type": "approve"}]}) if resuming else say("Q2")
    with pytest.raises(ThreadBusyError, match="case"):
        second.invoke(given, CONFIG)
    leave.set()
    running.join(30)
    if resuming:
        with pytest.raises(NoOpenRequestError):
            second.invoke(given, CONFIG)
    else:
        second.invoke(given, CONFIG)
    talk = [each.text for each in first.get_state(CONFIG).values["messages"]]
    assert talk == ["Q1", "first answer", *([] if resuming else ["Q2", "second answer"])]


@pytest.mark.parametrize("kind", ["memory", "connect", "AsyncSqliteSaver"])
async def test_g2_async_runs_that_overlap_are_refused_and_sent_again(tmp_path: Path, kind: str) -> None:
    """G2: the same for async runs in one loop."""
    inside, leave = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            inside.set()
            await leave.wait()
            return await super()._agenerate(*args, **kwargs)

    async def overlapping(saver: Any) -> list[str]:
        graph = compiled([agent("alice", model=Slow(["first answer", "second answer"], agent="alice"))], saver)
        running = asyncio.create_task(graph.ainvoke(say("Q1"), CONFIG))
        await inside.wait()
        with pytest.raises(ThreadBusyError, match="case"):
            await graph.ainvoke(say("Q2"), CONFIG)
        leave.set()
        await running
        out = await graph.ainvoke(say("Q2"), CONFIG)
        return [each.text for each in out["messages"]]

    if kind == "memory":
        talk = await overlapping(InMemorySaver())
    else:
        async with opened(kind, tmp_path / "cases.db") as saver:
            talk = await overlapping(saver)
    assert talk == ["Q1", "first answer", "Q2", "second answer"]


@on_files
def test_g2_two_processes_on_one_thread(tmp_path: Path, kind: str, way: str) -> None:
    """G2: while another process works on the thread this one is refused; afterwards it is answered, and both answers are stored."""
    told, tell = os.pipe()
    waits, wake = os.pipe()

    def slow(_: Any) -> str:
        os.write(tell, b".")
        os.read(waits, 1)
        return "first answer"

    async def ask(text: str, *turns: Any) -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            graph = compiled([agent("alice", *turns)], saver)
            try:
                out = await run(graph, say(text), CONFIG, way)
            except ThreadBusyError as error:
                return error.fields["thread_id"]
            return [each.text for each in out["messages"]]

    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(ask("Q1", slow))
            code = 0
        finally:
            os._exit(code)
    os.read(told, 1)
    refused = process(tmp_path, lambda: ask("Q2", "unused"))
    os.write(wake, b".")
    assert os.waitpid(pid, 0)[1] == 0
    assert refused == "case"
    assert process(tmp_path, lambda: ask("Q2", "second answer")) == ["Q1", "first answer", "Q2", "second answer"]
    for end in (told, tell, waits, wake):
        os.close(end)


@on_files
@pytest.mark.parametrize("nested", [None, "memory of its own"])
@pytest.mark.parametrize("durability", [None, "async", "sync"])
@pytest.mark.parametrize("beside", [False, True])
def test_g3_a_crash_does_not_undo_a_handoff(
    tmp_path: Path, kind: str, way: str, nested: str | None, durability: Any, beside: bool
) -> None:
    """G3: killed inside the receiver's first model call, in the host's default durability too, the receiver answers the next message."""
    said = {} if durability is None else {"durability": durability}
    moving = call("transfer_to_bob", reason="r", known_facts={"invoice": "A-77"})

    async def turn(text: str, alice: list[Any], bob: list[Any]) -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            speaker = agent("bob", *bob)
            people = [agent("alice", *alice, tools=[payer(tmp_path)], handoffs=["bob"]), speaker]
            graph = compiled(people, saver, nested)
            out = await run(graph, say(text), CONFIG, way, **said)
            assert isinstance(speaker.model, ScriptedChatModel)
            prompt = "\n".join(str(each.text) for each in speaker.model.prompts[0])
            return [out["messages"][-1].name, out["messages"][-1].text, "A-77" in prompt, history_faults(out["messages"])]

    turns: list[Any] = [[call("pay", order="A"), moving] if beside else moving]
    assert process(tmp_path, lambda: turn("hi", turns, [lambda _: die()])) is None
    assert process(tmp_path, lambda: turn("and now?", [], ["bob here"])) == ["bob", "bob here", True, []]
    assert bank_of(tmp_path) == (["A"] if beside else [])


STRICT = """
import asyncio, logging, sys, warnings
warnings.simplefilter("error")
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
from tests.graph.test_faults_g_restart import CONFIG, Human, agent, call, compiled, opened, run, say
from langgraph_handoff import HandoffPackage
from pathlib import Path
class Ticket(HandoffPackage):
    number: int
async def main(kind, way, file):
    async with opened(kind, Path(file)) as saver:
        people = [agent("alice", call("transfer_to_bob", number=7), handoffs=["bob"]), agent("bob", "hello", package=Ticket)]
        await run(compiled(people, saver), say("hi"), CONFIG, way)
    async with opened(kind, Path(file)) as saver:
        people = [agent("alice", handoffs=["bob"]), agent("bob", "again", package=Ticket)]
        out = await run(compiled(people, saver), say("more"), CONFIG, way)
        print(type(out["handoff"]).__name__, out["handoff"].number, out["messages"][-1].text)
asyncio.run(main(*sys.argv[1:]))
"""


@on_files
@pytest.mark.parametrize("strict", ["true", "false"])
def test_g6_a_package_comes_back_as_itself_in_both_settings(tmp_path: Path, kind: str, way: str, strict: str) -> None:
    """G6: with strict msgpack or without, a typed package read from any saver is that package, and nothing is warned or logged."""
    env = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict}
    command = [sys.executable, "-c", STRICT, kind, way, str(tmp_path / "cases.db")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=Path(__file__).parents[2], check=False)
    assert (done.stdout, done.returncode) == ("Ticket 7 again\n", 0), done.stderr


def question(what: str) -> str:
    """Ask somebody."""
    return str(interrupt({"question": what}))


def broken(order: str) -> str:
    """Pay an order."""
    raise TimeoutError("gateway")


PAUSES: dict[str, tuple[Any, Any, str]] = {
    "write": (call("pay", order="A"), "approve", "paid"),
    "transfer": (call("transfer_to_carol", reason="r"), "approve", "carol has the case now."),
    "unknown": (call("broken", order="A"), "done", "ana confirmed that it happened."),
    "own question": (call("question", what="how?"), None, "so"),
    "person": (call("escalate", reason="r"), "respond", "human has the case now."),
}
"""What a case may wait for: the call that makes it wait, the answer, and what the call's result is then."""


@on_files
@pytest.mark.parametrize("pause", PAUSES)
def test_g8_whatever_a_case_waits_for_it_waits_after_a_restart(tmp_path: Path, kind: str, way: str, pause: str) -> None:
    """G8: in a new process the same question is open, its answer goes on where it was asked, and no earlier agent is asked again."""
    waits, answer, result = PAUSES[pause]

    async def step(*steps: Any, bob: list[Any], carol: list[Any], alice: list[Any]) -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            tools = [privileged(payer(tmp_path)), privileged(broken), question]
            to_carol = Handoff(to="carol", approval=True)
            people = [
                agent("alice", *alice, handoffs=["bob"]),
                agent("bob", *bob, tools=tools, handoffs=[to_carol]),
                agent("carol", *carol),
                Human(description="People"),
            ]
            graph = compiled(people, saver)
            for each in steps:
                if each != "look":
                    await run(graph, each, CONFIG, way)
            snapshot = await state_of(graph, way)
            asked = [[each.id, each.value] for each in snapshot.interrupts]
            talk = snapshot.values["messages"]
            results = [each.text for each in talk if each.type == "tool"]
            return [asked, snapshot.values["active_agent"], talk[-1].text, results, history_faults(talk) if not asked else []]

    def later(*steps: Any, **turns: Any) -> Any:
        return process(tmp_path, lambda: step(*steps, **{"alice": [], "bob": [], "carol": [], **turns}))

    before = later(say("hi"), alice=[call("transfer_to_bob", reason="r")], bob=[waits])
    if pause == "unknown":
        before = later(Command(resume={"decisions": [{"type": "approve"}]}))
    ((interrupt_id, shown),) = before[0]
    assert later("look") == before
    if answer is None:
        given: Any = "so"
    else:
        decision = {"type": answer, "by": "ana", "request_id": shown["handoff"]["request_id"], "message": ""}
        given = {"decisions": [{**decision, "message": "I am on it."} if pause == "person" else decision]}
    after = later(Command(resume={interrupt_id: given}), bob=["last words"], carol=["last words"])
    owner = {"transfer": "carol", "person": "human"}.get(pause, "bob")
    assert after[:3] == [[], owner, "I am on it." if pause == "person" else "last words"]
    assert after[3][-1] == result
    assert after[4] == []
    assert bank_of(tmp_path) == (["A"] if pause == "write" else [])


@on_files
@pytest.mark.parametrize("nested", [None, "memory of its own"])
def test_g10_the_second_turn_sees_the_first_after_a_restart(tmp_path: Path, kind: str, way: str, nested: str | None) -> None:
    """G10: who asked the user something sees, in a new process, the first words, its own question and the answer, each once."""

    async def turn(text: str, alice: list[Any], bob: list[Any]) -> Any:
        async with opened(kind, tmp_path / "cases.db") as saver:
            speaker = agent("bob", *bob)
            graph = compiled([agent("alice", *alice, handoffs=["bob"]), speaker], saver, nested)
            await run(graph, say(text), CONFIG, way)
            assert isinstance(speaker.model, ScriptedChatModel)
            return [[each.name, each.text] for each in speaker.model.prompts[-1]]

    process(tmp_path, lambda: turn("my refund?", [call("transfer_to_bob", reason="r")], ["which order?"]))
    (name, brief), *talk = process(tmp_path, lambda: turn("A-77", [], ["done"]))
    assert name == "handoff"
    assert brief.count("my refund?") == 1
    assert talk == [["bob", "which order?"], [None, "A-77"]]


def test_g10_a_supervisor_that_asks_back_sees_both_turns(tmp_path: Path) -> None:
    """G10: a supervisor that got a report and asks the user sees its delegation, the report, its question and the answer."""
    report = Handoff(to="bob", on_reply="report")

    def made(saver: Any, *alice: Any) -> Any:
        return compiled([agent("alice", *alice, handoffs=[report]), agent("bob", "two orders match")], saver)

    with connect(str(tmp_path / "cases.db")) as storage:
        asked = made(storage.checkpointer, call("transfer_to_bob", reason="find it"), "which of the two?")
        assert asked.invoke(say("my refund?"), CONFIG)["messages"][-1].text == "which of the two?"
    with connect(str(tmp_path / "cases.db")) as storage:
        graph = made(storage.checkpointer, "done")
        graph.invoke(say("the first"), CONFIG)
        (prompt,) = graph.catalog.agents["alice"].model.prompts
    shown = "\n".join(str(each.text) for each in prompt)
    for words in ("my refund?", "two orders match", "which of the two?", "the first"):
        assert shown.count(words) == 1, words
