"""The test kit: a model that keeps to its script, and asserts that can fail."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool

from langgraph_handoff.errors import ScriptError
from langgraph_handoff.package import HandoffPackage
from langgraph_handoff.testing import (
    ScriptedChatModel,
    assert_hops,
    assert_only_owner_called_tools,
    assert_package,
    call,
    history_faults,
)
from tests.conftest import Desk, say

HI = [HumanMessage("hi")]
WAYS = ["invoke", "ainvoke", "stream", "astream"]


@tool
def look(n: int = 0) -> str:
    """Look something up."""
    return f"seen {n}"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def ask(model: Any, prompt: Sequence[BaseMessage], way: str) -> AIMessage:
    """Ask a model in one of the four ways."""
    if way == "invoke":
        return model.invoke(list(prompt))
    if way == "ainvoke":
        return await model.ainvoke(list(prompt))
    chunks = list(model.stream(list(prompt))) if way == "stream" else [each async for each in model.astream(list(prompt))]
    return reduce(lambda left, right: left + right, chunks)


def called(*ids: str, **more: Any) -> AIMessage:
    return AIMessage("", tool_calls=[call("look", call_id=each) for each in ids], **more)


def answer(call_id: str) -> ToolMessage:
    return ToolMessage("seen", tool_call_id=call_id)


# --- the model


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("turn", "text", "calls"),
    [
        ("Paid.", "Paid.", []),
        (call("look", n=1), "", [("look", {"n": 1})]),
        ([call("look", n=1), call("pay", amount=2)], "", [("look", {"n": 1}), ("pay", {"amount": 2})]),
        (["One moment.", call("look", name="x")], "One moment.", [("look", {"name": "x"})]),
        (AIMessage("As is.", tool_calls=[call("look", call_id="7")]), "As is.", [("look", {})]),
        (AIMessage([{"type": "text", "text": "A block."}]), "A block.", []),
        (lambda prompt: f"You said {prompt[-1].text}.", "You said hi.", []),
        (lambda prompt: [call("pay", amount=len(prompt))], "", [("pay", {"amount": 1})]),
    ],
    ids=["words", "call", "calls", "words and call", "message", "blocks", "function", "function of calls"],
)
async def test_every_kind_of_turn_is_said_in_every_way(turn: Any, text: str, calls: list[Any], way: str) -> None:
    """A turn may be words, calls, both, a message or a function, and sync, async and streaming say the same."""
    with ScriptedChatModel([turn], agent="billing") as model:
        reply = await ask(model, HI, way)
    assert reply.text == text
    assert [(each["name"], each["args"]) for each in reply.tool_calls] == calls
    assert all(each["id"] for each in reply.tool_calls)


@given(
    words=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    calls=st.lists(st.dictionaries(st.text("abc", min_size=1), st.integers() | st.text(max_size=9) | st.none()), max_size=3),
)
def test_a_streamed_reply_is_the_reply(words: str, calls: list[dict[str, Any]]) -> None:
    """The chunks of a streamed reply add up to what `invoke` returns, with its figures and the provider's remarks."""
    asked = [call("look", call_id=str(number)) | {"args": args} for number, args in enumerate(calls)]
    said = AIMessage(words, id="m", tool_calls=asked, response_metadata={"finish_reason": "stop"}, additional_kwargs={"k": "v"})
    model = ScriptedChatModel([said, said])
    whole, streamed = model.invoke(HI), reduce(lambda left, right: left + right, model.stream(HI))
    for name in ("id", "content", "tool_calls", "usage_metadata", "response_metadata", "additional_kwargs"):
        assert getattr(streamed, name) == getattr(whole, name), name


def test_words_stream_one_by_one_and_calls_as_chunks() -> None:
    """A screen sees words arrive one by one, and calls as the chunks that providers send."""
    model = ScriptedChatModel([["Let me look.", call("look", n=1)]])
    chunks = list(model.stream(HI))
    assert [each.text for each in chunks if each.text] == ["Let", " me", " look."]
    pieces = [piece for each in chunks if isinstance(each, AIMessageChunk) for piece in each.tool_call_chunks]
    assert [(piece["name"], piece["args"]) for piece in pieces] == [("look", '{"n": 1}')]


def test_streamed_calls_have_places_of_their_own() -> None:
    """Good and broken calls of one message stand at different indices, or a reader of the stream would join them."""
    bad = InvalidToolCall(name="pay", args="much", id="2", error="no JSON", type="invalid_tool_call")
    said = AIMessage("", tool_calls=[call("look", call_id="0"), call("look", call_id="1")], invalid_tool_calls=[bad])
    (chunk,) = [
        each for each in ScriptedChatModel([said]).stream(HI) if isinstance(each, AIMessageChunk) and each.tool_call_chunks
    ]
    assert [(piece["index"], piece["id"]) for piece in chunk.tool_call_chunks] == [(0, "0"), (1, "1"), (2, "2")]


@pytest.mark.parametrize("way", WAYS)
async def test_calls_that_cannot_be_parsed_stay_so(way: str) -> None:
    """A scripted call with broken arguments reaches the graph as a provider's would."""
    bad = InvalidToolCall(name="look", args="n is 1", id="7", error="no JSON", type="invalid_tool_call")
    reply = await ask(ScriptedChatModel([AIMessage("", invalid_tool_calls=[bad])]), HI, way)
    assert [(each["id"], each["args"]) for each in reply.invalid_tool_calls] == [("7", "n is 1")]
    assert reply.tool_calls == []


@pytest.mark.parametrize("way", WAYS)
async def test_an_extra_call_fails_and_names_the_agent(way: str) -> None:
    """A model that is asked more often than its script says fails, and says whose it is and what it was asked."""
    model = ScriptedChatModel(["one"], agent="billing")
    await ask(model, HI, way)
    with pytest.raises(ScriptError, match=r"`billing`.*call 2 was not expected.*'why\?'"):
        await ask(model, [HumanMessage("why?")], way)


def test_unused_turns_fail_and_name_the_agent() -> None:
    """Turns that nobody asked for fail at the end of the block, unless something else failed already."""
    with pytest.raises(ScriptError, match=r"`billing`.*1 of 2 turns were not used"):  # noqa: SIM117
        with ScriptedChatModel(["one", "two"], agent="billing") as model:
            model.invoke(HI)
    with pytest.raises(KeyError), ScriptedChatModel(["one"], agent="billing"):
        raise KeyError
    with ScriptedChatModel(["one"], agent="billing") as model:
        model.invoke(HI)


def test_a_script_error_is_an_assertion() -> None:
    """Test runners report a broken script as a failure of the test."""
    with pytest.raises(AssertionError):
        ScriptedChatModel([]).invoke(HI)


def test_a_looping_model_repeats_its_last_turn() -> None:
    """With `loop` the last turn is said for ever, with fresh ids, and no turn is ever left over."""
    with ScriptedChatModel(["first", call("look")], loop=True) as model:
        replies = [model.invoke(HI) for _ in range(4)]
    assert [each.text for each in replies] == ["first", "", "", ""]
    assert len({each.id for each in replies}) == 4
    assert len({each.tool_calls[0]["id"] for each in replies[1:]}) == 3
    with pytest.raises(ScriptError):
        ScriptedChatModel([], loop=True).invoke(HI)


def test_a_bound_copy_shares_the_script() -> None:
    """Binding tools leaves one script and one record, which says what was offered at each call."""
    model = ScriptedChatModel(["one", "two", "three"], agent="billing")
    bound = model.bind_tools([look, {"name": "refund", "description": "Refund.", "parameters": {"type": "object"}}])
    assert bound.invoke(HI).text == "one"
    assert model.invoke(HI).text == "two"
    assert model.bind_tools([pay]).invoke([SystemMessage("Be kind."), *HI]).text == "three"
    model.assert_finished()
    assert model.offered == [["look", "refund"], [], ["pay"]]
    assert [[each.text for each in prompt] for prompt in model.prompts] == [["hi"], ["hi"], ["Be kind.", "hi"]]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda model: model.model_copy(deep=True)])
def test_copies_share_the_script(copied: Any) -> None:
    """A host may copy a model; the copy goes on in the same script."""
    model = ScriptedChatModel(["one", "two"])
    assert [copied(model).invoke(HI).text, model.invoke(HI).text] == ["one", "two"]
    model.assert_finished()


def test_a_pickled_model_goes_on_where_it_was() -> None:
    """A model can be sent to another process, which goes on with the turns that were left."""
    model = ScriptedChatModel(["one", "two"], agent="billing", strict=False)
    model.invoke(HI)
    twin = pickle.loads(pickle.dumps(model))
    assert (twin.agent, twin.strict, twin.invoke(HI).text) == ("billing", False, "two")
    with pytest.raises(ScriptError):
        twin.invoke(HI)
    with pytest.raises(ScriptError):
        model.assert_finished()


def test_ids_name_the_agent_and_are_never_given_twice() -> None:
    """Ids count up behind the agent's name, and two scripts of one agent give none in common: a known id replaces its message."""

    def ids() -> list[str]:
        model = ScriptedChatModel([call("look"), [call("look"), call("look")], "done"], agent="billing")
        replies = [model.invoke(HI) for _ in range(3)]
        found = [*(str(each.id) for each in replies), *(str(made["id"]) for each in replies for made in each.tool_calls)]
        assert [each.split("-", 2)[2] for each in found] == ["1", "2", "3", "1-0", "2-0", "2-1"]
        return found

    first, second = ids(), ids()
    assert all(each.startswith("billing-") for each in first)
    assert len({*first, *second}) == 12


def test_given_ids_are_kept() -> None:
    """An id that the script gives, of a call or of a message, stays."""
    model = ScriptedChatModel([call("look", call_id="mine"), AIMessage("x", id="own")])
    assert model.invoke(HI).tool_calls[0]["id"] == "mine"
    assert model.invoke(HI).id == "own"


def test_what_a_call_costs_can_be_summed() -> None:
    """Each reply says how many tokens went in and came out, counted as langchain-core counts."""
    prompt = [SystemMessage("Resolve billing issues only."), *HI]
    reply = ScriptedChatModel(["Paid in full."], agent="billing").invoke(prompt)
    spent = reply.usage_metadata
    assert spent is not None
    assert spent["input_tokens"] == count_tokens_approximately(prompt)
    assert spent["output_tokens"] > 0
    assert spent["total_tokens"] == spent["input_tokens"] + spent["output_tokens"]


class _Yielding(list[Any]):
    """A list that lets another thread run whenever it grows, so that a missing lock shows."""

    def append(self, each: Any) -> None:
        super().append(each)
        time.sleep(0)


def test_threads_share_a_script_fairly() -> None:
    """When many threads ask at once, each turn is said exactly once, with an id of its own."""
    with ScriptedChatModel([str(number) for number in range(200)]) as model, ThreadPoolExecutor(8) as pool:
        model._script.prompts, model._script.offered = _Yielding(), _Yielding()
        replies = list(pool.map(lambda _: model.invoke(HI), range(200)))
    assert sorted(int(each.text) for each in replies) == list(range(200))
    assert len({each.id for each in replies}) == 200
    assert len(model.prompts) == len(model.offered) == 200


# --- what a provider refuses


REFUSED_PROMPTS: list[tuple[str, list[BaseMessage], str]] = [
    ("no result", [*HI, called("1")], "has no result"),
    ("an orphan", [*HI, answer("1")], "does not call"),
    ("late instructions", [*HI, SystemMessage("x")], "system message does not stand first"),
    ("late second instructions", [SystemMessage("x"), *HI, SystemMessage("y")], "system message does not stand first"),
    ("an empty user", [HumanMessage(" ")], "of the user is empty"),
    ("an empty assistant", [*HI, AIMessage("")], "of the assistant is empty"),
    ("empty blocks", [HumanMessage([])], "of the user is empty"),
    ("instructions only", [SystemMessage("x")], "no message besides instructions"),
    ("nothing", [], "no message besides instructions"),
    ("a call id of two messages", [*HI, called("1"), answer("1"), called("1"), answer("1")], "call id '1' is used by two"),
    ("a message id twice", [HumanMessage("a", id="m"), AIMessage("b", id="m")], "message id 'm' stands twice"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("prompt", "fault"), [each[1:] for each in REFUSED_PROMPTS], ids=[each[0] for each in REFUSED_PROMPTS])
async def test_a_strict_model_refuses_what_providers_refuse(prompt: list[BaseMessage], fault: str, way: str) -> None:
    """A strict model names the agent and the fault, and uses no turn for it; a lax one replies."""
    model = ScriptedChatModel(["fine"], agent="billing")
    with pytest.raises(ScriptError, match=f"`billing`.*{fault}"):
        await ask(model, prompt, way)
    assert (await ask(model, HI, way)).text == "fine"
    assert (await ask(ScriptedChatModel(["fine"], strict=False), prompt, way)).text == "fine"


def test_a_right_prompt_is_not_refused() -> None:
    """Instructions, silent calls with their results, blocks, and an image without words are fine."""
    image = HumanMessage([{"type": "image", "url": "https://example.org/a.png"}])
    prompt = [SystemMessage("a"), SystemMessage("b"), image, called("1", "2"), answer("2"), answer("1"), AIMessage("ok"), *HI]
    assert ScriptedChatModel(["fine"]).invoke(prompt).text == "fine"


FAULTS: list[tuple[str, list[BaseMessage], list[str]]] = [
    ("none", [*HI, called("1", "2"), answer("1"), answer("2"), AIMessage("ok")], []),
    ("results in any order", [called("1", "2"), answer("2"), answer("1")], []),
    ("nothing at all", [], []),
    ("one of two missing", [called("1", "2"), answer("1")], ["message 0: call '2' has no result"]),
    ("at the end", [*HI, called("1")], ["message 1: call '1' has no result"]),
    ("two results", [called("1"), answer("1"), answer("1")], ["message 0: call '1' has 2 results"]),
    (
        "something between",
        [called("1", "2"), answer("1"), *HI, answer("2")],
        [
            "message 0: call '2' has no result",
            "message 3 is a result of '2', which the message before does not call",
        ],
    ),
    (
        "the call of an earlier message",
        [called("1"), answer("1"), AIMessage("ok"), answer("1")],
        ["message 3 is a result of '1', which the message before does not call"],
    ),
    ("the same id twice", [called("1", "1"), answer("1")], ["message 0 has the call id '1' twice"]),
    (
        "no id",
        [AIMessage("", tool_calls=[call("look")])],
        ["message 0 has a call without an id", "message 0: call '' has no result"],
    ),
    (
        "no ids",
        [AIMessage("", tool_calls=[call("look"), call("look")])],
        [*["message 0 has a call without an id"] * 2, "message 0: call '' has no result"],
    ),
    (
        "a call that could not be parsed",
        [AIMessage("", invalid_tool_calls=[InvalidToolCall(name="look", args="{", id="1", error="", type="invalid_tool_call")])],
        ["message 0: call '1' has no result"],
    ),
]


@pytest.mark.parametrize(("messages", "faults"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS])
def test_faults_of_a_history(messages: list[BaseMessage], faults: list[str]) -> None:
    """Each call has one result right behind its message, and each fault is told in words."""
    assert history_faults(messages) == faults


@st.composite
def histories(draw: st.DrawFn) -> list[BaseMessage]:
    """A right history in which some message calls something."""
    messages: list[BaseMessage] = []
    for number, size in enumerate(draw(st.lists(st.integers(0, 3), min_size=1, max_size=5).filter(any))):
        ids = [f"{number}-{each}" for each in range(size)]
        messages += [HumanMessage("hi")] if draw(st.booleans()) else []
        messages += [called(*ids), *map(answer, draw(st.permutations(ids)))]
    return messages


@given(messages=histories(), data=st.data())
def test_one_change_to_the_results_of_a_right_history_is_found(messages: list[BaseMessage], data: st.DataObject) -> None:
    """A right history has no faults; leaving out, doubling, moving or parting any result gives one."""
    assert history_faults(messages) == []
    at = data.draw(st.sampled_from([i for i, each in enumerate(messages) if isinstance(each, ToolMessage)]))
    before, it, after = messages[:at], messages[at], messages[at + 1 :]
    assert history_faults([*before, *after])
    assert history_faults([*before, it, it, *after])
    assert history_faults([it, *before, *after])
    assert history_faults([*before, HumanMessage("wait"), it, *after])


# --- asserts


def two(desk: Desk) -> Any:
    """Alice hands a case to bob, who looks something up, reaches for alice's tool, and answers."""
    hand = call("transfer_to_bob", reason="An invoice", summary="A-77", known_facts={"invoice": "A-77", "amount": 9})
    return desk(
        alice={"turns": [[call("pay", amount=1), hand]], "tools": [pay], "handoffs": ["bob"]},
        bob={"turns": [call("look", n=1), call("pay", amount=2), "done"], "tools": [look]},
    )


def test_assert_hops(desk: Desk, config: Any) -> None:
    """The hops of a case are compared, and a failure shows both chains."""
    graph = two(desk)
    graph.invoke(say("hi"), config)
    assert_hops(graph, config, ["alice", "bob"])
    with pytest.raises(AssertionError) as failed:
        assert_hops(graph, config, ["alice", "carol"])
    assert str(failed.value) == "expected hops ['alice', 'carol'], found ['alice', 'bob']"


def test_assert_only_owner_called_tools(desk: Desk, config: Any) -> None:
    """Calls that were refused are no fault; a call that was carried out for an agent that does not hold the tool is."""
    graph = two(desk)
    graph.invoke(say("hi"), config)
    assert_only_owner_called_tools(graph, config)
    assert_only_owner_called_tools(graph, config, {"alice": ["pay"], "bob": ["look"]})
    with pytest.raises(AssertionError, match=r"expected calls of \['pay'\] by bob, found look"):
        assert_only_owner_called_tools(graph, config, {"alice": ["pay"], "bob": ["pay"]})
    forged = [called("x", id="f", name="alice"), answer("x")]
    graph.update_state(config, {"messages": forged[:1]})
    assert_only_owner_called_tools(graph, config)
    graph.update_state(config, {"messages": forged[1:]})
    with pytest.raises(AssertionError, match=r"expected calls of \['pay'\] by alice, found look"):
        assert_only_owner_called_tools(graph, config)


def test_assert_only_owner_called_tools_wants_a_case(desk: Desk) -> None:
    """A thread on which nothing was said proves nothing."""
    with pytest.raises(AssertionError, match=r"found none.*ghost"):
        assert_only_owner_called_tools(two(desk), {"configurable": {"thread_id": "ghost"}})


def test_assert_package(desk: Desk, config: Any) -> None:
    """Fields of the present package are compared, of a graph and of a state."""
    graph = two(desk)
    state = graph.invoke(say("hi"), config)
    assert_package(graph, config, from_agent="alice", to_agent="bob", known_facts={"invoice": "A-77"})
    assert_package(state, to_agent="bob", constraints=[], summary="A-77")
    with pytest.raises(AssertionError) as failed:
        assert_package(graph, config, to_agent="carol")
    assert str(failed.value) == "package.to_agent: expected 'carol', found 'bob'"


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"known_facts": {"invoice": "B"}}, "package.known_facts: expected {'invoice': 'B'}, found {'invoice': 'A'}"),
        ({"known_facts": {"order": None}}, "package.known_facts: expected {'order': None}, found {}"),
        ({"known_facts": ["invoice"]}, "package.known_facts: expected ['invoice'], found {'invoice': 'A', 'amount': 9}"),
        ({"constraints": ["none"]}, "package.constraints: expected ['none'], found ['net 30']"),
        ({"colour": "red"}, "package.colour: expected 'red', found no such field in HandoffPackage"),
    ],
)
def test_a_package_that_differs_is_told_apart(expected: dict[str, Any], found: str) -> None:
    """Of a dictionary the given keys are compared, a missing one is not None, and a failure shows expected and found."""
    package = HandoffPackage(reason="x", known_facts={"invoice": "A", "amount": 9}, constraints=["net 30"])
    with pytest.raises(AssertionError) as failed:
        assert_package({"handoff": package}, **expected)
    assert str(failed.value) == found


def test_no_package_is_told() -> None:
    """A case that was never handed over has no package to compare."""
    with pytest.raises(AssertionError, match=r"there is no package; expected \{'to_agent': 'bob'\}"):
        assert_package({"messages": []}, to_agent="bob")


def test_the_package_does_not_know_the_test_kit() -> None:
    """Neither the public face nor the command line imports the test kit."""
    code = "import sys, langgraph_handoff, langgraph_handoff.cli; sys.exit('langgraph_handoff.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
