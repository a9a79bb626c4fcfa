"""The memory of cases: who asked whom for what, what was decided, what the answer was."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, get_args

from langchain_core.language_models import BaseChatModel
from langgraph.store.base import BaseStore

from langgraph_handoff.errors import EntryConflictError, EntryError, NoModelError, UnknownHandoffError
from langgraph_handoff.memory.entry import ENTRY_TYPES, Entry, EntryType
from langgraph_handoff.memory.lessons import lesson_question, lessons_from, objections, recall_question
from langgraph_handoff.memory.shelf import OPEN, CaseSummary, Shelf, StoreShelf, Wanted
from langgraph_handoff.memory.sqlite import SqliteShelf, sql_of
from langgraph_handoff.memory.waiting import common_of, pauses
from langgraph_handoff.package import HandoffPackage, RequestedAction, Verdict
from langgraph_handoff.redaction import Redactor, redacted, redactors_of

__all__ = ("CaseMemory",)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Section = Literal["handoffs", "feedback", "lessons"]

_OURS: Final = frozenset({"to_agent", "requested_action", "handoff_id", "verdict", "task_id"})
"""Keys of `metadata` that the memory sets."""
_WORDS: Final = {
    "requested_action": get_args(RequestedAction),
    "verdict": get_args(Verdict),
    "entry_type": ENTRY_TYPES,
    "status": (OPEN, *get_args(Verdict)),
}


def _twin(method: Callable[Concatenate[CaseMemory, _P], _T]) -> Callable[Concatenate[CaseMemory, _P], Coroutine[Any, Any, _T]]:
    """Return the async twin of a method. It runs in a thread, unless nothing in it can block."""

    @functools.wraps(method)
    async def run(self: CaseMemory, /, *args: _P.args, **given: _P.kwargs) -> _T:
        return await self._apart(functools.partial(method, self, *args, **given))

    return run


class CaseMemory:
    """A memory of cases over any store of the host's, with or without a graph.

    On the host's SQLite stores, entries are found by an FTS5 index in the same database. A store with a vector index of its own
    ranks by that. With any other store all entries of the case are read and ranked.

    Entries are only ever added. Each has an id of its own, so that any number of threads and processes may write at once; who
    may run again, such as a graph's node, gives the id itself, and the entry stands there once.

    Every method has an async twin that begins with `a`. In the event loop of an async store use only those.
    """

    def __init__(
        self,
        store: BaseStore,
        *,
        redact: Redactor | Sequence[Redactor] | None = None,
        model: BaseChatModel | None = None,
    ) -> None:
        """Open the memory in a store.

        Args:
            store: Where it stands, such as `connect("cases.db").store`.
            redact: Functions that every text passes before it is stored, instead of the default that takes out keys, tokens and
                card numbers. An empty sequence turns redaction off.
            model: Puts evidence into words where that is asked for. None: no model is ever called.
        """
        sql = sql_of(store)
        self._shelf: Shelf = StoreShelf(store) if sql is None else SqliteShelf(store, sql)
        self._common = common_of(store)
        self._redactors = redactors_of(redact)
        self._model = model

    def handoff(
        self,
        *,
        case_id: str,
        from_agent: str,
        to_agent: str,
        requested_action: RequestedAction,
        content: Any,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        sources: Sequence[str] = (),
        entry_id: str | None = None,
    ) -> str:
        """Ask an agent, or a person, for something.

        Args:
            case_id: The case.
            from_agent: Who asks.
            to_agent: Who is asked. Nobody is asked to approve what is their own.
            requested_action: review, continue, approve or execute.
            content: A text, plain data (decisions, constraints, open questions) or a `HandoffPackage`.
            task_id: The task within the case.
            metadata: More about it.
            sources: Ids of what it rests on.
            entry_id: The id that it shall have; the same call with the same id stores nothing new.

        Returns:
            The handoff's id.

        Raises:
            EntryError: If an argument is not valid.
            EntryConflictError: If another entry has that id.
        """
        _one_of("requested_action", requested_action)
        if isinstance(content, HandoffPackage):
            content = content.content()
        ours = {"to_agent": _named("to_agent", to_agent), "requested_action": requested_action, "task_id": task_id}
        entry = _made("handoff", entry_id, metadata, ours, case_id=case_id, agent=from_agent, content=content, sources=sources)
        if requested_action == "approve" and entry.agent == entry.to_agent:
            raise EntryError(problem=f"to_agent: '{entry.agent}' cannot be asked to approve what is its own")
        return self._keep(entry, given=entry_id is not None)

    def feedback(
        self,
        *,
        handoff_id: str,
        from_agent: str,
        verdict: Verdict,
        comments: str = "",
        metadata: Mapping[str, Any] | None = None,
        sources: Sequence[str] = (),
        entry_id: str | None = None,
    ) -> str:
        """Give a verdict on a handoff. It may be given again; the last one stands.

        Args:
            handoff_id: The handoff.
            from_agent: Who says it: whoever was asked, or somebody else, but not who asked.
            verdict: approve, request_changes, block or acknowledge.
            comments: Why, and what to do.
            metadata: More about it.
            sources: Ids of what it rests on.
            entry_id: The id that it shall have; the same call with the same id stores nothing new.

        Returns:
            The id of the feedback.

        Raises:
            UnknownHandoffError: If there is no such handoff.
            EntryError: If an argument is not valid.
            EntryConflictError: If another entry has that id.
        """
        _one_of("verdict", verdict)
        asking = self._handoff(handoff_id)
        ours = {"handoff_id": asking.entry_id, "verdict": verdict, "task_id": asking.task_id}
        given = {"case_id": asking.case_id, "agent": from_agent, "content": comments, "sources": sources}
        entry = _made("feedback", entry_id, metadata, ours, **given)
        if entry.agent == asking.agent != asking.to_agent:
            raise EntryError(problem=f"from_agent: '{entry.agent}' asked for it and cannot be the one who answers")
        return self._keep(entry, given=entry_id is not None)

    def record(
        self,
        *,
        case_id: str,
        entry_type: Literal["trace", "fact", "lesson"],
        agent: str,
        content: Any,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        sources: Sequence[str] = (),
        entry_id: str | None = None,
    ) -> str:
        """Record what a tool did, what is known, or what was learned.

        Args:
            case_id: The case.
            entry_type: trace, fact or lesson.
            agent: Who says it; of a lesson, whom it concerns.
            content: A text or plain data. Of a trace best `{"tool": ..., "args": ..., "result": ...}`: what stands beside
                `result` counts as what was asked, and finds the entry first.
            task_id: The task within the case.
            metadata: More about it.
            sources: Ids of what it rests on.
            entry_id: The id that it shall have; the same call with the same id stores nothing new.

        Returns:
            The entry's id.

        Raises:
            EntryError: If an argument is not valid.
            EntryConflictError: If another entry has that id.
        """
        _one_of("entry_type", entry_type)
        if entry_type in ("handoff", "feedback"):
            raise EntryError(problem=f"entry_type: call `{entry_type}(...)`, which knows what belongs to it")
        given = {"case_id": case_id, "agent": agent, "content": content, "sources": sources}
        return self._keep(_made(entry_type, entry_id, metadata, {"task_id": task_id}, **given), given=entry_id is not None)

    def append(self, entries: Sequence[Entry]) -> None:
        """Store many entries at once, all or none. Ids that are there already are left as they stand.

        Args:
            entries: Made with `Entry.of`, in any number of cases.
        """
        self._shelf.add([self._redacted(entry) for entry in entries])
        self._common.ring()

    def recall(
        self,
        *,
        case_id: str | None,
        query: str = "",
        entry_types: Sequence[EntryType] | None = None,
        evidence_only: bool = True,
        limit: int = 20,
        include_linked_runs: bool = False,
        offset: int = 0,
        agent: str | None = None,
        status: str | None = None,
        task_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Entry]:
        """Return stored entries.

        Args:
            case_id: The case; None asks over all cases.
            query: Words in any language, names, ids. Best first. Among very many entries, common words do not count beside
                rarer ones. Empty: all that passes the filters, newest first.
            entry_types: handoff, feedback, trace, fact, lesson.
            evidence_only: False puts an answer before the evidence, in the words of the memory's model and stored nowhere; its
                `sources` are the entries that the model was shown.
            limit: Entries at most.
            include_linked_runs: Ask the linked cases too.
            offset: Entries to pass over, for the next page.
            agent: Who said it.
            status: Handoffs that are `open`, or whose last verdict is this one.
            task_id: The task within a case.
            since: Not before.
            until: Before.

        Raises:
            EntryError: If an argument is not valid.
            NoModelError: If an answer in words is asked for and the memory has no model.
        """
        if not evidence_only and self._model is None:
            raise NoModelError(method="recall(evidence_only=False)")
        for name, number, least in (("limit", limit, 1), ("offset", offset, 0)):
            if not isinstance(number, int) or number < least:
                raise EntryError(problem=f"{name}: {number!r} is not a whole number from {least} on")
        kinds = (entry_types,) if isinstance(entry_types, str) else entry_types
        for kind in kinds or ():
            _one_of("entry_type", kind)
        if status is not None:
            _one_of("status", status)
        wanted = Wanted(
            case_ids=self._scope(case_id, linked=include_linked_runs),
            entry_types=None if kinds is None else tuple(kinds),
            agent=agent,
            status=status,
            task_id=task_id,
            since=_moment("since", since),
            until=_moment("until", until),
        )
        evidence = self._shelf.find(wanted, query=query.strip(), limit=limit, offset=offset)
        return evidence if evidence_only else [self._answer(case_id, query, evidence), *evidence]

    def receive_handoffs(self, *, agent_id: str, case_id: str | None = None) -> list[Entry]:
        """Return the inbox of an agent or a person: handoffs to it without a verdict, the oldest first.

        Args:
            agent_id: The receiver.
            case_id: Only of this case.
        """
        cases = None if case_id is None else (case_id,)
        wanted = Wanted(case_ids=cases, entry_types=("handoff",), to_agent=_named("agent_id", agent_id), status=OPEN)
        return self._shelf.find(wanted, oldest_first=True)

    def await_verdict(self, *, handoff_id: str, timeout: float | None = 30.0) -> Verdict | None:
        """Wait for a verdict on a handoff; see `waiting` for how little that costs.

        Args:
            handoff_id: The handoff.
            timeout: Seconds to wait at most; 0 only looks, None waits for ever.

        Returns:
            The verdict that stands, at once if there is one; None when the time is over.

        Raises:
            UnknownHandoffError: If there is no such handoff.
        """
        look = self._lookout(handoff_id)
        rung = threading.Event()
        with self._common.heard_by(rung.set):
            verdict = look(True)
            for pause in pauses(timeout, marked=self._shelf.mark() is not None):
                if verdict is not None:
                    break
                heard = rung.wait(pause)
                rung.clear()
                verdict = look(heard)
        return verdict

    async def aawait_verdict(self, *, handoff_id: str, timeout: float | None = 30.0) -> Verdict | None:  # noqa: ASYNC109
        """Wait for a verdict without blocking the loop; see `await_verdict`."""
        look = await self._apart(lambda: self._lookout(handoff_id))
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        def ear() -> None:
            with suppress(RuntimeError):  # a loop that was closed meanwhile has nobody waiting in it
                loop.call_soon_threadsafe(rung.set)

        with self._common.heard_by(ear):
            verdict = await self._apart(lambda: look(True))
            marked = await self._apart(self._shelf.mark) is not None
            for pause in pauses(timeout, marked=marked):
                if verdict is not None:
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), pause)
                heard = rung.is_set()
                rung.clear()
                verdict = await self._apart(functools.partial(look, heard))
        return verdict

    def link(self, case_a: str, case_b: str) -> None:
        """Link two cases, so that `recall(include_linked_runs=True)` of one asks the other too. Twice is the same as once."""
        if _named("case_a", case_a) == _named("case_b", case_b):
            raise EntryError(problem=f"case_b: the case '{case_a}' cannot be linked to itself")
        self._shelf.link(case_a, case_b)

    def linked(self, case_id: str) -> list[str]:
        """Return the cases that are linked to a case."""
        return self._shelf.linked(_named("case_id", case_id))

    def reflect(self, *, case_id: str) -> list[Entry]:
        """Draw lessons from a case and store them: one from each commented verdict that blocked or asked for changes.

        A lesson concerns the agent whose request it was, and its sources are the verdict and the request. Its words are the
        comments, or the model's if the memory has one. A verdict is reflected on once.

        Args:
            case_id: The case.

        Returns:
            All lessons that come from verdicts of this case.
        """
        entries = self._shelf.find(Wanted(case_ids=(_named("case_id", case_id),)), oldest_first=True)
        learned = {entry.sources[0]: entry for entry in entries if entry.entry_type == "lesson" and entry.sources}
        pairs = objections(entries)
        new = [pair for pair in pairs if pair[0].entry_id not in learned]
        said = {pair[0].entry_id: self._said(lesson_question(*pair)) for pair in new} if self._model else {}
        if new:
            self.append(lessons_from(said, new))
        ids = {f"lesson-{verdict.entry_id}" for verdict, _ in pairs}
        lessons = self._shelf.find(Wanted(case_ids=(case_id,), entry_types=("lesson",)), oldest_first=True)
        return [lesson for lesson in lessons if lesson.entry_id in ids]

    def notes(self, *, agent_id: str, case_id: str, query: str = "", limit: int = 5) -> dict[Section, list[Entry]]:
        """Return what an agent should read before it works on a case.

        Args:
            agent_id: The agent.
            case_id: The case.
            query: What it is about, to choose lessons by.
            limit: Entries of each section at most.

        Returns:
            `handoffs`: requests to it in this case without a verdict. `feedback`: the verdicts that stand on its own requests in
            this case, newest first. `lessons`: what it learned in any case, those that fit the query first.
        """
        mine = {e.entry_id for e in self._shelf.find(Wanted(case_ids=(case_id,), entry_types=("handoff",), agent=agent_id))}
        standing: dict[str | None, Entry] = {}
        for answer in self._shelf.find(Wanted(case_ids=(case_id,), entry_types=("feedback",))):
            if answer.handoff_id in mine:
                standing.setdefault(answer.handoff_id, answer)
        learned = Wanted(entry_types=("lesson",), agent=agent_id)
        lessons = self._shelf.find(learned, query=query.strip(), limit=limit)
        lessons += [e for e in self._shelf.find(learned, limit=limit) if e.entry_id not in {each.entry_id for each in lessons}]
        return {
            "handoffs": self.receive_handoffs(agent_id=agent_id, case_id=case_id)[:limit],
            "feedback": list(standing.values())[:limit],
            "lessons": lessons[:limit],
        }

    def cases(self) -> list[CaseSummary]:
        """Return the cases of this memory, the last touched first."""
        return self._shelf.cases()

    ahandoff = _twin(handoff)
    afeedback = _twin(feedback)
    arecord = _twin(record)
    aappend = _twin(append)
    arecall = _twin(recall)
    areceive_handoffs = _twin(receive_handoffs)
    alink = _twin(link)
    alinked = _twin(linked)
    areflect = _twin(reflect)
    anotes = _twin(notes)
    acases = _twin(cases)

    async def _apart(self, work: Callable[[], _T]) -> _T:
        """Do work without blocking the loop."""
        return work() if self._shelf.inline and self._model is None else await asyncio.to_thread(work)

    def _keep(self, entry: Entry, *, given: bool) -> str:
        """Store one entry; when its id was given, make sure that the entry under that id is this one."""
        entry = self._redacted(entry)
        held = self._find(entry.entry_id) if given else None
        if held is None:
            self._shelf.add([entry])
            self._common.ring()
            held = self._find(entry.entry_id) if given else entry
        if held is None or held.says() != entry.says():
            raise EntryConflictError(entry_id=entry.entry_id)
        return entry.entry_id

    def _redacted(self, entry: Entry) -> Entry:
        metadata = {name: value if name in _OURS else redacted(value, self._redactors) for name, value in entry.metadata.items()}
        return entry.model_copy(update={"content": redacted(entry.content, self._redactors), "metadata": metadata})

    def _find(self, entry_id: str) -> Entry | None:
        return next(iter(self._shelf.find(Wanted(entry_id=entry_id), limit=1)), None)

    def _handoff(self, handoff_id: str) -> Entry:
        held = self._find(_named("handoff_id", handoff_id))
        if held is None or held.entry_type != "handoff":
            raise UnknownHandoffError(handoff_id=handoff_id)
        return held

    def _lookout(self, handoff_id: str) -> Callable[[bool], Verdict | None]:
        """Return what looks for a verdict: when told to, or when the store has changed or cannot say."""
        self._handoff(handoff_id)
        answers = Wanted(entry_types=("feedback",), handoff_id=handoff_id)
        seen: object = None

        def look(told: bool) -> Verdict | None:
            nonlocal seen
            mark = self._shelf.mark()
            if not told and mark is not None and mark == seen:
                return None
            seen = mark
            return next((answer.verdict for answer in self._shelf.find(answers, limit=1)), None)

        return look

    def _scope(self, case_id: str | None, *, linked: bool) -> tuple[str, ...] | None:
        if case_id is None:
            return None
        others = self.linked(case_id) if linked else []
        return (_named("case_id", case_id), *others)

    def _answer(self, case_id: str | None, query: str, evidence: Sequence[Entry]) -> Entry:
        return Entry.of(
            entry_type="fact",
            case_id=case_id or "*",
            agent="recall",
            content=self._said(recall_question(query, evidence)) or "The model said nothing.",
            sources=tuple(entry.entry_id for entry in evidence),
        )

    def _said(self, question: Any) -> str:
        assert self._model is not None
        return str(self._model.invoke(question).text).strip()


def _made(
    entry_type: str, entry_id: str | None, metadata: Mapping[str, Any] | None, ours: Mapping[str, str | None], **given: Any
) -> Entry:
    forged = sorted(_OURS & (metadata or {}).keys())
    if forged:
        raise EntryError(problem=f"metadata: only the memory sets {', '.join(forged)}; use the argument of that name")
    known = {name: value for name, value in ours.items() if value is not None}
    return Entry.of(entry_type=entry_type, entry_id=entry_id, metadata={**(metadata or {}), **known}, **given)


def _named(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise EntryError(problem=f"{name}: {value!r} is not a name")
    return value.strip()


def _one_of(name: str, value: Any) -> None:
    if value not in _WORDS[name]:
        raise EntryError(problem=f"{name}: {value!r} is none of {', '.join(_WORDS[name])}")


def _moment(name: str, value: datetime | None) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
        raise EntryError(problem=f"{name}: {value!r} is not a time with a time zone")
    return value
