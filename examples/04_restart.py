"""The process may stop at any moment: a new one opens the same file and goes on where the case stood."""

import sys
import tempfile
from pathlib import Path

from langgraph_handoff import Agent, connect, create_handoff_graph, decide, hops, privileged
from langgraph_handoff.graph import CompiledHandoffGraph
from langgraph_handoff.storage import Storage
from langgraph_handoff.testing import ScriptedChatModel, call


def rotate_key(key_id: str) -> str:
    """Rotate an API key."""
    return f"{key_id} was rotated"


def desk(storage: Storage, *script: object) -> CompiledHandoffGraph:
    """Build the graph, as every process does for itself."""
    security = Agent(
        name="security",
        description="Keys and access",
        model=ScriptedChatModel(list(script), agent="security"),
        tools=[privileged(rotate_key)],
    )
    return create_handoff_graph([security], default_active_agent="security").compile(storage=storage)


def first_process(file: Path) -> None:
    """Ask for a write and stop while a person is being asked."""
    with connect(str(file)) as storage:
        graph = desk(storage, call("rotate_key", key_id="k-1"))
        graph.invoke({"messages": [{"role": "user", "content": "My key leaked."}]}, CONFIG)
        print("waiting:", hops(graph, CONFIG))


def second_process(file: Path) -> None:
    """Open the file again, find the open request, answer it."""
    with connect(str(file)) as storage:
        graph = desk(storage, "Your key was rotated.")
        open_request = graph.get_state(CONFIG).interrupts[0].value["handoff"]
        print("still open:", open_request["agent"], "asks for", open_request["kind"])
        out = decide(graph, CONFIG, "approve", by="ana", request_id=open_request["request_id"])
        print(out["messages"][-1].text)
        print("went:", hops(graph, CONFIG))


CONFIG = {"configurable": {"thread_id": "case-4"}}

if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "cases.db"
    first_process(given)
    second_process(given)
