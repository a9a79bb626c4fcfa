"""Loops and budgets (faults of group E)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from langgraph_handoff import Handoff, Human, hops
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.conftest import Desk, model_of, run, say


def ping_pong(target: str, *, news: bool) -> ScriptedChatModel:
    """A model that always hands on, with or without something new."""
    numbers = count()

    def turn(_: Any) -> Any:
        facts = {f"{target}{next(numbers)}": 1} if news else {}
        return call(f"transfer_to_{target}", reason="not mine", known_facts=facts)

    return ScriptedChatModel([turn], loop=True, agent=target)


def bouncing(desk: Desk, *, news: bool, people: Any = (), storage: Storage | None = None, **options: Any) -> Any:
    return desk(
        *people,
        alice={"turns": ping_pong("bob", news=news), "handoffs": ["bob"]},
        bob={"turns": ping_pong("alice", news=news), "handoffs": ["alice"]},
        options=options,
        storage=storage,
    )


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("budget", [1, 3, 6])
async def test_e1_two_agents_that_hand_on_for_ever_are_stopped(desk: Desk, config: Any, way: str, budget: int) -> None:
    """E1: after the stated budget the owner keeps the case and the user has an answer in the same turn."""
    graph = bouncing(desk, news=True, max_handoffs=budget)
    out = await run(graph, say("hi"), config, way)
    assert out["ownership"]["turn_hops"] == budget
    assert out["messages"][-1].type == "ai"
    assert out["messages"][-1].text
    assert history_faults(out["messages"]) == []
    assert len(model_of(graph, "alice").prompts) + len(model_of(graph, "bob").prompts) <= budget + 4


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("size", [3, 4, 7])
async def test_e1_a_ring_of_agents_is_stopped(desk: Desk, storage: Storage, config: Any, way: str, size: int) -> None:
    """E1: agents that hand on in a ring, where nothing goes straight back, are stopped by the budget too, in every turn."""
    names = [f"agent{number}" for number in range(size)]
    ring = dict(zip(names, [*names[1:], names[0]], strict=True))
    graph = desk(
        **{name: {"turns": ping_pong(target, news=False), "handoffs": [target]} for name, target in ring.items()},
        storage=storage,
    )
    for turn in range(2):
        out = await run(graph, say(str(turn)), config, way)
        assert out["ownership"]["turn_hops"] == 6
        assert (out["messages"][-1].type, bool(out["messages"][-1].text)) == ("ai", True)
        assert history_faults(out["messages"]) == []


def test_e1_a_case_without_news_does_not_go_back(desk: Desk, config: Any) -> None:
    """E1: without anything new the receiver may not hand back; the refusal says what would count, and an answer follows."""
    graph = bouncing(desk, news=False)
    out = graph.invoke(say("hi"), config)
    assert hops(graph, config) == ["alice", "bob"]
    refusal = [m.text for m in out["messages"] if m.name == "transfer_to_alice"][0]
    assert "new fact" in refusal
    assert out["messages"][-1].text


def test_e1_at_the_limit_the_tools_are_withheld_and_the_model_is_told(desk: Desk, config: Any) -> None:
    """At the limit the owner's handoff tools are not offered and its instructions say to answer."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r")], "handoffs": ["bob"]},
        bob={"turns": ["my answer"], "handoffs": ["alice"]},
        options={"max_handoffs": 1},
    )
    out = graph.invoke(say("hi"), config)
    assert out["messages"][-1].text == "my answer"
    assert "transfer_to_alice" not in model_of(graph, "bob").offered[0]
    assert "answer the user now" in model_of(graph, "bob").prompts[0][0].text


@pytest.mark.parametrize("spare", ["human", "carol"])
def test_e1_on_budget_somebody_else_takes_the_case(desk: Desk, config: Any, spare: str) -> None:
    """At the limit a declared person or agent takes the case instead."""
    people = [Human(description="People")] if spare == "human" else []
    agents: dict[str, Any] = {} if spare == "human" else {"carol": {"turns": ["carol answers"]}}
    graph = desk(
        *people,
        alice={"turns": ping_pong("bob", news=True), "handoffs": ["bob"]},
        bob={"turns": ping_pong("alice", news=True), "handoffs": ["alice"]},
        **agents,
        options={"max_handoffs": 2, "on_budget": spare},
    )
    out = graph.invoke(say("hi"), config)
    assert out["active_agent"] == spare
    assert out["handoff"].to_agent == spare


def test_e2_a_sender_that_delegated_already_sees_it(desk: Desk, config: Any) -> None:
    """E2: the sender's own handoff stays in its view, so that it does not hand over the same thing again and again."""

    def once(messages: list[Any]) -> Any:
        done = any(c["name"] == "transfer_to_bob" for m in messages for c in getattr(m, "tool_calls", ()))
        told = any("bob" in m.text and "Summary" in m.text for m in messages)
        return "final" if done or told else call("transfer_to_bob", reason="r")

    graph = desk(
        alice={"turns": ScriptedChatModel([once], loop=True, agent="alice"), "handoffs": [Handoff(to="bob", on_reply="report")]},
        bob={"turns": ["it is 5"]},
    )
    out = graph.invoke(say("hi"), config)
    assert hops(graph, config) == ["alice", "bob", "alice"]
    assert out["messages"][-1].text == "final"


def test_e4_the_budget_counts_handoffs_not_model_calls(desk: Desk, config: Any) -> None:
    """E4: many tool calls do not use the budget of handoffs."""

    def look(n: int) -> str:
        """Look."""
        return str(n)

    graph = desk(
        alice={
            "turns": [*[call("look", n=i) for i in range(12)], call("transfer_to_bob", reason="r")],
            "tools": [look],
            "handoffs": ["bob"],
        },
        bob={"turns": ["hello"]},
        options={"max_handoffs": 1},
    )
    assert graph.invoke(say("hi"), config)["active_agent"] == "bob"


@pytest.mark.parametrize("news", [True, False])
@pytest.mark.parametrize("budget", [1, 3, 6])
def test_e5_bounces_of_an_earlier_turn_are_not_in_the_next_prompt(desk: Desk, config: Any, budget: int, news: bool) -> None:
    """E5: after a turn that hit the limit the next turn has a fresh budget, and its first prompt shows no bounce."""
    graph = bouncing(desk, news=news, max_handoffs=budget)
    held = graph.invoke(say("hi"), config)
    assert history_faults(held["messages"]) == []
    models = {name: model_of(graph, name) for name in ("alice", "bob")}
    before = {name: len(model.prompts) for name, model in models.items()}
    out = graph.invoke(say("again"), config)
    first = models[held["active_agent"]].prompts[before[held["active_agent"]]]
    assert [m for m in first if m.type == "tool" or getattr(m, "tool_calls", [])] == []
    assert [m.text for m in first if m.type == "human"][-1] == "again"
    assert out["ownership"]["turn_hops"] == (budget if news else 1)
    assert out["messages"][-1].text


def test_e5_words_and_work_of_an_earlier_turn_stay(desk: Desk, config: Any) -> None:
    """E5: what was said and found beside a bounce is still in the next prompt."""

    def look() -> str:
        """Look."""
        return "seen it"

    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "x"], "handoffs": ["bob"]},
        bob={
            "turns": [
                ["let me ask alice", call("transfer_to_alice", reason="r")],
                [call("look"), call("transfer_to_alice", reason="r")],
                "an answer",
                "later",
            ],
            "tools": [look],
            "handoffs": ["alice"],
        },
        options={"max_handoffs": 1},
    )
    graph.invoke(say("hi"), config)
    graph.invoke(say("more"), config)
    prompt = model_of(graph, "bob").prompts[-1]
    assert [c["name"] for m in prompt for c in getattr(m, "tool_calls", [])] == ["look", "transfer_to_alice"]
    assert {"let me ask alice", "seen it", "an answer"} <= {m.text for m in prompt}


def test_e5_what_a_destination_wanted_is_still_shown(desk: Desk, config: Any) -> None:
    """E5: a refusal that says what the destination needs is no bounce and stays in the sender's next prompt."""
    graph = desk(
        alice={"turns": [call("transfer_to_bob", reason="r"), "what is your number?", "thanks"], "handoffs": ["bob"]},
        bob={"turns": [], "requires": ("number",)},
    )
    graph.invoke(say("hi"), config)
    graph.invoke(say("it is 7"), config)
    assert "it needs number" in "\n".join(m.text for m in model_of(graph, "alice").prompts[-1])


def test_a_cap_per_case_lives_over_turns_and_restarts(desk: Desk, tmp_path: Any, config: Any) -> None:
    """The cap per case counts over turns and processes."""
    from langgraph_handoff import connect

    for turn in range(3):
        with connect(str(tmp_path / "cases.db")) as storage:
            graph = bouncing(desk, news=True, storage=storage, max_handoffs=2, max_case_handoffs=3)
            out = graph.invoke(say(f"turn {turn}"), config)
    assert out["ownership"]["hop"] == 3
    assert out["messages"][-1].text


@pytest.mark.parametrize("turns", [["", "second try"], ["", ""], ["  \n", "", "not used"]])
def test_an_empty_reply_is_asked_again_once_and_never_the_answer(desk: Desk, config: Any, turns: list[str]) -> None:
    """An empty reply is asked again once; a second one ends the turn with the stated fallback."""
    graph = desk(alice={"turns": ScriptedChatModel(turns, agent="alice", strict=False)}, options={"fallback": "Sorry."})
    out = graph.invoke(say("hi"), config)
    assert out["messages"][-1].text == ("second try" if turns[1] else "Sorry.")
    assert len(model_of(graph, "alice").prompts) == 2


@pytest.mark.parametrize(("second", "carried"), [("the price", False), ("the colour", True)])
def test_e2_a_worker_is_asked_the_same_thing_once_and_another_thing_again(
    desk: Desk, config: Any, second: str, carried: bool
) -> None:
    """E2: what a worker has reported on is not asked of it again in the turn; another question is."""
    graph = desk(
        alice={
            "turns": [call("transfer_to_bob", reason="the price"), call("transfer_to_bob", reason=second), "final"],
            "handoffs": [Handoff(to="bob", on_reply="report")],
        },
        bob={"turns": ["five", "red"]},
    )
    out = graph.invoke(say("hi"), config)
    assert hops(graph, config) == ["alice", "bob", "alice", *(["bob", "alice"] if carried else [])]
    assert out["messages"][-1].text == "final"
