"""A destination types its package and says what it needs; until it gets that, the sender keeps the case."""

from decimal import Decimal

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_handoff import Agent, HandoffPackage, create_handoff_graph, hops
from langgraph_handoff.testing import ScriptedChatModel, call


class RefundPackage(HandoffPackage):
    """What the refund desk wants to know."""

    order_id: str
    amount: Decimal


def small_enough(package: HandoffPackage) -> str | None:
    """Return a reason against large refunds."""
    large = isinstance(package, RefundPackage) and package.amount > 500
    return "refunds above 500 go to a manager" if large else None


triage_model = ScriptedChatModel(
    [
        call("transfer_to_refunds", reason="Refund wanted", amount="twenty"),  # wrong type, no order: an error result
        call("transfer_to_refunds", reason="Refund wanted", order_id="A-77", amount="20"),  # no customer_id: declined
        call("transfer_to_refunds", reason="Refund wanted", order_id="A-77", amount="20", known_facts={"customer_id": "C-9"}),
    ],
    agent="triage",
)
refunds = Agent(
    name="refunds",
    description="Refunds for one order",
    model=ScriptedChatModel(["Order A-77: 20 will be refunded."], agent="refunds"),
    package=RefundPackage,
    requires=("customer_id",),
    accepts=small_enough,
)
triage = Agent(name="triage", description="Finds out who can help", model=triage_model, handoffs=["refunds"])

graph = create_handoff_graph([triage, refunds], default_active_agent="triage").compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    config = {"configurable": {"thread_id": "case-2"}}
    out = graph.invoke({"messages": [{"role": "user", "content": "I want my money back."}]}, config)
    for message in out["messages"]:
        if message.type == "tool":
            print(f"[{message.status}] {message.text}")
    package = out["handoff"]
    print(type(package).__name__, package.order_id, package.amount)
    print("hops:", hops(graph, config))
