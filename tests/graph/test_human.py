"""A person owns the case: asked like any owner, never guessed for, and no word is lost meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_handoff import Agent, Handoff, Human, adecide, connect, create_handoff_graph, decide, hops
from langgraph_handoff.errors import NoOpenRequestError, StaleRequestError
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, assert_package, call, history_faults
from tests.conftest import Desk, model_of, run, say

PEOPLE = Human(description="People")
WORDS: list[tuple[str, Any, str]] = [
    ("a chat string", "are you there?", "are you there?"),
    ("folded chat input", {"messages": [{"role": "user", "content": "are you there?"}]}, "are you there?"),
    ("folded words", {"messages": "are you there?"}, "are you there?"),
    ("one message", {"role": "user", "content": "are you there?"}, "are you there?"),
]


def asked(graph: Any, config: Any) -> dict[str, Any]:
    (interrupt,) = graph.get_state(config).interrupts
    return interrupt.value  # type: ignore[no-any-return]


def escalated(desk: Desk, *later: Any, storage: Storage | None = None, **options: Any) -> Any:
    return desk(PEOPLE, storage=storage, alice={"turns": [call("escalate", reason="too hard"), *later]}, options=options)


def said_by_people(out: Any) -> list[str]:
    return [m.text for m in out["messages"] if m.name == "human" and m.type == "ai"]


@pytest.mark.parametrize(
    "answer",
    [
        {"decisions": [{"type": "respond", "message": "I am Ana"}]},
        {"decisions": [{"type": "edit", "edited_action": {"name": "reply_to_user", "args": {"message": "I am Ana"}}}]},
        {"decisions": [{"type": "edit", "editedAction": {"name": "reply_to_user", "args": {"message": "I am Ana"}}}]},
        [{"type": "response", "args": "I am Ana"}],
        [{"type": "edit", "args": {"action": "reply_to_user", "args": {"message": "I am Ana"}}}],
        {"type": "respond", "message": "I am Ana"},
        {"message": "I am Ana", "by": "ana"},
    ],
)
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_person_owns_a_case_and_answers(desk: Desk, storage: Storage, config: Any, answer: Any, way: str) -> None:
    """A case that is escalated waits for the person, whose words reach the user; no model is asked meanwhile."""
    graph = escalated(desk, storage=storage)
    out = await run(graph, say("hi"), config, way)
    assert out["active_agent"] == "human"
    assert out["__interrupt__"][0].value["handoff"]["package"]["reason"] == "too hard"
    out = await run(graph, Command(resume=answer), config, way)
    assert (out["messages"][-1].text, out["messages"][-1].name) == ("I am Ana", "human")
    assert "__interrupt__" not in out
    out = await run(graph, say("thanks"), config, way)
    assert out["__interrupt__"][0].value["handoff"]["latest_user_message"] == "thanks"
    assert len(model_of(graph, "alice").prompts) == 1
    assert history_faults(out["messages"]) == []


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_the_safe_helper_answers_for_a_person_and_records_who(desk: Desk, config: Any, way: str) -> None:
    """`decide` answers a person's case too: who answered is in the log, and the answered request is closed by name."""
    graph = escalated(desk)
    await run(graph, say("hi"), config, way)
    request_id = asked(graph, config)["handoff"]["request_id"]
    given: Any = {"by": "ana", "message": "it is on its way", "request_id": request_id}
    out = await adecide(graph, config, "respond", **given) if way == "async" else decide(graph, config, "respond", **given)
    assert said_by_people(out) == ["it is on its way"]
    assert [e["detail"]["by"] for e in out["events"] if e["kind"] == "answered"] == ["ana"]
    with pytest.raises(NoOpenRequestError):
        decide(graph, config, "respond", **given)
    await run(graph, say("and now?"), config, way)
    with pytest.raises(StaleRequestError, match="it was answered or replaced"):
        decide(graph, config, "respond", **given)


def test_an_answer_to_earlier_words_is_not_sent_to_later_ones(desk: Desk, config: Any) -> None:
    """A reply that names the request which stood there before the user's next words is asked again, and says nothing to the user."""
    graph = escalated(desk)
    graph.invoke(say("please cancel"), config)
    before = asked(graph, config)["handoff"]["request_id"]
    graph.invoke(say("no, do not cancel"), config)
    late = {"decisions": [{"type": "respond", "message": "cancelled", "request_id": before}]}
    out = graph.invoke(Command(resume=late), config)
    assert said_by_people(out) == []
    assert asked(graph, config)["handoff"]["latest_user_message"] == "no, do not cancel"


@pytest.mark.parametrize(("given", "words"), [pytest.param(*row[1:], id=row[0]) for row in WORDS])
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_words_of_the_user_in_the_place_of_an_answer_are_kept(
    desk: Desk, storage: Storage, config: Any, given: Any, words: str, way: str
) -> None:
    """A chat message that a client folds into its answer is the user's, not the person's: it is stored and shown, and the case still waits."""
    graph = escalated(desk, storage=storage)
    await run(graph, say("hi"), config, way)
    out = await run(graph, Command(resume=given), config, way)
    assert [m.text for m in out["messages"] if m.type == "human"] == ["hi", words]
    assert said_by_people(out) == []
    assert out["__interrupt__"][0].value["handoff"]["latest_user_message"] == words


@pytest.mark.parametrize(
    "answer",
    [
        {"decisions": [1]},
        {"decisions": "x"},
        {"decisions": [{"type": "approve"}]},
        {"decisions": [{"type": "respond", "message": "a"}, {"type": "respond", "message": "b"}]},
        [],
        [{"type": []}],
        [{"type": "ignore", "args": None}],
        5,
        True,
        {"message": 5},
        {"message": " "},
        {"messages": [5]},
        {"messages": {"no": "message"}},
        {"transfer_to": "ghost"},
        {"transfer_to": "human"},
    ],
)
def test_what_is_no_answer_of_a_person_is_asked_again(desk: Desk, config: Any, answer: Any) -> None:
    """An answer that holds no words and no destination leaves the case with the person, who can answer afterwards."""
    graph = escalated(desk)
    graph.invoke(say("hi"), config)
    out = graph.invoke(Command(resume=answer), config)
    assert out["__interrupt__"][0].value["handoff"]["kind"] == "owner"
    assert out["active_agent"] == "human"
    assert said_by_people(out) == []
    assert said_by_people(graph.invoke(Command(resume={"message": "here I am"}), config)) == ["here I am"]


@pytest.mark.parametrize("name", ["alice", "old-alice"])
def test_a_person_hands_a_case_to_an_agent(desk: Desk, config: Any, name: str) -> None:
    """A person may hand the case to an agent, by a former name too; the agent sees why, and the trail shows the way."""
    graph = escalated(desk, "on it", aliases={"old-alice": "alice"})
    graph.invoke(say("hi"), config)
    out = graph.invoke(Command(resume={"transfer_to": name, "message": "please call back", "by": "ana"}), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "on it")
    assert "please call back" in "\n".join(m.text for m in model_of(graph, "alice").prompts[1])
    assert_package(graph, config, from_agent="human", to_agent="alice", reason="please call back")
    assert hops(graph, config) == ["alice", "human", "alice"]
    assert history_faults(out["messages"]) == []


def test_a_person_s_secrets_are_redacted_at_the_package_s_border(desk: Desk, config: Any) -> None:
    """What a person writes into a handoff passes the same redaction as what a model writes."""
    graph = escalated(desk, "on it")
    graph.invoke(say("hi"), config)
    out = graph.invoke(Command(resume={"transfer_to": "alice", "message": "card 4111 1111 1111 1111"}), config)
    assert "4111 1111 1111 1111" not in str(out["handoff"])
    assert "4111 1111 1111 1111" not in "\n".join(m.text for m in model_of(graph, "alice").prompts[1])


@pytest.mark.parametrize(
    ("rule", "owner", "last"), [("keep", "human", "five"), ("return", "alice", "five"), ("report", "alice", "it is five")]
)
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_case_lent_to_a_person_comes_back_by_the_edge_s_rule(
    desk: Desk, config: Any, rule: Any, owner: str, last: str, way: str
) -> None:
    """A person who was lent a case gives it back by answering, as an agent does: `return` without a model call, `report` to the sender's model."""
    edge = Handoff(to="human", on_reply=rule)
    graph = desk(PEOPLE, alice={"turns": [call("transfer_to_human", reason="r"), "it is five"], "handoffs": [edge]})
    await run(graph, say("hi"), config, way)
    out = await run(graph, Command(resume={"message": "five"}), config, way)
    assert (out["active_agent"], out["messages"][-1].text, out["ownership"]["stack"]) == (owner, last, [])
    assert len(model_of(graph, "alice").prompts) == (2 if rule == "report" else 1)


def test_a_person_closes_a_case(desk: Desk, config: Any) -> None:
    """A person's last words close the case; the user's next message is a case for the entry agent again."""
    graph = escalated(desk, "alice again")
    graph.invoke(say("hi"), config)
    out = graph.invoke(Command(resume={"message": "all settled", "close": True, "by": "ana"}), config)
    assert (out["messages"][-1].text, out["ownership"]["closed"]) == ("all settled", True)
    assert hops(graph, config) == ["alice", "human", "done"]
    out = graph.invoke(say("one more"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "alice again")


def test_two_answers_in_one_turn_of_the_user_are_both_kept(desk: Desk, config: Any) -> None:
    """When a run without new words asks a person again, the second answer does not take the first one's place."""
    graph = escalated(desk)
    graph.invoke(say("hi"), config)
    graph.invoke(Command(resume={"message": "one moment"}), config)
    graph.invoke({"messages": []}, config)
    assert said_by_people(graph.invoke(Command(resume={"message": "found it"}), config)) == ["one moment", "found it"]


def test_several_people_have_queues_of_their_own(desk: Desk, config: Any) -> None:
    """Each `Human` is an owner of its own name and queue; `escalate` goes to the first, an edge to whom it names."""
    legal = Human(name="legal", description="Lawyers", queue="contracts")
    graph = desk(PEOPLE, legal, alice={"turns": [call("transfer_to_legal", reason="r")], "handoffs": ["legal"]})
    graph.invoke(say("hi"), config)
    shown = asked(graph, config)["handoff"]
    assert (shown["agent"], shown["queue"], shown["may_transfer_to"]) == ("legal", "contracts", ["alice", "human"])
    graph.invoke(Command(resume={"transfer_to": "human", "message": "not for us", "by": "leo"}), config)
    shown = asked(graph, config)["handoff"]
    assert (shown["agent"], shown["queue"], shown["package"]["reason"]) == ("human", "default", "not for us")
    assert hops(graph, config) == ["alice", "legal", "human"]


def test_a_person_may_be_the_entry_and_the_only_owner(config: Any) -> None:
    """A desk of people alone works: the first message waits for a person."""
    graph = create_handoff_graph([PEOPLE], default_active_agent="human").compile(checkpointer=InMemorySaver())
    graph.invoke(say("hi"), config)
    assert asked(graph, config)["handoff"]["package"] is None
    assert said_by_people(graph.invoke(Command(resume={"message": "hello"}), config)) == ["hello"]


def test_a_case_with_a_person_survives_a_restart(desk: Desk, tmp_path: Path, config: Any) -> None:
    """A case that waits for a person is still there in a new process, with its package, and takes the answer."""
    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        escalated(desk, storage=storage).invoke(say("hi"), config)
    with connect(file) as storage:
        graph = desk(PEOPLE, storage=storage, alice={"turns": []})
        assert asked(graph, config)["handoff"]["package"]["reason"] == "too hard"
        assert said_by_people(decide(graph, config, "respond", by="ana", message="here")) == ["here"]


def test_a_person_who_is_gone_is_a_stale_owner(desk: Desk, tmp_path: Path, config: Any) -> None:
    """A case of a person who is no longer in the catalogue falls back to the default agent."""
    file = str(tmp_path / "cases.db")
    with connect(file) as storage:
        escalated(desk, storage=storage).invoke(say("hi"), config)
    with connect(file) as storage:
        out = desk(storage=storage, alice={"turns": ["alice here"]}).invoke(say("hello?"), config)
    assert (out["active_agent"], out["messages"][-1].text) == ("alice", "alice here")
    assert history_faults(out["messages"]) == []


def test_a_case_without_budget_goes_to_a_person_with_its_package(config: Any) -> None:
    """`on_budget` may name a person, who takes the case with the package that could not be delivered, and is asked."""
    alice = ScriptedChatModel([call("transfer_to_bob", known_facts={"n": 1})], agent="alice")
    bob = ScriptedChatModel([call("transfer_to_alice", known_facts={"n": 2})], agent="bob")
    agents = [
        Agent(name="alice", description="A", model=alice, handoffs=["bob"]),
        Agent(name="bob", description="B", model=bob, handoffs=["alice"]),
        PEOPLE,
    ]
    builder = create_handoff_graph(agents, default_active_agent="alice", max_handoffs=1, on_budget="human")
    graph = builder.compile(checkpointer=InMemorySaver())
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] == "human"
    assert asked(graph, config)["handoff"]["package"]["known_facts"] == {"n": 2}
    assert "budget" in [e["kind"] for e in out["events"]]
