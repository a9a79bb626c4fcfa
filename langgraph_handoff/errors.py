"""Every exception of the package.

The class docstring is the message: what happened and what to do about it. Keyword arguments fill its placeholders
and stay readable as attributes, so that a handler never parses a text.
"""

from __future__ import annotations

import inspect
from typing import Any

__all__ = (
    "BudgetError",
    "CatalogError",
    "CheckpointerMissingError",
    "DurabilityError",
    "EntryConflictError",
    "EntryError",
    "ExtraMissingError",
    "HandoffError",
    "IllegalTransitionError",
    "InputFilterError",
    "LedgerBehindError",
    "LedgerConflictError",
    "LedgerError",
    "LedgerMissingError",
    "LedgerUnsettledError",
    "LedgerVersionError",
    "MemoryStoreError",
    "NoModelError",
    "NoOpenRequestError",
    "NotJsonError",
    "PackageError",
    "PackageTooLargeError",
    "RolledBackError",
    "ScriptError",
    "StaleRequestError",
    "StateUpdateError",
    "StorageError",
    "ThreadBusyError",
    "UnknownHandoffError",
    "UnknownPackageTypeError",
    "UnsupportedSchemaVersionError",
    "WriteInProgressError",
    "WriteNotApplied",
)


class HandoffError(Exception):
    """A handoff could not be carried out."""

    def __init__(self, message: str | None = None, /, **fields: Any) -> None:
        """Build the message from the class docstring and keep `fields` as attributes.

        Args:
            message: Replaces the docstring when given.
            fields: Values for the placeholders in the docstring; each becomes an attribute.
        """
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        template = inspect.cleandoc(message or type(self).__doc__ or type(self).__name__)
        text = " ".join(template.split()) if message is None else template
        super().__init__(text.format_map(_Shown(fields)) if message is None else text)


class _Shown(dict[str, Any]):
    """Leave a placeholder readable when its field was not given, since an error about an error helps nobody."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class CatalogError(HandoffError):
    """The catalogue of agents is not valid: {problem}. Correct the agents given to `create_handoff_graph`."""


class BudgetError(HandoffError):
    """The budget of handoffs is not valid: {problem}. Give `max_handoffs` a whole number of at least 1."""


class PackageError(HandoffError):
    """The handoff package is not valid: {problem}. Correct the named fields and send the package again."""


class PackageTooLargeError(PackageError):
    """The handoff package has {size} bytes; the cap is {cap}. Move large content into a store and put a pointer to
    it in `evidence` or `artifacts`.
    """


class UnsupportedSchemaVersionError(PackageError):
    """The stored package `{package}` has schema version {found}; this code reads {supported}. Install the release
    that wrote it, or add an upcast for its major version.
    """


class UnknownPackageTypeError(PackageError):
    """The stored package is a `{package}`, which no agent or handoff of this graph declares. Known: {known}. Declare
    the class as `package=` of its destination.
    """


class IllegalTransitionError(HandoffError):
    """In the `{table}` table the event `{event}` may not follow the state `{state}`. Allowed here: {allowed}."""


class StorageError(HandoffError):
    """The storage at {url} could not be opened: {problem}. Check the address, the folder and its permissions."""


class ExtraMissingError(StorageError, ImportError):
    """The storage at {url} needs an optional part of the package ({problem}). Install it:
    `pip install "langgraph-handoff[{extra}]"`.
    """


class LedgerError(HandoffError):
    """The write ledger at {location} could not be used: {problem}. Nothing was written; free the file or disk, or bring the
    server back, and run the case again.
    """


class LedgerUnsettledError(LedgerError):
    """The write ledger at {location} was lost in the middle of a move: {problem}. Whether the move is stored will show when
    the ledger can be read again: run the case again then, and it goes on from what is stored.
    """


class LedgerMissingError(LedgerError):
    """The tool `{tool}` is a privileged write and this graph has no write ledger. Compile with
    `storage=connect("cases.db")`, with `ledger=...`, or set HANDOFF_LEDGER_URL.
    """


class LedgerVersionError(LedgerError):
    """The write ledger at {location} has schema version {found}; this code reads {supported}. Install the release that wrote
    it. Nothing in it was changed.
    """


class EntryError(HandoffError):
    """The memory entry is not valid: {problem}. Nothing was stored; correct it and record it again."""


class EntryConflictError(EntryError):
    """The memory already holds an entry `{entry_id}` that says something else. Entries are never changed: give another
    `entry_id`, or none.
    """


class UnknownHandoffError(HandoffError):
    """The memory holds no handoff `{handoff_id}`. Take the id that `handoff` returned or that `receive_handoffs` lists."""


class NoModelError(HandoffError):
    """`{method}` needs a model to put evidence into words, and this memory has none. Build it with
    `CaseMemory(store, model=...)`, or ask for evidence only.
    """


class MemoryStoreError(HandoffError):
    """The memory's store could not be used: {problem}."""


class StateUpdateError(HandoffError):
    """A write to the state's `{channel}` is not valid: {problem}. Nothing was stored. Correct the named parts; agents and tools
    move a case by handoffs, not by writing its state.
    """


class InputFilterError(HandoffError):
    """An edge's `input_filter` must return the list of messages that the destination shall see, and returned a {given}."""


class NotJsonError(LedgerError):
    """A value for the write ledger is not plain JSON: {problem}. Use texts, finite numbers, true, false, null, lists, and
    objects with texts as keys.
    """


class LedgerConflictError(LedgerError):
    """The operation {op} is `{state}` (epoch {epoch}) and does not take `{event}`. Somebody else moved it first: read it again
    and decide anew.
    """


class WriteInProgressError(LedgerError):
    """The operation {op} (`{tool}`) is being carried out by another running process ({token}). Wait for it, then run the
    case again.
    """


class WriteNotApplied(HandoffError):
    """The write was certainly not applied. Raise this inside a privileged tool to say so: the approval stays valid and
    the operation may be tried again.
    """


class CheckpointerMissingError(HandoffError):
    """This graph asks people for approval and needs a checkpointer to wait for them. Compile with
    `storage=connect("cases.db")` or `checkpointer=...`, and give a `thread_id`.
    """


class DurabilityError(HandoffError):
    """The durability `{durability}` stores nothing before the run ends, so an approved write could be repeated after a
    crash. Use `durability="sync"` in graphs with privileged tools.
    """


class RolledBackError(LedgerError):
    """The checkpoints of thread `{thread_id}` end before its last privileged write: {found} is stored, and the ledger at
    {location} has seen {known}. They were rolled back, emptied or replaced. Restore the checkpoints of that time, or take the
    case up under a new `thread_id`. Nothing was changed.
    """


class LedgerBehindError(LedgerError):
    """The ledger at {location} does not know {what}, which the case of thread `{thread_id}` has on record. The ledger was rolled
    back, emptied or replaced. Restore the ledger of that time. Nothing was written.
    """


class NoOpenRequestError(HandoffError):
    """The thread `{thread_id}` has no open request to answer. Read `get_state(config).interrupts` first; to go on with
    an unfinished run, invoke the graph with `None`.
    """


class StaleRequestError(HandoffError):
    """The request `{request_id}` is not open on thread `{thread_id}`: {problem}. Open now: {open}. Read the open
    request again and decide on that one.
    """


class ThreadBusyError(HandoffError):
    """Another run is working on thread `{thread_id}`. Wait until it ends, then send this input again."""


class ScriptError(HandoffError, AssertionError):
    """The scripted model of `{agent}` was used against its script: {problem}."""
