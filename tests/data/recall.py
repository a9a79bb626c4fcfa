"""Recorded conversations as cases of a memory, and questions about what a tool once answered.

How the questions are sampled. A question asks for one recorded result, in one of three shapes:

- *asked*: by what the call was given ("What did SearchHouse return for where to: Long Beach, rating: 4.50?"). Only if no
  other call of that tool in the conversation was given the same.
- *value*: by a value that came back ("Which result mentioned 562-425-0010?"). Only a value of 3 to 60 characters that stands in no
  other call or result of the conversation and not in the call's own arguments.
- *field*: by the tool and a field of its answer ("What phone number did the search house call give?"). Only if the tool was
  called once in the conversation.

Names of tools and fields appear as they are or as plain words. Of all questions that fit, each result's shapes together, a seeded generator
takes 100. Nothing in a question is an id of ours, and nothing in the memory was chosen by looking at single rows.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph_handoff import CaseMemory, Entry


@dataclass(frozen=True)
class Result:
    """A recorded answer of a tool."""

    case_id: str
    entry_id: str
    tool: str
    args: dict[str, Any]
    result: Any

    @property
    def text(self) -> str:
        """Everything in it, in small letters."""
        return json.dumps([self.args, self.result], ensure_ascii=False).lower()


@dataclass(frozen=True)
class Question:
    """A question and the result that answers it."""

    shape: str
    text: str
    about: Result


def dialogue(row: dict[str, Any]) -> tuple[list[Entry], list[Result]]:
    """Return a dialogue over several services as entries, and its results."""
    entries: list[Entry] = []
    results: list[Result] = []
    for turn in row["turns"]:
        agent = "user" if turn["who"] == "user" else turn["service"]
        entries.append(Entry.of(entry_type="fact", case_id=row["id"], agent=agent, content=turn["text"]))
        made = turn.get("call")
        if made and made["first_result"]:
            entries.append(trace(row["id"], agent, made["tool"], made["args"], made["first_result"]))
            results.append(Result(row["id"], entries[-1].entry_id, made["tool"], made["args"], made["first_result"]))
    return entries, results


def transcript(row: dict[str, Any]) -> tuple[list[Entry], list[Result]]:
    """Return a transcript with tool calls as entries, and its results."""
    entries: list[Entry] = []
    results: list[Result] = []
    open_calls: list[dict[str, Any]] = []
    for message in row["messages"]:
        if message["role"] == "tool":
            made = open_calls.pop(0)
            args = as_data(made["args_raw"])
            entries.append(trace(row["id"], made["agent"], made["name"], args, message["content"]))
            if isinstance(args, dict):
                answer = as_data(message["content"])
                results.append(Result(row["id"], entries[-1].entry_id, made["name"], args, answer))
            continue
        if message.get("content"):
            entries.append(Entry.of(entry_type="fact", case_id=row["id"], agent=message["role"], content=message["content"]))
        open_calls = list(message.get("tool_calls") or open_calls)
    return entries, results


def trace(case_id: str, agent: str, tool: str, args: Any, result: Any) -> Entry:
    """Return what a tool did as an entry."""
    content = {"tool": tool, "args": args, "result": result}
    return Entry.of(entry_type="trace", case_id=case_id, agent=agent, content=content)


def as_data(text: str) -> Any:
    """Return a text as the JSON that it holds, else as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def questions(results: Sequence[Result], chance: random.Random) -> list[Question]:
    """Return one question of each shape for each result that it fits."""
    return [question for result in results for question in _about(result, results, chance)]


def _about(result: Result, results: Sequence[Result], chance: random.Random) -> Iterator[Question]:
    others = [each for each in results if each.case_id == result.case_id and each is not result]
    same_tool = [each for each in others if each.tool == result.tool]
    fields = list(result.result) if isinstance(result.result, dict) and result.result else ["result"]
    if result.args and not any(result.args.items() <= each.args.items() for each in same_tool if hashable(each.args)):
        given = ", ".join(f"{words(name)}: {shown(value)}" for name, value in result.args.items())
        shapes = (
            f"What did {result.tool} return for {given}?",
            f"What was the {words(chance.choice(fields))} that {words(result.tool)} found for {given}?",
        )
        yield Question("asked", chance.choice(shapes), result)
    values = [shown(value) for value in result.result.values()] if isinstance(result.result, dict) else []
    told = json.dumps(result.args, ensure_ascii=False).lower()
    values = [v for v in values if 3 <= len(v) <= 60 and v.lower() not in told and not any(v.lower() in o.text for o in others)]
    if values:
        shapes = ("Which result mentioned {}?", "Where did we see {}?", "What do we know about {}?")
        yield Question("value", chance.choice(shapes).format(chance.choice(values)), result)
    if not same_tool:
        yield Question("field", f"What {words(chance.choice(fields))} did the {words(result.tool)} call give?", result)


def hashable(args: dict[str, Any]) -> bool:
    """Return whether all arguments are simple values, so that they can be compared as pairs."""
    return all(not isinstance(value, list | dict) for value in args.values())


def words(name: str) -> str:
    """Return a name of a tool or field as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def shown(value: Any) -> str:
    """Return a value as a person would write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def found_first(memory: CaseMemory, asked: Sequence[Question], *, among: list[Any] | None) -> list[Question]:
    """Return the questions whose result is the first entry that is recalled.

    Args:
        memory: Holds the cases.
        asked: The questions.
        among: Entry types to recall; None for all, which then compete with the talk that repeats the results.
    """
    return [
        question
        for question in asked
        if [question.about.entry_id]
        == [e.entry_id for e in memory.recall(case_id=question.about.case_id, query=question.text, entry_types=among, limit=1)]
    ]
