"""An agent that is a compiled graph of its own takes part with a handoff tool; its inside stays as it is."""

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_handoff import Agent, create_handoff_graph, create_handoff_tool, hops
from langgraph_handoff.testing import ScriptedChatModel, call

to_billing = create_handoff_tool(agent_name="billing", description="Hand the case to billing.")
model = ScriptedChatModel([call("transfer_to_billing", reason="An invoice", known_facts={"invoice": "A-77"})], agent="research")


def think(state: MessagesState) -> dict[str, Any]:
    """Ask the model; any graph with a `messages` channel will do."""
    return {"messages": [model.bind_tools([to_billing]).invoke(state["messages"])]}


inner = StateGraph(MessagesState)
inner.add_node("think", think)
inner.add_node("tools", ToolNode([to_billing]))
inner.add_edge(START, "think")
inner.add_conditional_edges("think", tools_condition)

research = Agent(name="research", description="Looks things up", graph=inner.compile(), handoffs=["billing"])
billing = Agent(
    name="billing", description="Invoices", model=ScriptedChatModel(["A-77 is paid."], agent="billing"), prompt="Answer."
)

graph = create_handoff_graph([research, billing], default_active_agent="research").compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    config = {"configurable": {"thread_id": "case-6"}}
    out = graph.invoke({"messages": [{"role": "user", "content": "Is A-77 paid?"}]}, config)
    print(f"{out['messages'][-1].name}: {out['messages'][-1].text}")
    print("known:", out["handoff"].known_facts)
    print("hops:", hops(graph, config))
