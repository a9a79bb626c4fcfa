"""Who should act first: routers, as values that compose.

A router is asked when a case has no owner. It looks at the user's words (text only) and names an owner, or says nothing
and the next one, or the default agent, is taken. An answer that names nobody in the catalogue counts as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage

from langgraph_handoff.agents import Agent, Catalog, Human

__all__ = ("FirstMatch", "ModelRouter", "Route", "RouteRequest", "Router", "RuleRouter", "UserRouter")


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteRequest:
    """What a router may look at."""

    text: str
    """The user's last words, without images and files."""
    state: Mapping[str, Any]
    catalog: Catalog


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A router's choice and why."""

    to: str
    reason: str = ""


@runtime_checkable
class Router(Protocol):
    """Chooses the first owner of a case."""

    def route(self, request: RouteRequest) -> Route | None:
        """Return a choice, or None to leave it to the next router."""
        ...

    async def aroute(self, request: RouteRequest) -> Route | None:
        """Return a choice, or None to leave it to the next router."""
        ...


@dataclass(frozen=True)
class RuleRouter:
    """Chooses by patterns and predicates, the first rule that fits.

    Attributes:
        rules: Pairs of a rule and an owner. A rule is a regular expression (case is ignored) or a function of the text.
    """

    rules: Sequence[tuple[str | Callable[[str], bool], str]]

    def route(self, request: RouteRequest) -> Route | None:
        """Return the owner of the first rule that fits the text."""
        for rule, to in self.rules:
            if rule(request.text) if callable(rule) else re.search(rule, request.text, re.IGNORECASE):
                return Route(to=to, reason=f"rule {getattr(rule, '__name__', rule)!r}")
        return None

    async def aroute(self, request: RouteRequest) -> Route | None:
        """Return the owner of the first rule that fits the text."""
        return self.route(request)


@dataclass(frozen=True)
class UserRouter:
    """Lets the user choose: "talk to billing", or a direct `active_agent` in the input.

    Attributes:
        allowed: Owners that a user may ask for; None means all.
    """

    allowed: Sequence[str] | None = None

    def route(self, request: RouteRequest) -> Route | None:
        """Return the owner that the user asks for."""
        names = [name for name in request.catalog.names if self.allowed is None or name in self.allowed]
        wanted = request.state.get("active_agent")
        if wanted in names:
            return Route(to=wanted, reason="the input names it")
        for name in names:
            spoken = re.escape(name).replace("_", "[ _-]")
            if re.search(
                rf"\b(?:talk|speak|connect me|transfer me)\s+(?:to|with)\s+(?:the\s+)?{spoken}\b", request.text, re.IGNORECASE
            ):
                return Route(to=name, reason="the user asks for it")
        return None

    async def aroute(self, request: RouteRequest) -> Route | None:
        """Return the owner that the user asks for."""
        return self.route(request)


@dataclass(frozen=True)
class ModelRouter:
    """Lets a chat model choose among the catalogue's names; any other answer counts as none.

    Attributes:
        model: Chat model; it is asked for one name as plain text, so any model will do.
    """

    model: BaseChatModel

    def route(self, request: RouteRequest) -> Route | None:
        """Return the model's choice."""
        return self._read(str(self.model.invoke(self._prompt(request)).text), request)

    async def aroute(self, request: RouteRequest) -> Route | None:
        """Return the model's choice."""
        return self._read(str((await self.model.ainvoke(self._prompt(request))).text), request)

    def _prompt(self, request: RouteRequest) -> list[Any]:
        owners: dict[str, Agent | Human] = {**request.catalog.agents, **request.catalog.people}
        listed = "\n".join(f"- {name}: {owner.description}" for name, owner in owners.items())
        asked = f"Who should take this case? Answer with one of these names and nothing else.\n{listed}"
        return [SystemMessage(asked), HumanMessage(request.text)]

    def _read(self, answer: str, request: RouteRequest) -> Route | None:
        name = answer.strip().strip("\"'`.").casefold()
        return next(
            (Route(to=each, reason="the model's choice") for each in request.catalog.names if each.casefold() == name), None
        )


@dataclass(frozen=True)
class FirstMatch:
    """Asks several routers in turn and takes the first choice."""

    routers: Sequence[Router] = field(default_factory=tuple)

    def route(self, request: RouteRequest) -> Route | None:
        """Return the first choice of the routers, in their order."""
        return next((route for router in self.routers if (route := router.route(request))), None)

    async def aroute(self, request: RouteRequest) -> Route | None:
        """Return the first choice of the routers, in their order."""
        for router in self.routers:
            if route := await router.aroute(request):
                return route
        return None
