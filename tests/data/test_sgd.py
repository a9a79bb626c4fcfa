"""Recorded conversations over several services: what the user told one agent reaches the one who needs it."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, create_handoff_graph
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults
from tests.data.replay import rows

RECORDED = rows("sgd_dialogues.jsonl")

OWN: dict[str, Any] = {
    "id": "own:sgd",
    "services": ["Cars", "Hotels"],
    "turns": [
        {"i": 0, "who": "user", "service": "Cars", "text": "A car in Long Beach, please."},
        {"i": 1, "who": "system", "service": "Cars", "text": "Booked."},
        {"i": 2, "who": "user", "service": "Hotels", "text": "And a room there."},
        {"i": 3, "who": "system", "service": "Hotels", "text": "Which day?"},
        {"i": 4, "who": "user", "service": "Cars", "text": "Make it a van."},
        {"i": 5, "who": "system", "service": "Cars", "text": "Done."},
    ],
    "carried": [
        {"turn": 3, "param": "where_to", "value": "Long Beach", "said_turn": 0, "said_to": "Cars", "needed_by": "Hotels"}
    ],
}


def carried_through(row: dict[str, Any]) -> None:
    """Let each service own its turns, hand over what it heard, and look for the needed facts in the prompts."""
    users = [turn for turn in row["turns"] if turn["who"] == "user"]
    services = list(dict.fromkeys(turn["service"] for turn in row["turns"]))
    scripts: dict[str, list[Any]] = {service: [] for service in services}
    prompts: dict[int, list[Any]] = {}
    owner, owners = users[0]["service"], []
    for turn in users:
        if turn["service"] != owner:
            heard = {c["param"]: c["value"] for c in row["carried"] if c["said_turn"] < turn["i"] and c["said_to"] == owner}
            scripts[owner].append(call(f"transfer_to_{turn['service'].lower()}", reason="Another service.", known_facts=heard))
            owner = turn["service"]
        owners.append(owner)

        def spoken(prompt: list[Any], number: int = turn["i"]) -> str:
            prompts[number] = prompt
            return next((t["text"] for t in row["turns"] if t["i"] == number + 1), "") or "Fine."

        scripts[owner].append(spoken)
    agents = [
        Agent(
            name=service,
            description=f"The service {service}",
            model=ScriptedChatModel(scripts[service], agent=service),
            handoffs=[other for other in services if other != service],
        )
        for service in services
    ]
    graph = create_handoff_graph(agents, default_active_agent=users[0]["service"]).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": row["id"]}}
    for turn, expected in zip(users, owners, strict=True):
        out = graph.invoke({"messages": [{"role": "user", "content": turn["text"]}]}, config)
        assert out["active_agent"] == expected, row["id"]
    assert history_faults(out["messages"]) == [], row["id"]
    for fact in row["carried"]:
        prompt = prompts.get(fact["turn"] - 1)
        if prompt is not None:
            assert fact["value"] in "\n".join(m.text for m in prompt), (row["id"], fact)


def test_a_small_conversation_carries_its_fact() -> None:
    """A fact told to one service is in the prompt of the next one that needs it, and the owner follows the service."""
    carried_through(OWN)


@pytest.mark.skipif(not RECORDED, reason="the recorded data is not here; set HANDOFF_DATA to its folder")
@pytest.mark.parametrize("part", range(4))
def test_recorded_conversations_carry_their_facts(part: int) -> None:
    """In every recorded conversation the owner follows the service, and no needed fact is missing in a prompt."""
    for row in RECORDED[part::4]:
        carried_through(row)
