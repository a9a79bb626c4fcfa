"""The demo: a support desk whose models need no key.

`DemoChatModel` is not a script. It reads the user's words, the tools that it was offered, the results that it has seen and
the package that it was given, and decides from these. It knows a few topics by their words; everything else it answers honestly.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
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
    "tech": re.compile(r"\b(api|40[13]|error|key|keys|token|login|outage|down|timeout|webhook|sdk|integration)\b", re.IGNORECASE),
    "billing": re.compile(
        r"\b(invoices?|bill|billing|billed|charged?|charges|refunds?|credits?|pay|payment|plan|price)\b", re.IGNORECASE
    ),
}
"""Agent → the words by which its topic is known."""

_SOLVED: Final = "solved:"
"""Prefix of the facts by which an agent says that a topic is settled."""


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
        talk = [m for m in messages if not (isinstance(m, HumanMessage) and f"<{FENCE}>" in m.text)]
        self.words = next((str(m.text) for m in reversed(talk) if isinstance(m, HumanMessage)), "")
        # Results count since the user last spoke; earlier ones belong to what was asked then.
        start = max((i for i, m in enumerate(talk) if isinstance(m, HumanMessage)), default=-1)
        self.results = [m for m in talk[start + 1 :] if isinstance(m, ToolMessage)]

    def fact(self, name: str) -> str | None:
        """Return a fact that the brief names."""
        found = re.search(rf"^- {re.escape(name)}: (.*)$", self.brief, re.MULTILINE)
        return found.group(1) if found else None

    def result(self, tool: str) -> ToolMessage | None:
        """Return the last result of a tool."""
        return next((m for m in reversed(self.results) if m.name == tool), None)

    def open_topics(self) -> list[str]:
        """Return the topics of the user's words that nobody has settled, technical ones first."""
        return [topic for topic, words in _TOPICS.items() if words.search(self.words) and not self.fact(_SOLVED + topic)]

    def call(self, tool: str, words: str = "", /, **args: Any) -> AIMessage:
        """Return a call of a tool."""
        return AIMessage(words, tool_calls=[ToolCall(name=tool, args=args, id=os.urandom(6).hex(), type="tool_call")])


def _triage(seen: _Reading) -> AIMessage:
    topics = seen.open_topics()
    for topic in topics:
        tool = f"transfer_to_{topic}"
        refused = any(m.name == tool and m.status == "error" for m in seen.results)
        if tool in seen.tools and not refused:
            waiting = [other for other in topics if other != topic]
            return seen.call(
                tool,
                reason=f"The user has a {topic} question.",
                goal=seen.words,
                open_questions=[f"{other}: still open" for other in waiting],
            )
    settled = [seen.fact(_SOLVED + topic) for topic in _TOPICS if seen.fact(_SOLVED + topic)]
    if settled:
        return AIMessage(" ".join(f"{each}." for each in settled if each))
    return AIMessage("I can help with invoices and with the API. What is it about?")


def _tech(seen: _Reading) -> AIMessage:
    status = seen.result("key_status")
    if status is None and "key_status" in seen.tools:
        return seen.call("key_status", key_id=_found(r"\bk-\d+\b", seen.words) or "k-1")
    found = str(status.text) if status else "the key could not be looked up"
    solution = f"401 comes from the old key; {found}. Use the new key"
    back = next((tool for tool in seen.tools if tool in ("transfer_to_triage", "transfer_back_to_triage")), None)
    if back and "billing" in seen.open_topics():
        return seen.call(
            back, summary="The technical part is solved.", known_facts={f"{_SOLVED}tech": solution, "key_status": found}
        )
    return seen.call("close_case", message=f"{solution}.") if "close_case" in seen.tools else AIMessage(f"{solution}.")


def _billing(seen: _Reading) -> AIMessage:
    if seen.result("get_invoice") is None and "get_invoice" in seen.tools:
        return seen.call("get_invoice", invoice_id=_found(r"\b[A-Z]{1,3}-?\d{2,}\b", seen.words) or "A-102")
    invoice = _json(seen.result("get_invoice"))
    over = round(float(invoice.get("charged", 0)) - float(invoice.get("agreed", 0)), 2)
    solved = seen.fact(f"{_SOLVED}tech")
    also = f" On the API: {solved}." if solved else ""
    credit = seen.result("issue_credit")
    if over <= 0:
        return _closing(seen, f"Invoice {invoice.get('id')} is right: {invoice.get('charged')}.{also}")
    if credit is None and "issue_credit" in seen.tools:
        why = f"Invoice {invoice['id']} charges {invoice['charged']} where {invoice['agreed']} were agreed."
        return seen.call("issue_credit", why, invoice_id=str(invoice["id"]), amount=over)
    if credit is not None and credit.status != "error":
        return _closing(seen, f"Your invoice {invoice['id']} was wrong; {credit.text.splitlines()[-1]}.{also}")
    said = f" ({credit.text})" if credit else ""
    return _closing(seen, f"Invoice {invoice['id']} looks {over} too high, but no credit was approved{said}.{also}")


def _closing(seen: _Reading, words: str) -> AIMessage:
    return seen.call("close_case", message=words) if "close_case" in seen.tools else AIMessage(words)


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found.group() if found else None


def _json(message: ToolMessage | None) -> dict[str, Any]:
    try:
        read = json.loads(str(message.text)) if message else {}
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def bank(db: str | os.PathLike[str]) -> Path:
    """Return the file in which the demo keeps the credits that it issued, beside the cases: one JSON line each."""
    path = Path(db)
    return path.with_name(f"{path.stem}.credits.jsonl")


def _tools(credits_file: Path) -> tuple[Callable[..., str], Callable[..., str], BaseTool]:
    def key_status(key_id: str) -> str:
        """Look up whether an API key is valid."""
        return f"{key_id} was rotated out yesterday, its successor is valid"

    def get_invoice(invoice_id: str) -> str:
        """Read an invoice: what was agreed and what was charged."""
        return json.dumps({"id": invoice_id, "agreed": 160.0, "charged": 250.0, "currency": "EUR"})

    def issue_credit(invoice_id: str, amount: float) -> str:
        """Credit an amount to an invoice."""
        with credits_file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"invoice_id": invoice_id, "amount": amount}) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        return f"{amount:.2f} were credited to {invoice_id}"

    def credited(args: Mapping[str, Any]) -> bool:
        lines = credits_file.read_text(encoding="utf-8").splitlines() if credits_file.exists() else []
        wanted = {"invoice_id": args["invoice_id"], "amount": args["amount"]}
        return any(json.loads(line) == wanted for line in lines)

    return key_status, get_invoice, privileged(issue_credit, identity=("invoice_id", "amount"), probe=credited)


def support(db: str | os.PathLike[str] = "cases.db", model: BaseChatModel | str | None = None) -> HandoffGraph:
    """Build the support desk: triage, tech and billing, with a person who approves credits.

    Args:
        db: The cases' file; the credits are kept beside it.
        model: A chat model or its name for all agents. None takes the demo model.
    """
    key_status, get_invoice, issue_credit = _tools(bank(db))

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
            "You solve technical questions. Look the key up. If the user has other questions too, hand the case back to triage "
            'and put what you found into known_facts under "solved:tech"; else close the case.'
        ),
        tools=[key_status],
        handoffs=[Handoff(to="triage", description="Hand the case back to triage when the technical part is solved")],
    )
    billing = Agent(
        name="billing",
        description="Invoices, credits, refunds",
        model=speaking("billing"),
        prompt="You solve invoice questions. Read the invoice, credit what was charged too much, then close the case.",
        tools=[get_invoice, issue_credit],
        handoffs=["triage"],
    )
    return create_handoff_graph([triage, tech, billing], default_active_agent="triage")


def two_agents(model: BaseChatModel | str | None = None) -> HandoffGraph:
    """Build the smallest desk: triage and tech, nothing privileged.

    Args:
        model: A chat model or its name for both agents. None takes the demo model.
    """
    key_status, _, _ = _tools(Path(os.devnull))
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
        prompt="Look the key up and tell the user what to do.",
        tools=[key_status],
    )
    return create_handoff_graph([triage, tech], default_active_agent="triage")
