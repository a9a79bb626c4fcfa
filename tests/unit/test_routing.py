"""Routers: values that choose the first owner, and compose."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_handoff import Agent, FirstMatch, ModelRouter, RuleRouter, UserRouter
from langgraph_handoff.agents import Catalog
from langgraph_handoff.routing import Route, Router, RouteRequest
from langgraph_handoff.testing import ScriptedChatModel
from tests.conftest import Desk, model_of, say

CATALOG = Catalog.build(
    [Agent(name=name, description=name, model=ScriptedChatModel([])) for name in ("triage", "billing", "tech_support")],
    default="triage",
)


def request(text: str, **state: Any) -> RouteRequest:
    return RouteRequest(text=text, state=state, catalog=CATALOG)


RULES = RuleRouter([(r"invoice|refund", "billing"), (lambda text: "401" in text, "tech_support"), ("anything", "nobody")])


async def both(router: Router, given: RouteRequest) -> Route | None:
    """Ask a router both ways; they must agree."""
    found = router.route(given)
    assert isinstance(router, Router)
    assert await router.aroute(given) == found
    return found


@pytest.mark.parametrize(
    ("text", "to"),
    [("My INVOICE is wrong", "billing"), ("error 401", "tech_support"), ("hello", None), ("401 on my invoice", "billing")],
)
async def test_the_first_rule_that_fits_chooses(text: str, to: str | None) -> None:
    """Rules are tried in order, patterns without regard to case, and the choice says why."""
    route = await both(RULES, request(text))
    assert (route.to if route else None) == to
    assert route is None or route.reason


@pytest.mark.parametrize(
    ("text", "state", "to"),
    [
        ("please let me talk to billing", {}, "billing"),
        ("connect me with the tech support", {}, "tech_support"),
        ("I talked to billing already", {}, None),
        ("hello", {"active_agent": "billing"}, "billing"),
        ("hello", {"active_agent": "ghost"}, None),
        ("speak to mallory", {}, None),
    ],
)
async def test_a_user_may_choose(text: str, state: Any, to: str | None) -> None:
    """A user's wish and a direct `active_agent` choose an owner that exists, and nobody else."""
    route = await both(UserRouter(), request(text, **state))
    assert (route.to if route else None) == to


async def test_a_user_may_choose_among_the_allowed_only() -> None:
    """`allowed` limits whom a user may ask for."""
    assert await both(UserRouter(allowed=["triage"]), request("talk to billing")) is None


@pytest.mark.parametrize(
    ("said", "to"), [("billing", "billing"), ("'Billing'.", "billing"), ("I think billing", None), ("ghost", None), ("", None)]
)
async def test_a_model_s_invalid_choice_counts_as_none(said: str, to: str | None) -> None:
    """A model chooses by an exact name; anything else leaves the choice to the next router."""
    model = ScriptedChatModel([said, said], agent="router", strict=False)
    route = await both(ModelRouter(model), request("hi"))
    assert (route.to if route else None) == to
    assert "billing: billing" in model.prompts[0][0].text


async def test_several_routers_are_asked_in_turn() -> None:
    """The first choice counts, and later routers are not asked."""
    model = ScriptedChatModel(["triage", "triage"], agent="router")
    router = FirstMatch([UserRouter(), RULES, ModelRouter(model)])
    assert (await both(router, request("talk to billing"))) == Route(to="billing", reason="the user asks for it")
    assert model.prompts == []
    assert (await both(router, request("hello"))) == Route(to="triage", reason="the model's choice")


@pytest.mark.parametrize("chosen", ["bob", "ghost", None])
async def test_a_function_of_the_state_is_a_router_too(desk: Desk, config: Any, chosen: str | None) -> None:
    """A plain function may choose; a name that nobody has falls back to the default agent."""
    graph = desk(alice={"turns": ["a"]}, bob={"turns": ["b"]}, options={"router": lambda state: chosen})
    out = await graph.ainvoke(say("hi"), config)
    assert out["active_agent"] == ("bob" if chosen == "bob" else "alice")
    assert out["events"][0]["kind"] == "opened"


def test_the_input_may_name_the_owner_of_a_new_case(desk: Desk, config: Any) -> None:
    """Without a router a direct `active_agent` in the input is taken for a new case, and no other model is asked."""
    graph = desk(alice={"turns": []}, bob={"turns": ["b"]})
    assert graph.invoke({**say("hi"), "active_agent": "bob"}, config)["messages"][-1].name == "bob"
    assert model_of(graph, "alice").prompts == []
