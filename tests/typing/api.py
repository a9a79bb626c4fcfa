"""What users write, checked by mypy and never run."""

from decimal import Decimal
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from langgraph_handoff import (
    Agent,
    CaseMemory,
    Entry,
    Handoff,
    HandoffPackage,
    HandoffState,
    Human,
    aconnect,
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
        memory = CaseMemory(storage.store, model=model, redact=lambda text: text)
        handoff: str = memory.handoff(
            case_id="c", from_agent="ari", to_agent="rex", requested_action="approve", content={"amount": 1200}
        )
        memory.feedback(handoff_id=handoff, from_agent="rex", verdict="block", comments="No")
        verdict: str | None = memory.await_verdict(handoff_id=handoff, timeout=1.5)
        found: list[Entry] = memory.recall(case_id="c", query="credit", entry_types=["trace"], include_linked_runs=True)
        print(verdict, found[0].content, memory.notes(agent_id="ari", case_id="c")["lessons"])
    create_handoff_tool(agent_name="billing", description="Go", package=Refund)


async def build_async(config: RunnableConfig) -> None:
    """Use the async twins."""
    model = ScriptedChatModel([[call("pay", order_id="A", amount=1.0), "text"], "done"], agent="billing")
    graph = create_handoff_graph([Agent(name="b", description="B", model=model)], default_active_agent="b").compile()
    await graph.ainvoke({"messages": "hi"}, config)
    async with aconnect("cases.db") as storage:
        memory = CaseMemory(storage.store)
        handoff = await memory.ahandoff(case_id="c", from_agent="a", to_agent="b", requested_action="review", content="x")
        waiting: list[Entry] = await memory.areceive_handoffs(agent_id="b")
        await memory.afeedback(handoff_id=handoff, from_agent="b", verdict="approve")
        verdict: str | None = await memory.aawait_verdict(handoff_id=handoff)
        print(waiting, verdict, await memory.arecall(case_id="c", limit=5))
    await adecide(graph, config, "edit", by="ana", args={"order_id": "B"})
