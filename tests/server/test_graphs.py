"""The graphs of langgraph.json, as a server loads them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from langgraph_handoff.graph import CompiledHandoffGraph

ROOT = Path(__file__).parents[2]
GRAPHS = json.loads((ROOT / "langgraph.json").read_text())["graphs"]


def loaded(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """Load a graph by the path that langgraph.json gives, with its files in a folder of the test."""
    monkeypatch.setenv("HANDOFF_FOLDER", str(folder))
    monkeypatch.delenv("HANDOFF_MODEL", raising=False)
    path, _, variable = GRAPHS[name].partition(":")
    spec = importlib.util.spec_from_file_location(f"served_{name}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, variable)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("support", {"intake", "triage", "tech", "billing", "tools", "approval", "write", "transfer"}),
        ("two_agents", {"intake", "triage", "tech", "tools", "transfer"}),
    ],
)
def test_each_served_graph_compiles_without_a_checkpointer_and_draws(
    name: str, nodes: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server brings the checkpointer; the drawing names every node and nothing else."""
    graph = loaded(name, monkeypatch, tmp_path)
    assert isinstance(graph, CompiledHandoffGraph)
    assert graph.checkpointer is None
    assert graph.name == name
    assert set(graph.get_graph().nodes) == {"__start__", *nodes, "__end__"}
    assert all(node in graph.get_graph().draw_mermaid() for node in nodes)


async def test_the_smallest_desk_answers_without_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two agents and nothing privileged run without a checkpointer, sync and async."""
    graph = loaded("two_agents", monkeypatch, tmp_path)
    for out in (graph.invoke({"messages": "The API returns 401"}), await graph.ainvoke({"messages": "The API returns 401"})):
        assert out["active_agent"] == "tech"
        assert "its successor is valid" in out["messages"][-1].text
