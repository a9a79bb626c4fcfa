"""The memory of cases, over any store of the host's."""

from __future__ import annotations

from langgraph_handoff.memory.cases import CaseMemory
from langgraph_handoff.memory.entry import ENTRY_TYPES, Entry, EntryType
from langgraph_handoff.memory.shelf import CaseSummary

__all__ = ("ENTRY_TYPES", "CaseMemory", "CaseSummary", "Entry", "EntryType")
