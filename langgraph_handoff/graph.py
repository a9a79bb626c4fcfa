"""The graph: agents become nodes, and the compiled graph gets a front door.

`create_handoff_graph` returns an uncompiled builder, as the host's own prebuilts do; `add_handoffs` puts the same nodes
into a `StateGraph` of your own.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Interrupt, StateSnapshot

from langgraph_handoff.agents import Agent, Catalog, Human
from langgraph_handoff.context import DEFAULT_MAX_TOKENS, Redactor, redact_secrets
from langgraph_handoff.desk import LEDGER_KEY, Desk, Rules
from langgraph_handoff.errors import (
    BudgetError,
    CatalogError,
    CheckpointerMissingError,
    DurabilityError,
    NoOpenRequestError,
    StaleRequestError,
)
from langgraph_handoff.ledger import Ledger, open_ledger
from langgraph_handoff.ledger.beside import ENVIRONMENT, aledger_for, ledger_for
from langgraph_handoff.nodes.approval import approval
from langgraph_handoff.nodes.human import human
from langgraph_handoff.nodes.intake import intake, needs_intake
from langgraph_handoff.nodes.owner import owner
from langgraph_handoff.nodes.tools import tools
from langgraph_handoff.nodes.transfer import transfer
from langgraph_handoff.nodes.write import write
from langgraph_handoff.package import DEFAULT_MAX_BYTES, HandoffPackage
from langgraph_handoff.routing import Router
from langgraph_handoff.state import HandoffChannel, HandoffState, as_messages, unanswered
from langgraph_handoff.steps import Node, Steps
from langgraph_handoff.tools import PrivilegedTool

if TYPE_CHECKING:
    from langgraph_handoff.storage import Storage

__all__ = ("CompiledHandoffGraph", "HandoffGraph", "add_handoffs", "adecide", "create_handoff_graph", "decide")

Builder = TypeVar("Builder", bound=StateGraph[Any, Any, Any, Any])
Answer = Literal["approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"]

_INTERRUPT_ID: Final = re.compile(r"[0-9a-f]{32}")
_LONGEST_THREAD_ID: Final = 512


class HandoffGraph(StateGraph[Any, Any, Any, Any]):
    """A `StateGraph` that compiles with storage and a ledger. Its nodes come from `add_handoffs`."""

    desk: Desk | None = None

    def compile(
        self,
        checkpointer: Any = None,
        *,
        storage: Storage | None = None,
        ledger: Ledger | None = None,
        store: Any = None,
        **kwargs: Any,
    ) -> CompiledHandoffGraph:
        """Compile the graph.

        Args:
            checkpointer: As in the host.
            storage: What `connect` returned: checkpointer, store and ledger in one.
            ledger: The write ledger. Without one, the ledger that belongs to a known checkpointer is taken, or the one
                that HANDOFF_LEDGER_URL names.
            store: As in the host.
            kwargs: The host's other keywords.
        """
        if storage is not None:
            checkpointer = checkpointer if checkpointer is not None else storage.checkpointer
            store = store if store is not None else storage.store
            ledger = ledger if ledger is not None else storage.ledger
        if self.desk is None:
            raise CatalogError(problem="the builder has no agents; call `add_handoffs` on it first")
        compiled = super().compile(checkpointer, store=store, **kwargs)
        return CompiledHandoffGraph(desk=self.desk, ledger=ledger, **compiled.__dict__)


class CompiledHandoffGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph with a front door: every run goes through `stream` or `astream`, which check it first."""

    def __init__(self, *, desk: Desk, ledger: Ledger | None = None, **kwargs: Any) -> None:
        """Take over a compiled graph's attributes; see `HandoffGraph.compile`."""
        super().__init__(**kwargs)
        self.desk = desk
        self.ledger = ledger

    @property
    def catalog(self) -> Catalog:
        """The agents, people and edges of this graph."""
        return self.desk.catalog

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the graph as the host does, behind the front door's checks.

        Raises:
            CheckpointerMissingError: If the graph asks people and has nothing to wait with.
            DurabilityError: If an approved write could be repeated after a crash.
            NoOpenRequestError: If an answer comes and nothing was asked.
            StaleRequestError: If an answer names a request that is not open.
        """
        config = self._checked(config)
        snapshot = self.get_state(config) if self._resumes(input, config) else None
        ledger = self.ledger or self._ledger_by_address() or ledger_for(self.checkpointer)
        prepared, kwargs = self._prepared(input, config, snapshot, kwargs)
        yield from super().stream(prepared, _with_ledger(config, ledger), **kwargs)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Run the graph as the host does, behind the front door's checks; see `stream` for what it raises."""
        config = self._checked(config)
        snapshot = await self.aget_state(config) if self._resumes(input, config) else None
        ledger = self.ledger or self._ledger_by_address() or await aledger_for(self.checkpointer)
        prepared, kwargs = self._prepared(input, config, snapshot, kwargs)
        async for chunk in super().astream(prepared, _with_ledger(config, ledger), **kwargs):
            yield chunk

    def _checked(self, config: RunnableConfig | None) -> RunnableConfig:
        config = cast("RunnableConfig", {**(config or {})})
        configurable = config.get("configurable") or {}
        if _is_nested(configurable):
            return config
        if self.checkpointer is None and self._asks_people() and LEDGER_KEY not in configurable:
            raise CheckpointerMissingError
        thread_id = configurable.get("thread_id")
        if thread_id is not None:
            text = str(thread_id)
            if not text.strip() or len(text) > _LONGEST_THREAD_ID or not text.isprintable():
                raise ValueError(f"thread_id must be 1 to {_LONGEST_THREAD_ID} printable characters, not {text[:40]!r}.")
        return config

    def _asks_people(self) -> bool:
        edges = (edge for named in self.catalog.edges.values() for edge in named.values())
        return bool(self.catalog.privileges or self.catalog.people or any(edge.approval for edge in edges))

    def _resumes(self, input: Any, config: RunnableConfig) -> bool:
        answers = isinstance(input, Command) and input.resume is not None
        return answers and bool(self.checkpointer) and not _is_nested(config.get("configurable") or {})

    def _prepared(
        self, input: Any, config: RunnableConfig, snapshot: StateSnapshot | None, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        prepared = input
        if isinstance(input, Mapping) and input.get("messages") is not None:
            prepared = {**input, "messages": _with_ids(input["messages"])}
        elif snapshot is not None:
            prepared = _bound(input, snapshot.interrupts, str((config.get("configurable") or {}).get("thread_id")))
        durability = kwargs.get("durability")
        if durability == "exit" and self.catalog.privileges:
            raise DurabilityError(durability=durability)
        if isinstance(self.checkpointer, bool) or self.checkpointer is None:
            return prepared, kwargs
        if durability != "exit":
            kwargs = {**kwargs, "durability": "sync"}
        return prepared, kwargs

    def _ledger_by_address(self) -> Ledger | None:
        address = os.environ.get(ENVIRONMENT)
        return _shared_ledger(address) if address else None


@functools.lru_cache
def _shared_ledger(address: str) -> Ledger:
    return open_ledger(address)


def _is_nested(configurable: Mapping[str, Any]) -> bool:
    """A run inside another graph's node has that node's namespace; the outer graph's door was passed already."""
    return bool(configurable.get("checkpoint_ns"))


def _with_ledger(config: RunnableConfig, ledger: Ledger | None) -> RunnableConfig:
    if ledger is None:
        return config
    return {**config, "configurable": {**(config.get("configurable") or {}), LEDGER_KEY: ledger}}


def _with_ids(given: Any) -> Any:
    """Give an id to every message before it is stored: a delta channel replays stored writes and must find the same one."""
    return [each if each.id else each.model_copy(update={"id": str(uuid.uuid4())}) for each in as_messages(given)]


def _bound(command: Command[Any], interrupts: Sequence[Interrupt], thread_id: str) -> Command[Any]:
    """Bind an answer to the question that is open now, so that it can answer no other one.

    Raises:
        NoOpenRequestError: If nothing is asked.
        StaleRequestError: If the answer names another question.
    """
    if not interrupts:
        raise NoOpenRequestError(thread_id=thread_id)
    answer = command.resume
    opened = [each.id for each in interrupts]
    if isinstance(answer, dict) and answer and all(isinstance(key, str) and _INTERRUPT_ID.fullmatch(key) for key in answer):
        stale = [key for key in answer if key not in opened]
        if stale:
            raise StaleRequestError(
                request_id=stale[0], thread_id=thread_id, problem="it was answered or replaced", open=", ".join(opened)
            )
        return command
    if len(interrupts) > 1:
        return command
    return Command(graph=command.graph, update=command.update, goto=command.goto, resume={opened[0]: answer})


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
    catalog = Catalog.build([_resolved(each) for each in agents], default=default_active_agent, aliases=aliases)
    missing = sorted(HandoffState.__annotations__.keys() - builder.channels.keys())
    if missing:
        raise CatalogError(problem=f"the state lacks {', '.join(missing)}; extend HandoffState")
    spare = on_budget if isinstance(on_budget, str) or on_budget is None else on_budget.name
    if spare is not None and catalog.owner(spare) is None:
        raise CatalogError(problem=f"on_budget names '{spare}', which is not among {sorted(catalog.names)}")
    for budget in (max_handoffs, max_case_handoffs):
        if budget is not None and (not isinstance(budget, int) or budget < 1):
            raise BudgetError(problem=f"{budget!r}")
    redactors = (redact_secrets,) if redact is None else (redact,) if callable(redact) else tuple(redact)
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
        **given,
    )
    desk = Desk(catalog, rules, router, ledger)
    builder.channels["handoff"] = HandoffChannel(catalog.packages, "handoff")
    _add_nodes(builder, desk)
    if isinstance(builder, HandoffGraph):
        builder.desk = desk
    return builder


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
    return Agent(**{**fields, "model": init_chat_model(owner_.model)})


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
        add("tools", functools.partial(tools, runners), [*readers, *(["write"] if writers else []), "transfer"])
    if gated:
        after = [*(["tools"] if readers else []), *(["write"] if writers else [])]
        add("approval", functools.partial(approval, desk), ["approval", *after, "transfer", *gated])
    if writers:
        after = ["tools"] if readers else []
        add("write", functools.partial(write, desk, guarded), ["write", "approval", *after, "transfer", *writers])
    back = ["approval"] if any(edge.approval for named in catalog.edges.values() for edge in named.values()) else []
    add("transfer", functools.partial(transfer, desk), [*catalog.names, *back, END])
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
    asking = str((reply.name if reply else None) or state["active_agent"])
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


def decide(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    decision: Answer,
    *,
    by: str,
    request_id: str | None = None,
    args: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> Any:
    """Answer the open request of a case and run on.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
        decision: approve, edit, reject or respond; for an unknown outcome done, did_not_happen or abandon.
        by: Who decides; it is recorded.
        request_id: The request that was looked at. None takes the one that is open.
        args: For an edit, all arguments as they shall run.
        message: The reason, or for respond the answer that the model gets.

    Returns:
        What `invoke` returns.

    Raises:
        NoOpenRequestError: If nothing is asked.
        StaleRequestError: If `request_id` is not the open request.
    """
    command = _decision(graph.get_state(config), config, decision, by, request_id, args, message)
    return graph.invoke(command, config)


async def adecide(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    decision: Answer,
    *,
    by: str,
    request_id: str | None = None,
    args: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> Any:
    """Answer the open request of a case and run on; the async twin of `decide`."""
    command = _decision(await graph.aget_state(config), config, decision, by, request_id, args, message)
    return await graph.ainvoke(command, config)


def _decision(
    snapshot: StateSnapshot,
    config: RunnableConfig,
    decision: Answer,
    by: str,
    request_id: str | None,
    args: Mapping[str, Any] | None,
    message: str | None,
) -> Command[Any]:
    thread_id = str((config.get("configurable") or {}).get("thread_id"))
    asked = [
        (each.id, each.value["handoff"])
        for each in snapshot.interrupts
        if isinstance(each.value, dict) and "handoff" in each.value
    ]
    if not asked:
        raise NoOpenRequestError(thread_id=thread_id)
    opened = ", ".join(shown["request_id"] for _, shown in asked)
    chosen = next((each for each in asked if request_id in (None, each[1]["request_id"])), None)
    if chosen is None:
        raise StaleRequestError(request_id=request_id, thread_id=thread_id, problem="it was answered or replaced", open=opened)
    interrupt_id, shown = chosen
    answer: dict[str, Any] = {"type": decision, "by": by, "request_id": shown["request_id"]}
    if shown.get("digest"):
        answer |= {"digest": shown["digest"], "epoch": shown["epoch"]}
    if args is not None:
        tool = next((each["name"] for each in (snapshot.interrupts[0].value.get("action_requests") or [])), "")
        answer["edited_action"] = {"name": tool, "args": dict(args)}
    if message is not None:
        answer["message"] = message
    return Command(resume={interrupt_id: {"decisions": [answer]}})
