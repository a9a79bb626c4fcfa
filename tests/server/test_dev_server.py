"""The graphs of langgraph.json under `langgraph dev`: offline, on a loopback port, driven by the official SDK."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client

from langgraph_handoff.demo import SEED_CASE

ROOT = Path(__file__).parents[2]
QUIET = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "true"}
APPROVE: Any = {"resume": {"decisions": [{"type": "approve", "by": "ana"}]}}


WITHOUT_LEDGER = """
from langgraph_handoff import Agent, create_handoff_graph, privileged
from langgraph_handoff.testing import ScriptedChatModel, call

def pay(order: str) -> str:
    'Pay an order.'
    return "paid"

model = ScriptedChatModel([call("pay", order="A"), "done"], loop=True)
alice = Agent(name="alice", description="A", model=model, tools=[privileged(pay)])
graph = create_handoff_graph([alice], default_active_agent="alice").compile()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A running server of a copy of the project's graphs, and its folder."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(ROOT / "graphs", folder / "graphs")
    served = json.loads((ROOT / "langgraph.json").read_text())
    served["graphs"]["without_ledger"] = "./graphs/without_ledger.py:graph"
    (folder / "langgraph.json").write_text(json.dumps(served))
    (folder / "graphs" / "without_ledger.py").write_text(WITHOUT_LEDGER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "langgraph_cli",
        "dev",
        "--no-browser",
        "--no-reload",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = folder / "server.log"
    env = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise AssertionError(log.read_text()[-3000:])
            try:
                if httpx.get(f"{url}/ok", timeout=1).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield url, folder
    finally:
        process.terminate()
        process.wait(20)
    assert "BlockingError" not in log.read_text()


async def test_both_graphs_are_served_with_their_real_edges(server: tuple[str, Path]) -> None:
    """Studio's endpoint draws every node of the support desk, and no edge to a node that is not there."""
    client = get_client(url=server[0])
    served = {each["graph_id"] for each in await client.assistants.search()}
    assert served == {"support", "two_agents", "without_ledger"}
    drawn = await client.assistants.get_graph("support", xray=True)
    names = {node["id"] for node in drawn["nodes"]}
    assert names == {"__start__", "intake", "triage", "tech", "billing", "tools", "approval", "write", "transfer", "__end__"}
    edges = {(edge["source"], edge["target"]) for edge in drawn["edges"]}
    assert {source for source, _ in edges} | {target for _, target in edges} == names
    assert ("tech", "approval") not in edges
    assert ("transfer", "approval") not in edges
    assert {("billing", "approval"), ("approval", "write"), ("write", "billing"), ("transfer", "tech")} <= edges


async def test_the_seed_case_walks_on_the_server(server: tuple[str, Path]) -> None:
    """On the server the case stops for a person, its hops are on the custom stream, and the approval writes once."""
    url, folder = server
    client = get_client(url=url)
    thread = (await client.threads.create())["thread_id"]
    told = []
    given: Any = {"messages": [{"role": "user", "content": [{"type": "text", "text": SEED_CASE}]}]}
    async for part in client.runs.stream(thread, "support", input=given, stream_mode=["updates", "custom"]):
        assert part.event != "error", part.data
        if part.event == "custom" and part.data["kind"] == "accepted":
            told.append(part.data["detail"]["to"])
    assert told == ["tech", "triage", "billing"]
    state: Any = await client.threads.get_state(thread)
    (asked,) = state["interrupts"]
    assert asked["value"]["action_requests"][0]["name"] == "issue_credit"
    assert "decisions" in asked["response_schema"]["properties"]
    await client.runs.wait(thread, "support", command=APPROVE)
    second: Any = await client.runs.wait(thread, "support", command=APPROVE, raise_error=False)
    assert second["__error__"]["error"] == "NoOpenRequestError"
    state = await client.threads.get_state(thread)
    assert state["values"]["ownership"]["closed"] is True
    lines = (folder / "support.credits.jsonl").read_text().splitlines()
    assert [(each["invoice_id"], each["amount"]) for each in map(json.loads, lines)] == [("A-102", 90.0)]


async def test_a_write_without_a_ledger_is_refused_on_the_server(server: tuple[str, Path]) -> None:
    """The server keeps checkpoints that outlive its process, so without HANDOFF_LEDGER_URL nothing is asked and nothing runs."""
    client = get_client(url=server[0])
    thread = (await client.threads.create())["thread_id"]
    given = {"messages": [{"role": "user", "content": "hi"}]}
    out: Any = await client.runs.wait(thread, "without_ledger", input=given, raise_error=False)
    assert out["__error__"]["error"] == "LedgerMissingError"
    state: Any = await client.threads.get_state(thread)
    assert [each["type"] for each in state["values"]["messages"]] == ["human", "ai"]
