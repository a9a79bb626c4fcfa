"""Random desks, random models, random people: what may never go wrong does not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_handoff import Agent, Handoff, Human, create_handoff_graph
from langgraph_handoff.ledger import MemoryLedger
from langgraph_handoff.testing import ScriptedChatModel, call, history_faults

NAMES = ("alice", "bob", "carol")


class Desk:
    """A desk of three agents and a person, whose models say anything that they might."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.written: Counter[str] = Counter()
        self.ledger = MemoryLedger()
        self.budget = 60
        agents = [self._agent(name) for name in NAMES]
        self.graph = create_handoff_graph(
            [*agents, Human(description="People")],
            default_active_agent="alice",
            max_handoffs=self.choose.randint(1, 5),
            on_message=self.choose.choice(["keep", "supersede"]),
            on_budget=self.choose.choice([None, "human", "bob"]),
        ).compile(checkpointer=InMemorySaver(), ledger=self.ledger)

    def _agent(self, name: str) -> Agent:
        def pay(order: str) -> str:
            """Pay an order."""
            self.written[order] += 1
            if self.choose.random() < 0.2:
                raise ConnectionError("the line went dead")
            return f"paid {order}"

        def look(n: int) -> str:
            """Look something up."""
            if self.choose.random() < 0.2:
                raise ValueError("not found")
            return f"saw {n}"

        from langgraph_handoff import privileged

        edges = [
            Handoff(
                to=other, on_reply=self.choose.choice(["keep", "keep", "return", "report"]), approval=self.choose.random() < 0.2
            )
            for other in NAMES
            if other != name
        ]
        tools: list[Any] = [look, privileged(pay, when=(lambda args: args["order"] != "small"))] if name == "alice" else [look]
        return Agent(
            name=name,
            description=f"{name}'s work",
            model=ScriptedChatModel([self._turn], loop=True, agent=name),
            tools=tools,
            handoffs=edges,
            context=self.choose.choice(["own", "brief", "full"]),
            requires=("key",) if self.choose.random() < 0.2 else (),
        )

    def _turn(self, _: Any) -> Any:
        """Say anything: words, nothing, and calls of every kind, well-formed or not."""
        choose = self.choose
        self.budget -= 1
        if self.budget < 0 or choose.random() < 0.25:
            return "some words" if choose.random() < 0.9 or self.budget < 0 else ""
        calls: list[Any] = []
        for _ in range(choose.randint(1, 4)):
            name = choose.choice(
                [
                    "look",
                    "look",
                    "pay",
                    "pay",
                    *(f"transfer_to_{n}" for n in (*NAMES, "human")),
                    "close_case",
                    "decline_handoff",
                    "escalate",
                    "nothing",
                    "transfer_back_to_alice",
                ]
            )
            args: dict[str, Any] = {
                "look": {"n": choose.randint(0, 3)},
                "pay": {"order": choose.choice(["A", "B", "small"])},
                "close_case": {"message": choose.choice(["bye", ""])},
                "decline_handoff": {"reason": "no"},
                "escalate": {"reason": "help"},
                "transfer_back_to_alice": {"summary": "back"},
            }.get(name, {"reason": "r", "known_facts": {"key": choose.randint(0, 9)} if choose.random() < 0.7 else {}})
            if choose.random() < 0.1:
                args = {"wrong": [1]}
            calls.append(call(name, call_id=choose.choice([None, "same", None]), **args))
        invalid = [{"name": "pay", "args": "{", "id": choose.choice([None, "bad"]), "error": None, "type": "invalid_tool_call"}]
        if choose.random() < 0.1:
            made = [{**each, "id": each["id"] or f"id{n}"} for n, each in enumerate(calls)]
            return AIMessage(choose.choice(["", "text"]), tool_calls=made, invalid_tool_calls=invalid)
        return [choose.choice(["", "text"]), *calls]

    def given(self, asked: Any) -> Any:
        """What comes from outside next: a user's words, an answer of any kind, or a try to go on."""
        choose = self.choose
        if not asked or choose.random() < 0.2:
            return {"messages": [{"role": "user", "content": choose.choice(["hello", "more", "stop"])}]}
        if asked["handoff"]["kind"] == "owner":
            return Command(
                resume=choose.choice(
                    [
                        {"message": "I am Ana"},
                        {"transfer_to": "bob", "message": "yours"},
                        "what?",
                        {"message": "bye", "close": True},
                    ]
                )
            )
        request_id = asked["handoff"]["request_id"]
        return Command(
            resume=choose.choice(
                [
                    {"type": "approve", "request_id": request_id},
                    {"type": "approve"},
                    {"type": "reject", "message": "no"},
                    {"type": "edit", "edited_action": {"name": asked["action_requests"][0]["name"], "args": {"order": "B"}}},
                    {"type": "did_not_happen", "request_id": request_id},
                    "hm?",
                    [{"type": "ignore"}],
                ]
            )
        )

    def check(self, out: Any, *, done: bool) -> None:
        """Hold the case to what may never go wrong."""
        talk = out["messages"]
        if done:
            assert history_faults(talk) == []
            assert talk[-1].type == "ai"
            assert talk[-1].text.strip()
        assert len({m.id for m in talk}) == len(talk)
        package = out.get("handoff")
        if out["ownership"].get("hop"):
            assert package.to_agent == out["active_agent"] or out["ownership"]["epoch"] > package.epoch
        allowed: Counter[str] = Counter()
        for record in self.ledger.records():
            if record.kind == "write" and record.approver is not None and record.state not in ("proposed", "denied"):
                allowed[record.args["order"]] += record.epoch
        assert all(self.written[order] <= allowed[order] for order in self.written), (self.written, allowed)


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("seeds", [range(start, start + 40) for start in range(0, 160, 40)], ids=lambda r: f"{r.start}-{r.stop}")
def test_nothing_that_may_never_happen_happens(seeds: range, way: str) -> None:
    """Whatever models, users and reviewers do: valid histories, no exception, an answer, no write beyond its approvals."""
    for seed in seeds:
        desk = Desk(seed)
        config: Any = {"configurable": {"thread_id": str(seed)}}
        asked: Any = None
        for _ in range(10):
            given = desk.given(asked)
            try:
                out = asyncio.run(desk.graph.ainvoke(given, config)) if way == "async" else desk.graph.invoke(given, config)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error!r}") from error
            asked = out["__interrupt__"][0].value if "__interrupt__" in out else None
            desk.check(out, done=asked is None)
