"""Move a case between agents without losing it: one owner, a typed package, an acceptance, a person before a write."""

from langgraph_handoff.agents import Agent, Handoff, Human
from langgraph_handoff.door import adecide, decide
from langgraph_handoff.graph import add_handoffs, create_handoff_graph
from langgraph_handoff.memory import CaseMemory, Entry
from langgraph_handoff.package import Evidence, HandoffPackage
from langgraph_handoff.routing import FirstMatch, ModelRouter, RuleRouter, UserRouter
from langgraph_handoff.state import HandoffState
from langgraph_handoff.storage import aconnect, connect
from langgraph_handoff.tools import create_handoff_tool, privileged
from langgraph_handoff.trace import ahops, ametrics, hops, metrics
from langgraph_handoff.waiting import apending, pending

__all__ = (
    "Agent",
    "CaseMemory",
    "Entry",
    "Evidence",
    "FirstMatch",
    "Handoff",
    "HandoffPackage",
    "HandoffState",
    "Human",
    "ModelRouter",
    "RuleRouter",
    "UserRouter",
    "aconnect",
    "add_handoffs",
    "adecide",
    "ahops",
    "ametrics",
    "apending",
    "connect",
    "create_handoff_graph",
    "create_handoff_tool",
    "decide",
    "hops",
    "metrics",
    "pending",
    "privileged",
)
