"""The approval gate and resuming (faults of group F, with G8, G10, L5)."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt

from langgraph_handoff import (
    Agent,
    Handoff,
    HandoffState,
    adecide,
    connect,
    create_handoff_graph,
    create_handoff_tool,
    decide,
    hops,
    privileged,
)
from langgraph_handoff.errors import CatalogError, CheckpointerMissingError, NoOpenRequestError, StaleRequestError
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.conftest import Desk, model_of, run, say

APPROVE = {"decisions": [{"type": "approve"}]}
ran: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def refund(amount: float) -> str:
    """Refund an amount."""
    ran.append(amount)
    return f"refunded {amount}"


def look(what: str) -> str:
    """Look something up."""
    ran.append(what)
    return f"saw {what}"


def asked(graph: Any, config: Any) -> dict[str, Any]:
    (interrupt,) = graph.get_state(config).interrupts
    return interrupt.value  # type: ignore[no-any-return]


def paused(desk: Desk, *turns: Any, storage: Storage | None = None, **options: Any) -> Any:
    return desk(alice={"turns": list(turns), "tools": [privileged(refund), look]}, storage=storage, options=options)


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_f1_a_message_while_a_request_is_open_is_kept_and_shown(
    desk: Desk, storage: Storage, config: Any, way: str
) -> None:
    """F1: a user's message leaves the request open, nothing runs, and the request shows the new words; an approval then runs once."""
    graph = paused(desk, call("refund", amount=40), "done", storage=storage)
    await run(graph, say("refund me"), config, way)
    out = await run(graph, say("stop, wait"), config, way)
    assert ran == []
    assert asked(graph, config)["handoff"]["latest_user_message"] == "stop, wait"
    assert out["messages"][-1].text == "stop, wait"
    out = await run(graph, Command(resume=APPROVE), config, way)
    assert ran == [40]
    assert history_faults(out["messages"]) == []


def test_f1_a_message_can_close_the_request(desk: Desk, config: Any) -> None:
    """F1: with `on_message="supersede"` the request is closed, its call is answered so, and a late approval is refused by name."""
    graph = paused(desk, call("refund", amount=40), "what else?", on_message="supersede")
    graph.invoke(say("refund me"), config)
    request_id = asked(graph, config)["handoff"]["request_id"]
    out = graph.invoke(say("forget it"), config)
    assert "superseded" in next(m.text for m in out["messages"] if m.type == "tool")
    with pytest.raises(NoOpenRequestError):
        decide(graph, config, "approve", by="ana", request_id=request_id)
    with pytest.raises(NoOpenRequestError):
        graph.invoke(Command(resume=APPROVE), config)
    assert ran == []


def broken(amount: float) -> str:
    """Refund an amount."""
    ran.append(amount)
    raise TimeoutError("gateway")


def waiting_for(desk: Desk, config: Any, kind: str, **options: Any) -> Any:
    """Return a graph whose case waits with a question of this kind."""
    turns: dict[str, list[Any]] = {
        "write": [call("refund", amount=1)],
        "second write": [[call("refund", amount=2), call("refund", amount=1)]],
        "repeat": [call("refund", amount=1), call("refund", amount=1)],
        "unknown": [call("broken", amount=1)],
        "transfer": [call("transfer_to_bob", reason="r")],
    }
    tools = [privileged(refund), privileged(broken), look]
    alice = {"turns": [*turns[kind], "kept"], "tools": tools, "handoffs": [Handoff(to="bob", approval=True)]}
    graph = desk(alice=alice, bob={"turns": ["kept"]}, options=options)
    graph.invoke(say("hi"), config)
    if kind in ("second write", "repeat", "unknown"):
        decide(graph, config, "approve", by="ana")
    return graph


QUESTIONS = ["write", "second write", "repeat", "unknown", "transfer"]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("kind", QUESTIONS)
async def test_f1_whatever_is_asked_a_message_leaves_it_open(desk: Desk, config: Any, kind: str, way: str) -> None:
    """F1: a message, with an image too, decides no question of any kind; it is shown in it, and the answer then counts once."""
    graph = waiting_for(desk, config, kind)
    before, done = asked(graph, config), list(ran)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    said = HumanMessage([{"type": "text", "text": "stop, wait"}, picture])
    await run(graph, {"messages": [said]}, config, way)
    after = asked(graph, config)
    assert after["handoff"]["latest_user_message"] == "stop, wait"
    assert after["handoff"]["request_id"] == before["handoff"]["request_id"]
    assert ran == done
    out = await run(graph, Command(resume={graph.get_state(config).interrupts[0].id: APPROVE}), config, way)
    expected = {"write": [1], "second write": [2, 1], "repeat": [1, 1], "unknown": [1], "transfer": []}
    assert ran == expected[kind]
    assert out["messages"][-1].text == "kept"
    assert out["active_agent"] == ("bob" if kind == "transfer" else "alice")
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("kind", QUESTIONS)
def test_f1_a_message_closes_any_question_but_the_one_about_what_happened(desk: Desk, config: Any, kind: str) -> None:
    """F1: with "supersede" a message closes any request; a write of unknown outcome stays a question, and what was approved before runs."""
    graph = waiting_for(desk, config, kind, on_message="supersede")
    out = graph.invoke(say("forget it"), config)
    if kind == "unknown":
        assert asked(graph, config)["handoff"]["kind"] == "unknown"
        return
    assert "superseded" in [m.text for m in out["messages"] if m.type == "tool"][-1]
    assert ran == {"second write": [2], "repeat": [1]}.get(kind, [])
    assert out["active_agent"] == "alice"
    with pytest.raises(NoOpenRequestError):
        decide(graph, config, "approve", by="ana")


def test_f1_an_approval_that_brings_a_message_is_superseded_by_it(desk: Desk, config: Any) -> None:
    """F1: an answer with the user's words in the same command counts with "keep"; with "supersede" the words count."""
    for mode, writes in (("keep", [1]), ("supersede", [])):
        ran.clear()
        graph = waiting_for(desk, config, "write", on_message=mode)
        graph.invoke(Command(resume=APPROVE, update=say("thanks")), config)
        assert ran == writes


def test_f2_a_second_click_does_not_approve_the_next_request(
    desk: Desk, storage: Storage, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F2: the same bare answer right behind a new request is taken for a second click; a later one counts."""
    graph = paused(desk, call("refund", amount=40), call("refund", amount=9000), "done", storage=storage)
    graph.invoke(say("hi"), config)
    graph.invoke(Command(resume=APPROVE), config)
    graph.invoke(Command(resume=APPROVE), config)
    graph.invoke(Command(resume=APPROVE), config)
    assert ran == [40]
    assert "second click" in asked(graph, config)["handoff"]["note"]
    monkeypatch.setattr("langgraph_handoff.nodes.approval._DOUBLE_CLICK", 0.0)  # as if that second were over
    graph.invoke(Command(resume=APPROVE), config)
    assert ran == [40, 9000]


def test_f2_an_answer_that_names_its_request_is_no_second_click(desk: Desk, config: Any) -> None:
    """F2: quick answers that name their requests are each taken; a stale name is refused and runs nothing."""
    graph = paused(desk, call("refund", amount=40), call("refund", amount=50), "done")
    graph.invoke(say("hi"), config)
    first = asked(graph, config)["handoff"]["request_id"]
    decide(graph, config, "approve", by="ana", request_id=first)
    with pytest.raises(StaleRequestError, match="is not open"):
        decide(graph, config, "approve", by="ana", request_id=first)
    assert ran == [40]
    decide(graph, config, "approve", by="ana", request_id=asked(graph, config)["handoff"]["request_id"])
    assert ran == [40, 50]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_f3_a_rejected_call_never_runs(desk: Desk, config: Any, way: str) -> None:
    """F3: after a rejection the call did not run, in a mixed turn too, and the model is told why."""
    graph = paused(desk, [call("look", what="x"), call("refund", amount=40)], "sorry")
    await run(graph, say("hi"), config, way)
    out = await run(graph, Command(resume={"decisions": [{"type": "reject", "message": "too much"}]}), config, way)
    assert ran == ["x"]
    assert "too much" in next(m.text for m in out["messages"] if m.name == "refund")
    assert out["messages"][-1].text == "sorry"


ROUTES: dict[str, Any] = {
    "to write": lambda _: "write",
    "to approval": lambda _: "approval",
    "to the owner": lambda _: "alice",
    "to transfer": lambda _: "transfer",
    "a task for the tools": lambda made: Send("tools", {"call": made, "agent": "alice", "then": "alice"}),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("first", ["reject", "respond", "superseded", None])
def test_f3_no_jump_in_the_graph_runs_what_nobody_approved(desk: Desk, config: Any, route: str, first: str | None) -> None:
    """F3: rejected, answered by a person, superseded or still open: whoever sends the run to a node writes nothing."""
    guarded = privileged(refund, allowed_decisions=("approve", "reject", "respond"))
    turns: list[Any] = [call("refund", amount=40), *["sorry"] * 3]
    options = {"on_message": "supersede"} if first == "superseded" else {}
    graph = desk(alice={"turns": turns, "tools": [guarded, look]}, options=options)
    graph.invoke(say("hi"), config)
    if first == "superseded":
        graph.invoke(say("forget it"), config)
    elif first is not None:
        decide(graph, config, first, by="ana", message="no")  # type: ignore[arg-type]
    made = graph.get_state(config).values["messages"][1].tool_calls[0]
    graph.invoke(Command(goto=ROUTES[route](made)), config)
    assert ran == []
    assert bool(graph.get_state(config).interrupts) is (first is None)
    assert history_faults(graph.get_state(config).values["messages"][: 3 if first else 1]) == []


@pytest.mark.parametrize("plain", [True, False])
def test_f5_the_gate_belongs_to_the_tool_not_to_one_agent(desk: Desk, config: Any, plain: bool) -> None:
    """F5: a write refused at one agent does not run at the next, also if that one holds it ungated; the next is told."""
    held = refund if plain else privileged(refund)
    with pytest.warns(match="held by"):
        graph = desk(
            alice={
                "turns": [call("refund", amount=900), call("transfer_to_bob", reason="r")],
                "tools": [privileged(refund)],
                "handoffs": ["bob"],
            },
            bob={"turns": [call("refund", amount=900), "no"], "tools": [held]},
        )
    graph.invoke(say("hi"), config)
    decide(graph, config, "reject", by="ana", message="not for this case")
    assert "not for this case" in model_of(graph, "bob").prompts[0][0].text
    assert ran == []
    out = decide(graph, config, "reject", by="ana")
    assert ran == []
    assert out["messages"][-1].text == "no"


async def later(_: Any) -> bool:
    return True


@tool
def noted(amount: float, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Refund an amount and note it."""
    return "refunded"


WRONG_GATES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("no decisions", refund, {"allowed_decisions": ()}, "choose among ['approve', 'edit', 'reject', 'respond']"),
    ("a misspelt decision", refund, {"allowed_decisions": ("aprove",)}, "('aprove',)"),
    ("the inbox's old word", refund, {"allowed_decisions": ["accept"]}, "['accept']"),
    ("a decision as a text", refund, {"allowed_decisions": "approve"}, "'approve' of 'refund'"),
    ("decisions as a flag", refund, {"allowed_decisions": True}, "True of 'refund'"),
    ("no list of decisions", refund, {"allowed_decisions": None}, "None of 'refund'"),
    ("decisions in a list of lists", refund, {"allowed_decisions": [["approve"]]}, "[['approve']] of 'refund'"),
    ("nothing but a rejection", refund, {"allowed_decisions": ["reject"]}, "nobody could ever let it run"),
    ("a misspelt argument", refund, {"identity": ("amuont",)}, "no argument ['amuont']; its arguments: ['amount']"),
    ("an empty identity", refund, {"identity": ()}, "an empty identity"),
    ("an identity that is a number", refund, {"identity": 5}, "identity=5"),
    ("an injected argument as identity", noted, {"identity": ("state",)}, "no argument ['state']"),
    ("an unknown key argument", refund, {"idempotency_key": "op"}, "no argument ['op']"),
    ("the key argument as identity", refund, {"identity": ("amount",), "idempotency_key": "amount"}, "no argument ['amount']"),
    ("an unknown approver", refund, {"approval": "anybody"}, "approval='anybody'"),
    ("a rule without a parameter", refund, {"when": lambda: True}, "`when` of 'refund' must take one argument"),
    ("a rule with two parameters", refund, {"when": lambda amount, order: True}, "`when` of 'refund' must take one argument"),
    ("a rule by keyword only", refund, {"when": lambda *, amount: True}, "`when` of 'refund' must take one argument"),
    ("a rule as a text", refund, {"when": "amount > 5"}, "`when` of 'refund' is 'amount > 5', not a function"),
    ("a rule as a flag", refund, {"when": False}, "`when` of 'refund' is False, not a function"),
    ("a rule that answers later", refund, {"when": later}, "`when` of 'refund' is async"),
    ("a probe without a parameter", refund, {"probe": lambda: True}, "`probe` of 'refund' must take one argument"),
    ("a probe of the arguments", refund, {"probe": lambda amount, order: True}, "`probe` of 'refund' must take one argument"),
    ("a probe that is none", refund, {"probe": "yes"}, "`probe` of 'refund' is 'yes', not a function"),
    ("a description without a parameter", refund, {"description": lambda: "x"}, "`description` of 'refund' must take one"),
    ("a description that is none", refund, {"description": 5}, "`description` of 'refund' is 5, not a function"),
    ("a tool's name", "refund", {}, "'refund' is not a tool"),
    ("no tool", 5, {}, "5 is not a tool"),
    ("a function without a docstring", lambda amount: amount, {}, "cannot be described"),
    ("a handoff", create_handoff_tool(agent_name="bob"), {}, "give `Handoff(to='bob', approval=True)`"),
    ("twice", privileged(refund), {}, "marked as privileged twice"),
]


@pytest.mark.parametrize(("tool_", "wrong", "said"), [pytest.param(*row[1:], id=row[0]) for row in WRONG_GATES])
def test_f6_a_badly_written_gate_is_refused_when_it_is_written(tool_: Any, wrong: dict[str, Any], said: str) -> None:
    """F6: a misspelt, empty or useless gate is a named error at once, never an open gate and never one that fails with a user waiting."""
    with pytest.raises(CatalogError) as raised:
        privileged(tool_, **wrong)
    assert said in str(raised.value)


def test_f6_an_unknown_keyword_is_refused() -> None:
    """F6: an unknown keyword of `privileged` is an error."""
    with pytest.raises(TypeError):
        privileged(refund, alowed_decisions=("approve",))  # type: ignore[call-arg]


def owner_of(name: str, *tools: Any, **more: Any) -> Agent:
    given = {"model": ScriptedChatModel([], agent=name), "tools": tools} if "graph" not in more else {"tools": tools}
    return Agent(**{"name": name, "description": f"{name}'s work", **given, **more})


def other_refund(invoice: str) -> str:
    """Refund an invoice."""
    return invoice


def inner_with(*tools: Any) -> Any:
    """Return a compiled graph that runs these tools two levels down."""
    worker = StateGraph(MessagesState)
    worker.add_node("run", ToolNode(list(tools)))
    worker.add_edge(START, "run")
    outer = StateGraph(MessagesState)
    outer.add_node("worker", worker.compile())
    outer.add_edge(START, "worker")
    return outer.compile()


OTHER = StructuredTool.from_function(other_refund, name="refund")
WRONG_DESKS: list[tuple[str, list[Agent], str]] = [
    (
        "two sets of decisions for one tool",
        [owner_of("alice", privileged(refund)), owner_of("bob", privileged(refund, allowed_decisions=["edit"]))],
        "'alice' and 'bob' hold 'refund' with different allowed_decisions",
    ),
    (
        "two identities for one tool",
        [owner_of("alice", privileged(refund)), owner_of("bob", privileged(refund, identity="amount"))],
        "'alice' and 'bob' hold 'refund' with different identity",
    ),
    (
        "another tool of the same name, gated",
        [owner_of("alice", privileged(refund)), owner_of("bob", privileged(OTHER))],
        "'alice' and 'bob' hold different tools called 'refund'",
    ),
    (
        "another tool of the same name, plain",
        [owner_of("bob", OTHER), owner_of("alice", privileged(refund, identity=("amount",)))],
        "'bob' and 'alice' hold different tools called 'refund'",
    ),
    (
        "a gated tool inside an agent's own graph",
        [owner_of("alice", graph=inner_with(privileged(refund), look))],
        "the graph of 'alice' runs 'refund' by itself",
    ),
    (
        "a tool inside an agent's own graph that is gated elsewhere",
        [owner_of("alice", privileged(refund)), owner_of("bob", graph=inner_with(refund))],
        "the graph of 'bob' runs 'refund' by itself",
    ),
    (
        "a gated tool beside an agent's own graph",
        [owner_of("alice", privileged(refund), graph=inner_with(look))],
        "'alice' is a graph of its own and cannot be given the tool 'refund'",
    ),
]


@pytest.mark.parametrize(("agents", "said"), [pytest.param(*row[1:], id=row[0]) for row in WRONG_DESKS])
@pytest.mark.filterwarnings("ignore:The privileged tool")
def test_f6_a_gate_that_another_agent_would_pass_by_is_refused_when_the_graph_is_built(agents: list[Agent], said: str) -> None:
    """F5, F6: two gates on one tool, two tools behind one gate, and a tool where no gate reaches are errors before the first message."""
    with pytest.raises(CatalogError) as raised:
        create_handoff_graph(agents, default_active_agent="alice")
    assert said in str(raised.value)


LARGE = [lambda args: args["amount"] > 100, lambda args: args["amount"] > 100]


@pytest.mark.parametrize(
    ("rules", "amount", "asks"),
    [
        ((None, lambda _: False), 1, True),
        ((lambda _: False, None), 1, True),
        ((lambda _: False, LARGE[0]), 900, True),
        ((LARGE[0], LARGE[1]), 900, True),
        ((LARGE[0], LARGE[1]), 1, False),
        ((LARGE[0], LARGE[0]), 1, False),
    ],
)
@pytest.mark.parametrize("caller", ["alice", "bob"])
def test_f5_of_two_rules_about_one_tool_neither_is_passed_by(
    desk: Desk, config: Any, rules: tuple[Any, Any], amount: int, asks: bool, caller: str
) -> None:
    """F5: where two agents' marks on one tool have different rules, a call of either is asked about as soon as one rule wants it."""
    turns = {"alice": [call("transfer_to_bob", reason="r")], "bob": ["done"]}
    turns[caller] = [call("refund", amount=amount), "done"]
    with pytest.warns(match="held by"):
        graph = desk(
            alice={"turns": turns["alice"], "tools": [privileged(refund, when=rules[0])], "handoffs": ["bob"]},
            bob={"turns": turns["bob"], "tools": [privileged(refund, when=rules[1])]},
        )
    out = graph.invoke(say("hi"), config)
    assert ("__interrupt__" in out) is asks
    assert ran == ([] if asks else [amount])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"on_message": "supercede"}, "on_message='supercede'"),
        ({"request_ttl": 0}, "request_ttl=0"),
        ({"request_ttl": -60}, "request_ttl=-60"),
        ({"request_ttl": "1h"}, "request_ttl='1h'"),
        ({"request_ttl": float("nan")}, "request_ttl=nan"),
        ({"request_ttl": True}, "request_ttl=True"),
    ],
)
def test_f6_a_misspelt_rule_about_requests_is_refused_when_the_graph_is_built(wrong: dict[str, Any], said: str) -> None:
    """F6: what happens to an open request is said in words that are known, else the graph is not built."""
    with pytest.raises(CatalogError) as raised:
        create_handoff_graph([owner_of("alice")], default_active_agent="alice", **wrong)
    assert said in str(raised.value)


def test_f6_a_gate_that_could_never_be_answered_is_refused_when_the_graph_is_compiled() -> None:
    """F6: with `checkpointer=False` a pause could not be resumed, also inside another graph."""
    asking = [owner_of("alice", privileged(refund)), owner_of("bob")]
    with pytest.raises(CheckpointerMissingError):
        create_handoff_graph(asking, default_active_agent="alice").compile(checkpointer=False)
    create_handoff_graph(asking[1:], default_active_agent="bob").compile(checkpointer=False)


def test_f7_siblings_and_work_before_the_pause_run_once(desk: Desk, storage: Storage, config: Any) -> None:
    """F7: a read beside a gated write runs once although the run pauses and resumes, and nothing of the write runs before."""

    def reserve_and_pay(amount: float) -> str:
        """Reserve, then pay."""
        ran.extend(["reserve", "pay"])
        return "paid"

    graph = desk(
        storage=storage,
        alice={
            "turns": [[call("look", what="mail"), call("reserve_and_pay", amount=1)], "done"],
            "tools": [look, privileged(reserve_and_pay)],
        },
    )
    graph.invoke(say("hi"), config)
    assert ran == []
    decide(graph, config, "approve", by="ana")
    assert ran == ["mail", "reserve", "pay"]


@pytest.mark.parametrize(
    "decisions", [("approve", "approve"), ("approve", "reject"), ("reject", "approve"), ("reject", "reject")]
)
def test_f9_f13_each_call_gets_its_own_answer(desk: Desk, storage: Storage, config: Any, decisions: tuple[Any, Any]) -> None:
    """F9, F13: two gated calls of one turn are asked one after the other under ids of their own; one's answer is not the other's."""
    graph = paused(desk, [call("refund", amount=1), call("refund", amount=2)], "done", storage=storage)
    graph.invoke(say("hi"), config)
    ids = []
    for number, decision in enumerate(decisions, start=1):
        shown = asked(graph, config)
        assert shown["action_requests"][0]["args"] == {"amount": number}
        ids.append((graph.get_state(config).interrupts[0].id, shown["handoff"]["request_id"]))
        assert ran == []
        decide(graph, config, decision, by="ana", request_id=ids[-1][1])
    assert len(set(ids)) == 2
    assert ran == [number for number, decision in enumerate(decisions, start=1) if decision == "approve"]
    assert history_faults(graph.get_state(config).values["messages"]) == []


def test_f10_one_answer_for_several_requests_is_not_taken(desk: Desk, config: Any) -> None:
    """F10: two decisions for the one request that is shown are no decision."""
    graph = paused(desk, [call("refund", amount=1), call("refund", amount=2)], "done")
    graph.invoke(say("hi"), config)
    graph.invoke(Command(resume={"decisions": [{"type": "approve"}, {"type": "approve"}]}), config)
    assert ran == []
    assert "exactly one decision" in asked(graph, config)["handoff"]["note"]


@pytest.mark.parametrize("identity", [None, ("order",)])
def test_f11_after_an_edit_the_history_says_what_ran(desk: Desk, config: Any, identity: Any) -> None:
    """F11: an edit runs the edited arguments, texts of a screen included, and its result says so."""

    @tool
    def pay(order: str, amount: float) -> str:
        """Pay."""
        ran.append((order, amount))
        return f"paid {amount}"

    graph = desk(alice={"turns": [call("pay", order="A", amount=90.0), "done"], "tools": [privileged(pay, identity=identity)]})
    graph.invoke(say("hi"), config)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"order": "A", "amount": "80"}}}
    out = graph.invoke(Command(resume={"decisions": [edit]}), config)
    assert ran == [("A", 80.0)]
    result = next(m.text for m in out["messages"] if m.name == "pay")
    assert "changed the arguments" in result
    assert "80" in result
    assert out["messages"][-1].text == "done"


def test_f11_the_original_call_after_an_edit_is_a_question_again(desk: Desk, config: Any) -> None:
    """F11: a model that tries the original call again is asked about it anew, and one that repeats the edited call is asked about a repeat."""
    graph = paused(desk, call("refund", amount=90), call("refund", amount=90), call("refund", amount=80), "done")
    graph.invoke(say("hi"), config)
    decide(graph, config, "edit", by="ana", args={"amount": 80})
    assert (asked(graph, config)["handoff"]["kind"], asked(graph, config)["action_requests"][0]["args"]) == (
        "write",
        {"amount": 90},
    )
    decide(graph, config, "reject", by="ana")
    shown = asked(graph, config)
    assert (shown["handoff"]["kind"], shown["action_requests"][0]["args"]) == ("repeat", {"amount": 80})
    assert "refunded 80" in shown["action_requests"][0]["description"]
    out = decide(graph, config, "reject", by="ana")
    assert ran == [80]
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize(
    "args",
    [{"amount": "much"}, {}, {"amount": None}, {"amount": {}}],
)
def test_an_edit_that_the_tool_does_not_take_asks_again(desk: Desk, config: Any, args: Any) -> None:
    """Edited arguments are checked by the tool's schema; what it refuses is asked again and nothing runs."""
    graph = paused(desk, call("refund", amount=40), "done")
    graph.invoke(say("hi"), config)
    graph.invoke(Command(resume={"decisions": [{"type": "edit", "edited_action": {"name": "refund", "args": args}}]}), config)
    assert ran == []
    assert "not valid" in asked(graph, config)["handoff"]["note"]


def test_f14_an_approval_is_bound_to_what_was_shown(desk: Desk, storage: Storage, config: Any) -> None:
    """F14: when the stored arguments change after the question, no answer to the old question runs anything."""
    graph = paused(desk, call("refund", amount=40), "done", storage=storage)
    graph.invoke(say("hi"), config)
    request_id = asked(graph, config)["handoff"]["request_id"]
    reply = next(m for m in graph.get_state(config).values["messages"] if isinstance(m, AIMessage))
    forged = reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": {"amount": 9000}}]})
    graph.update_state(config, {"messages": [forged]}, as_node="alice")
    for late in (Command(resume=APPROVE), Command(resume=True)):
        with pytest.raises(NoOpenRequestError):
            graph.invoke(late, config)
    assert ran == []
    graph.invoke(say("well?"), config)
    assert asked(graph, config)["action_requests"][0]["args"] == {"amount": 9000}
    with pytest.raises(StaleRequestError):
        decide(graph, config, "approve", by="ana", request_id=request_id)
    assert ran == []


def refund_int(amount: int, currency: str) -> str:
    """Refund an amount."""
    ran.append(amount)
    return "refunded"


def refund_noted(amount: float, note: str = "") -> str:
    """Refund an amount."""
    ran.append(amount)
    return "refunded"


NOTED = StructuredTool.from_function(refund_noted, name="refund")
RELEASES: dict[str, tuple[Any, str]] = {
    "another identity": (privileged(NOTED, identity="amount"), "which is not the open one"),
    "fewer decisions": (privileged(NOTED, allowed_decisions=["respond", "reject"]), "'approve' is not allowed here"),
    "another schema": (privileged(StructuredTool.from_function(refund_int, name="refund")), "currency: Field required"),
}


@pytest.mark.parametrize("release", RELEASES)
def test_f14_an_approval_of_an_earlier_release_runs_only_what_this_one_would_ask(desk: Desk, config: Any, release: str) -> None:
    """F14: when a new release changed the gate or the tool, an approval of what the old one showed runs nothing and says why."""
    changed, why = RELEASES[release]
    saver = InMemorySaver()
    first = desk(alice={"turns": [call("refund", amount=40.5)], "tools": [privileged(NOTED)]})
    first.checkpointer = saver
    first.invoke(say("hi"), config)
    request_id = asked(first, config)["handoff"]["request_id"]
    second = desk(alice={"turns": ["done"], "tools": [changed]})
    second.checkpointer = saver
    out = decide(second, config, "approve", by="ana", request_id=request_id)
    told = [each.value["handoff"]["note"] for each in second.get_state(config).interrupts]
    assert why in " ".join([*told, *(m.text for m in out["messages"] if m.type == "tool")])
    assert ran == []


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_f17_a_pause_inside_a_larger_graph_surfaces_and_resumes(way: str) -> None:
    """F17: as a node of the user's graph the question is visible outside, and the answer resumes inside, once."""
    alice = ScriptedChatModel([call("refund", amount=40), "final"], agent="alice")
    saver = InMemorySaver()
    inner = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, tools=[privileged(refund)])], default_active_agent="alice"
    )
    from langgraph_handoff.ledger import MemoryLedger

    outer = StateGraph(HandoffState)
    outer.add_node("desk", inner.compile(ledger=MemoryLedger()))
    outer.add_edge(START, "desk")
    graph = outer.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    out = await run(graph, say("hi"), config, way)  # type: ignore[arg-type]
    assert out["__interrupt__"][0].value["action_requests"][0]["name"] == "refund"
    out = await run(graph, Command(resume=APPROVE), config, way)  # type: ignore[arg-type]
    assert ran == [40]
    assert out["messages"][-1].text == "final"


@pytest.mark.parametrize("breakpoint_", ["before", "after"])
def test_f18_a_static_breakpoint_continues_behind_itself(config: Any, breakpoint_: str) -> None:
    """F18: a breakpoint at a node of ours resumes with the next step, and no step runs twice."""
    alice = ScriptedChatModel([call("look", what="x"), "final"], agent="alice")
    builder = create_handoff_graph(
        [Agent(name="alice", description="A", model=alice, tools=[look])], default_active_agent="alice"
    )
    graph = builder.compile(checkpointer=InMemorySaver(), **{f"interrupt_{breakpoint_}": ["tools"]})
    graph.invoke(say("hi"), config)
    assert ran == ([] if breakpoint_ == "before" else ["x"])
    out = graph.invoke(None, config)
    assert ran == ["x"]
    assert out["messages"][-1].text == "final"


def test_f19_the_request_says_who_asks_for_which_case_and_why(desk: Desk, config: Any) -> None:
    """F19: the request holds agent, case, hops, reason, digest, and the package in its description."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="a-refund-question")], "handoffs": ["bob"]},
        bob={
            "turns": [["because it is due", call("refund", amount=40)]],
            "tools": [privileged(refund, description="**Refund**")],
        },
    )
    graph.invoke(say("hi"), config)
    shown = asked(graph, config)
    about = shown["handoff"]
    assert (about["agent"], about["case_id"], about["hop_chain"], about["reason"]) == (
        "bob",
        "case-1",
        ["alice", "bob"],
        "because it is due",
    )
    assert len(about["digest"]) == 64
    assert "a-refund-question" in shown["action_requests"][0]["description"]
    assert "**Refund**" in shown["action_requests"][0]["description"]


@pytest.mark.parametrize("given", [lambda args: args["nope"], lambda _: None, lambda _: 5])
def test_f19_a_description_that_cannot_be_given_does_not_stop_the_question(desk: Desk, config: Any, given: Any) -> None:
    """F19: a function that stumbles over what a model left out, or gives no text, costs its own words only."""
    graph = desk(alice={"turns": [call("refund", amount=40), "done"], "tools": [privileged(refund, description=given)]})
    graph.invoke(say("hi"), config)
    assert "alice wants to run `refund`" in asked(graph, config)["action_requests"][0]["description"]
    decide(graph, config, "approve", by="ana")
    assert ran == [40]


@pytest.mark.parametrize(("decision", "said"), [("approve", "refunded 40.0"), ("reject", "model again")])
def test_b1_a_gated_tool_may_give_its_result_as_the_answer(desk: Desk, config: Any, decision: Any, said: str) -> None:
    """B1: a `return_direct` tool stays one behind its gate; a rejection is told to the model."""
    direct = StructuredTool.from_function(refund, return_direct=True)
    graph = desk(alice={"turns": [call("refund", amount=40), "model again"], "tools": [privileged(direct)]})
    graph.invoke(say("hi"), config)
    out = decide(graph, config, decision, by="ana")
    assert (out["messages"][-1].type, out["messages"][-1].text) == ("ai", said)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.filterwarnings("error")
async def test_an_async_probe_is_asked_in_async_runs_and_a_person_in_sync_ones(desk: Desk, config: Any, way: str) -> None:
    """A sync run cannot wait for an async probe, so the question goes to a person; it is no error and no answer."""

    async def probe(_: Any) -> bool:
        return True

    graph = desk(alice={"turns": [call("broken", amount=1), "done"], "tools": [privileged(broken, probe=probe)]})
    graph.invoke(say("hi"), config)
    out = await run(graph, Command(resume=APPROVE), config, way)
    assert ("__interrupt__" in out) is (way == "sync")
    if way == "sync":
        out = decide(graph, config, "done", by="ana")
    assert (ran, out["messages"][-1].text) == ([1], "done")


async def test_f21_a_request_expires_and_a_decision_has_a_name_and_a_time(
    desk: Desk, storage: Storage, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F21: after the deadline an approval is refused and the call is answered as expired; a decision says who, when and why."""
    graph = paused(desk, call("refund", amount=40), "done", storage=storage, request_ttl=600)
    graph.invoke(say("hi"), config)
    late = time.time() + 601
    with monkeypatch.context() as clock:
        clock.setattr("langgraph_handoff.nodes.approval.time", SimpleNamespace(time=lambda: late))
        out = await adecide(graph, config, "approve", by="ana")
    assert ran == []
    with pytest.raises(NoOpenRequestError):
        await adecide(graph, config, "approve", by="ana")
    assert "expired" in next(m.text for m in out["messages"] if m.type == "tool")

    graph = paused(desk, call("refund", amount=41), "done", request_ttl=3600)
    other = {"configurable": {"thread_id": "case-2"}}
    graph.invoke(say("hi"), other)
    assert asked(graph, other)["handoff"]["expires_at"]
    before = time.time()
    await adecide(graph, other, "approve", by="ana", message="seen the invoice")
    decided = next(e for e in graph.get_state(other).values["events"] if e["kind"] == "decided")
    assert decided["detail"]["by"] == "ana"
    assert decided["detail"]["comment"] == "seen the invoice"
    assert decided["at"] >= before


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("late", ["approve", "edit", "message"])
def test_f21_after_the_deadline_nothing_counts_any_more(
    desk: Desk, config: Any, monkeypatch: pytest.MonkeyPatch, kind: str, late: str
) -> None:
    """F21: whatever comes after the deadline closes the request as expired; only what became of a write is still asked about."""
    graph = waiting_for(desk, config, kind, request_ttl=600)
    done, after = list(ran), time.time() + 601
    monkeypatch.setattr("langgraph_handoff.nodes.approval.time", SimpleNamespace(time=lambda: after))
    if late == "message":
        out = graph.invoke(say("well?"), config)
    else:
        out = decide(graph, config, late, by="ana", args={"amount": 5} if late == "edit" else None)  # type: ignore[arg-type]
    if kind == "unknown":
        assert bool(graph.get_state(config).interrupts) is (late != "approve")
        return
    edited_transfer = (
        kind == "transfer" and late == "edit"
    )  # no decision at all, so that the question is closed when it comes back
    assert edited_transfer or "expired" in [m.text for m in out["messages"] if m.type == "tool"][-1]
    assert [each for each in ran if each != 2] == [each for each in done if each != 2]
    assert out["active_agent"] == "alice"


def test_f22_a_transfer_beside_a_write_is_a_question_of_its_own(desk: Desk, config: Any) -> None:
    """F22: in one turn the write and the transfer are asked apart, and each answer is for its own."""
    edge = Handoff(to="bob", approval=True)
    turn = [call("refund", amount=1), call("transfer_to_bob", reason="r")]
    for answers, writes, owner in ((["approve", "reject"], [1], "alice"), (["reject", "approve"], [], "bob")):
        ran.clear()
        graph = desk(alice={"turns": [turn, "kept"], "tools": [privileged(refund)], "handoffs": [edge]}, bob={"turns": ["kept"]})
        graph.invoke(say("hi"), config)
        for answer, kind in zip(answers, ["write", "transfer"], strict=True):
            assert asked(graph, config)["handoff"]["kind"] == kind
            out = decide(graph, config, answer, by="ana")  # type: ignore[arg-type]
        assert (ran, out["active_agent"]) == (writes, owner)
        assert history_faults(out["messages"]) == []


def test_f22_a_transfer_of_an_agent_with_a_graph_of_its_own_can_need_an_approval(config: Any) -> None:
    """F22: the edge's approval holds for an agent that is a compiled graph, too."""
    to_bob = create_handoff_tool(agent_name="bob")
    model = ScriptedChatModel([call("transfer_to_bob", reason="the-reason"), "I keep it"], agent="alice")
    inner = StateGraph(MessagesState)
    inner.add_node("think", lambda state: {"messages": [model.bind_tools([to_bob]).invoke(state["messages"])]})
    inner.add_node("tools", ToolNode([to_bob]))
    inner.add_edge(START, "think")
    inner.add_conditional_edges("think", tools_condition)
    alice = Agent(name="alice", description="A", graph=inner.compile(), handoffs=[Handoff(to="bob", approval=True)])
    bob = Agent(name="bob", description="B", model=ScriptedChatModel(["hello"], agent="bob"))
    graph = create_handoff_graph([alice, bob], default_active_agent="alice").compile(checkpointer=InMemorySaver())
    graph.invoke(say("hi"), config)
    assert asked(graph, config)["action_requests"][0]["args"]["reason"] == "the-reason"
    out = decide(graph, config, "reject", by="ana")
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "I keep it")


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_f22_a_transfer_can_need_an_approval(desk: Desk, storage: Storage, config: Any, decision: Any) -> None:
    """F22: with `approval=True` the reviewer sees the package; a rejection leaves the owner and tells the model."""
    graph = desk(
        storage=storage,
        alice={
            "turns": [call("transfer_to_bob", reason="the-reason"), "I keep it"],
            "handoffs": [Handoff(to="bob", approval=True)],
        },
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] == "alice"
    shown = asked(graph, config)
    assert shown["handoff"]["kind"] == "transfer"
    assert shown["action_requests"][0]["args"]["reason"] == "the-reason"
    out = decide(graph, config, decision, by="ana", message="no" if decision == "reject" else None)
    assert out["active_agent"] == ("bob" if decision == "approve" else "alice")
    assert history_faults(out["messages"]) == []
    if decision == "reject":
        assert "rejected by ana: no" in next(m.text for m in out["messages"] if m.type == "tool")


def test_f22_nobody_is_asked_about_a_package_that_is_not_valid(desk: Desk, config: Any) -> None:
    """F22: a transfer that needs approval is checked first; the person sees only a package that can be accepted."""
    edge = Handoff(to="bob", approval=True)
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason=5), call("transfer_to_bob", reason="r")], "handoffs": [edge]},
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    assert "reason: Input should be a valid string" in next(m.text for m in out["messages"] if m.type == "tool")
    assert asked(graph, config)["action_requests"][0]["args"]["reason"] == "r"
    assert decide(graph, config, "approve", by="ana")["active_agent"] == "bob"


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_f9_f10_reads_that_pause_by_themselves_are_answered_by_id(desk: Desk, config: Any, way: str) -> None:
    """F9, F10: two tools of one turn that pause have two ids, one bare answer is not taken for both, and one round answers each with its own."""

    def ask(what: str) -> str:
        """Ask somebody."""
        given = interrupt({"question": what})
        ran.append((what, given))
        return str(given)

    graph = desk(alice={"turns": [[call("ask", what="a"), call("ask", what="b")], "done"], "tools": [ask]})
    out = await run(graph, say("hi"), config, way)
    ids = {each.value["question"]: each.id for each in out["__interrupt__"]}
    assert len({*ids.values()}) == 2
    with pytest.raises(RuntimeError, match="interrupt"):
        await run(graph, Command(resume="x"), config, way)
    assert ran == []
    out = await run(graph, Command(resume={ids["a"]: 1, ids["b"]: 2}), config, way)
    assert sorted(ran) == [("a", 1), ("b", 2)]
    assert [m.text for m in out["messages"] if m.type == "tool"] == ["1", "2"]
    assert out["messages"][-1].text == "done"


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_g8_a_request_survives_a_restart_and_resumes_at_the_asking_agent(
    desk: Desk, tmp_path: Any, config: Any, way: str
) -> None:
    """G8: in a new process the same request is open, and its approval goes on at the agent that asked, not at the entry."""
    file = str(tmp_path / "cases.db")

    def made(storage: Storage, *bob: Any) -> Any:
        alice = {"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]}
        return desk(storage=storage, alice=alice, bob={"turns": list(bob), "tools": [privileged(refund)]})

    with connect(file) as storage:
        graph = made(storage, call("refund", amount=40))
        graph.invoke(say("hi"), config)
        before = asked(graph, config)
    with connect(file) as storage:
        graph = made(storage, "bob here")
        assert asked(graph, config) == before
        out = decide(graph, config, "approve", by="ana", request_id=before["handoff"]["request_id"])
    assert (ran, out["messages"][-1].text, out["active_agent"]) == ([40], "bob here", "bob")
    assert model_of(graph, "alice").prompts == []


def test_g10_the_prompt_of_the_second_turn_holds_both(desk: Desk, config: Any) -> None:
    """G10: after a question back to the user the owner sees its question and the answer."""
    graph = desk(alice={"turns": ["which order?", "done"]})
    graph.invoke(say("refund"), config)
    graph.invoke(say("A-77"), config)
    assert [m.text for m in model_of(graph, "alice").prompts[1]] == ["refund", "which order?", "A-77"]


def test_l5_every_gated_call_leaves_a_record(desk: Desk, storage: Storage, config: Any) -> None:
    """L5: for each gated call the log says that it was asked, by whom it was answered, and whether it ran."""
    graph = paused(desk, [call("refund", amount=1), call("refund", amount=2)], "done", storage=storage)
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    decide(graph, config, "reject", by="ben")
    told = [
        (e["kind"], e["detail"].get("by"))
        for e in graph.get_state(config).values["events"]
        if e["kind"] in ("asked", "decided", "written")
    ]
    assert told == [("asked", None), ("decided", "ana"), ("asked", None), ("decided", "ben"), ("written", None)]
    assert hops(graph, config) == ["alice", "human", "alice", "human", "alice"]
