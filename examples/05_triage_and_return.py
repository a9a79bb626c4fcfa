"""Lending a case: `on_reply="return"` gives it back after the answer, `"report"` lets the sender speak instead."""

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, Handoff, create_handoff_graph, hops
from langgraph_handoff.testing import ScriptedChatModel, call


def key_status(key_id: str) -> str:
    """Look up whether an API key works."""
    return f"{key_id} was revoked yesterday"


triage = Agent(
    name="triage",
    description="Speaks to the user, knows who can help",
    model=ScriptedChatModel(
        [
            call("transfer_to_tech", reason="The API returns 401."),
            "Tech found it: your old key was revoked. Please use the new one.",
            call("transfer_to_billing", reason="A question about an invoice."),
        ],
        agent="triage",
    ),
    handoffs=[Handoff(to="tech", on_reply="report"), Handoff(to="billing", on_reply="return")],
)
tech = Agent(
    name="tech",
    description="API and keys",
    model=ScriptedChatModel([call("key_status", key_id="k-1"), "Key k-1 was revoked; k-2 is valid."], agent="tech"),
    tools=[key_status],
)
billing = Agent(
    name="billing",
    description="Invoices",
    model=ScriptedChatModel(["Your invoice is due on Friday."], agent="billing"),
)

graph = create_handoff_graph([triage, tech, billing], default_active_agent="triage").compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    config = {"configurable": {"thread_id": "case-5"}}
    for words in ("I get a 401.", "And when is my invoice due?"):
        out = graph.invoke({"messages": [{"role": "user", "content": words}]}, config)
        print(f"{out['messages'][-1].name}: {out['messages'][-1].text}")
        print("owner:", out["active_agent"])
    print("hops:", hops(graph, config))
