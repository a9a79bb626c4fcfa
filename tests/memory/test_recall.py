"""What is found, in which order, and what is asked of no model."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from langgraph_handoff import CaseMemory, Entry
from langgraph_handoff.errors import EntryError, NoModelError
from langgraph_handoff.memory import sqlite
from langgraph_handoff.memory.shelf import namespace
from langgraph_handoff.testing import ScriptedChatModel
from tests.memory.conftest import asking, noted


def contents(entries: list[Entry]) -> list[Any]:
    """Return what entries say."""
    return [entry.content for entry in entries]


TEXTS = {
    "refund": "Die Rückerstattung für Müller in der Straße 12 wurde abgelehnt.",
    "invoice": "Die Rechnung inv_2024-11 ist offen.",
    "next": "Die Rechnung inv_2024-12 ist bezahlt.",
    "zh-refund": "客户要求退款，因为导出失败。",
    "zh-plan": "客户升级了套餐，发票已发送。",
    "ja": "エクスポートが失敗しました。",
    "ko": "고객이 환불을 요청했습니다.",
    "code": "Ticket A102 belongs to Acme.",
    "other": "Ticket A1024 belongs to Beta.",
    "tool": "IssueCredit was called for customer_id C-9 (café).",
    "wide": "Order ＡＢ１２ was shipped.",
}
QUERIES = [
    ("Rückerstattung Müller", "refund"),
    ("ruckerstattung muller", "refund"),
    ("RÜCKERSTATTUNG", "refund"),
    ("Strasse", "refund"),
    ("inv_2024-11", "invoice"),
    ("Was ist mit inv_2024-12?", "next"),
    ("退款", "zh-refund"),
    ("导出失败了吗", "zh-refund"),
    ("发票", "zh-plan"),
    ("失敗しました", "ja"),
    ("환불", "ko"),
    ("A102", "code"),
    ("a1024", "other"),
    ("issue credit", "tool"),
    ("issuecredit", "tool"),
    ("C-9", "tool"),
    ("cafe", "tool"),
    ("AB12", "wide"),
]


@pytest.mark.parametrize(("query", "wanted"), QUERIES)
def test_words_of_any_language_and_ids_find_their_entry_first(query: str, wanted: str, ranked_memory: CaseMemory) -> None:
    """German, Chinese, Japanese, Korean, ids, accents, capitals and joined names: what has the words comes first."""
    for text in TEXTS.values():
        noted(ranked_memory, text)
    assert contents(ranked_memory.recall(case_id="case-1", query=query))[:1] == [TEXTS[wanted]]


@pytest.mark.parametrize(("query", "wanted"), [("Rechnungen", "invoice"), ("Erstattung", "refund")])
def test_a_word_that_a_case_does_not_have_stands_for_its_kin(query: str, wanted: str, memory: CaseMemory) -> None:
    """In a case of ordinary size an inflected form, or a part of a compound, finds the word."""
    for key in ("refund", "invoice", "zh-refund", "code"):
        noted(memory, TEXTS[key])
    assert contents(memory.recall(case_id="case-1", query=query)) == [TEXTS[wanted]]


def test_an_inflected_form_finds_its_word_in_a_big_case_too(ranked_memory: CaseMemory) -> None:
    """The stem of a word that nobody wrote is asked for."""
    noted(ranked_memory, TEXTS["invoice"])
    noted(ranked_memory, TEXTS["refund"])
    assert contents(ranked_memory.recall(case_id="case-1", query="Rechnungen")) == [TEXTS["invoice"]]


def test_an_id_that_is_not_there_finds_no_other(ranked_memory: CaseMemory) -> None:
    """Part of an id is not the id."""
    noted(ranked_memory, TEXTS["code"])
    assert ranked_memory.recall(case_id="case-1", query="A10") == []
    assert ranked_memory.recall(case_id="case-1", query="102") == []


@pytest.mark.parametrize(
    "query", ['"', "()", "a OR", "NEAR(a b)", "*", "head:x", "-", "a' --", "\x00", "😀", "ß", "AND", "x" * 5000, "^a"]
)
def test_no_query_is_a_mistake(query: str, ranked_memory: CaseMemory) -> None:
    """Whatever is typed is words, never the index's own language."""
    noted(ranked_memory, "some words")
    assert ranked_memory.recall(case_id="case-1", query=query) == []


def test_a_pasted_page_is_a_query(ranked_memory: CaseMemory) -> None:
    """Of a very long query the beginning counts."""
    noted(ranked_memory, "goodwill credit")
    page = "goodwill " + " ".join(f"w{number}" for number in range(5000))
    assert contents(ranked_memory.recall(case_id="case-1", query=page)) == ["goodwill credit"]


def test_a_query_of_common_words_finds_what_has_them_all(ranked_memory: CaseMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every word of a query is a common one, entries with all of them come."""
    monkeypatch.setattr(sqlite, "_COMMON", 2)
    monkeypatch.setattr(sqlite, "_PAIRED", 1)
    for text in ("the refund", "the credit", "the refund after the credit", "a credit", "a refund"):
        noted(ranked_memory, text)
    assert contents(ranked_memory.recall(case_id="case-1", query="refund credit"))[0] == "the refund after the credit"


def test_what_a_tool_did_comes_before_what_is_said_about_it(ranked_memory: CaseMemory) -> None:
    """A trace is evidence: the same words in a fact do not push it down, though the fact is shorter."""
    noted(ranked_memory, "goodwill credit of 400", entry_type="fact")
    noted(
        ranked_memory,
        {"tool": "list_credits", "args": {"customer": "Acme"}, "result": "one goodwill credit of 400, granted on May 3"},
    )
    for number in range(8):
        noted(ranked_memory, f"something else, number {number}", entry_type="fact")
    assert [entry.entry_type for entry in ranked_memory.recall(case_id="case-1", query="goodwill credit")] == ["trace", "fact"]


def test_what_was_asked_counts_more_than_what_came_back(ranked_memory: CaseMemory) -> None:
    """A question names the call; the entry of that call comes before one whose long result names it in passing."""
    noted(ranked_memory, {"tool": "get_invoice", "args": {"id": "B-1"}, "result": {"text": "paid " * 60}})
    noted(ranked_memory, {"tool": "list_all", "args": {}, "result": "invoice A-1, invoice B-1, invoice C-1"})
    for number in range(8):
        noted(ranked_memory, f"something else, number {number}")
    (first, *_) = ranked_memory.recall(case_id="case-1", query="What did get_invoice return for B-1?")
    assert first.content["tool"] == "get_invoice"  # type: ignore[index, call-overload]


def test_without_a_query_the_newest_comes_first(memory: CaseMemory) -> None:
    """An empty query lists."""
    for text in ("first", "second", "third"):
        noted(memory, text)
    assert contents(memory.recall(case_id="case-1")) == ["third", "second", "first"]
    assert contents(memory.recall(case_id="case-1", query="  ")) == ["third", "second", "first"]
    assert memory.recall(case_id="nowhere") == []


@pytest.mark.parametrize("query", ["", "note"])
def test_pages_hold_every_entry_once(query: str, ranked_memory: CaseMemory) -> None:
    """Page by page every entry comes, and none twice."""
    for number in range(23):
        noted(ranked_memory, f"note {number}")
    pages = [ranked_memory.recall(case_id="case-1", query=query, limit=5, offset=start) for start in range(0, 30, 5)]
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3, 0]
    assert {entry.content for page in pages for entry in page} == {f"note {number}" for number in range(23)}


@pytest.mark.parametrize("query", ["", "note"])
def test_filters_hold_together_with_a_query(query: str, ranked_memory: CaseMemory) -> None:
    """Types, agent, task, time and case each narrow what comes, alone and together."""
    start = datetime(2026, 5, 1, tzinfo=UTC)
    for day in range(4):
        for kind in ("trace", "fact", "lesson"):
            fields = {
                "case_id": f"case-{day % 2}",
                "agent": f"agent-{day}",
                "content": f"note {kind} {day}",
                "metadata": {"task_id": f"t-{day}"},
            }
            ranked_memory.append([Entry.of(entry_type=kind, created_at=start + timedelta(days=day), **fields)])

    def found(**given: Any) -> set[Any]:
        return set(contents(ranked_memory.recall(**{"case_id": None, "query": query, **given})))

    assert len(found()) == 12
    assert found(case_id="case-0") == {f"note {kind} {day}" for kind in ("trace", "fact", "lesson") for day in (0, 2)}
    assert found(entry_types=["lesson"]) == {f"note lesson {day}" for day in range(4)}
    assert len(found(entry_types=["lesson", "fact"])) == 8
    assert found(entry_types=[]) == set()
    assert found(agent="agent-3", entry_types=["fact"]) == {"note fact 3"}
    assert found(task_id="t-1", entry_types=["trace"]) == {"note trace 1"}
    assert found(since=start + timedelta(days=2), until=start + timedelta(days=3), entry_types=["fact"]) == {"note fact 2"}
    assert found(since=start + timedelta(days=2), entry_types=["fact"], case_id="case-1") == {"note fact 3"}


def test_status_follows_the_last_verdict(memory: CaseMemory) -> None:
    """Handoffs are found by whether they are open, or by the verdict that stands."""
    waiting, blocked, changed = (asking(memory, content=f"request {number}") for number in range(3))
    memory.feedback(handoff_id=blocked, from_agent="rex", verdict="block")
    memory.feedback(handoff_id=changed, from_agent="rex", verdict="block")
    memory.feedback(handoff_id=changed, from_agent="rex", verdict="approve")

    def found(status: str) -> list[str]:
        return [entry.entry_id for entry in memory.recall(case_id="case-1", status=status, query="request")]

    assert (found("open"), found("block"), found("approve"), found("acknowledge")) == ([waiting], [blocked], [changed], [])


def test_the_inbox_holds_what_has_no_verdict(memory: CaseMemory) -> None:
    """An agent's inbox has the open handoffs to it, the oldest first, of all cases or one; a verdict takes one out."""
    first, second = asking(memory, content="one"), asking(memory, content="two", case_id="case-2")
    asking(memory, content="three", to_agent="ann")
    assert [entry.entry_id for entry in memory.receive_handoffs(agent_id="rex")] == [first, second]
    assert [entry.entry_id for entry in memory.receive_handoffs(agent_id="rex", case_id="case-2")] == [second]
    memory.feedback(handoff_id=first, from_agent="rex", verdict="request_changes", comments="Resubmit.")
    assert [entry.entry_id for entry in memory.receive_handoffs(agent_id="rex")] == [second]
    assert memory.receive_handoffs(agent_id="nobody") == []


@pytest.mark.parametrize("query", ["", "note"])
def test_linked_cases_are_asked_when_wanted(query: str, ranked_memory: CaseMemory) -> None:
    """A link works both ways, only where it is asked for, and twice is once; it reaches no further."""
    for case in ("a", "b", "c"):
        noted(ranked_memory, f"note {case}", case_id=case)
    ranked_memory.link("a", "b")
    ranked_memory.link("a", "b")
    ranked_memory.link("b", "c")
    assert contents(ranked_memory.recall(case_id="a", query=query)) == ["note a"]
    for case, seen in (("a", "ab"), ("b", "abc"), ("c", "bc")):
        found = ranked_memory.recall(case_id=case, query=query, include_linked_runs=True)
        assert sorted(contents(found)) == [f"note {each}" for each in seen]
    with pytest.raises(EntryError, match="cannot be linked to itself"):
        ranked_memory.link("a", "a")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 0}, "limit: 0"),
        ({"offset": -1}, "offset: -1"),
        ({"limit": "5"}, "limit: '5'"),
        ({"entry_types": ["rumour"]}, "'rumour'"),
        ({"case_id": ""}, "case_id"),
        ({"since": datetime(2026, 5, 1)}, "since"),
        ({"until": "2026-05-01"}, "until"),
    ],
)
def test_a_wrong_question_is_refused_by_name(given: dict[str, Any], said: str, memory: CaseMemory) -> None:
    """Arguments of recall that cannot be meant are named."""
    with pytest.raises(EntryError) as refused:
        memory.recall(**{"case_id": "case-1", **given})
    assert said in str(refused.value)


def test_evidence_is_recalled_without_a_model(store: BaseStore) -> None:
    """Recalling evidence calls no model, even if there is one; the entries come with their sources."""
    memory = CaseMemory(store, model=ScriptedChatModel([]))
    noted(memory, "A $400 goodwill credit", sources=["call-7"])
    (entry,) = memory.recall(case_id="case-1", query="credit")
    assert (entry.content, entry.sources) == ("A $400 goodwill credit", ("call-7",))


def test_an_answer_in_words_names_its_evidence_and_is_not_stored(store: BaseStore) -> None:
    """With a model an answer stands before the evidence that it rests on; without one that is refused by name."""
    with ScriptedChatModel(["There was a $400 credit."]) as model:
        memory = CaseMemory(store, model=model)
        trace = noted(memory, "A $400 goodwill credit")
        answer, evidence = memory.recall(case_id="case-1", query="Any credit?", evidence_only=False)
    assert (answer.content, answer.sources, evidence.entry_id) == ("There was a $400 credit.", (trace,), trace)
    assert trace in model.prompts[0][-1].text
    assert len(memory.recall(case_id="case-1")) == 1
    with pytest.raises(NoModelError, match=r"evidence_only=False"):
        CaseMemory(store).recall(case_id="case-1", evidence_only=False)


class Letters(Embeddings):
    """Texts by the letters that they have."""

    def embed_query(self, text: str) -> list[float]:
        """Count letters."""
        counts = [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]
        return [*counts, 1e-6]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Count letters."""
        return [self.embed_query(text) for text in texts]


@pytest.fixture(params=["memory", "sqlite"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseStore]:
    """A store whose user configured a vector index."""
    index: Any = {"dims": 27, "embed": Letters()}
    if request.param == "memory":
        yield InMemoryStore(index=index)
        return
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python's SQLite loads no extensions, which the host's vector index is")
    with SqliteStore.from_conn_string(str(tmp_path / "v.db"), index=index) as store:
        yield store


async def test_a_vector_index_ranks_where_the_user_configured_one(embedded: BaseStore) -> None:
    """With a vector index nearness ranks, also of words that no entry has; filters and pages hold, sync and async."""
    memory = CaseMemory(embedded)
    for number in range(30):
        noted(memory, "zzz qqq xxx" + "q" * number, entry_type="fact", agent="zq")
    noted(memory, "reimbursement", agent="zq")
    noted(memory, "timetables", agent="zq", case_id="case-2")
    assert contents(memory.recall(case_id="case-1", query="reimburse menten", limit=1)) == ["reimbursement"]
    assert contents(await memory.arecall(case_id="case-1", query="qqq", entry_types=["trace"])) == ["reimbursement"]
    assert contents(memory.recall(case_id=None, query="reimbursements", entry_types=["trace"])) == ["reimbursement", "timetables"]
    assert len(memory.recall(case_id="case-1", query="zzz", limit=10, offset=25)) == 6


def test_the_index_is_built_from_the_store_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that were written without the index, or whose index lost its triggers, are found as ever."""
    monkeypatch.setattr(sqlite, "_FEW", 0)
    with SqliteStore.from_conn_string(str(tmp_path / "cases.db")) as store:
        made = Entry.of(entry_type="trace", entry_id="t-0", case_id="case-1", agent="ari", content="before the index")
        store.put(namespace("case-1"), "t-0", {**made.dump(), "head": "ari", "body": "before the index"})
        noted(CaseMemory(store), "with the index")
        assert len(CaseMemory(store).recall(case_id="case-1", query="index")) == 2
        for (name,) in store.conn.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.conn.execute(f"DROP TRIGGER {name}")
        store.delete(namespace("case-1"), "t-0")
        assert [entry.content for entry in CaseMemory(store).recall(case_id="case-1", query="index")] == ["with the index"]


def test_what_is_deleted_from_the_store_is_not_found_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed item leaves the index of names at once and the index of words at the next question."""
    monkeypatch.setattr(sqlite, "_FEW", 0)
    with SqliteStore.from_conn_string(str(tmp_path / "cases.db")) as store:
        memory = CaseMemory(store)
        stays, gone = noted(memory, "a credit of 800"), noted(memory, "a credit of 400")
        assert len(memory.recall(case_id="case-1", query="credit")) == 2
        store.delete(namespace("case-1"), gone)
        assert [entry.entry_id for entry in memory.recall(case_id="case-1", query="credit")] == [stays]
        assert store.conn.execute("SELECT count(*) FROM handoff_words WHERE handoff_words MATCH 'credit'").fetchone() == (1,)


def test_long_texts_are_ranked_by_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few entries that are very long are not read to be ranked; what is asked for is found all the same."""
    monkeypatch.setattr(sqlite, "ranked", lambda *_: pytest.fail("read them all"))
    with SqliteStore.from_conn_string(str(tmp_path / "cases.db")) as store:
        memory = CaseMemory(store)
        for number in range(9):
            noted(memory, {"tool": "export", "result": f"row {number} " * 20_000 + f"end {number}x"})
        (first, *_) = memory.recall(case_id="case-1", query="7x")
        assert first.text.endswith("end 7x")


def test_an_item_is_plain_json_that_a_person_can_read(store: BaseStore) -> None:
    """What the store holds is the entry's fields by their names."""
    memory = CaseMemory(store)
    key = noted(memory, {"tool": "pay", "result": "ok"})
    item = store.get(namespace("case-1"), key)
    assert item is not None
    assert json.loads(json.dumps(item.value)) == item.value
    assert (item.value["entry_type"], item.value["content"]) == ("trace", {"tool": "pay", "result": "ok"})
