"""A privileged write: the agent asks, a person decides, the write runs once."""

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, create_handoff_graph, decide, privileged
from langgraph_handoff.testing import ScriptedChatModel, call

bank: list[str] = []


def issue_credit(invoice_id: str, amount: float) -> str:
    """Credit an amount to an invoice."""
    bank.append(f"{invoice_id}: {amount}")
    return f"credited {amount} to {invoice_id}"


billing = Agent(
    name="billing",
    description="Invoices and credits",
    model=ScriptedChatModel(
        [call("issue_credit", invoice_id="A-77", amount=90.0), "The credit is on your invoice."], agent="billing"
    ),
    tools=[privileged(issue_credit, identity=("invoice_id", "amount"))],
)

graph = create_handoff_graph([billing], default_active_agent="billing").compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    config = {"configurable": {"thread_id": "case-3"}}
    out = graph.invoke({"messages": [{"role": "user", "content": "Please credit invoice A-77."}]}, config)
    request = out["__interrupt__"][0].value
    action = request["action_requests"][0]
    print("asked:", action["name"], action["args"], "by", request["handoff"]["agent"])
    print("written so far:", bank)

    # A screen sends Command(resume={"decisions": [{"type": "edit", ...}]}); `decide` also says which request and who.
    args = {"invoice_id": "A-77", "amount": 80.0}
    out = decide(graph, config, "edit", by="ana", args=args, request_id=request["handoff"]["request_id"])
    print(out["messages"][-1].text)
    print("written:", bank)
