"""A refund above the limit, without a graph: asked for, blocked on evidence, resubmitted, approved, learned from."""

from __future__ import annotations

import pytest
from langgraph.store.base import BaseStore

from langgraph_handoff import CaseMemory
from langgraph_handoff.testing import ScriptedChatModel

LESSON = "Check for existing credits before computing a refund."


class Bank:
    """Pays only what has an approval that stands."""

    def __init__(self, memory: CaseMemory) -> None:
        self.memory = memory
        self.paid: list[tuple[str, int]] = []

    def refund(self, handoff_id: str, amount: int) -> bool:
        """Refund if the handoff is approved, once."""
        if self.memory.await_verdict(handoff_id=handoff_id, timeout=0) != "approve":
            return False
        if handoff_id not in dict(self.paid):
            self.paid.append((handoff_id, amount))
        return True


def ask(memory: CaseMemory, amount: int) -> str:
    """Ari asks Rex to approve a refund."""
    return memory.handoff(
        case_id="acme-csv",
        from_agent="ari",
        to_agent="rex",
        requested_action="approve",
        content={
            "summary": f"Refund Acme Corp ${amount:,} for the CSV-export incident.",
            "decisions": ["full refund, not partial"],
            "constraints": ["above $500 a reviewer must approve", "Acme is on the Scale plan"],
            "open_questions": ["Does the May 3 plan-change credit overlap?"],
        },
        task_id="refund",
    )


def test_the_refund_of_acme(store: BaseStore) -> None:
    """The block stands in Ari's context and holds the refund, $800 is paid once, and the lesson is there in the next case."""
    ari, rex = CaseMemory(store), CaseMemory(store)
    bank = Bank(ari)
    credit = ari.record(
        case_id="acme-csv",
        entry_type="trace",
        agent="ari",
        content={
            "tool": "issue_credit",
            "args": {"customer": "Acme Corp", "amount": 400},
            "result": "goodwill credit, CSV-export incident",
        },
    )
    ari.record(
        case_id="acme-csv", entry_type="trace", agent="ari", content={"tool": "get_plan", "result": "Scale, changed on May 3"}
    )
    first = ask(ari, 1200)
    assert not bank.refund(first, 1200)

    (request,) = rex.receive_handoffs(agent_id="rex")
    assert (request.entry_id, request.requested_action) == (first, "approve")
    evidence = rex.recall(case_id=request.case_id, query="credits for the CSV-export incident", entry_types=["trace"])
    assert evidence[0].entry_id == credit
    rex.feedback(handoff_id=first, from_agent="rex", verdict="block", comments=f"{LESSON} Acme has $400: $800.", sources=[credit])

    (block,) = ari.notes(agent_id="ari", case_id="acme-csv")["feedback"]
    assert (block.verdict, block.handoff_id, block.sources) == ("block", first, (credit,))
    assert not bank.refund(first, 1200)

    second = ask(ari, 800)
    assert [each.entry_id for each in rex.receive_handoffs(agent_id="rex")] == [second]
    rex.feedback(handoff_id=second, from_agent="rex", verdict="approve")
    assert bank.refund(second, 800)
    assert bank.refund(second, 800)
    assert not bank.refund(first, 1200)
    assert bank.paid == [(second, 800)]

    (lesson,) = ari.reflect(case_id="acme-csv")
    assert (lesson.agent, lesson.sources[1]) == ("ari", first)
    notes = ari.notes(agent_id="ari", case_id="beta-export", query="computing a refund")
    assert [each.content for each in notes["lessons"]] == [lesson.content]
    assert LESSON in lesson.text
    assert (notes["handoffs"], notes["feedback"]) == ([], [])
    assert rex.notes(agent_id="rex", case_id="beta-export")["lessons"] == []


def test_a_verdict_is_reflected_on_once(store: BaseStore) -> None:
    """Reflecting again adds nothing, praise teaches nothing, and a block without a word teaches nothing."""
    memory = CaseMemory(store)
    for verdict, comments in (
        ("block", "Check credits."),
        ("block", " "),
        ("approve", "Well done."),
        ("request_changes", "Add the invoice."),
    ):
        memory.feedback(handoff_id=ask(memory, 1), from_agent="rex", verdict=verdict, comments=comments)
    for _ in range(2):
        assert [each.content for each in memory.reflect(case_id="acme-csv")] == ["Check credits.", "Add the invoice."]
    assert len(memory.recall(case_id="acme-csv", entry_types=["lesson"])) == 2
    assert memory.reflect(case_id="another") == []


def test_a_model_puts_a_lesson_into_words(store: BaseStore) -> None:
    """With a model the lesson is in its words, once, and the model was shown request and verdict."""
    with ScriptedChatModel([LESSON]) as model:
        memory = CaseMemory(store, model=model)
        memory.feedback(handoff_id=ask(memory, 1200), from_agent="rex", verdict="block", comments="There was a credit of $400.")
        for _ in range(2):
            assert [each.content for each in memory.reflect(case_id="acme-csv")] == [LESSON]
    shown = model.prompts[0][-1].text
    assert "There was a credit of $400." in shown
    assert "$1,200" in shown


@pytest.mark.parametrize("query", ["", "refund"])
def test_lessons_that_fit_come_first_and_the_newest_fill_up(query: str, store: BaseStore) -> None:
    """A query chooses lessons; what is left of the limit goes to the newest ones."""
    memory = CaseMemory(store)
    for text in ("Check a refund for credits.", "Greet in the user's language.", "Name the invoice.", "Close the case."):
        memory.record(case_id="old", entry_type="lesson", agent="ari", content=text)
    lessons = [each.content for each in memory.notes(agent_id="ari", case_id="new", query=query, limit=3)["lessons"]]
    newest = ["Close the case.", "Name the invoice.", "Greet in the user's language."]
    assert lessons == (["Check a refund for credits.", *newest[:2]] if query else newest)
