"""The demo: a support desk whose models need no key.

`DemoChatModel` is not a script. It reads the user's words, the tools that it was offered, the results that it has seen and
the package that it was given, and decides from these. It knows a few topics by their words; everything else it answers honestly.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langgraph_handoff.agents import Agent, Handoff
from langgraph_handoff.context import FENCE
from langgraph_handoff.graph import HandoffGraph, create_handoff_graph
from langgraph_handoff.tools import privileged

__all__ = ("SEED_CASE", "DemoChatModel", "bank", "support", "two_agents")

SEED_CASE: Final = "My invoice looks wrong and the API returns 401 after we rotated keys"

_TOPICS: Final[Mapping[str, re.Pattern[str]]] = {
    "tech": re.compile(r"(?i)\b(apis?|40[13]|errors?|keys?|tokens?|log ?in|outage|down|time[sd]? ?out|webhooks?|sdk)\b"),
    "billing": re.compile(
        r"(?i)\b(invoices?|bill(s|ing|ed)?|(over)?charge[sd]?|refund(s|ed)?|credits?|paid|pay(ments?)?|plans?|prices?)\b"
    ),
}
"""Agent → the words by which its topic is known."""
_KEYS: Final = re.compile(r"(?i)\b(40[13]|keys?|tokens?|log ?in)\b")
_PLANS: Final = re.compile(r"(?i)\b(plans?|prices?)\b")
_INVOICES: Final = re.compile(r"(?i)\b(invoices?|bill(s|ed)?|(over)?charge[sd]?|refund(s|ed)?|credits?|paid|payments?)\b")
_SOLVED: Final = "solved:"
"""Prefix of the facts by which an agent says that a topic is settled."""
_OPEN: Final = "still open"
_LATEST: Final = "latest"
"""What stands for an invoice or key that the user did not name."""
_INVOICED: Final = {"A-102": (160.0, 250.0), "A-103": (90.0, 90.0)}
"""Invoice → what was agreed and what was charged."""


class DemoChatModel(BaseChatModel):
    """A small deterministic chat model for the demo desk."""

    role: str
    """Which agent it speaks for."""
    tools: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "demo"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a copy that is offered these tools."""
        return self.model_copy(update={"tools": tuple(convert_to_openai_tool(each)["function"]["name"] for each in tools)})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        think = {"triage": _triage, "tech": _tech, "billing": _billing}[self.role]
        said = think(_Reading(messages, self.tools))
        return ChatResult(generations=[ChatGeneration(message=said)])


class _Reading:
    """What the model finds in its prompt."""

    def __init__(self, messages: Sequence[BaseMessage], tools: Sequence[str]) -> None:
        self.tools = tools
        self.brief = next((str(m.text) for m in messages if isinstance(m, HumanMessage) and f"<{FENCE}>" in m.text), "")
        self.talk = [m for m in messages if not (isinstance(m, HumanMessage) and f"<{FENCE}>" in m.text)]
        self.words = next((str(m.text) for m in reversed(self.talk) if isinstance(m, HumanMessage)), "")
        # Newest first: "please hurry" says nothing of the matter, what was said before it does.
        self.said = [str(m.text) for m in reversed(self.talk) if isinstance(m, HumanMessage)]
        self.said += re.findall(r"^The user asked: (.*)$", self.brief, re.MULTILINE)

    def about(self, topic: str) -> str:
        """Return the last words of the user on a topic."""
        return next((each for each in self.said if _TOPICS[topic].search(each)), "")

    def found(self, pattern: str) -> str | None:
        """Return what the user last said that looks like this."""
        return next((hit.group() for each in self.said if (hit := re.search(pattern, each))), None)

    def fact(self, name: str) -> str | None:
        """Return a fact of the package; what else the case file holds may be an answer to an earlier question."""
        package = re.split(r"^Known in this case:$", self.brief, flags=re.MULTILINE)[0]
        found = re.search(rf"^- {re.escape(name)}: (.*)$", package, re.MULTILINE)
        return found.group(1) if found else None

    def result(self, tool: str, **args: Any) -> ToolMessage | None:
        """Return the result of this very call; the same tool with other arguments answered something else."""
        calls = [call for m in self.talk if isinstance(m, AIMessage) for call in m.tool_calls]
        ids = {call["id"] for call in calls if call["name"] == tool and call["args"] == args}
        return next((m for m in reversed(self.talk) if isinstance(m, ToolMessage) and m.tool_call_id in ids), None)

    def refused(self, tool: str) -> bool:
        """Return whether a call of a tool failed since the user last spoke."""
        start = max((i for i, m in enumerate(self.talk) if isinstance(m, HumanMessage)), default=-1)
        return any(isinstance(m, ToolMessage) and m.name == tool and m.status == "error" for m in self.talk[start + 1 :])

    def open_topics(self) -> list[str]:
        """Return the topics of the user's words that nobody has settled, technical ones first."""
        return [topic for topic, words in _TOPICS.items() if words.search(self.words) and not self.fact(_SOLVED + topic)]

    def call(self, tool: str, words: str = "", /, **args: Any) -> AIMessage:
        """Return a call of a tool."""
        return AIMessage(words, tool_calls=[ToolCall(name=tool, args=args, id=os.urandom(6).hex(), type="tool_call")])


def _triage(seen: _Reading) -> AIMessage:
    topics = seen.open_topics()
    settled = {_SOLVED + topic: fact for topic in _TOPICS if (fact := seen.fact(_SOLVED + topic))}
    for topic in topics:
        tool = f"transfer_to_{topic}"
        if tool in seen.tools and not seen.refused(tool):
            waiting = [other for other in topics if other != topic]
            return seen.call(
                tool,
                reason=f"The user has a {topic} question.",
                goal=seen.words,
                known_facts=settled,
                open_questions=[f"{other}: {_OPEN}" for other in waiting],
            )
    if settled:
        return AIMessage(" ".join(f"{each}." for each in settled.values()))
    return AIMessage("I can help with invoices and with the API. What is it about?")


def _tech(seen: _Reading) -> AIMessage:
    about_keys = bool(_KEYS.search(seen.about("tech")))
    tool = "key_status" if about_keys else "service_status"
    args = {"key_id": seen.found(r"\bk-\d+\b") or _LATEST} if about_keys else {}
    status = seen.result(tool, **args)
    if status is None and tool in seen.tools:
        return seen.call(tool, **args)
    found = str(status.text) if status else f"{tool} could not be looked up"
    if about_keys:
        code = seen.found(r"\b40[13]\b") or "The refusal"
        solution = f"{code} comes from the old key; {found}. Use the new key"
    else:
        solution = f"No fault is known here ({found}). Send the time of one call that failed, and it will be traced"
    back = next((tool for tool in seen.tools if tool in ("transfer_to_triage", "transfer_back_to_triage")), None)
    if back and ("billing" in seen.open_topics() or f"- billing: {_OPEN}" in seen.brief):
        return seen.call(back, summary="The technical part is solved.", known_facts={f"{_SOLVED}tech": solution, tool: found})
    return seen.call("close_case", message=f"{solution}.") if "close_case" in seen.tools else AIMessage(f"{solution}.")


def _billing(seen: _Reading) -> AIMessage:
    solved = seen.fact(f"{_SOLVED}tech")
    also = f" On the API: {solved}." if solved else ""
    about = seen.about("billing")
    if _PLANS.search(about) and not _INVOICES.search(about):
        return AIMessage(f"I read invoices and credit what was charged too much; plans and prices I cannot change.{also}")
    wanted = seen.found(r"\b[A-Z]{1,3}-?\d{2,}\b") or _LATEST
    read = seen.result("get_invoice", invoice_id=wanted)
    if read is None and "get_invoice" in seen.tools:
        return seen.call("get_invoice", invoice_id=wanted)
    if read is None or not read.text.startswith("{"):
        return AIMessage(f"{read.text if read else 'I cannot read invoices.'} Which one do you mean?{also}")
    invoice = json.loads(read.text)
    over = round(float(invoice["charged"]) - float(invoice["agreed"]), 2)
    if over <= 0:
        return _closing(seen, f"Invoice {invoice['id']} is right: {invoice['charged']} were agreed and charged.{also}")
    credit = seen.result("issue_credit", invoice_id=str(invoice["id"]), amount=over)
    if credit is None and "issue_credit" in seen.tools:
        why = f"Invoice {invoice['id']} charges {invoice['charged']} where {invoice['agreed']} were agreed."
        return seen.call("issue_credit", why, invoice_id=str(invoice["id"]), amount=over)
    if credit is not None and credit.status != "error":
        return _closing(seen, f"Your invoice {invoice['id']} was wrong; {credit.text.splitlines()[-1]}.{also}")
    said = f" ({credit.text})" if credit else ""
    return _closing(seen, f"Invoice {invoice['id']} looks {over} too high, but no credit was approved{said}.{also}")


def _closing(seen: _Reading, words: str) -> AIMessage:
    return seen.call("close_case", message=words) if "close_case" in seen.tools else AIMessage(words)


def bank(db: str | os.PathLike[str]) -> Path:
    """Return the file in which the demo keeps the credits that it issued, beside the cases: one JSON line each."""
    path = Path(str(db).removeprefix("sqlite:///"))
    return path.with_name(f"{path.stem}.credits.jsonl")


def key_status(key_id: str) -> str:
    """Look up whether an API key is valid; `latest` is the newest one that was used."""
    return f"{'k-1' if key_id == _LATEST else key_id} was rotated out yesterday, its successor is valid"


def service_status() -> str:
    """Look up whether the API has an incident."""
    return "it is up and no incident is known"


def get_invoice(invoice_id: str) -> str:
    """Read an invoice: what was agreed and what was charged; `latest` is the newest one."""
    known = next(iter(_INVOICED)) if invoice_id == _LATEST else invoice_id
    if known not in _INVOICED:
        return f"There is no invoice {known}; there are {' and '.join(_INVOICED)}."
    agreed, charged = _INVOICED[known]
    return json.dumps({"id": known, "agreed": agreed, "charged": charged, "currency": "EUR"})


def _crediting(credits_file: Path) -> BaseTool:
    def issue_credit(invoice_id: str, amount: float, operation: str) -> str:
        """Credit an amount to an invoice."""
        with credits_file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"invoice_id": invoice_id, "amount": amount, "operation": operation}) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        return f"{amount:.2f} were credited to {invoice_id}"

    def credited(args: Mapping[str, Any]) -> bool:
        lines = credits_file.read_text(encoding="utf-8").splitlines() if credits_file.exists() else []
        return any(json.loads(line)["operation"] == args["operation"] for line in lines)

    # By the operation, not by the arguments: a credit may rightly be issued twice.
    return privileged(issue_credit, identity=("invoice_id", "amount"), probe=credited, idempotency_key="operation")


def support(db: str | os.PathLike[str] = "cases.db", model: BaseChatModel | str | None = None) -> HandoffGraph:
    """Build the support desk: triage, tech and billing, with a person who approves credits.

    Args:
        db: The cases' file; the credits are kept beside it.
        model: A chat model or its name for all agents. None takes the demo model.
    """

    def speaking(role: str) -> BaseChatModel | str:
        return model or DemoChatModel(role=role)

    triage = Agent(
        name="triage",
        description="Takes new cases and knows who can help",
        model=speaking("triage"),
        prompt=(
            "You take support cases. Hand technical questions to tech first, then money questions to billing, one at a time. "
            "Do not solve them yourself, and do not ask again what the brief says is solved."
        ),
        handoffs=["tech", "billing"],
    )
    tech = Agent(
        name="tech",
        description="API errors, keys, integrations",
        model=speaking("tech"),
        prompt=(
            "You solve technical questions. Look the key or the service up. If the user has other questions too, hand the "
            'case back to triage and put what you found into known_facts under "solved:tech"; else close the case.'
        ),
        tools=[key_status, service_status],
        handoffs=[Handoff(to="triage", description="Hand the case back to triage when the technical part is solved")],
    )
    billing = Agent(
        name="billing",
        description="Invoices, credits, refunds",
        model=speaking("billing"),
        prompt="You solve invoice questions. Read the invoice, credit what was charged too much, then close the case.",
        tools=[get_invoice, _crediting(bank(db))],
        handoffs=["triage"],
    )
    return create_handoff_graph([triage, tech, billing], default_active_agent="triage")


def two_agents(model: BaseChatModel | str | None = None) -> HandoffGraph:
    """Build the smallest desk: triage and tech, nothing privileged.

    Args:
        model: A chat model or its name for both agents. None takes the demo model.
    """
    triage = Agent(
        name="triage",
        description="Takes new cases and knows who can help",
        model=model or DemoChatModel(role="triage"),
        prompt="Hand technical questions to tech; answer everything else yourself.",
        handoffs=["tech"],
    )
    tech = Agent(
        name="tech",
        description="API errors, keys, integrations",
        model=model or DemoChatModel(role="tech"),
        prompt="Look the key or the service up and tell the user what to do.",
        tools=[key_status, service_status],
    )
    return create_handoff_graph([triage, tech], default_active_agent="triage")
