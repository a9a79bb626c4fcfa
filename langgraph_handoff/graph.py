"""The graph: agents become nodes.

`create_handoff_graph` returns an uncompiled builder, as the host's own prebuilts do; `add_handoffs` puts the same nodes
into a `StateGraph` of your own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from langgraph_handoff.agents import Agent, Catalog, Human
from langgraph_handoff.context import DEFAULT_MAX_TOKENS
from langgraph_handoff.desk import Desk, Rules
from langgraph_handoff.door import CompiledHandoffGraph, HandoffGraph
from langgraph_handoff.errors import BudgetError, CatalogError
from langgraph_handoff.hooks import check_hook
from langgraph_handoff.ledger import Ledger
from langgraph_handoff.nodes.approval import approval
from langgraph_handoff.nodes.human import human
from langgraph_handoff.nodes.intake import intake, needs_intake
from langgraph_handoff.nodes.owner import owner
from langgraph_handoff.nodes.tools import tools
from langgraph_handoff.nodes.transfer import transfer
from langgraph_handoff.nodes.write import write
from langgraph_handoff.notebook import recall_tool
from langgraph_handoff.package import DEFAULT_MAX_BYTES, HandoffPackage
from langgraph_handoff.redaction import Redactor, redactors_of
from langgraph_handoff.routing import Router
from langgraph_handoff.state import HandoffChannel, HandoffState, unanswered
from langgraph_handoff.steps import Node, Steps
from langgraph_handoff.tools import PrivilegedTool

__all__ = ("CompiledHandoffGraph", "HandoffGraph", "add_handoffs", "create_handoff_graph")

Builder = TypeVar("Builder", bound=StateGraph[Any, Any, Any, Any])


def create_handoff_graph(
    agents: Sequence[Agent | Human],
    *,
    default_active_agent: str,
    router: Router | Callable[[Mapping[str, Any]], str | None] | None = None,
    max_handoffs: int = 6,
    max_case_handoffs: int | None = None,
    on_budget: str | Human | Agent | None = None,
    state_schema: type[Any] = HandoffState,
    context_schema: type[Any] | None = None,
    redact: Redactor | Sequence[Redactor] | None = None,
    aliases: Mapping[str, str] | None = None,
    on_message: Literal["keep", "supersede"] = "keep",
    request_ttl: float | None = None,
    max_view_tokens: int = DEFAULT_MAX_TOKENS,
    max_package_bytes: int = DEFAULT_MAX_BYTES,
    fallback: str | None = None,
    tenant: str = "",
    on_handoff: Callable[[HandoffPackage], object] | None = None,
    memory: bool = False,
) -> HandoffGraph:
    """Build a graph in which a case has one owner at a time.

    Args:
        agents: Everybody who can own a case.
        default_active_agent: Who owns a new case when no router says otherwise.
        router: Chooses the first owner: a `Router`, or a function of the state that returns a name.
        max_handoffs: Handoffs in one turn of the user. At the limit the owner keeps the case and answers.
        max_case_handoffs: Handoffs in a case, over all turns and restarts. None means 100 times `max_handoffs`.
        on_budget: Owner who takes the case at the limit instead.
        state_schema: `HandoffState` or a class that extends it.
        context_schema: As in the host.
        redact: Functions that every text of a package passes, instead of the default that takes out keys, tokens and card
            numbers. An empty sequence turns redaction off.
        aliases: Former name → present name of agents that were renamed.
        on_message: What a user's message does to an open request: "keep" asks again with the new words in it,
            "supersede" closes it.
        request_ttl: Seconds that a request for approval stays open. None means for ever.
        max_view_tokens: Largest size of what a model is shown, in tokens.
        max_package_bytes: Largest size of a package, in bytes.
        fallback: What the user reads when a model gives no answer.
        tenant: Whose cases these are, when several share one ledger.
        on_handoff: Called when a handoff is accepted, with its package. It may be called again after a crash.
        memory: Whether the graph's store keeps a case memory: what was asked of whom, verdicts, tool results, lessons. Agents
            then read what concerns them in their brief, and hold `recall_case`.

    Returns:
        An uncompiled builder.

    Raises:
        CatalogError: If the agents could only fail later.
        BudgetError: If a budget is not a positive whole number.
    """
    builder = HandoffGraph(state_schema, context_schema=context_schema)
    return add_handoffs(
        builder,
        agents,
        default_active_agent=default_active_agent,
        router=router,
        max_handoffs=max_handoffs,
        max_case_handoffs=max_case_handoffs,
        on_budget=on_budget,
        redact=redact,
        aliases=aliases,
        on_message=on_message,
        request_ttl=request_ttl,
        max_view_tokens=max_view_tokens,
        max_package_bytes=max_package_bytes,
        fallback=fallback,
        tenant=tenant,
        on_handoff=on_handoff,
        memory=memory,
    )


def add_handoffs(
    builder: Builder,
    agents: Sequence[Agent | Human],
    *,
    default_active_agent: str,
    router: Router | Callable[[Mapping[str, Any]], str | None] | None = None,
    max_handoffs: int = 6,
    max_case_handoffs: int | None = None,
    on_budget: str | Human | Agent | None = None,
    redact: Redactor | Sequence[Redactor] | None = None,
    aliases: Mapping[str, str] | None = None,
    on_message: Literal["keep", "supersede"] = "keep",
    request_ttl: float | None = None,
    max_view_tokens: int = DEFAULT_MAX_TOKENS,
    max_package_bytes: int = DEFAULT_MAX_BYTES,
    fallback: str | None = None,
    tenant: str = "",
    on_handoff: Callable[[HandoffPackage], object] | None = None,
    memory: bool = False,
    ledger: Ledger | None = None,
) -> Builder:
    """Add the same nodes and edges to a `StateGraph` of your own, whose state extends `HandoffState`.

    An edge from START is added unless the builder has one; let your own nodes lead to `intake` then. A builder that is a
    `HandoffGraph` compiles with a front door and finds its ledger; give `ledger` to a plain `StateGraph`.

    Args:
        builder: The builder.
        agents: As in `create_handoff_graph`, like all the other arguments.
        ledger: The write ledger, for a plain `StateGraph`.

    Returns:
        The builder.

    Raises:
        CatalogError: If the agents could only fail later, or the state does not extend `HandoffState`.
        BudgetError: If a budget is not a positive whole number.
    """
    resolved = [_resolved(each) for each in agents]
    catalog = Catalog.build(
        [_recalling(each) for each in resolved] if memory else resolved, default=default_active_agent, aliases=aliases
    )
    missing = sorted(HandoffState.__annotations__.keys() - builder.channels.keys())
    if missing:
        raise CatalogError(problem=f"the state lacks {', '.join(missing)}; extend HandoffState")
    spare = on_budget if isinstance(on_budget, str) or on_budget is None else on_budget.name
    if spare is not None and catalog.owner(spare) is None:
        raise CatalogError(problem=f"on_budget names '{spare}', which is not among {sorted(catalog.names)}")
    for budget in (max_handoffs, max_case_handoffs):
        if budget is not None and (not isinstance(budget, int) or budget < 1):
            raise BudgetError(problem=f"{budget!r}")
    if on_message not in ("keep", "supersede"):
        raise CatalogError(problem=f"on_message={on_message!r} is not keep or supersede")
    if request_ttl is not None and (
        isinstance(request_ttl, bool) or not isinstance(request_ttl, int | float) or not request_ttl > 0
    ):
        raise CatalogError(problem=f"request_ttl={request_ttl!r} is not a number of seconds above 0")
    check_hook("`router`", None if isinstance(router, Router) else router)
    check_hook("`on_handoff`", on_handoff)
    redactors = redactors_of(redact)
    for each in redactors:
        check_hook("`redact`", each)
    given: dict[str, Any] = {} if fallback is None else {"fallback": fallback}
    rules = Rules(
        max_handoffs=max_handoffs,
        max_case_handoffs=max_case_handoffs or 100 * max_handoffs,
        max_model_calls=max(100, 10 * max_handoffs),
        on_budget=spare,
        max_view_tokens=max_view_tokens,
        max_package_bytes=max_package_bytes,
        on_message=on_message,
        request_ttl=request_ttl,
        redactors=redactors,
        tenant=tenant,
        on_handoff=on_handoff,
        memory=memory,
        **given,
    )
    desk = Desk(catalog, rules, router, ledger)
    builder.channels["handoff"] = HandoffChannel(catalog.packages, "handoff")
    _add_nodes(builder, desk)
    if isinstance(builder, HandoffGraph):
        builder.desk = desk
    return builder


def _recalling(owner_: Agent | Human) -> Agent | Human:
    """Give an agent the tool that looks into the case memory; one that is a graph of its own has its own tools."""
    if not isinstance(owner_, Agent) or owner_.graph is not None:
        return owner_
    return dataclasses.replace(owner_, tools=(*owner_.tools, recall_tool()))


def _resolved(owner_: Agent | Human) -> Agent | Human:
    """Replace a model's name by the model, at build time."""
    if not isinstance(owner_, Agent) or owner_.model is None or isinstance(owner_.model, BaseChatModel):
        return owner_
    if not isinstance(owner_.model, str):
        raise CatalogError(problem=f"the model of '{owner_.name}' is {type(owner_.model).__name__}, not a chat model or a name")
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415 (the `models` extra)
    except ImportError:
        hint = f"'{owner_.name}' has the model {owner_.model!r}; names need `pip install langgraph-handoff[models]`"
        raise CatalogError(problem=hint) from None
    fields = {name: getattr(owner_, name) for name in owner_.__dataclass_fields__}
    try:
        return Agent(**{**fields, "model": init_chat_model(owner_.model)})
    except ImportError as error:
        raise CatalogError(problem=f"'{owner_.name}' has the model {owner_.model!r}: {error}") from None


def _add_nodes(builder: StateGraph[Any, Any, Any, Any], desk: Desk) -> None:
    """Add a node for each file under `nodes/`, with exactly the edges that it can take."""
    catalog = desk.catalog
    reads = {name: [each for each in held if each not in catalog.privileges] for name, held in catalog.tools.items()}
    writes = {name: [each for each in held if each in catalog.privileges] for name, held in catalog.tools.items()}
    gates = {
        name: any(desk.gated(name, each) for each in (*catalog.tools[name], *catalog.edges[name])) for name in catalog.agents
    }
    readers = [name for name in catalog.agents if reads[name]]
    writers = [name for name in catalog.agents if writes[name]]
    gated = [name for name in catalog.agents if gates[name]]
    runners = {name: ToolNode([catalog.tools[name][each] for each in reads[name]], handle_tool_errors=True) for name in readers}
    guarded = {
        name: ToolNode([_guarded(catalog.tools[name][each]) for each in writes[name]], handle_tool_errors=False)
        for name in writers
    }

    def add(name: str, steps: Callable[[Any, RunnableConfig], Steps], destinations: Sequence[str]) -> None:
        builder.add_node(name, Node(name, steps), destinations=tuple(dict.fromkeys(destinations)))

    owned_start = any(source == START for source, _ in builder.edges) or START in builder.branches
    middle = [*(["approval"] if gated else []), *catalog.names] if owned_start else [*catalog.names]
    add("intake", _entrance(desk) if owned_start else functools.partial(intake, desk), middle)
    for name, agent in catalog.agents.items():
        to = [*(["tools"] if reads[name] else []), *(["approval"] if gates[name] else []), "transfer", END]
        add(name, functools.partial(owner, desk, agent), to)
    for name, person in catalog.people.items():
        others = [each for each in catalog.names if each != name]
        add(name, functools.partial(human, desk, person), [name, *others, "transfer", END])
    if readers:
        add("tools", functools.partial(tools, desk, runners), [*readers, *(["write"] if writers else []), "transfer", "intake"])
    if gated:
        after = [*(["tools"] if readers else []), *(["write"] if writers else [])]
        add("approval", functools.partial(approval, desk), ["approval", *after, "transfer", *gated, "intake"])
    if writers:
        after = ["tools"] if readers else []
        add("write", functools.partial(write, desk, guarded), ["write", "approval", *after, "transfer", *writers, "intake"])
    back = ["approval"] if any(edge.approval for named in catalog.edges.values() for edge in named.values()) else []
    add("transfer", functools.partial(transfer, desk), [*catalog.names, *back, "intake", END])
    if not owned_start:
        choices = ["intake", *(["approval"] if gated else []), *catalog.names]
        builder.add_conditional_edges(START, Node("entry", functools.partial(_entry, desk)), choices)


def _guarded(tool: Any) -> Any:
    return tool.guarded if isinstance(tool, PrivilegedTool) else tool


def _where(desk: Desk, state: Mapping[str, Any]) -> str:
    """Return who goes first: intake without an owner, approval with a request open, else the owner."""
    if needs_intake(desk, state):
        return "intake"
    reply, open_ids = unanswered(state.get("messages") or [])
    asking = desk.author(reply, state) or ""
    if reply and any(call["id"] in open_ids and desk.gated(asking, call["name"]) for call in reply.tool_calls):
        return "approval"
    return str(state["active_agent"])


def _entry(desk: Desk, state: Mapping[str, Any], _config: RunnableConfig) -> Steps:
    yield from ()
    return _where(desk, state)


def _entrance(desk: Desk) -> Callable[[Any, RunnableConfig], Steps]:
    """Return the intake of a graph whose user decides what happens first: with an owner it only leads on."""

    def steps(state: Mapping[str, Any], config: RunnableConfig) -> Steps:
        where = _where(desk, state)
        if where != "intake":
            return Command(goto=where)
        return (yield from intake(desk, state, config))

    return steps
