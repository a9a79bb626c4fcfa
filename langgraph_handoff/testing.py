"""What a test of a handoff graph needs: a scripted chat model, and asserts that say what they found.

```python
triage = ScriptedChatModel([call("transfer_to_billing", reason="An invoice")], agent="triage")
billing = ScriptedChatModel(["Paid."], agent="billing")
...
assert_hops(graph, config, ["triage", "billing"])
```
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.state import CompiledStateGraph
from pydantic import PrivateAttr

from langgraph_handoff.errors import ScriptError
from langgraph_handoff.trace import hops
from langgraph_handoff.turn import REFUSED

__all__ = (
    "ScriptedChatModel",
    "Turn",
    "assert_hops",
    "assert_only_owner_called_tools",
    "assert_package",
    "call",
    "history_faults",
)

Turn = str | ToolCall | AIMessage | Sequence[str | ToolCall] | Callable[[list[BaseMessage]], Any]
"""One reply: words, a call, an `AIMessage`, a list of words and calls, or a function of the prompt that gives one of these."""

_Graph = CompiledStateGraph[Any, Any, Any, Any]


def call(name: str, /, *, call_id: str | None = None, **args: Any) -> ToolCall:
    """Return a tool call for a script.

    Args:
        name: Name of the tool.
        call_id: Its id; None lets the model give one.
        args: Its arguments.
    """
    return ToolCall(name=name, args=args, id=call_id, type="tool_call")


class _Script:
    """The turns that are left, shared by a model and its bound copies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(turns)
        self.taken = 0
        # Two scripts for one agent, in two processes say, must not give the same ids: a known id replaces its message.
        self.nonce = secrets.token_hex(3)
        self.prompts: list[list[BaseMessage]] = []
        self.offered: list[list[str]] = []
        self.lock = threading.Lock()

    def __deepcopy__(self, _memo: Any) -> _Script:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.Lock()


class ScriptedChatModel(BaseChatModel):
    """A chat model that replies from a script: with tools bound, sync, async and streaming.

    It fails when it is asked more often than its script says, and `assert_finished` fails when it was asked less often.
    As a context manager it asserts that at the end.
    """

    agent: str = "agent"
    """Whose model it is; every error names it."""
    strict: bool = True
    """Whether to refuse a prompt that a hosted provider would refuse."""
    loop: bool = False
    """Whether the last turn is repeated for ever."""
    tools: tuple[str, ...] = ()
    _script: _Script = PrivateAttr(default_factory=lambda: _Script(()))

    def __init__(self, turns: Sequence[Turn] = (), **fields: Any) -> None:
        """Make a model that replies with `turns`, one a call.

        Args:
            turns: The replies; see `Turn`.
            fields: `agent`, `strict`, `loop`.
        """
        super().__init__(**fields)
        self._script = _Script(turns)

    @property
    def prompts(self) -> list[list[BaseMessage]]:
        """The prompts that it was given, in order."""
        return self._script.prompts

    @property
    def offered(self) -> list[list[str]]:
        """The names of the tools that were bound at each call."""
        return self._script.offered

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a copy that shares this script and is offered these tools."""
        names = [convert_to_openai_tool(each)["function"]["name"] for each in tools]
        bound = self.model_copy(update={"tools": tuple(names)})
        bound._script = self._script
        return bound

    def assert_finished(self) -> None:
        """Assert that every turn was used.

        Raises:
            ScriptError: If turns are left.
        """
        left = len(self._script.turns) - self._script.taken
        if left and not self.loop:
            raise ScriptError(agent=self.agent, problem=f"{left} of {len(self._script.turns)} turns were not used")

    def __enter__(self) -> Self:
        """Return the model."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Assert that every turn was used, unless something else failed already."""
        if kind is None:
            self.assert_finished()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._reply(messages)):
            if run_manager:
                run_manager.on_llm_new_token(str(chunk.message.text), chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(self._reply(messages)):
            if run_manager:
                await run_manager.on_llm_new_token(str(chunk.message.text), chunk=chunk)
            yield chunk

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        if self.strict and (faults := [*history_faults(messages), *_provider_faults(messages)]):
            raise ScriptError(agent=self.agent, problem=f"its prompt would be refused by a provider: {'; '.join(faults)}")
        script = self._script
        with script.lock:
            script.prompts.append(list(messages))
            script.offered.append(list(self.tools))
            if script.taken < len(script.turns):
                number = script.taken
                script.taken += 1
            elif self.loop and script.turns:
                number = len(script.turns) - 1
            else:
                last = messages[-1].text if messages else ""
                raise ScriptError(
                    agent=self.agent, problem=f"call {script.taken + 1} was not expected; the prompt ends with {last!r:.200}"
                )
            count = len(script.prompts)
        turn = script.turns[number]
        reply = _message(turn(messages) if callable(turn) else turn, f"{self.agent}-{script.nonce}-{count}")
        spent = count_tokens_approximately(messages)
        said = count_tokens_approximately([reply])
        usage = UsageMetadata(input_tokens=spent, output_tokens=said, total_tokens=spent + said)
        return reply.model_copy(update={"usage_metadata": usage})


def _message(turn: Any, stem: str) -> AIMessage:
    if isinstance(turn, AIMessage):
        return turn if turn.id else turn.model_copy(update={"id": stem})
    parts = [turn] if isinstance(turn, str | dict) else list(turn)
    words = "\n".join(part for part in parts if isinstance(part, str))
    asked = [part for part in parts if not isinstance(part, str)]
    calls = [
        ToolCall(name=each["name"], args=each["args"], id=each.get("id") or f"{stem}-{index}", type="tool_call")
        for index, each in enumerate(asked)
    ]
    return AIMessage(words, tool_calls=calls, id=stem)


def _chunks(reply: AIMessage) -> Iterator[ChatGenerationChunk]:
    """Cut a reply as providers stream it: words one by one, then the calls, then the usage. Blocks come in one piece."""
    words = reply.content if isinstance(reply.content, str) else ""
    for number, word in enumerate(words.split(" ") if words else []):
        yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}" if number else word, id=reply.id))
    last = AIMessageChunk(
        content="" if words else reply.content,
        id=reply.id,
        additional_kwargs=reply.additional_kwargs,
        response_metadata=reply.response_metadata,
        tool_call_chunks=_call_chunks(reply),
        usage_metadata=reply.usage_metadata,
    )
    yield ChatGenerationChunk(message=last)


def _call_chunks(reply: AIMessage) -> list[Any]:
    good = [
        tool_call_chunk(name=each["name"], args=json.dumps(each["args"]), id=each["id"], index=i)
        for i, each in enumerate(reply.tool_calls)
    ]
    start = len(good)
    bad = [
        tool_call_chunk(name=each["name"], args=each["args"], id=each["id"], index=start + i)
        for i, each in enumerate(reply.invalid_tool_calls)
    ]
    return [*good, *bad]


def history_faults(messages: Sequence[BaseMessage]) -> list[str]:
    """Return what a hosted provider would refuse about calls and results; empty when nothing.

    Each call has exactly one result, and the results stand right behind their message, with nothing in between; a result
    answers a call of the message before it. Calls that could not be parsed count too, as providers see them.
    """
    faults: list[str] = []
    waiting: dict[str, int] = {}
    open_for = ""
    for number, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                faults.append(f"message {number} is a result of {message.tool_call_id!r}, which the message before does not call")
            else:
                waiting[message.tool_call_id] += 1
            continue
        faults += _unanswered(waiting, open_for)
        waiting = {}
        if isinstance(message, AIMessage):
            ids = [each["id"] or "" for each in (*message.tool_calls, *message.invalid_tool_calls)]
            faults += [f"message {number} has a call without an id" for each in ids if not each]
            faults += [f"message {number} has the call id {each!r} twice" for each in _repeated(filter(None, ids))]
            waiting = dict.fromkeys(ids, 0)
            open_for = f"message {number}"
    return [*faults, *_unanswered(waiting, open_for)]


def _unanswered(waiting: Mapping[str, int], where: str) -> list[str]:
    return [
        f"{where}: call {call_id!r} has {count or 'no'} result{'s' if count > 1 else ''}"
        for call_id, count in waiting.items()
        if count != 1
    ]


def _repeated(ids: Iterable[str]) -> list[str]:
    return [each for each, times in Counter(ids).items() if times > 1]


def _provider_faults(messages: Sequence[BaseMessage]) -> list[str]:
    """Return what else a provider refuses. Some want call ids, and ids of their own messages, to be unique in the prompt."""
    faults = [f"the message id {each!r} stands twice" for each in _repeated(each.id for each in messages if each.id)]
    said = [message for message in messages if isinstance(message, AIMessage)]
    calls = [{call["id"] for call in (*each.tool_calls, *each.invalid_tool_calls) if call["id"]} for each in said]
    faults += [f"the call id {each!r} is used by two messages" for each in _repeated(each for ids in calls for each in ids)]
    talk = [message for message in messages if not isinstance(message, SystemMessage)]
    if any(isinstance(message, SystemMessage) for message in messages[len(messages) - len(talk) :]):
        faults.append("a system message does not stand first")
    for number, message in enumerate(messages):
        silent = not str(message.text).strip() and not (isinstance(message.content, list) and message.content)
        if isinstance(message, HumanMessage) and silent:
            faults.append(f"message {number} of the user is empty")
        if isinstance(message, AIMessage) and silent and not message.tool_calls and not message.invalid_tool_calls:
            faults.append(f"message {number} of the assistant is empty")
    if not talk:
        faults.append("there is no message besides instructions")
    return faults


def assert_hops(graph: _Graph, config: RunnableConfig, expected: Sequence[str]) -> None:
    """Assert who had the case, in order.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
        expected: Names as `hops` gives them.
    """
    found = hops(graph, config)
    assert found == list(expected), f"expected hops {list(expected)}, found {found}"


def assert_only_owner_called_tools(
    graph: _Graph, config: RunnableConfig, holders: Mapping[str, Collection[str]] | None = None
) -> None:
    """Assert that every call that was carried out came from an agent that holds the tool.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
        holders: Agent → names of the tools that it may call. None takes them from the graph's catalogue. For a graph
            that has no catalogue, name the transfer tools too.
    """
    catalog = getattr(graph, "catalog", None)
    messages: list[BaseMessage] = graph.get_state(config).values.get("messages") or []
    assert messages, f"expected a case with messages, found none: {config.get('configurable')}"
    done = {m.tool_call_id for m in messages if isinstance(m, ToolMessage) and not m.additional_kwargs.get(REFUSED)}
    control: Callable[[str], Mapping[str, str]] = getattr(getattr(graph, "desk", None), "kinds", lambda _agent: {})
    for message in messages:
        for each in message.tool_calls if isinstance(message, AIMessage) else ():
            agent = message.name or "unnamed"
            held = holders.get(agent, ()) if holders is not None else catalog.tools.get(agent, ()) if catalog else ()
            may = each["name"] in held or control(agent).get(each["name"]) not in (None, "read", "write")
            assert may or each["id"] not in done, f"expected calls of {sorted(held)} by {agent}, found {each['name']}"


def assert_package(source: _Graph | Mapping[str, Any], config: RunnableConfig | None = None, **expected: Any) -> None:
    """Assert fields of the present package; of a dictionary, the given keys only.

    Args:
        source: The compiled graph, or a state.
        config: With the case's `thread_id`, when a graph is given.
        expected: Field → value.
    """
    state = source if isinstance(source, Mapping) else source.get_state(config or {}).values
    package = state.get("handoff")
    assert package is not None, f"there is no package; expected {expected}"
    for name, value in expected.items():
        assert hasattr(package, name), f"package.{name}: expected {value!r}, found no such field in {type(package).__name__}"
        found = getattr(package, name)
        if isinstance(value, Mapping) and isinstance(found, Mapping):
            found = {key: found[key] for key in value if key in found}
        if isinstance(value, list) and isinstance(found, tuple):
            found = list(found)
        assert found == value, f"package.{name}: expected {value!r}, found {found!r}"
