"""What tests share: savers of all kinds, and a case builder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, connect, create_handoff_graph
from langgraph_handoff.graph import CompiledHandoffGraph
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel
from tests import postgres


@pytest.fixture(scope="session", autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    postgres.stop()


ADDRESSES: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: ":memory:",
    "sqlite": lambda folder: str(folder / "cases.db"),
    "postgres": lambda folder: postgres.server().empty(),
}


@pytest.fixture(params=ADDRESSES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Storage in memory, in a file, and in Postgres."""
    with connect(ADDRESSES[request.param](tmp_path)) as opened:
        yield opened


@pytest.fixture
def config() -> dict[str, Any]:
    """The config of one case."""
    return {"configurable": {"thread_id": "case-1"}}


Desk = Callable[..., CompiledHandoffGraph]


@pytest.fixture
def desk() -> Desk:
    """Build a graph from scripts: `desk(alice=dict(turns=[...], handoffs=[...]), bob=...)`; the first owns new cases."""

    def build(*people: Any, storage: Storage | None = None, options: dict[str, Any] | None = None, **agents: Any) -> Any:
        made = []
        for name, given in agents.items():
            fields = dict(given)
            turns = fields.pop("turns", [])
            model = turns if isinstance(turns, ScriptedChatModel) else ScriptedChatModel(turns, agent=name)
            made.append(Agent(**{"name": name, "description": f"{name}'s work", "model": model, **fields}))
        builder = create_handoff_graph([*made, *people], default_active_agent=next(iter(agents)), **(options or {}))
        return builder.compile(storage=storage) if storage else builder.compile(checkpointer=InMemorySaver())

    return build


def model_of(graph: CompiledHandoffGraph, agent: str) -> ScriptedChatModel:
    """Return the scripted model of an agent."""
    model = graph.catalog.agents[agent].model
    assert isinstance(model, ScriptedChatModel)
    return model


def say(text: str) -> dict[str, Any]:
    """Return a user's message as a graph's input."""
    return {"messages": [{"role": "user", "content": text}]}


async def run(graph: CompiledHandoffGraph, given: Any, config: Any, way: str, **options: Any) -> Any:
    """Run a graph in one of the two ways."""
    return await graph.ainvoke(given, config, **options) if way == "async" else graph.invoke(given, config, **options)
