"""What users write, checked by mypy and never run."""

from decimal import Decimal
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from langgraph_handoff import (
    Agent,
    Handoff,
    HandoffPackage,
    HandoffState,
    Human,
    adecide,
    connect,
    create_handoff_graph,
    create_handoff_tool,
    decide,
    hops,
    metrics,
    privileged,
)
from langgraph_handoff.testing import ScriptedChatModel, call


class Refund(HandoffPackage):
    """A typed package."""

    order_id: str
    amount: Decimal


class MyState(HandoffState, total=False):
    """A state with a field of the user's own."""

    plan: str


def pay(order_id: str, amount: float) -> str:
    """Pay."""
    return order_id


def build(model: BaseChatModel, config: RunnableConfig) -> None:
    """Use the public face as the README does."""
    billing = Agent(
        name="billing",
        description="Refunds",
        model=model,
        tools=[pay, privileged(pay, identity=("order_id",), when=lambda args: args["amount"] > 5)],
        package=Refund,
        requires=("customer_id",),
        accepts=lambda package: None,
    )
    edge = Handoff(to="billing", on_reply="report", announce=lambda package: package.reason, approval=True)
    triage = Agent(name="triage", description="T", model="provider:name", handoffs=[edge, "human"], context="brief")
    builder = create_handoff_graph(
        [triage, billing, Human(description="People")], default_active_agent="triage", state_schema=MyState, on_budget="human"
    )
    with connect("cases.db") as storage:
        graph = builder.compile(storage=storage)
        out: Any = graph.invoke({"messages": "hi"}, config)
        decide(graph, config, "approve", by="ana", request_id=out["__interrupt__"][0].value["handoff"]["request_id"])
        chain: list[str] = hops(graph, config)
        loops: int = metrics(graph, config).loops
        print(chain, loops)
    create_handoff_tool(agent_name="billing", description="Go", package=Refund)


async def build_async(config: RunnableConfig) -> None:
    """Use the async twins."""
    model = ScriptedChatModel([[call("pay", order_id="A", amount=1.0), "text"], "done"], agent="billing")
    graph = create_handoff_graph([Agent(name="b", description="B", model=model)], default_active_agent="b").compile()
    await graph.ainvoke({"messages": "hi"}, config)
    await adecide(graph, config, "edit", by="ana", args={"order_id": "B"})
