"""What all nodes share: the catalogue, the house rules, and what an owner holds at this moment.

A `Desk` is made once, when the graph is built, and never changes afterwards. Nodes are functions of a desk and a state.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.config import get_store, get_stream_writer
from langgraph.store.base import BaseStore
from langgraph.types import Send

from langgraph_handoff.agents import CLOSE, DECLINE, ESCALATE, VERDICT, Catalog, fold
from langgraph_handoff.context import DEFAULT_MAX_TOKENS, own_visit
from langgraph_handoff.errors import LedgerMissingError, MemoryStoreError
from langgraph_handoff.ledger import Ledger
from langgraph_handoff.memory import CaseMemory
from langgraph_handoff.package import ASKS_FOR_VERDICT, DEFAULT_MAX_BYTES, HandoffPackage
from langgraph_handoff.redaction import Redactor, redact_secrets
from langgraph_handoff.routing import Router
from langgraph_handoff.state import Event, Ownership, as_messages, is_user, ownership_of
from langgraph_handoff.tools import close_tool, decline_tool, escalate_tool, return_tool, transfer_tool, verdict_tool
from langgraph_handoff.turn import REFUSED, Held, Kind, is_spent, next_work

__all__ = ("LEDGER_KEY", "Desk", "Rules", "case_id_of", "memory_over", "tell", "timestamp", "user_messages")

LEDGER_KEY: Final = "__handoff_ledger"
"""Key in `config["configurable"]` by which the compiled graph hands its ledger to the nodes. It begins with two underscores
so that the host keeps it out of stored metadata."""

_FALLBACK: Final = "I could not settle this yet. Please tell me more about it, or ask for a person."


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The house rules of a graph."""

    max_handoffs: int = 6
    """Handoffs in one turn of the user."""
    max_case_handoffs: int = 600
    """Handoffs in a case, over all turns and restarts."""
    on_budget: str | None = None
    """Owner who takes a case whose budget is used up."""
    max_model_calls: int = 100
    """Model calls in one turn of the user; a guard, not a goal."""
    max_refusals: int = 3
    """Replies in a row of which nothing could be carried out, before the turn is ended with `fallback`."""
    max_view_tokens: int = DEFAULT_MAX_TOKENS
    max_package_bytes: int = DEFAULT_MAX_BYTES
    fallback: str = _FALLBACK
    """What the user reads when a model gives no answer."""
    on_message: Literal["keep", "supersede"] = "keep"
    """What a user's message does to an open request."""
    request_ttl: float | None = None
    """Seconds that a request stays open; None means for ever."""
    redactors: tuple[Redactor, ...] = (redact_secrets,)
    tenant: str = ""
    """Whose cases these are, when several share one ledger."""
    on_handoff: Callable[[HandoffPackage], object] | None = None
    """Called once a handoff is accepted, with its package."""
    memory: bool = False
    """Whether handoffs, verdicts and tool results are kept in the graph's store, and shown to those whom they concern."""


@dataclass(frozen=True)
class Desk:
    """What nodes share."""

    catalog: Catalog
    rules: Rules
    router: Router | Callable[[Mapping[str, Any]], str | None] | None = None
    ledger: Ledger | None = None
    _bound: dict[tuple[str, ...], Runnable[LanguageModelInput, BaseMessage]] = field(default_factory=dict, repr=False)
    _kinds: dict[str, Mapping[str, Kind]] = field(default_factory=dict, repr=False)
    _transfers: dict[tuple[str, str], BaseTool] = field(default_factory=dict, repr=False)
    _memories: dict[int, CaseMemory] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Make once, while the graph is built, what would cost time in every turn."""
        catalog = self.catalog
        common: dict[str, Kind] = {CLOSE: "close", DECLINE: "decline", ESCALATE: "escalate", VERDICT: "verdict"}
        common |= {f"transfer_back_to_{fold(name)}": "return" for name in catalog.names}
        for agent in catalog.agents:
            own: dict[str, Kind] = {name: "write" if name in catalog.privileges else "read" for name in catalog.tools[agent]}
            self._kinds[agent] = {**common, **dict.fromkeys(catalog.edges[agent], "transfer"), **own}
            for name, edge in catalog.edges[agent].items():
                self._transfers[agent, name] = transfer_tool(name, edge, catalog)

    def kinds(self, agent: str) -> Mapping[str, Kind]:
        """Return what each tool is that the agent may ever hold."""
        return self._kinds.get(agent, {})

    def author(self, reply: AIMessage | None, state: Mapping[str, Any]) -> str | None:
        """Return who stands for a reply, under its present name: its agent, else the owner; None if both are gone."""
        return self.catalog.owner(reply.name if reply else None) or self.catalog.owner(state.get("active_agent"))

    def holds(self, agent: str, state: Mapping[str, Any]) -> dict[str, Held]:
        """Return what the agent holds now: its own tools, and the control tools that make sense at this moment."""
        catalog = self.catalog
        kinds = self.kinds(agent)
        held = {name: Held(kinds[name], tool, asks=kinds[name] == "write") for name, tool in catalog.tools[agent].items()}
        spent = self.budget_spent(agent, state)
        for name, edge in catalog.edges[agent].items():
            off = "" if edge.is_enabled is None or edge.is_enabled(state) else f"{name} is not available now."
            held[name] = Held("transfer", self._transfers[agent, name], off or spent, asks=edge.approval)
        back = self.return_target(agent, state)
        if back and self.verdict_asked(agent, state) is not None:
            held[VERDICT] = Held("verdict", verdict_tool())
        elif back:
            tool = return_tool(back)
            held[tool.name] = Held("return", tool)
        if self.may_decline(agent, state):
            held[DECLINE] = Held("decline", decline_tool())
        if catalog.people:
            held[ESCALATE] = Held("escalate", escalate_tool(next(iter(catalog.people))), spent)
        held[CLOSE] = Held("close", close_tool())
        return held

    def model(self, agent: str, held: Mapping[str, Held]) -> Runnable[LanguageModelInput, BaseMessage]:
        """Return the agent's model with the tools that are offered now, bound once for each set of them."""
        model = self.catalog.agents[agent].model
        if not isinstance(model, BaseChatModel):
            raise TypeError(f"The model of '{agent}' was not resolved when the graph was built.")
        offered = {name: each.tool for name, each in held.items() if not each.withheld}
        if not offered:
            return model
        key = (agent, *sorted(offered))
        if key not in self._bound:
            self._bound[key] = model.bind_tools(list(offered.values()))
        return self._bound[key]

    def memory(self) -> CaseMemory | None:
        """Return the case memory in the store of this run; None when the graph keeps none.

        Raises:
            MemoryStoreError: If it should keep one and has no store.
        """
        if not self.rules.memory:
            return None
        store = get_store()
        known = self._memories.get(id(store))  # a memory holds its store, so the id stays its own
        return known or self._memories.setdefault(id(store), memory_over(store, self.rules.redactors))

    def budget_spent(self, agent: str, state: Mapping[str, Any]) -> str:
        """Return what to tell an owner whose budget of handoffs is used up; empty while it is not."""
        rules, stored = self.rules, state.get("ownership") or {}
        if rules.on_budget and rules.on_budget != agent:
            return ""  # the next transfer goes to the owner who takes such cases
        if stored.get("turn_hops", 0) < rules.max_handoffs and stored.get("hop", 0) < rules.max_case_handoffs:
            return ""
        ownership = ownership_of(state)  # a new turn has a fresh budget
        if ownership.get("turn_hops", 0) >= rules.max_handoffs:
            return f"All {rules.max_handoffs} handoffs of this turn are used. You keep the case: answer the user now."
        if ownership.get("hop", 0) >= rules.max_case_handoffs:
            return f"All {rules.max_case_handoffs} handoffs of this case are used. You keep the case: answer the user now."
        return ""

    def return_target(self, agent: str, state: Mapping[str, Any]) -> str | None:
        """Return who gets the case back from this owner, if it was lent."""
        stack = (state.get("ownership") or {}).get("stack") or []
        target = self.catalog.owner(stack[-1]["agent"]) if stack else None
        return target if target != agent else None

    def verdict_asked(self, agent: str, state: Mapping[str, Any]) -> HandoffPackage | None:
        """Return the package by which this owner is asked for a verdict, while the case waits to go back with it."""
        package = state.get("handoff")
        if not isinstance(package, HandoffPackage) or package.to_agent != agent:
            return None
        lent = self.return_target(agent, state) == self.catalog.owner(package.from_agent)
        return package if lent and package.requested_action in ASKS_FOR_VERDICT else None

    def errand(self, agent: str, ownership: Ownership) -> ToolCall | None:
        """Return the owner's next call to lend the case: one that it made in this turn beside one that was carried out first."""
        for item in ownership.get("queue") or []:
            edge = self.catalog.edges.get(agent, {}).get(item.get("tool", ""))
            if edge is None or self.catalog.owner(item["from"]) != agent or item.get("turn") != ownership.get("turn"):
                continue
            target = self.catalog.agents.get(edge.to)
            if edge.on_reply != "keep" or (target is not None and target.return_to == agent):
                call_id = f"errand_{ownership.get('epoch', 0)}"
                return ToolCall(name=item["tool"], args=item["content"], id=call_id, type="tool_call")
        return None

    def may_decline(self, agent: str, state: Mapping[str, Any]) -> bool:
        """Return whether the owner was just given the case and has not done anything yet."""
        package = state.get("handoff")
        if not isinstance(package, HandoffPackage) or package.to_agent != agent:
            return False
        if package.from_agent not in self.catalog.agents or package.from_agent == agent:
            return False
        if (state.get("ownership") or {}).get("how") == "decline":
            return False  # a declined case is not declined back
        return not any(isinstance(message, AIMessage) for message in own_visit(agent, state.get("messages") or []))

    def gated(self, agent: str, call_name: str) -> bool:
        """Return whether a call of this tool needs a decision before the turn's work begins."""
        edge = self.catalog.edges.get(agent, {}).get(call_name)
        return call_name in self.catalog.privileges or (edge is not None and edge.approval)

    def dispatch(self, reply: AIMessage, open_ids: Sequence[str], agent: str) -> str | list[Send]:
        """Return where to go for the next work of a stored reply: a node, or one task for each read of a group."""
        kinds = self.kinds(agent)
        work = next_work(reply, open_ids, kinds)
        if work is None:
            return agent
        if work.kind == "write":
            return "write"
        if work.kind != "read":
            return "transfer"
        then = next_work(reply, open_ids, kinds, after=work.calls)
        after = agent if then is None else "write" if then.kind == "write" else "transfer"
        return [Send("tools", {"call": call, "agent": agent, "then": after}) for call in work.calls]

    def strikes(self, agent: str, messages: Sequence[BaseMessage]) -> int:
        """Return how many replies in a row of this owner came to nothing: each call was refused, or a handoff that is used up."""
        count, refused = 0, True
        results: list[ToolMessage] = []
        for message in reversed(messages):
            if isinstance(message, ToolMessage):
                results.append(message)
            elif isinstance(message, AIMessage) and message.name == agent and message.tool_calls and results:
                refused = all(each.additional_kwargs.get(REFUSED) for each in results) or any(map(is_spent, results))
                if not refused:
                    break
                count += 1
                results = []
            elif is_user(message) or isinstance(message, AIMessage):
                break
        return count

    def ledger_of(self, config: RunnableConfig, tool: str) -> Ledger:
        """Return the ledger of this run.

        Raises:
            LedgerMissingError: If there is none; a privileged write is then refused.
        """
        ledger = (config.get("configurable") or {}).get(LEDGER_KEY) or self.ledger
        if not isinstance(ledger, Ledger):
            raise LedgerMissingError(tool=tool, location="-", problem="there is none")
        return ledger


def memory_over(store: BaseStore | None, redact: Sequence[Redactor] | None = None) -> CaseMemory:
    """Return the case memory in a store.

    Raises:
        MemoryStoreError: If there is no store.
    """
    if store is None:
        raise MemoryStoreError(problem="this graph has none; compile with `storage=connect(...)` or `store=...`")
    return CaseMemory(store, redact=redact)


def case_id_of(state: Mapping[str, Any], config: RunnableConfig) -> str:
    """Return the id of the case: from the case file, else from the config, else the thread's."""
    configurable = config.get("configurable") or {}
    known = (state.get("case") or {}).get("case_id") or configurable.get("case_id") or configurable.get("thread_id")
    return str(known or "case")


def user_messages(given: Sequence[Any]) -> list[AnyMessage]:
    """Return a user's words, in whatever form a client sent them, as messages to keep; what is no message says nothing."""
    kept: list[AnyMessage] = []
    for each in given:
        try:
            said = as_messages(each)
        except Exception:  # noqa: BLE001 (a client may send anything)
            said = []
        kept += [HumanMessage(message.content, id=message.id) for message in said if isinstance(message, HumanMessage)]
    return kept


def timestamp() -> str:
    """Return the present time as ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def tell(happened: Sequence[Event]) -> list[Event]:
    """Put events on the `custom` stream as `handoff.<kind>` and return them for the log."""
    writer = get_stream_writer()
    for each in happened:
        writer({"type": f"handoff.{each['kind']}", **each})
    return list(happened)
