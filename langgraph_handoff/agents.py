"""Who is there: agents, the edges between them, people, and the catalogue that holds them to their word.

`Catalog` is built once, when the graph is built. It resolves names, finds out who may hand to whom and who holds which
tool, and refuses a catalogue that could only fail later, with a user waiting.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from langgraph_handoff.errors import CatalogError
from langgraph_handoff.hooks import check_hook
from langgraph_handoff.package import HandoffPackage, RequestedAction
from langgraph_handoff.plain import unstorable

__all__ = (
    "CLOSE",
    "DECLINE",
    "DESTINATION",
    "ESCALATE",
    "VERDICT",
    "Agent",
    "Catalog",
    "CatalogWarning",
    "Context",
    "Handoff",
    "Human",
    "InputFilter",
    "OnReply",
    "Privilege",
    "Prompt",
    "args_schema",
    "fold",
    "normal_args",
)

OnReply = Literal["keep", "return", "report"]
"""Who owns the case after the receiver has answered: the receiver, the sender, or the sender who then speaks."""

InputFilter = Callable[[Sequence[AnyMessage]], Sequence[AnyMessage]]
"""Takes the receiver's view and returns the view it shall get."""

Context = Literal["brief", "own", "full"] | Callable[[Mapping[str, Any]], Sequence[AnyMessage]]
"""How much of the talk an agent sees besides its brief."""

Prompt = str | SystemMessage | Callable[[Mapping[str, Any]], str]
"""An agent's instructions, or a function of the state that gives them."""

DESTINATION: Final = "__handoff_destination"
"""Metadata key by which the field knows a handoff tool (langgraph-swarm's name). A tool that has it is an edge."""

CLOSE: Final = "close_case"
DECLINE: Final = "decline_handoff"
VERDICT: Final = "give_verdict"
ESCALATE: Final = "escalate"

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool names that every hosted provider takes (OpenAI and Anthropic publish this pattern)."""

_RESERVED: Final = frozenset({"intake", "tools", "approval", "write", "transfer", "__start__", "__end__"})


class CatalogWarning(UserWarning):
    """Something in the catalogue is allowed but looks like a mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Privilege:
    """What makes a tool a privileged write; see `langgraph_handoff.privileged`."""

    identity: tuple[str, ...] | None = None
    """Arguments that say which write it is; None means all of them."""
    when: Callable[[Mapping[str, Any]], bool] | None = None
    """Says from the arguments whether a person must decide; None means always."""
    allowed_decisions: tuple[str, ...] = ("approve", "edit", "reject")
    description: str | Callable[[Mapping[str, Any]], str] | None = None
    probe: Callable[..., Any] | None = None
    """Finds out whether a write of unknown outcome happened: True or a result, False, or None for "cannot tell"."""
    idempotency_key: str | None = None
    """Name of the tool's parameter that is given the operation's id."""
    approval: str = "human"


@runtime_checkable
class Marked(Protocol):
    """A tool that `langgraph_handoff.privileged` has marked."""

    privilege: Privilege


@dataclass(frozen=True, kw_only=True, slots=True)
class Handoff:
    """An edge: one agent may hand the case to another.

    Attributes:
        to: Name of the destination.
        description: What the sender's model reads about the tool; None takes the destination's own description.
        tool_name: Name of the tool; None means `transfer_to_<agent>`.
        package: Package class of this edge; None takes the destination's.
        requires: Facts that the package or the case file must hold.
        on_reply: Who owns the case after the destination has answered.
        is_enabled: Says from the state whether the tool is offered now.
        input_filter: Has the last word on what the destination sees.
        announce: What the user is told when the case moves, or a function of the package that gives it.
        approval: Whether a person must approve the transfer itself.
        actions: Limits `requested_action`; the first is the default.
    """

    to: str
    description: str | None = None
    tool_name: str | None = None
    package: type[HandoffPackage] | None = None
    requires: tuple[str, ...] = ()
    on_reply: OnReply = "keep"
    is_enabled: Callable[[Mapping[str, Any]], bool] | None = None
    input_filter: InputFilter | None = None
    announce: str | Callable[[HandoffPackage], str] | None = None
    approval: bool = False
    actions: tuple[RequestedAction, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """A specialist that can own a case.

    Attributes:
        name: Unique name; also the name of its node.
        description: What it is for, in a few words; other agents' models choose by it.
        model: Chat model, or "provider:name" with the `models` extra.
        prompt: Its instructions.
        tools: What it may call. Functions become tools; `privileged(...)` marks a write that a person approves.
        handoffs: Destinations, as names or as `Handoff`.
        requires: Facts that any package to this agent must bring, else it declines.
        accepts: Given the package, returns a reason against taking it, or None.
        package: Package class that this agent wants.
        context: "own" (its own talk), "brief" (only the package and the user's last words), "full" (everybody's
            words), or a function of the state that gives the messages.
        return_to: Agent that owns the case again after this one has answered, whoever handed it over.
        graph: Any compiled graph with a `messages` channel, instead of model and tools.
    """

    name: str
    description: str
    model: BaseChatModel | str | None = None
    prompt: Prompt = ""
    tools: Sequence[BaseTool | Callable[..., Any]] = ()
    handoffs: Sequence[str | Handoff] = ()
    requires: tuple[str, ...] = ()
    accepts: Callable[[HandoffPackage], str | bool | None] | None = None
    package: type[HandoffPackage] = HandoffPackage
    context: Context = "own"
    return_to: str | None = None
    graph: Runnable[Any, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Human:
    """A person, or a queue of people, who can own a case.

    Attributes:
        name: Unique name; also the name of the node.
        description: What these people are for.
        queue: Which queue they read.
    """

    description: str
    name: str = "human"
    queue: str = "default"


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everybody who can own a case, and who may do what. Built by `Catalog.build`."""

    agents: Mapping[str, Agent]
    people: Mapping[str, Human]
    edges: Mapping[str, Mapping[str, Handoff]]
    """Agent → tool name → edge."""
    tools: Mapping[str, Mapping[str, BaseTool]]
    """Agent → tool name → tool."""
    privileges: Mapping[str, Privilege]
    """Tool name → privilege. A tool that is privileged anywhere is privileged wherever it is held."""
    default: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Former name → present name, for cases whose owner was renamed."""

    @classmethod
    def build(
        cls,
        agents: Sequence[Agent | Human],
        *,
        default: str,
        aliases: Mapping[str, str] | None = None,
    ) -> Catalog:
        """Resolve and check a catalogue.

        Raises:
            CatalogError: If anything in it could only fail later; the text names the culprit and the remedy.
        """
        for each in agents:
            if not isinstance(each, Agent | Human):
                raise CatalogError(problem=f"{each!r} is neither an Agent nor a Human")
        names = [each.name for each in agents]
        _check_names(names)
        for each in agents:
            if not (each.description or "").strip():
                raise CatalogError(problem=f"'{each.name}' has no description, and others choose by it")
        specialists = {each.name: each for each in agents if isinstance(each, Agent)}
        people = {each.name: each for each in agents if isinstance(each, Human)}
        aliases = dict(aliases or {})
        for who, target in {"default_active_agent": default, **aliases}.items():
            if target not in names:
                raise CatalogError(problem=f"{who} names '{target}', which is not among {sorted(names)}")
        tools = {name: _named_tools(agent) for name, agent in specialists.items()}
        edges = {name: _edges(agent, {**specialists, **people}) for name, agent in specialists.items()}
        for name, agent in specialists.items():
            _check_agent(agent, tools[name], edges[name], names)
        privileges = _privileges(tools)
        for agent in specialists.values():
            _check_inside(agent, privileges)
        _check_package_types([*specialists.values()], edges)
        return cls(specialists, people, edges, tools, privileges, default, aliases)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all owners, agents first."""
        return (*self.agents, *self.people)

    @property
    def asks_people(self) -> bool:
        """Whether a run may have to wait for a person."""
        edges = chain.from_iterable(named.values() for named in self.edges.values())
        return bool(self.privileges or self.people or any(edge.approval for edge in edges))

    @property
    def packages(self) -> tuple[type[HandoffPackage], ...]:
        """Every package class that is declared somewhere."""
        found = [agent.package for agent in self.agents.values()]
        found += [edge.package for edges in self.edges.values() for edge in edges.values() if edge.package]
        return tuple(dict.fromkeys([HandoffPackage, *found]))

    def package_of(self, edge: Handoff) -> type[HandoffPackage]:
        """Return the package class that travels over `edge`."""
        target = self.agents.get(edge.to)
        return edge.package or (target.package if target else HandoffPackage)

    def edge_of(self, source: str, target: str, tool: str = "") -> Handoff | None:
        """Return the edge from `source` to `target` that `tool` goes over, or the first of them when that is not known."""
        edges = self.edges.get(source, {})
        named = edges.get(tool)
        if named is not None and named.to == target:
            return named
        return next((edge for edge in edges.values() if edge.to == target), None)

    def owner(self, name: Any) -> str | None:
        """Return the present name of an owner, following aliases; None if there is no such owner any more, or it is no name."""
        if not isinstance(name, str):
            return None
        name = self.aliases.get(name, name)
        return name if name in self.agents or name in self.people else None


def fold(name: str) -> str:
    """Return `name` as it appears in a tool name: ASCII, lower case, underscores."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", ascii_name.lower()).strip("_")


def _check_names(names: Collection[str]) -> None:
    if not names:
        raise CatalogError(problem="it is empty")
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise CatalogError(problem=f"the name {name!r} is not a text")
        folded = fold(name)
        if not folded or not _TOOL_NAME.fullmatch(f"transfer_back_to_{folded}"):
            raise CatalogError(problem=f"the agent name {name!r} gives no tool name that providers accept")
        if folded in seen:
            raise CatalogError(problem=f"'{seen[folded]}' and '{name}' fold to the same tool name 'transfer_to_{folded}'")
        if name in _RESERVED or not _is_node_name(name):
            raise CatalogError(problem=f"the agent name {name!r} is taken by the graph or holds ':', '|' or a control sign")
        seen[folded] = name


def _is_node_name(name: str) -> bool:
    return name.isprintable() and not set(name) & {":", "|"}


def _named_tools(agent: Agent) -> dict[str, BaseTool]:
    named: dict[str, BaseTool] = {}
    for given in agent.tools:
        if not isinstance(given, BaseTool) and not callable(given):
            raise CatalogError(problem=f"'{agent.name}' is given {given!r} as a tool; give a function or a tool")
        try:
            made = given if isinstance(given, BaseTool) else as_tool(given)
        except ValueError as error:
            raise CatalogError(problem=f"'{agent.name}' is given a tool that cannot be described: {error}") from None
        if DESTINATION in (made.metadata or {}):
            continue  # it is an edge, see `_edges`
        if not _TOOL_NAME.fullmatch(made.name):
            raise CatalogError(problem=f"'{agent.name}' holds the tool {made.name!r}, a name that no provider accepts")
        if made.name in named:
            raise CatalogError(problem=f"'{agent.name}' holds two tools called '{made.name}'")
        if not made.description.strip():
            raise CatalogError(problem=f"the tool '{made.name}' of '{agent.name}' has no description")
        named[made.name] = made
    return named


def _edges(agent: Agent, owners: Mapping[str, Agent | Human]) -> dict[str, Handoff]:
    edges: dict[str, Handoff] = {}
    if isinstance(agent.handoffs, str):
        raise CatalogError(problem=f"handoffs={agent.handoffs!r} of '{agent.name}' is one text; give a list")
    for given in (*agent.handoffs, *_handoff_tools(agent)):
        if not isinstance(given, str | Handoff):
            raise CatalogError(problem=f"'{agent.name}' hands off to {given!r}; give a name or a Handoff")
        edge = given if isinstance(given, Handoff) else Handoff(to=given)
        if edge.to not in owners:
            raise CatalogError(problem=f"'{agent.name}' hands off to '{edge.to}', which is not among {sorted(owners)}")
        if edge.to == agent.name:
            raise CatalogError(problem=f"'{agent.name}' hands off to itself")
        name = edge.tool_name or f"transfer_to_{fold(edge.to)}"
        if not _TOOL_NAME.fullmatch(name):
            raise CatalogError(problem=f"'{agent.name}' has the handoff tool {name!r}, a name that no provider accepts")
        if name in edges:
            raise CatalogError(problem=f"'{agent.name}' has two handoffs called '{name}'")
        if edge.on_reply not in ("keep", "return", "report"):
            raise CatalogError(problem=f"on_reply={edge.on_reply!r} of '{agent.name}' is not keep, return or report")
        if not set(edge.actions) <= set(get_args(RequestedAction)):
            raise CatalogError(problem=f"actions={edge.actions!r} of '{agent.name}'; choose among {get_args(RequestedAction)}")
        _check_requires(edge.requires, agent.name)
        check_hook(f"`is_enabled` of '{agent.name}' for '{edge.to}'", edge.is_enabled)
        check_hook(f"`input_filter` of '{agent.name}' for '{edge.to}'", edge.input_filter)
        check_hook(f"`announce` of '{agent.name}' for '{edge.to}'", None if isinstance(edge.announce, str) else edge.announce)
        edges[name] = edge
    return edges


def _handoff_tools(agent: Agent) -> list[Handoff]:
    """Return the edges that are declared by handoff tools among the agent's tools, as langgraph-swarm's users write them."""
    marked = [each for each in agent.tools if isinstance(each, BaseTool) and DESTINATION in (each.metadata or {})]
    return [Handoff(to=(each.metadata or {})[DESTINATION], tool_name=each.name, description=each.description) for each in marked]


def _check_agent(agent: Agent, tools: Mapping[str, BaseTool], edges: Mapping[str, Handoff], names: Collection[str]) -> None:
    if (agent.model is None) == (agent.graph is None):
        raise CatalogError(problem=f"'{agent.name}' needs either a model or a graph, not both and not neither")
    if agent.graph is not None and not isinstance(agent.graph, Runnable):
        raise CatalogError(problem=f"the graph of '{agent.name}' is {type(agent.graph).__name__}; give a compiled graph")
    if agent.graph is not None and tools:
        own = f"'{agent.name}' is a graph of its own and cannot be given the tool '{next(iter(tools))}'"
        raise CatalogError(problem=f"{own}; put it into the graph, or make the agent of model and tools")
    if agent.return_to is not None and (agent.return_to not in names or agent.return_to == agent.name):
        raise CatalogError(problem=f"return_to={agent.return_to!r} of '{agent.name}' is not another agent's name")
    if not callable(agent.context) and agent.context not in ("brief", "own", "full"):
        raise CatalogError(problem=f"context={agent.context!r} of '{agent.name}' is not brief, own, full or a function")
    _check_requires(agent.requires, agent.name)
    check_hook(f"`accepts` of '{agent.name}'", agent.accepts)
    check_hook(f"`context` of '{agent.name}'", agent.context if callable(agent.context) else None)
    check_hook(f"`prompt` of '{agent.name}'", None if isinstance(agent.prompt, str | SystemMessage) else agent.prompt)
    fixed = {CLOSE, DECLINE, ESCALATE, VERDICT}
    control = {*fixed, *edges, *(f"transfer_back_to_{fold(name)}" for name in names)}
    taken = sorted({name for name in edges if name in fixed or name.startswith("transfer_back_to_")})
    if taken:
        raise CatalogError(problem=f"the handoff '{taken[0]}' of '{agent.name}' has the name of another control tool")
    clash = sorted(control & tools.keys())
    if clash:
        raise CatalogError(problem=f"the tool '{clash[0]}' of '{agent.name}' has the name of a handoff tool")


def _check_requires(requires: Any, agent: str) -> None:
    if isinstance(requires, str):
        raise CatalogError(problem=f"requires={requires!r} of '{agent}' is one text; give a tuple of names")


def _privileges(tools: Mapping[str, Mapping[str, BaseTool]]) -> dict[str, Privilege]:
    """Return the gate of each privileged tool: one for all who hold it, with mark or without."""
    holders: dict[str, dict[str, BaseTool]] = {}
    for agent, named in tools.items():
        for name, held in named.items():
            holders.setdefault(name, {})[agent] = held
    found: dict[str, Privilege] = {}
    for name, held_by in holders.items():
        marked = {agent: held.privilege for agent, held in held_by.items() if isinstance(held, Marked)}
        if marked:
            found[name] = _one_gate(name, marked, held_by)
    return found


def _one_gate(name: str, marked: Mapping[str, Privilege], held_by: Mapping[str, BaseTool]) -> Privilege:
    """Return the one gate of a tool. Of several rules about who must decide, each that wants a person gets one.

    What names a write must be the same everywhere, since the ledger knows a write by it, whoever asks.
    """
    first, privilege = next(iter(marked.items()))
    for part in ("identity", "allowed_decisions", "idempotency_key"):
        other = next((agent for agent, each in marked.items() if getattr(each, part) != getattr(privilege, part)), None)
        if other is not None:
            once = "mark it once with `privileged` and give both of them that tool"
            raise CatalogError(problem=f"'{first}' and '{other}' hold '{name}' with different {part}; {once}")
    rules = [each.when for each in marked.values()]
    if any(each != rules[0] for each in rules):
        asked = [each for each in rules if each is not None]
        every = len(asked) < len(rules)
        privilege = replace(privilege, when=None if every else lambda args: any(each(args) for each in asked))
    arguments = {agent: set(args_schema(tool).get("properties", ())) for agent, tool in held_by.items()}
    home = next(iter(arguments))
    stranger = next((agent for agent, given in arguments.items() if given != arguments[home]), None)
    if stranger is not None:
        raise CatalogError(
            problem=f"'{home}' and '{stranger}' hold different tools called '{name}', and it is privileged; rename one of them"
        )
    if len(held_by) > 1:
        warnings.warn(
            f"The privileged tool '{name}' is held by {[*held_by]}; all calls are gated, but give a write one home.",
            CatalogWarning,
            stacklevel=6,
        )
    return privilege


def _check_inside(agent: Agent, privileges: Mapping[str, Privilege]) -> None:
    """Refuse a privileged tool inside an agent's own graph, which runs its tools itself and asks nobody."""
    if not isinstance(agent.graph, Pregel):
        return
    graphs = [agent.graph, *(inner for _, inner in agent.graph.get_subgraphs(recurse=True))]
    runners = [node.bound for each in graphs if isinstance(each, Pregel) for node in each.nodes.values()]
    for name, tool in chain.from_iterable(each.tools_by_name.items() for each in runners if isinstance(each, ToolNode)):
        if isinstance(tool, Marked) or name in privileges:
            own = f"the graph of '{agent.name}' runs '{name}' by itself, where no approval reaches it"
            raise CatalogError(
                problem=f"{own}; give the privileged tool to an agent of model and tools, and hand off to that one"
            )


def _check_package_types(agents: Sequence[Agent], edges: Mapping[str, Mapping[str, Handoff]]) -> None:
    declared = [agent.package for agent in agents]
    declared += [edge.package for each in edges.values() for edge in each.values() if edge.package]
    named: dict[str, type[HandoffPackage]] = {}
    for package in declared:
        if not (isinstance(package, type) and issubclass(package, HandoffPackage)):
            raise CatalogError(problem=f"package={package!r} is not a subclass of HandoffPackage")
        if named.setdefault(package.__name__, package) is not package:
            raise CatalogError(problem=f"two package classes are called '{package.__name__}', so a stored one is ambiguous")


def normal_args(tool: BaseTool, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as the tool's schema reads them: checked, converted, defaults filled in, plain JSON.

    Two calls that mean the same write get the same arguments here, however the model or a screen spelled them. Arguments
    that the runtime injects are not among them.

    Raises:
        pydantic.ValidationError: If the schema does not take them. A tool with a bare JSON Schema checks them itself.
    """
    schema = _whole_schema(tool)
    try:
        if isinstance(schema, dict):
            normal = dict(args)
        else:
            adapter = _adapter(schema)
            normal = adapter.dump_python(adapter.validate_python(dict(args)), mode="json")
    except ValidationError:
        raise
    except Exception as error:
        raise _not_valid(tool, f"cannot be read ({type(error).__name__}: {error})") from error
    if problem := unstorable(normal):
        raise _not_valid(tool, problem)
    try:
        json.dumps(normal, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_valid(tool, "is not plain JSON with finite numbers") from error
    return normal


def _not_valid(tool: BaseTool, why: str) -> ValidationError:
    wrong = PydanticCustomError("not_valid", "{why}", {"why": why})
    return ValidationError.from_exception_data(tool.name, [{"type": wrong, "loc": ("arguments",), "input": None}])


@functools.lru_cache(maxsize=1024)
def _adapter(schema: type) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _whole_schema(tool: BaseTool) -> Any:
    """Return the schema with the tool author's own validators; the one that models see is a copy of the fields without them.

    A tool with injected or hidden arguments cannot be checked whole before it runs, so its visible schema has to do.
    """
    visible, whole = tool.tool_call_schema, getattr(tool, "guarded", tool).args_schema
    if isinstance(visible, dict) or not (isinstance(whole, type) and issubclass(whole, BaseModel)):
        return visible
    return whole if whole.model_fields.keys() == getattr(visible, "model_fields", {}).keys() else visible


def args_schema(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON Schema of the arguments that a caller gives; injected ones are not among them."""
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return schema
    return schema.model_json_schema() if issubclass(schema, BaseModel) else schema.schema()  # which the tool keeps
