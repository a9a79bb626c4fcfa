"""The catalogue: mistakes show when the graph is built, with the culprit's name (faults of group I)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.graph import MessagesState, StateGraph

from langgraph_handoff import Agent, Handoff, HandoffPackage, HandoffState, Human, create_handoff_graph, privileged
from langgraph_handoff.agents import Catalog, CatalogWarning, fold
from langgraph_handoff.errors import BudgetError, CatalogError
from langgraph_handoff.testing import ScriptedChatModel

MODEL = ScriptedChatModel([], agent="x")


def agent(name: str, **more: Any) -> Agent:
    return Agent(**{"name": name, "description": f"{name}'s work", "model": MODEL, **more})


def pay(order: str) -> str:
    """Pay."""
    return order


def pay_copy(order: str) -> str:
    """Pay again."""
    return order


def undescribed(order: str) -> str:
    return order


async def later(_: Any) -> bool:
    return True


class Ticket(HandoffPackage):
    """A package."""


OtherTicket = type("Ticket", (HandoffPackage,), {"__doc__": "Another one.", "__module__": __name__})

SILENT = StructuredTool.from_function(pay, description="pay")
SILENT.description = " "
NAMELESS = StructuredTool.from_function(pay, name="pay order!")

WRONG: list[tuple[str, list[Any], str]] = [
    ("no agents", [], "it is empty"),
    (
        "names that fold (I1)",
        [agent("Billing Team"), agent("billing_team")],
        "'Billing Team' and 'billing_team' fold to the same tool name",
    ),
    ("same name", [agent("a"), agent("a")], "fold to the same tool name 'transfer_to_a'"),
    ("diacritics that fold", [agent("Müller"), agent("muller")], "fold to the same tool name"),
    ("a person and an agent of one name", [agent("human"), Human(description="P")], "fold to the same tool name"),
    ("a name without letters", [agent("!!!")], "gives no tool name that providers accept"),
    ("a name that is too long", [agent("a" * 60)], "gives no tool name that providers accept"),
    ("a node's name", [agent("tools")], "is taken by the graph"),
    ("a reserved sign", [agent("a:b")], "is taken by the graph or holds"),
    ("unknown target (I4)", [agent("a", handoffs=["ghost"])], "'a' hands off to 'ghost', which is not among ['a']"),
    ("itself", [agent("a", handoffs=["a"])], "'a' hands off to itself"),
    ("no description", [Agent(name="a", description=" ", model=MODEL)], "'a' has no description"),
    ("no model", [Agent(name="a", description="A")], "'a' needs either a model or a graph"),
    ("a person without a description", [agent("a"), Human(name="p", description="")], "'p' has no description"),
    (
        "both a model and a graph",
        [agent("a", graph=RunnableLambda(lambda given: given))],
        "'a' needs either a model or a graph, not both and not neither",
    ),
    ("a tool with an empty description", [agent("a", tools=[SILENT])], "the tool 'pay' of 'a' has no description"),
    ("return to itself", [agent("a", return_to="a")], "return_to='a' of 'a' is not another agent's name"),
    (
        "a tool called like the way back",
        [agent("a", tools=[StructuredTool.from_function(pay, name="transfer_back_to_b")]), agent("b")],
        "the tool 'transfer_back_to_b' of 'a' has the name of a handoff tool",
    ),
    (
        "an edge's package that is none",
        [agent("a", handoffs=[Handoff(to="b", package=str)]), agent("b")],
        "is not a subclass of HandoffPackage",
    ),  # type: ignore[arg-type]
    ("two tools of one name (I6)", [agent("a", tools=[pay, pay])], "'a' holds two tools called 'pay'"),
    ("a tool without description", [agent("a", tools=[undescribed])], "'a' is given a tool that cannot be described"),
    ("not a tool", [agent("a", tools=["pay"])], "give a function or a tool"),
    ("a tool name that no provider takes", [agent("a", tools=[NAMELESS])], "a name that no provider accepts"),
    (
        "a handoff name that no provider takes",
        [agent("a", handoffs=[Handoff(to="b", tool_name="to b")]), agent("b")],
        "no provider accepts",
    ),
    ("two handoffs of one name", [agent("a", handoffs=["b", "b"]), agent("b")], "'a' has two handoffs called 'transfer_to_b'"),
    (
        "a tool with a handoff's name",
        [agent("a", tools=[StructuredTool.from_function(pay, name="transfer_to_b")], handoffs=["b"]), agent("b")],
        "the tool 'transfer_to_b' of 'a' has the name of a handoff tool",
    ),
    (
        "a tool called close_case",
        [agent("a", tools=[StructuredTool.from_function(pay, name="close_case")])],
        "has the name of a handoff tool",
    ),
    ("an unknown rule", [agent("a", handoffs=[Handoff(to="b", on_reply="maybe")]), agent("b")], "on_reply='maybe' of 'a'"),  # type: ignore[arg-type]
    ("return to nobody", [agent("a", return_to="ghost")], "return_to='ghost' of 'a'"),
    ("an unknown context", [agent("a", context="all")], "context='all' of 'a'"),
    ("a package that is none", [agent("a", package=dict)], "is not a subclass of HandoffPackage"),
    (
        "two packages of one name",
        [agent("a", package=Ticket), agent("b", package=OtherTicket)],
        "two package classes are called 'Ticket'",
    ),
    ("a model that is none", [agent("a", model=5)], "the model of 'a' is int"),
    ("not an agent", [agent("a"), {"name": "b"}], "is neither an Agent nor a Human"),
    ("a name that is no text", [agent("a"), agent(5, description="B")], "the name 5 is not a text"),
    ("a description that is no text", [agent("a", description=None)], "'a' has no description"),
    ("requires without a comma", [agent("a", requires="customer_id")], "requires='customer_id' of 'a' is one text; give a tuple"),
    (
        "an edge's requires without a comma",
        [agent("a", handoffs=[Handoff(to="b", requires="x")]), agent("b")],
        "requires='x' of 'a'",
    ),  # type: ignore[arg-type]
    ("handoffs as a text", [agent("a", handoffs="b"), agent("b")], "handoffs='b' of 'a' is one text; give a list"),
    ("a handoff that is none", [agent("a", handoffs=[5]), agent("b")], "'a' hands off to 5; give a name or a Handoff"),
    (
        "an unknown action",
        [agent("a", handoffs=[Handoff(to="b", actions=("aprove",))]), agent("b")],
        "actions=('aprove',) of 'a'",
    ),  # type: ignore[arg-type]
    ("a graph that is none", [Agent(name="a", description="A", graph="x")], "the graph of 'a' is str; give a compiled graph"),  # type: ignore[arg-type]
    (
        "a graph that is not compiled",
        [Agent(name="a", description="A", graph=StateGraph(MessagesState))],
        "give a compiled graph",
    ),  # type: ignore[arg-type]
    (
        "a tool beside a graph",
        [Agent(name="a", description="A", graph=RunnableLambda(lambda given: given), tools=[pay])],
        "'a' is a graph of its own and cannot be given the tool 'pay'",
    ),
    ("an acceptance that answers later", [agent("a", accepts=later)], "`accepts` of 'a' is async"),
    ("an acceptance without a parameter", [agent("a", accepts=lambda: None)], "`accepts` of 'a' must take one argument"),
    ("a context without a parameter", [agent("a", context=lambda: None)], "`context` of 'a' must take one argument"),
    ("a prompt that is none", [agent("a", prompt=5)], "`prompt` of 'a' is 5, not a function"),
    ("a prompt that answers later", [agent("a", prompt=later)], "`prompt` of 'a' is async"),
    (
        "an edge's switch that answers later",
        [agent("a", handoffs=[Handoff(to="b", is_enabled=later)]), agent("b")],
        "`is_enabled` of 'a'",
    ),
    (
        "an edge's switch without a parameter",
        [agent("a", handoffs=[Handoff(to="b", is_enabled=lambda: True)]), agent("b")],
        "`is_enabled` of 'a'",
    ),
    (
        "a filter that is none",
        [agent("a", handoffs=[Handoff(to="b", input_filter="x")]), agent("b")],
        "`input_filter` of 'a' for 'b' is 'x', not a function",
    ),  # type: ignore[arg-type]
    ("words that take nothing", [agent("a", handoffs=[Handoff(to="b", announce=lambda: "x")]), agent("b")], "`announce` of 'a'"),
]


@pytest.mark.parametrize(("agents", "said"), [pytest.param(*row[1:], id=row[0]) for row in WRONG])
def test_a_wrong_catalogue_is_refused_when_the_graph_is_built(agents: list[Any], said: str) -> None:
    """I5: every mistake is an error before the first user's message, and its text names the culprit."""
    with pytest.raises(CatalogError) as raised:
        create_handoff_graph(agents, default_active_agent="a" if not agents else agents[0].name)
    assert said in str(raised.value)
    assert str(raised.value).endswith("Correct the agents given to `create_handoff_graph`.")


def test_the_default_agent_and_aliases_must_exist() -> None:
    """An unknown default agent, alias target or budget owner is named."""
    with pytest.raises(CatalogError, match="default_active_agent names 'b'"):
        create_handoff_graph([agent("a")], default_active_agent="b")
    with pytest.raises(CatalogError, match="old names 'gone'"):
        create_handoff_graph([agent("a")], default_active_agent="a", aliases={"old": "gone"})
    with pytest.raises(CatalogError, match="on_budget names 'ghost'"):
        create_handoff_graph([agent("a")], default_active_agent="a", on_budget="ghost")


@pytest.mark.parametrize("budget", [0, -1, 2.5, "6"])
def test_a_budget_is_a_positive_whole_number(budget: Any) -> None:
    """A budget that is not a positive whole number is refused."""
    with pytest.raises(BudgetError):
        create_handoff_graph([agent("a")], default_active_agent="a", max_handoffs=budget)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"router": "a"}, "`router` is 'a', not a function"),
        ({"router": later}, "`router` is async"),
        ({"router": lambda: "a"}, "`router` must take one argument"),
        ({"on_handoff": later}, "`on_handoff` is async"),
        ({"on_handoff": lambda: None}, "`on_handoff` must take one argument"),
        ({"redact": [lambda: ""]}, "`redact` must take one argument"),
    ],
)
def test_a_function_that_could_not_be_called_is_refused(wrong: dict[str, Any], said: str) -> None:
    """I5: functions given to the graph are looked at when it is built."""
    with pytest.raises(CatalogError) as raised:
        create_handoff_graph([agent("a")], default_active_agent="a", **wrong)
    assert said in str(raised.value)


class Counted:
    """Functions in all forms that can be called with one thing."""

    def method(self, _: Any) -> bool:
        """Return True."""
        return True

    def __call__(self, _: Any, extra: int = 1) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize("given", [Counted().method, Counted(), functools.partial(lambda a, b: True, b=1), bool, lambda *_: True])
def test_any_function_that_can_be_called_is_taken(given: Any) -> None:
    """Methods, objects, partials, classes and functions with defaults are functions too."""
    edge = Handoff(to="b", is_enabled=given, input_filter=given, announce=given)
    people = [
        agent("a", accepts=given, prompt=given, context=given, handoffs=[edge]),
        agent("b", tools=[privileged(pay, when=given)]),
    ]
    create_handoff_graph(people, default_active_agent="a", router=given, on_handoff=given, redact=given)


def test_a_privileged_tool_with_two_homes_is_a_warning() -> None:
    """A privileged tool that two agents hold is allowed and warned about, with its name."""
    with pytest.warns(CatalogWarning, match="'pay' is held by"):
        create_handoff_graph([agent("a", tools=[privileged(pay)]), agent("b", tools=[privileged(pay)])], default_active_agent="a")


def test_a_state_must_extend_ours() -> None:
    """A state without our channels is refused, and the missing ones are named."""
    from langgraph.graph import MessagesState

    with pytest.raises(CatalogError, match=r"the state lacks active_agent, case, events"):
        create_handoff_graph([agent("a")], default_active_agent="a", state_schema=MessagesState)


def test_names_with_spaces_and_umlauts_are_folded_for_tools() -> None:
    """A name may be written as people write it; its tool name is ASCII."""
    assert fold("Billing Team") == "billing_team"
    assert fold("Rückläufer & Co.") == "rucklaufer_co"
    catalog = Catalog.build([agent("a", handoffs=["Billing Team"]), agent("Billing Team")], default="a")
    assert list(catalog.edges["a"]) == ["transfer_to_billing_team"]


def test_a_real_tool_may_be_called_like_a_transfer() -> None:
    """A shop's own tool `transfer_to_human_agents` is an ordinary tool, also beside a person called human."""
    made = StructuredTool.from_function(pay, name="transfer_to_human_agents")
    catalog = Catalog.build([agent("a", tools=[made], handoffs=["human"]), Human(description="P")], default="a")
    assert list(catalog.tools["a"]) == ["transfer_to_human_agents"]
    assert list(catalog.edges["a"]) == ["transfer_to_human"]


def test_the_state_is_typed_for_users() -> None:
    """`HandoffState` names the six channels of a case."""
    assert set(HandoffState.__annotations__) == {"messages", "active_agent", "handoff", "case", "events", "ownership"}
