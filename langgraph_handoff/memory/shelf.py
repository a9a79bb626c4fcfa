"""Where entries stand: any store of the host's, and what may be asked of it.

An entry is one item of the namespace `("handoff_memory", case)`; a link of two cases is an item under each of them. Beside the
entry's own fields an item has what it is found by: its words, and the names that filters ask for.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, unquote

from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.memory import InMemoryStore

from langgraph_handoff.memory.entry import Entry, plain_text, stamp
from langgraph_handoff.memory.waiting import common_of
from langgraph_handoff.memory.words import asked, rank, spread

__all__ = (
    "LINKS",
    "OPEN",
    "ROOT",
    "TRACE_WEIGHT",
    "CaseSummary",
    "Shelf",
    "StoreShelf",
    "Wanted",
    "case_of",
    "namespace",
    "searched",
)

ROOT: Final = "handoff_memory"
LINKS: Final = "handoff_links"
OPEN: Final = "open"
"""Status of a handoff that nobody has given a verdict on."""

TRACE_WEIGHT: Final = 2.0
"""What a tool did counts twice: where others tell it again, in fewer words, it is still the evidence."""

_RESULT: Final = "result"
"""Key in a trace's content: what came back. What stands beside it says what was asked."""
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """What a memory holds of a case."""

    case_id: str
    entries: int
    open: int
    """Handoffs without a verdict."""
    last_at: str
    """Time of the newest entry, ISO 8601 in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A filter: what is not None must fit."""

    case_ids: tuple[str, ...] | None = None
    entry_types: tuple[str, ...] | None = None
    entry_id: str | None = None
    agent: str | None = None
    to_agent: str | None = None
    task_id: str | None = None
    handoff_id: str | None = None
    status: str | None = None
    """Of a handoff: `open`, or its last verdict."""
    since: datetime | None = None
    until: datetime | None = None

    def equal(self) -> dict[str, str]:
        """Return the part of the filter that is equality, by the names that an item has for it."""
        names = ("entry_id", "agent", "to_agent", "task_id", "handoff_id")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.entry_types is not None and len(self.entry_types) == 1:
            found["entry_type"] = self.entry_types[0]
        return found

    def fits(self, item: Mapping[str, Any], verdicts: Mapping[str, str]) -> bool:
        """Return whether an item is wanted.

        Args:
            item: As it is stored.
            verdicts: Handoff → its last verdict.
        """
        return (
            all(item.get(name) == value for name, value in self.equal().items())
            and (self.case_ids is None or item["case_id"] in self.case_ids)
            and (self.entry_types is None or item["entry_type"] in self.entry_types)
            and (self.since is None or item["created_at"] >= stamp(self.since))
            and (self.until is None or item["created_at"] < stamp(self.until))
            and (self.status is None or self._has_status(item, verdicts))
        )

    def _has_status(self, item: Mapping[str, Any], verdicts: Mapping[str, str]) -> bool:
        return item["entry_type"] == "handoff" and verdicts.get(item["entry_id"], OPEN) == self.status


def namespace(case_id: str, root: str = ROOT) -> tuple[str, str]:
    """Return where a case's items are. Stores do not take a period in a namespace's label."""
    return (root, quote(case_id, safe="").replace(".", "%2E"))


def case_of(label: str) -> str:
    """Return the case that a namespace's label stands for."""
    return unquote(label)


def searched(entry: Entry) -> tuple[str, str]:
    """Return what an entry is found by: the head says who did what, the body what it says or what came back."""
    head = [entry.agent, *(plain_text(value) for name, value in entry.metadata.items() if name not in _ENVELOPE)]
    content = entry.content
    if entry.entry_type == "trace" and isinstance(content, dict) and _RESULT in content:
        head += [plain_text({name: value for name, value in content.items() if name != _RESULT})]
        content = content[_RESULT]
    return spread("\n".join(head)), spread(plain_text(content))


_ENVELOPE: Final = frozenset({"requested_action", "handoff_id", "verdict"})


def item_of(entry: Entry) -> dict[str, Any]:
    """Return the item that a store keeps for an entry."""
    head, body = searched(entry)
    names = {"to_agent": entry.to_agent, "task_id": entry.task_id, "handoff_id": entry.handoff_id, "verdict": entry.verdict}
    return {**entry.dump(), **names, "head": head, "body": body}


class Shelf(abc.ABC):
    """Entries at rest. Every method is safe over threads; none changes or removes an entry."""

    inline = False
    """Whether nothing here ever blocks, so that async code needs no thread."""

    @abc.abstractmethod
    def add(self, entries: Sequence[Entry]) -> None:
        """Store entries, all or none. One whose id is there already is left as it stands, where the store can tell."""

    @abc.abstractmethod
    def find(
        self, wanted: Wanted, *, query: str = "", limit: int | None = None, offset: int = 0, oldest_first: bool = False
    ) -> list[Entry]:
        """Return entries: those that fit the query, best first; without a query all, newest first."""

    @abc.abstractmethod
    def cases(self) -> list[CaseSummary]:
        """Return the cases, the last touched first."""

    @abc.abstractmethod
    def link(self, case_id: str, other: str) -> None:
        """Link two cases, once, both ways."""

    @abc.abstractmethod
    def linked(self, case_id: str) -> list[str]:
        """Return the cases that are linked to a case."""

    def mark(self) -> Hashable | None:
        """Return what stays equal as long as no other process has written; None when only asking can tell."""
        return None


class StoreShelf(Shelf):
    """Entries in any store of the host's. Its own vector index ranks when it has one; else all of the case is read and ranked."""

    def __init__(self, store: BaseStore) -> None:
        """Put the shelf over a store."""
        self._store = store
        self._embedded = bool(getattr(store, "index_config", None))
        in_memory = isinstance(store, InMemoryStore)
        self.inline = in_memory and not self._embedded
        self._lock: AbstractContextManager[Any] = common_of(store).lock if in_memory else nullcontext()

    def add(self, entries: Sequence[Entry]) -> None:
        """Store entries."""
        places = [(namespace(entry.case_id), entry.entry_id) for entry in entries]
        with self._lock:
            held = self._store.batch([GetOp(*place, refresh_ttl=False) for place in places])
            new = [(place, entry) for place, entry, there in zip(places, entries, held, strict=True) if there is None]
            self._store.batch([PutOp(*place, item_of(entry), index=["head", "body"]) for place, entry in new])

    def find(
        self, wanted: Wanted, *, query: str = "", limit: int | None = None, offset: int = 0, oldest_first: bool = False
    ) -> list[Entry]:
        """Return entries."""
        end = None if limit is None else offset + limit
        if query and self._embedded:
            return [Entry.load(item) for item in self._items(wanted, query=query, enough=end)[offset:end]]
        items = sorted(self._items(wanted), key=lambda item: item["created_at"], reverse=not oldest_first)
        return [Entry.load(item) for item in ranked(items, query)[offset:end]]

    def cases(self) -> list[CaseSummary]:
        """Return the cases."""
        labels: dict[str, list[Mapping[str, Any]]] = {}
        for item in self._items(Wanted()):
            labels.setdefault(item["case_id"], []).append(item)
        unanswered = self._items(Wanted(status=OPEN))
        waiting = [item["case_id"] for item in unanswered]
        found = [
            CaseSummary(case, len(items), waiting.count(case), max(item["created_at"] for item in items))
            for case, items in labels.items()
        ]
        return sorted(found, key=lambda each: each.last_at, reverse=True)

    def link(self, case_id: str, other: str) -> None:
        """Link two cases."""
        pairs = ((case_id, other), (other, case_id))
        puts = [PutOp(namespace(here, LINKS), namespace(there)[1], {"case_id": there}, index=False) for here, there in pairs]
        with self._lock:
            self._store.batch(puts)

    def linked(self, case_id: str) -> list[str]:
        """Return the linked cases."""
        return [item["case_id"] for item in self._scan(namespace(case_id, LINKS), {})]

    def _items(self, wanted: Wanted, *, query: str = "", enough: int | None = None) -> list[Mapping[str, Any]]:
        """Return the items that fit; by nearness to the query where the store has a vector index, else in no order."""
        roots = [(ROOT,)] if wanted.case_ids is None else [namespace(case) for case in wanted.case_ids]
        verdicts = self._verdicts(roots) if wanted.status is not None else {}
        found: dict[str, tuple[float, Mapping[str, Any]]] = {}
        for root in roots:
            fitting = (each for each in self._scored(root, wanted.equal(), query) if wanted.fits(each[1], verdicts))
            for score, item in islice(fitting, enough):
                found.setdefault(item["entry_id"], (score, item))
        nearest = sorted(found.values(), key=lambda each: each[0], reverse=True)
        return [item for _, item in nearest]

    def _verdicts(self, roots: Sequence[tuple[str, ...]]) -> dict[str, str]:
        given = [item for root in roots for item in self._scan(root, {"entry_type": "feedback"})]
        given.sort(key=lambda item: item["created_at"])
        return {item["handoff_id"]: item["verdict"] for item in given}

    def _scan(self, root: tuple[str, ...], equal: dict[str, str]) -> Iterator[Mapping[str, Any]]:
        return (item for _, item in self._scored(root, equal, ""))

    def _scored(self, root: tuple[str, ...], equal: dict[str, str], query: str) -> Iterator[tuple[float, Mapping[str, Any]]]:
        offset = 0
        while True:
            asking: dict[str, Any] = {"filter": equal or None, "query": query or None, "limit": _PAGE, "offset": offset}
            with self._lock:
                page = self._store.search(root, **asking, refresh_ttl=False)
            yield from ((item.score or 0.0, item.value) for item in page)
            if len(page) < _PAGE:
                return
            offset += _PAGE


def ranked(items: Sequence[Mapping[str, Any]], query: str) -> Sequence[Mapping[str, Any]]:
    """Return the items that fit a query, best first; without a query as they are."""
    if not query:
        return items
    texts = [(item["head"], item["body"]) for item in items]
    weights = [TRACE_WEIGHT if item["entry_type"] == "trace" else 1.0 for item in items]
    return [items[place] for place in rank(texts, asked(query), weights)]
