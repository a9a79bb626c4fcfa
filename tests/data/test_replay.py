"""Real cases and real messy turns, replayed; where the recorded data is absent, the small ones of this folder are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from langgraph_handoff.testing import history_faults
from tests.data.fixtures import CASES, TURNS
from tests.data.replay import World, build, play, rows, script, survive

RECORDED = rows("tau2_handoff_cases.jsonl")
MESSY = rows("messy_turns.jsonl")
WEAK = rows("weak_turns.jsonl")
pytestmark = pytest.mark.filterwarnings("ignore:The privileged tool:langgraph_handoff.agents.CatalogWarning")
NOT_HERE = "the recorded data is not here; set HANDOFF_DATA to its folder"


async def replayed(row: dict[str, Any], *, mixed: bool, way: str) -> None:
    """Replay a case and hold it to what was recorded."""
    case, world = script(row, mixed=mixed), World()
    graph = build(row, case, world)
    recorded = Counter((s["tool"], s.get("result") or "ok") for s in row["steps"] if s["requestor"] == "assistant")
    out, asked = await play(graph, case, row, world, way=way)
    where = (row["id"], mixed, way)
    position = 0
    for group in case.expected:
        ran = world.journal[position : position + len(group)]
        assert sorted(ran) == sorted(group), where
        position += len(group)
    assert len(world.journal) == position, where
    assert asked == case.kinds, where
    config: Any = {"configurable": {"thread_id": row["id"]}}
    values = graph.get_state(config).values
    moved = [case.owners[0], *(e["detail"]["to"] for e in values["events"] if e["kind"] == "accepted")]
    assert moved == case.owners, where
    assert history_faults(values["messages"]) == [], where
    results = [m for m in values["messages"] if isinstance(m, ToolMessage) and m.name in {tool for tool, _ in recorded}]
    assert Counter((m.name, m.content) for m in results) == recorded, where
    assert out["messages"][-1].text == "Everything is settled.", where
    for agent in graph.catalog.agents.values():
        agent.model.assert_finished()
        for prompt in agent.model.prompts:
            assert history_faults(prompt) == [], where


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("mixed", [False, True], ids=["one-call-a-message", "calls-and-transfer-in-one-message"])
@pytest.mark.parametrize("row", CASES, ids=lambda row: row["id"])
async def test_small_cases(row: dict[str, Any], mixed: bool, way: str) -> None:
    """Every call of a case runs once and in order, every write is asked for, no result is lost, and the hops are as stated."""
    await replayed(row, mixed=mixed, way=way)


@pytest.mark.skipif(not RECORDED, reason=NOT_HERE)
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("mixed", [False, True], ids=["one-call-a-message", "calls-and-transfer-in-one-message"])
@pytest.mark.parametrize("part", range(8))
async def test_recorded_cases(part: int, mixed: bool, way: str) -> None:
    """Every recorded case of retail, airline, telecom and banking replays as it was recorded, both ways, sync and async."""
    chosen = RECORDED[part::8]
    assert chosen
    for row in chosen:
        await replayed(row, mixed=mixed, way=way)


def survived(row: dict[str, Any], roles: dict[str, str], held: list[str]) -> None:
    """Let a messy turn happen and hold the case to what may never go wrong."""
    out, world, before = survive(row, roles, held)
    assert before == set(), f"{row['id']}: written before an approval"
    assert history_faults(out["messages"]) == [], row["id"]
    assert len(world.journal) == len(set(world.journal)), f"{row['id']}: ran twice: {world.journal}"
    assert {name for name, _ in world.journal} <= set(held), row["id"]
    assert out["messages"][-1].type == "ai", row["id"]
    assert out["messages"][-1].text.strip(), row["id"]
    for prompt in out["prompts"]:
        assert history_faults(prompt) == [], row["id"]


@pytest.mark.parametrize("row", TURNS, ids=lambda row: row["id"])
def test_small_messy_turns(row: dict[str, Any]) -> None:
    """Whatever a turn looks like: a valid history, nothing run twice, no foreign tool run, an answer at the end."""
    survived(row, row["roles"], list(row["roles"]))


@pytest.mark.skipif(not MESSY, reason=NOT_HERE)
@pytest.mark.parametrize("row", MESSY, ids=lambda row: f"{row['id']}-{row['kind']}")
def test_recorded_messy_turns(row: dict[str, Any]) -> None:
    """Every recorded messy turn of a real model is survived."""
    held = row["offered_tools"] if row["offered_tools"] is not None else list(row["roles"])
    survived(row, row["roles"], list(dict.fromkeys(held)))


@pytest.mark.skipif(not WEAK, reason=NOT_HERE)
@pytest.mark.parametrize("row", WEAK, ids=lambda row: row["id"])
def test_recorded_turns_of_a_weak_model(row: dict[str, Any]) -> None:
    """Every recorded turn of a very small model is survived, with retail tools and transfer tools at hand."""
    steps = [step for case in RECORDED if case["domain"] == "retail" for step in case["steps"]]
    roles = {step["tool"]: "write" if step["is_write"] else "read" for step in steps}
    transfers = {f"transfer_to_{agent}": "handoff" for agent in ("returns", "orders", "account", "human")}
    roles = {**roles, **transfers}
    survived(row, roles, list(roles))
