"""Hops, figures and the chart of a case."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_handoff import ahops, ametrics, decide, hops, metrics, privileged
from langgraph_handoff.state import Event
from langgraph_handoff.testing import call
from langgraph_handoff.trace import graph_of_hops, hops_of
from tests.conftest import Desk, say


def happened(kind: str, agent: str = "a", **detail: Any) -> Event:
    return Event(id=f"{kind}{agent}{detail}", kind=kind, agent=agent, at=0.0, detail=detail)


@pytest.mark.parametrize(
    ("events", "waiting", "chain"),
    [
        ([], False, []),
        ([happened("opened", "a")], False, ["a"]),
        ([happened("opened", "a"), happened("accepted", "b", to="b"), happened("returned", "b", to="a")], False, ["a", "b", "a"]),
        ([happened("opened", "a"), happened("accepted", "b", to="b"), happened("declined", "b", to="a")], False, ["a", "b", "a"]),
        ([happened("opened", "a"), happened("declined", "a", reason="x")], False, ["a"]),
        (
            [happened("opened", "a"), happened("asked", "a"), happened("decided", "a"), happened("closed", "a")],
            False,
            ["a", "human", "a", "done"],
        ),
        ([happened("opened", "a")], True, ["a", "human"]),
        ([happened("opened", "human")], True, ["human"]),
    ],
)
def test_hops_are_read_from_events(events: list[Event], waiting: bool, chain: list[str]) -> None:
    """Who had the case follows from the log; an open request is a hop to a person."""
    assert hops_of(events, waiting=waiting) == chain


def test_the_chart_numbers_each_hop() -> None:
    """Each arrow of the chart carries the numbers of its hops."""
    chart = graph_of_hops(["a", "b", "a", "b"])
    assert chart.splitlines() == ["flowchart LR", '    n0["a"]', '    n1["b"]', "    n0 -->|1, 3| n1", "    n1 -->|2| n0"]


async def test_figures_of_a_case(desk: Desk, config: Any) -> None:
    """Hops, loops, refusals, forbidden calls, approvals and tokens per agent are counted; sync and async agree."""

    def pay(order: str) -> str:
        """Pay."""
        return "paid"

    graph = desk(
        alice={
            "turns": [call("pay", order="1"), call("transfer_to_bob", reason=5), call("transfer_to_bob", reason="r"), "bye"],
            "handoffs": ["bob"],
        },
        bob={
            "turns": [call("pay", order="1"), call("transfer_to_alice", reason="r")],
            "tools": [privileged(pay)],
            "handoffs": ["alice"],
        },
    )
    graph.invoke(say("hi"), config)
    decide(graph, config, "approve", by="ana")
    found = metrics(graph, config)
    assert found == await ametrics(graph, config)
    assert (found.hops, found.loops, found.forbidden, found.asked, found.approved, found.written) == (2, 1, 1, 1, 1, 1)
    assert found.refused >= 1
    assert set(found.tokens) == {"alice", "bob"}
    values = graph.get_state(config).values
    total = sum(m.usage_metadata["total_tokens"] for m in values["messages"] if m.type == "ai" and m.usage_metadata)
    assert sum(found.tokens.values()) == total
    assert hops(graph, config) == await ahops(graph, config)
    assert found.as_dict()["closed"] is False
