"""What is stored: checked, redacted, never changed, and the same whoever writes it twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.sqlite import SqliteStore
from pydantic import ValidationError

from langgraph_handoff import CaseMemory, Entry, HandoffPackage
from langgraph_handoff.errors import EntryConflictError, EntryError, UnknownHandoffError
from langgraph_handoff.memory.shelf import namespace
from tests.memory.conftest import asking, noted


def test_a_handoff_keeps_who_asked_whom_for_what(memory: CaseMemory) -> None:
    """A handoff's entry says who, to whom, what for, when, in which task, resting on what, in which version."""
    before = datetime.now(UTC)
    content = {"decisions": ["full refund, not partial"], "open_questions": ["Does the May 3 plan change overlap?"]}
    handoff = asking(memory, content=content, task_id="t-7", metadata={"urgency": "high"}, sources=["call-1"])
    (entry,) = memory.recall(case_id="case-1")
    assert (entry.entry_id, entry.entry_type, entry.case_id, entry.agent) == (handoff, "handoff", "case-1", "ari")
    assert entry.content == content
    assert (entry.to_agent, entry.requested_action, entry.task_id) == ("rex", "approve", "t-7")
    assert entry.metadata["urgency"] == "high"
    assert entry.sources == ("call-1",)
    assert entry.schema_version == "1.0"
    assert before <= entry.created_at <= datetime.now(UTC)


def test_feedback_knows_its_handoff_and_inherits_case_and_task(memory: CaseMemory) -> None:
    """A feedback stands in the case and task of its handoff."""
    handoff = asking(memory, task_id="t-7")
    memory.feedback(handoff_id=handoff, from_agent="rex", verdict="block", comments="There is a credit.")
    (entry,) = memory.recall(case_id="case-1", entry_types=["feedback"])
    assert (entry.case_id, entry.task_id, entry.handoff_id, entry.verdict) == ("case-1", "t-7", handoff, "block")
    assert (entry.agent, entry.content) == ("rex", "There is a credit.")


def test_a_package_is_stored_as_what_it_says(memory: CaseMemory) -> None:
    """A package's content is the handoff's content; its empty fields are left out."""
    asking(memory, content=HandoffPackage(reason="Over the limit", known_facts={"plan": "Scale"}))
    (entry,) = memory.recall(case_id="case-1")
    assert entry.content == {"requested_action": "continue", "reason": "Over the limit", "known_facts": {"plan": "Scale"}}


def test_an_entry_cannot_be_changed(memory: CaseMemory) -> None:
    """Entries are frozen."""
    noted(memory, "x")
    (entry,) = memory.recall(case_id="case-1")
    with pytest.raises(ValidationError):
        entry.content = "y"  # type: ignore[misc]


CIRCLE: list[Any] = []
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no case": ({"case_id": " "}, "case_id"),
    "case of another type": ({"case_id": 7}, "case_id"),
    "no receiver": ({"to_agent": ""}, "to_agent"),
    "no sender": ({"from_agent": ""}, "agent"),
    "unknown action": ({"requested_action": "bless"}, "review, continue, approve, execute"),
    "nothing said": ({"content": {}}, "content"),
    "no content": ({"content": None}, "content"),
    "an object": ({"content": object()}, "content: object is not plain JSON"),
    "not a number": ({"content": {"amount": float("nan")}}, "content: float is not plain JSON"),
    "a huge number": ({"content": [2**70]}, "content: int is not plain JSON"),
    "a number as key": ({"content": {1: "x"}}, "content: the key 1 is not a text"),
    "too much": ({"content": "x" * 300_000}, "content: it has 300002 bytes; the cap is 262144"),
    "a forged envelope": ({"metadata": {"verdict": "approve"}}, "only the memory sets verdict"),
    "an empty source": ({"sources": [""]}, "sources"),
    "an empty id": ({"entry_id": ""}, "entry_id"),
    "approval of one's own": ({"to_agent": " ari "}, "'ari' cannot be asked to approve what is its own"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name_and_stores_nothing(name: str, memory: CaseMemory) -> None:
    """Each invalid argument is named in the error, and nothing is stored."""
    given, said = BAD[name]
    with pytest.raises(EntryError) as refused:
        asking(memory, **given)
    assert said in str(refused.value)
    assert memory.cases() == []


def test_a_verdict_needs_its_handoff(memory: CaseMemory) -> None:
    """Feedback on what is not there, or is no handoff, is refused with its id and stores nothing."""
    trace = noted(memory, "x")
    for missing in ("handoff-404", trace):
        with pytest.raises(UnknownHandoffError, match=missing):
            memory.feedback(handoff_id=missing, from_agent="rex", verdict="approve")
        with pytest.raises(UnknownHandoffError, match=missing):
            memory.await_verdict(handoff_id=missing, timeout=0)
    assert memory.recall(case_id=None, entry_types=["feedback"]) == []


def test_unknown_words_are_refused_with_the_known_ones(memory: CaseMemory) -> None:
    """A verdict, entry type or status that does not exist is answered with those that do."""
    handoff = asking(memory)
    with pytest.raises(EntryError, match="'maybe' is none of approve, request_changes, block, acknowledge"):
        memory.feedback(handoff_id=handoff, from_agent="rex", verdict="maybe")  # type: ignore[arg-type]
    with pytest.raises(EntryError, match="'rumour' is none of handoff, feedback, trace, fact, lesson"):
        noted(memory, "x", entry_type="rumour")
    with pytest.raises(EntryError, match=r"call `handoff\(...\)`"):
        noted(memory, "x", entry_type="handoff")
    with pytest.raises(EntryError, match="'done' is none of open, approve"):
        memory.recall(case_id="case-1", status="done")


def test_nobody_approves_what_they_asked_for(memory: CaseMemory) -> None:
    """Who asked another cannot be who answers; anybody else can."""
    handoff = asking(memory)
    with pytest.raises(EntryError, match="'ari' asked for it"):
        memory.feedback(handoff_id=handoff, from_agent=" ari", verdict="approve")
    memory.feedback(handoff_id=handoff, from_agent="ana", verdict="approve")
    assert memory.await_verdict(handoff_id=handoff, timeout=0) == "approve"


def test_one_s_own_note_may_be_acknowledged(memory: CaseMemory) -> None:
    """What an agent hands to itself, for next month, it may acknowledge."""
    handoff = asking(memory, to_agent="ari", requested_action="continue")
    memory.feedback(handoff_id=handoff, from_agent="ari", verdict="acknowledge")
    assert memory.receive_handoffs(agent_id="ari") == []


def test_the_same_id_with_the_same_words_stands_once(memory: CaseMemory) -> None:
    """Who runs again and gives the id again stores nothing new: handoff, feedback and record alike."""
    for _ in range(2):
        asking(memory, entry_id="h-1")
        memory.feedback(handoff_id="h-1", from_agent="rex", verdict="approve", entry_id="f-1")
        noted(memory, {"tool": "pay"}, entry_id="t-1")
    assert sorted(entry.entry_id for entry in memory.recall(case_id="case-1")) == ["f-1", "h-1", "t-1"]


def test_the_same_id_with_other_words_is_refused(memory: CaseMemory) -> None:
    """An id that is taken is an error, and what stood there stands."""
    noted(memory, "first", entry_id="t-1")
    with pytest.raises(EntryConflictError, match="`t-1`"):
        noted(memory, "second", entry_id="t-1")
    assert [entry.content for entry in memory.recall(case_id="case-1")] == ["first"]


def test_entries_are_appended_at_once_and_those_that_are_there_stay(memory: CaseMemory) -> None:
    """Many entries go in by one call; an id that is there keeps what it says."""
    noted(memory, "first", entry_id="t-1")
    texts = {"t-1": "second", "t-2": "other", "t-3": "third"}
    made = [
        Entry.of(entry_type="trace", entry_id=key, case_id="case-1", agent="ari", content=text) for key, text in texts.items()
    ]
    memory.append(made)
    found = {entry.entry_id: entry.content for entry in memory.recall(case_id="case-1")}
    assert found == {"t-1": "first", "t-2": "other", "t-3": "third"}


def test_the_database_itself_refuses_to_change_an_entry(store: BaseStore) -> None:
    """In SQLite not even a plain `put` of the host's writes over an entry, and what it would have said is not found."""
    if not isinstance(store, SqliteStore):
        pytest.skip("only a database can refuse")
    memory = CaseMemory(store)
    noted(memory, "genuine", entry_id="t-1")
    forged = Entry.of(entry_type="trace", entry_id="t-1", case_id="case-1", agent="eve", content="forged")
    store.put(namespace("case-1"), "t-1", {**forged.dump(), "head": "eve", "body": "forged"})
    store.put(namespace("case-2"), "t-1", {**forged.dump(), "case_id": "case-2", "head": "eve", "body": "forged"})
    assert [entry.content for entry in memory.recall(case_id=None)] == ["genuine"]
    assert memory.recall(case_id=None, query="forged") == []


def test_other_items_of_the_store_are_none_of_the_memory_s_business(store: BaseStore) -> None:
    """What a user keeps in the same store may change and go as ever, and is not recalled."""
    memory = CaseMemory(store)
    noted(memory, "x")
    store.put(("handoff_memory_of_mine", "case-1"), "k", {"body": "mine"})
    store.put(("handoff_memory_of_mine", "case-1"), "k", {"body": "changed"})
    held = store.get(("handoff_memory_of_mine", "case-1"), "k")
    assert held is not None
    assert held.value == {"body": "changed"}
    store.delete(("handoff_memory_of_mine", "case-1"), "k")
    assert [entry.content for entry in memory.recall(case_id=None)] == ["x"]


def test_secrets_are_taken_out_before_anything_is_stored(store: BaseStore) -> None:
    """Keys and card numbers reach neither entry nor index; a redactor of one's own, or none, may stand instead."""
    memory = CaseMemory(store)
    secret = "sk-" + "a1" * 12
    asking(memory, content={"note": f"the key {secret}"}, metadata={"card": "4111 1111 1111 1111"})
    (entry,) = memory.recall(case_id="case-1")
    assert entry.content == {"note": "the key [redacted]"}
    assert entry.metadata["card"] == "[redacted]"
    assert memory.recall(case_id="case-1", query=secret) == []
    noted(CaseMemory(store, redact=lambda _: "***"), "x", case_id="case-2", task_id="t")
    (masked,) = memory.recall(case_id="case-2")
    assert (masked.content, masked.task_id, masked.agent) == ("***", "t", "ari")
    noted(CaseMemory(store, redact=()), secret, case_id="case-3")
    assert memory.recall(case_id="case-3")[0].content == secret


NAMES = ["case.1", "Fall 7/ä", "退款", "100%", "*", "a" * 300, "case-1' OR 1=1 --", "%2E"]


@pytest.mark.parametrize("name", NAMES)
def test_any_text_may_name_a_case(name: str, memory: CaseMemory) -> None:
    """Periods, slashes, quotes and other scripts in a case's name do no harm, and no case sees another's entries."""
    noted(memory, "here", case_id=name)
    noted(memory, "elsewhere", case_id=name + ".x")
    assert [entry.content for entry in memory.recall(case_id=name)] == ["here"]
    assert [entry.content for entry in memory.recall(case_id=name, query="here elsewhere")] == ["here"]
    assert {each.case_id for each in memory.cases()} == {name, name + ".x"}


def test_texts_that_no_file_takes_are_escaped(memory: CaseMemory) -> None:
    """A lone surrogate or a NUL from a model or a file name is kept as its escape, and the entry is found."""
    noted(memory, {"file": "report\ud800.csv", "raw": "a\x00b"})
    (entry,) = memory.recall(case_id="case-1", query="report")
    assert entry.content == {"file": "report\\ud800.csv", "raw": "a\\x00b"}


def test_an_entry_of_a_later_major_version_is_a_named_error(store: BaseStore) -> None:
    """What a later release wrote in another shape is not guessed at."""
    memory = CaseMemory(store)
    noted(memory, "x")
    made = Entry.of(entry_type="trace", entry_id="t-9", case_id="case-1", agent="ari", content="y").dump()
    store.put(namespace("case-1"), "t-9", {**made, "schema_version": "2.0", "head": "", "body": "y"})
    with pytest.raises(EntryError, match=r"`t-9` has schema version 2.0; this code reads 1.x"):
        memory.recall(case_id="case-1")
