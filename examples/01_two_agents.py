"""Two agents, one handoff: the case moves with a typed package, and the receiver keeps it on the next turn."""

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, create_handoff_graph, hops
from langgraph_handoff.testing import ScriptedChatModel, call

# Scripted models stand in for real ones, so that the example runs without a key. Any chat model goes here.
triage_model = ScriptedChatModel(
    [call("transfer_to_billing", reason="A charge looks wrong.", known_facts={"invoice": "A-77"})], agent="triage"
)
billing_model = ScriptedChatModel(["Invoice A-77 was charged twice.", "Yes, both charges are on A-77."], agent="billing")

triage = Agent(
    name="triage",
    description="Finds out who can help",
    model=triage_model,
    prompt="Find out what it is about and hand the case over.",
    handoffs=["billing"],
)
billing = Agent(name="billing", description="Invoices and charges", model=billing_model, prompt="Resolve billing issues only.")

graph = create_handoff_graph([triage, billing], default_active_agent="triage").compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    config = {"configurable": {"thread_id": "case-1"}}
    out = graph.invoke({"messages": [{"role": "user", "content": "My invoice looks wrong."}]}, config)
    print(out["messages"][-1].text)
    print("billing was told:", out["handoff"].known_facts)

    out = graph.invoke({"messages": [{"role": "user", "content": "Are you sure?"}]}, config)
    print(out["messages"][-1].text)
    print("hops:", hops(graph, config))
