"""What agents hold besides their own tools: handing on, giving back, closing, escalating, declining; and `privileged`.

A control tool is never run. Its schema is what the model fills in; the nodes act on the call. That is why an owner can
be moved in one place only, and why a handoff cannot lose the calls that stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as as_tool
from langgraph.prebuilt import InjectedState
from pydantic import BaseModel, ConfigDict, Field, create_model

from langgraph_handoff.agents import (
    CLOSE,
    DECLINE,
    DESTINATION,
    ESCALATE,
    VERDICT,
    Catalog,
    Handoff,
    Privilege,
    args_schema,
    fold,
)
from langgraph_handoff.errors import CatalogError
from langgraph_handoff.hooks import check_hook
from langgraph_handoff.package import HandoffPackage, Verdict

__all__ = (
    "NOT_ALONE",
    "REQUEST",
    "PrivilegedTool",
    "close_tool",
    "create_handoff_tool",
    "decline_tool",
    "escalate_tool",
    "privileged",
    "return_tool",
    "transfer_tool",
    "verdict_tool",
)

REQUEST: Final = "handoff_request"
"""Key in a result's artifact that says that an agent in a graph of its own asks for a handoff."""

NOT_ALONE: Final = "handoff_not_alone"
"""Key in a result's artifact that says that such a request stood beside other calls."""

_DECISIONS: Final = frozenset({"approve", "edit", "reject", "respond"})


class PrivilegedTool(BaseTool):
    """A tool that an agent may ask for and only the write node runs.

    It has the name, the description and the arguments of the tool that it guards. Called by anything else it refuses, so
    that no other tool runner carries out an unapproved write.
    """

    guarded: BaseTool
    privilege: Privilege

    def _run(self, *_args: Any, **_kwargs: Any) -> Any:
        raise ToolException(f"{self.name} is a privileged write: it is carried out after an approval, never directly.")

    async def _arun(self, *_args: Any, **_kwargs: Any) -> Any:
        return self._run()


def privileged(
    tool: BaseTool | Callable[..., Any],
    *,
    identity: Sequence[str] | None = None,
    when: Callable[[Mapping[str, Any]], bool] | None = None,
    allowed_decisions: Sequence[str] = ("approve", "edit", "reject"),
    description: str | Callable[[Mapping[str, Any]], str] | None = None,
    probe: Callable[..., Any] | None = None,
    idempotency_key: str | None = None,
    approval: str = "human",
) -> PrivilegedTool:
    """Mark a tool as a privileged write.

    Args:
        tool: A tool, or a function with a docstring.
        identity: Arguments that say which write it is, for the ledger's key. None means all of them.
        when: Given the arguments, says whether a person must decide. None means always.
        allowed_decisions: What the person may answer: approve, edit, reject, respond.
        description: What the person reads first, or a function of the arguments that gives it.
        probe: Called with the arguments, as the tool gets them, when nobody knows whether a write happened. Returns True or
            the result if it did, False if it did not, None if it cannot tell. A tool whose write may rightly be repeated
            needs an `idempotency_key`, by which its probe tells the repeat from the first.
        idempotency_key: Name of the tool's parameter that is given the operation's id; models do not see it.
        approval: Who decides; "human".

    Returns:
        A tool to give to an agent.

    Raises:
        CatalogError: If a name in it is not known: checked here, so that a misspelt gate is never an open one.
    """
    made = tool if isinstance(tool, BaseTool) else _tool_of(tool)
    if isinstance(made, PrivilegedTool):
        raise CatalogError(problem=f"the tool '{made.name}' is marked as privileged twice")
    if DESTINATION in (made.metadata or {}):
        to = (made.metadata or {})[DESTINATION]
        raise CatalogError(
            problem=f"'{made.name}' is a handoff; for one that a person approves give `Handoff(to={to!r}, approval=True)`"
        )
    if approval != "human":
        raise CatalogError(problem=f"approval={approval!r} of '{made.name}' is not known; use \"human\"")
    check_hook(f"`when` of '{made.name}'", when)
    check_hook(f"`probe` of '{made.name}'", probe, awaited=True)
    check_hook(f"`description` of '{made.name}'", None if isinstance(description, str) else description)
    if moving := _moving_default(made, except_for=idempotency_key):
        hint = "make it inside the tool, or name it as `idempotency_key`"
        raise CatalogError(
            problem=f"the default of '{moving}' of '{made.name}' is never twice the same, so no approval fits: {hint}"
        )
    privilege = Privilege(
        identity=_checked_identity(made, identity, idempotency_key),
        when=when,
        allowed_decisions=_checked_decisions(made, allowed_decisions),
        description=description,
        probe=probe,
        idempotency_key=idempotency_key,
        approval=approval,
    )
    return PrivilegedTool(
        name=made.name,
        description=made.description,
        args_schema=_visible_schema(made, idempotency_key),
        guarded=made,
        privilege=privilege,
        metadata=made.metadata,
        return_direct=made.return_direct,
    )


def _tool_of(given: Any) -> BaseTool:
    if not callable(given):
        raise CatalogError(problem=f"{given!r} is not a tool; give a tool, or a function with a docstring")
    try:
        made: BaseTool = as_tool(given)
    except ValueError as error:
        raise CatalogError(problem=f"a privileged tool cannot be described: {error}") from None
    return made


def _checked_decisions(made: BaseTool, given: Any) -> tuple[str, ...]:
    """Return what a person may answer; with a rejection alone nobody could ever let the tool run."""
    decisions = tuple(given) if isinstance(given, Collection) and not isinstance(given, str) else ()
    if not decisions or not all(each in _DECISIONS for each in map(str, decisions)):
        raise CatalogError(problem=f"allowed_decisions={given!r} of '{made.name}'; choose among {sorted(_DECISIONS)}")
    if set(decisions) == {"reject"}:
        raise CatalogError(problem=f"with allowed_decisions={given!r} of '{made.name}' nobody could ever let it run")
    return decisions


def _checked_identity(made: BaseTool, given: Any, idempotency_key: str | None) -> tuple[str, ...] | None:
    """Return the arguments that tell one write from another: such as a model gives, since others are the same in every call."""
    if not isinstance(given, str | Collection | None):
        raise CatalogError(problem=f"identity={given!r} of '{made.name}'; give the names of arguments")
    identity = None if given is None else (given,) if isinstance(given, str) else tuple(given)
    visible = set(args_schema(made).get("properties", ())) - {idempotency_key}
    unknown = [each for each in identity or () if each not in visible]
    if idempotency_key is not None and idempotency_key not in {*made.args, *getattr(made.get_input_schema(), "model_fields", ())}:
        unknown.append(idempotency_key)
    if unknown or identity == ():
        missing = unknown or "an empty identity"
        raise CatalogError(problem=f"'{made.name}' has no argument {missing}; its arguments: {sorted(visible)}")
    return identity


def _moving_default(made: BaseTool, except_for: str | None) -> str | None:
    """Return an argument whose default differs from call to call: nobody could approve the value that will run."""
    for name, field in getattr(made.get_input_schema(), "model_fields", {}).items():
        if name != except_for and field.default_factory is not None and not field.default_factory_takes_validated_data:
            first, second = (field.get_default(call_default_factory=True) for _ in range(2))
            if first != second:
                return str(name)
    return None


def _visible_schema(made: BaseTool, hidden: str | None) -> Any:
    """Return the arguments that a model fills: without injected ones, and without the idempotency key."""
    schema = made.tool_call_schema
    if hidden is None:
        return schema
    if isinstance(schema, dict):
        properties = {key: value for key, value in schema.get("properties", {}).items() if key != hidden}
        required = [key for key in schema.get("required", ()) if key != hidden]
        return {**schema, "properties": properties, "required": required}
    if not issubclass(schema, BaseModel):
        raise CatalogError(problem=f"'{made.name}' has a pydantic v1 schema; an idempotency key needs v2")
    fields: dict[str, Any] = {key: (value.annotation, value) for key, value in schema.model_fields.items() if key != hidden}
    return create_model(schema.__name__, **fields)


class _Close(BaseModel):
    model_config = ConfigDict(extra="forbid")
    message: str = Field(description="Your last words to the user: what was done and how it ended.")


class _Reason(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str = Field(description="Why, in one sentence.")


class _Back(BaseModel):
    model_config = ConfigDict(extra="forbid")
    summary: str = Field(description="What you found out or did, for the agent who takes the case back.")
    known_facts: dict[str, Any] = Field(default_factory=dict, description="Facts that are settled now, by name.")


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    verdict: Verdict = Field(description="approve, request_changes, block or acknowledge.")
    comments: str = Field(default="", description="Why, and what to do instead. Needed unless you approve or acknowledge.")


def _never(**_: Any) -> str:
    raise ToolException("A control tool is carried out by the graph, not by a tool runner.")


def _control(name: str, description: str, schema: type[BaseModel], destination: str | None = None) -> BaseTool:
    metadata = {DESTINATION: destination} if destination else None
    return StructuredTool.from_function(func=_never, name=name, description=description, args_schema=schema, metadata=metadata)


def transfer_tool(name: str, edge: Handoff, catalog: Catalog) -> BaseTool:
    """Return the tool by which an agent hands the case over `edge`; its arguments are the package's content."""
    target = catalog.agents.get(edge.to) or catalog.people[edge.to]
    wanted = tuple(dict.fromkeys((*edge.requires, *getattr(target, "requires", ()))))
    needs = f" Needs in known_facts: {', '.join(wanted)}." if wanted else ""
    about = edge.description or f"Hand the case over to {edge.to}: {target.description}"
    package = catalog.package_of(edge)
    return _control(name, about + needs, package.content_schema(name, actions=edge.actions), edge.to)


@lru_cache
def return_tool(target: str) -> BaseTool:
    """Return the tool by which a lent case is given back to `target`."""
    return _control(f"transfer_back_to_{fold(target)}", f"Give the case back to {target}, who lent it to you.", _Back, target)


@lru_cache
def close_tool() -> BaseTool:
    """Return the tool that closes a case."""
    return _control(CLOSE, "Close the case when everything the user asked for is settled.", _Close)


@lru_cache
def decline_tool() -> BaseTool:
    """Return the tool by which a receiver declines, on its first turn, a case that it was just given."""
    return _control(DECLINE, "Decline the case you were just given; it goes back to its sender with your reason.", _Reason)


@lru_cache
def verdict_tool() -> BaseTool:
    """Return the tool by which a receiver answers a request to review or approve; the case goes back to its sender."""
    return _control(VERDICT, "Say your verdict on what you were asked; the case goes back to its sender with it.", _Verdict)


@lru_cache
def escalate_tool(person: str) -> BaseTool:
    """Return the tool that puts the case into a person's hands."""
    return _control(ESCALATE, f"Put the case into the hands of {person} when you cannot or may not go on.", _Reason, person)


def create_handoff_tool(
    *,
    agent_name: str,
    name: str | None = None,
    description: str | None = None,
    package: type[HandoffPackage] = HandoffPackage,
) -> BaseTool:
    """Return a handoff tool for an agent that is a compiled graph of its own (a `create_agent` result, say).

    The tool does not move anything. It leaves a request in its result; the node around the agent reads it and the
    `transfer` node decides. Called beside other tools it says so, and the agent tries again alone, so that no result is lost.

    Args:
        agent_name: Destination.
        name: Name of the tool; None means `transfer_to_<agent>`.
        description: What the model reads.
        package: Package class that the tool's arguments fill.
    """
    tool_name = name or f"transfer_to_{fold(agent_name)}"
    schema = package.content_schema(tool_name)
    fields = {key: (field.annotation, field) for key, field in schema.model_fields.items()}
    full = create_model(tool_name, **fields, state=(Annotated[Any, InjectedState], None))  # type: ignore[call-overload]

    def ask(state: Any = None, **content: Any) -> tuple[str, Any]:
        messages = state.get("messages", ()) if isinstance(state, dict) else ()
        if messages and len(getattr(messages[-1], "tool_calls", ())) > 1:
            text = f"{tool_name} must be called alone. The other calls were carried out; call it again by itself."
            return text, {NOT_ALONE: True}
        plain = schema(**content).model_dump(mode="json", exclude_unset=True)
        return f"Asked for a handoff to {agent_name}.", {REQUEST: {"to": agent_name, "content": plain}}

    return StructuredTool.from_function(
        func=ask,
        name=tool_name,
        description=description or f"Ask agent '{agent_name}' for help",
        args_schema=full,
        return_direct=True,
        response_format="content_and_artifact",
        handle_tool_error=True,
        metadata={DESTINATION: agent_name},
    )
