"""Rules of moving a case that only show in longer walks."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from langgraph_handoff import Agent, Handoff, HandoffPackage, Human, create_handoff_graph, create_handoff_tool, decide, privileged
from langgraph_handoff.errors import CatalogError
from langgraph_handoff.testing import ScriptedChatModel, assert_package, call, history_faults
from tests.conftest import Desk, model_of, run, say


def look(n: int = 0) -> str:
    """Look."""
    return f"saw {n}"


def broken(n: int = 0) -> str:
    """Fail."""
    raise ValueError(f"no {n}")


@pytest.mark.parametrize("rule", ["return", "report"])
def test_a_lender_who_has_the_case_again_waits_for_nobody(desk: Desk, config: Any, rule: Any) -> None:
    """When a person hands a lent case back to its lender, a later plain handoff keeps: the lender does not get it back."""
    graph = desk(
        Human(description="People"),
        alice={
            "turns": [call("transfer_to_human", reason="r"), "alice speaks", call("transfer_to_bob", reason="r")],
            "handoffs": [Handoff(to="human", on_reply=rule), "bob"],
        },
        bob={"turns": ["bob answers", "bob again"]},
    )
    graph.invoke(say("hi"), config)
    graph.invoke(Command(resume={"transfer_to": "alice", "message": "yours"}), config)
    out = graph.invoke(say("now bob"), config)
    assert (out["active_agent"], out["messages"][-1].name, out["ownership"]["stack"]) == ("bob", "bob", [])
    assert graph.invoke(say("more"), config)["messages"][-1].name == "bob"


def test_a_lender_stands_on_the_stack_once(desk: Desk, config: Any) -> None:
    """Two rules that name the same lender give the case back once, and nothing is left over for later handoffs."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), call("transfer_to_dora", reason="r")],
            "handoffs": [Handoff(to="bob", on_reply="return"), "dora"],
        },
        bob={"turns": [call("transfer_to_carol", reason="r")], "handoffs": ["carol"]},
        carol={"turns": ["carol"], "return_to": "alice"},
        dora={"turns": ["dora"]},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["ownership"]["stack"]) == ("alice", [])
    assert graph.invoke(say("more"), config)["active_agent"] == "dora"


class Private(HandoffPackage):
    """A package of its own for one of two edges."""

    ticket: int


@pytest.mark.parametrize("private", [True, False])
def test_of_two_edges_to_one_agent_the_used_one_rules(desk: Desk, config: Any, private: bool) -> None:
    """Filter and package of the edge that was used apply, not those of another edge between the same two."""
    seen: list[int] = []

    def kept(view: Any) -> Any:
        seen.append(len(view))
        return view

    edges = [Handoff(to="bob"), Handoff(to="bob", tool_name="to_bob_private", input_filter=kept, package=Private)]
    move = call("to_bob_private", ticket=7) if private else call("transfer_to_bob", reason="r")
    graph = desk(alice={"turns": [move], "handoffs": edges}, bob={"turns": ["hello"]})
    out = graph.invoke(say("hi"), config)
    assert bool(seen) is private
    assert type(out["handoff"]) is (Private if private else HandoffPackage)


def test_a_follow_up_opens_over_the_edge_that_was_asked_for(desk: Desk, config: Any) -> None:
    """A queued destination keeps its edge: package class and all."""
    edges = ["carol", Handoff(to="carol", tool_name="to_carol_private", package=Private)]
    graph = desk(
        alice={"turns": [[call("transfer_to_bob", reason="r"), call("to_carol_private", ticket=7)]], "handoffs": ["bob", *edges]},
        bob={"turns": [call("close_case", message="bye")]},
        carol={"turns": ["hello"]},
    )
    graph.invoke(say("hi"), config)
    assert_package(graph, config, to_agent="carol", ticket=7)


@pytest.mark.parametrize("first", ["close_case", "transfer_to_bob"])
def test_a_queued_handoff_that_needs_approval_is_never_opened_without(desk: Desk, config: Any, first: str) -> None:
    """A follow-up over an edge with `approval=True` does not move the case before a person said yes."""
    opening = call("close_case", message="bye") if first == "close_case" else call("transfer_to_bob", reason="r")
    pay = Handoff(to="pay", approval=True)
    graph = desk(
        alice={"turns": [[opening, call("transfer_to_pay", reason="r")], "x"], "handoffs": ["bob", pay]},
        bob={"turns": [call("close_case", message="bye"), "x"], "handoffs": [pay]},
        pay={"turns": ["money"]},
    )
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] != "pay"
    assert model_of(graph, "pay").prompts == []
    assert history_faults(out["messages"]) == []


def test_a_follow_up_that_cannot_be_opened_does_not_stop_the_closing(desk: Desk, config: Any) -> None:
    """An invalid follow-up is told once and dropped; the next `close_case` closes the case."""
    graph = desk(
        alice={
            "turns": [
                [call("close_case", message="bye"), call("transfer_to_pay", reason="r")],
                call("close_case", message="bye now"),
            ],
            "handoffs": ["pay"],
        },
        pay={"turns": [], "package": Private},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["ownership"]["closed"], out["messages"][-1].text) == (True, "bye now")


@tool
def note(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Write in the user's form."""
    return Command(update={"messages": [HumanMessage("a summary"), ToolMessage("ok", tool_call_id=call_id)]})


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_tool_that_writes_in_the_user_s_form_resets_no_budget(desk: Desk, config: Any, way: str) -> None:
    """Messages that a tool writes are not the user's: budget, turn and the user's last words stay what they are."""

    def loop(target: str) -> ScriptedChatModel:
        return ScriptedChatModel([[call("note"), call(f"transfer_to_{target}", reason="r")]], loop=True, agent=target)

    graph = desk(
        alice={"turns": loop("bob"), "tools": [note], "handoffs": ["bob"]},
        bob={"turns": loop("alice"), "tools": [note], "handoffs": ["alice"]},
        options={"max_handoffs": 3},
    )
    out = await run(graph, say("the user's words"), {**config, "recursion_limit": 200}, way)
    assert out["ownership"]["turn_hops"] == 3
    assert out["handoff"].user_request == "the user's words"
    assert out["messages"][-1].text
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("case", ["unwind", "decline", "user"])
def test_a_small_cap_never_stops_what_the_runtime_says_itself(desk: Desk, config: Any, case: str) -> None:
    """With a small cap a long answer, a long reason and a long question are shortened in the package; nothing raises."""
    long = "word " * 4_000
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), "alice", "alice"],
            "handoffs": [Handoff(to="bob", on_reply="return")],
        },
        bob={"turns": [call("decline_handoff", reason=long) if case == "decline" else long if case == "unwind" else "short"]},
        options={"max_package_bytes": 4_096},
    )
    out = graph.invoke(say(long if case == "user" else "hi"), config)
    assert out["active_agent"] == "alice"
    assert graph.invoke(say("more"), config)["messages"][-1].text == "alice"


@pytest.mark.parametrize("failure", ["error", "rejected"])
def test_what_failed_beside_a_handoff_is_not_told_as_done(desk: Desk, config: Any, failure: str) -> None:
    """A failed or rejected call beside a handoff reaches the receiver as not done, and not as a completed action."""
    held = broken if failure == "error" else privileged(look)
    name = "broken" if failure == "error" else "look"
    graph = desk(
        alice={
            "turns": [[call(name, n=1), call("look_ok"), call("transfer_to_bob", reason="r")]],
            "tools": [held, look_ok],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"]},
    )
    out = graph.invoke(say("hi"), config)
    if failure == "rejected":
        out = decide(graph, config, "reject", by="ana", message="never")
    package = out["handoff"]
    assert package.completed_actions == ("look_ok() -> fine",)
    assert any(line.startswith(f"Not done: {name}(") for line in package.open_questions)
    assert f"{name}(" not in str(out["case"].get("completed_actions"))


def look_ok() -> str:
    """Look well."""
    return "fine"


@pytest.mark.parametrize("name", ["close_case", "decline_handoff", "escalate", "transfer_back_to_alice"])
def test_an_edge_cannot_take_another_control_tool_s_name(desk: Desk, name: str) -> None:
    """A handoff named like closing, declining, escalating or giving back is refused when the graph is built."""
    with pytest.raises(CatalogError, match="the name of another control tool"):
        desk(alice={"handoffs": [Handoff(to="bob", tool_name=name)]}, bob={})


def test_a_filter_that_returns_copies_does_not_double_the_brief(desk: Desk, config: Any) -> None:
    """An input filter may return copies of messages; brief and last words stand once."""
    edge = Handoff(to="bob", input_filter=lambda view: [each.model_copy() for each in view])
    graph = desk(alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": [edge]}, bob={"turns": ["hello"]})
    graph.invoke(say("my words"), config)
    texts = [m.text for m in model_of(graph, "bob").prompts[0]]
    assert sum("handoff_brief" in each for each in texts) == 1
    assert texts.count("my words") == 1


def test_an_acceptance_that_raises_is_a_decline(desk: Desk, config: Any) -> None:
    """`accepts` that stumbles over what a model left out declines with the error's name; the sender may mend it."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="r"), call("transfer_to_bob", known_facts={"amount": 5})],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"], "accepts": lambda package: "too large" if package.known_facts["amount"] > 9 else None},
    )
    out = graph.invoke(say("hi"), config)
    assert "KeyError" in next(m.text for m in out["messages"] if m.type == "tool")
    assert out["active_agent"] == "bob"


def test_a_redactor_does_not_break_the_requested_action(desk: Desk, config: Any) -> None:
    """A redactor that rewrites every text leaves the words that are no content."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="secret", requested_action="execute")], "handoffs": ["bob"]},
        bob={"turns": ["hello"]},
        options={"redact": lambda text: "***"},
    )
    out = graph.invoke(say("hi"), config)
    assert (out["handoff"].requested_action, out["handoff"].reason) == ("execute", "***")


@pytest.mark.parametrize("mistakes", [1, 2])
def test_an_agent_with_a_graph_of_its_own_may_correct_a_handoff(config: Any, mistakes: int) -> None:
    """A handoff that such an agent asks for wrongly is told to its model, which tries again; the user reads no fallback."""
    move = create_handoff_tool(agent_name="bob")
    wrong, right = call("transfer_to_bob", known_facts="nope"), call("transfer_to_bob", known_facts={"n": 1})
    script = ScriptedChatModel([*[wrong] * mistakes, right], agent="alice", strict=False)
    model = script.bind_tools([move])
    inner = StateGraph(MessagesState)
    inner.add_node("think", lambda state: {"messages": [model.invoke(state["messages"])]})
    inner.add_node("tools", ToolNode([move]))
    inner.add_edge(START, "think")
    inner.add_edge("think", "tools")
    alice = Agent(name="alice", description="A", graph=inner.compile(), handoffs=["bob"])
    bob = Agent(name="bob", description="B", model=ScriptedChatModel(["hello"], agent="bob"))
    graph = create_handoff_graph([alice, bob], default_active_agent="alice").compile(checkpointer=InMemorySaver())
    out = graph.invoke(say("hi"), config)
    assert (out["active_agent"], out["messages"][-1].text, out["handoff"].known_facts) == ("bob", "hello", {"n": 1})
    assert history_faults(out["messages"]) == []
    assert "valid dictionary" in "".join(m.text for m in script.prompts[1])


def test_a_probe_that_cannot_tell_a_repeat_from_the_first_is_not_believed(desk: Desk, config: Any) -> None:
    """For an approved repeat without an operation id a probe's "it happened" may mean the first one: a person is asked."""
    done: list[str] = []

    def pay(order: str) -> str:
        """Pay."""
        if done:
            raise TimeoutError("gateway")
        done.append(order)
        return "paid"

    graph = desk(
        alice={
            "turns": [call("pay", order="A"), call("pay", order="A"), "told"],
            "tools": [privileged(pay, probe=lambda args: bool(done))],
        }
    )
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    decide(graph, config, "approve", by="ana")
    (asked,) = graph.get_state(config).interrupts
    assert asked.value["handoff"]["kind"] == "unknown"
