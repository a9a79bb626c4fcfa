"""A question about an earlier tool result finds that result first; where the recorded data is absent, in a small case of our own."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from langgraph_handoff import CaseMemory, connect
from tests.data.recall import Question, Result, dialogue, found_first, questions, transcript
from tests.data.replay import rows

DIALOGUES = rows("sgd_dialogues.jsonl")
TRANSCRIPTS = rows("gpt4o_airline_transcripts.jsonl")
NOT_HERE = "the recorded data is not here; set HANDOFF_DATA to its folder"

OWN: dict[str, Any] = {
    "id": "own:export",
    "turns": [
        {"who": "user", "service": "Billing", "text": "The export failed and you charged us anyway."},
        {
            "who": "system",
            "service": "Billing",
            "text": "I see invoice inv_2024-11 for the Scale plan.",
            "call": {
                "tool": "GetInvoice",
                "args": {"invoice_id": "inv_2024-11"},
                "first_result": {"customer_name": "Acme Corp", "amount_due": "1200.00", "plan_name": "Scale"},
            },
        },
        {
            "who": "system",
            "service": "Billing",
            "text": "And inv_2024-12.",
            "call": {
                "tool": "GetInvoice",
                "args": {"invoice_id": "inv_2024-12"},
                "first_result": {"customer_name": "Acme Corp", "amount_due": "310.50", "plan_name": "Starter"},
            },
        },
        {
            "who": "system",
            "service": "Credits",
            "text": "There was a credit already.",
            "call": {
                "tool": "ListCredits",
                "args": {"customer": "Acme Corp"},
                "first_result": {"credit_id": "A102", "credit_amount": "400.00", "granted_because": "goodwill, CSV export"},
            },
        },
    ],
}


def loaded(memory: CaseMemory, read: Any, recorded: list[dict[str, Any]]) -> list[Result]:
    """Load rows as cases and return their results."""
    results: list[Result] = []
    for row in recorded:
        entries, found = read(row)
        memory.append(entries)
        results += found
    return results


@pytest.mark.parametrize("url", [":memory:", "cases.db"])
def test_a_small_case_finds_every_result(url: str, tmp_path: Path) -> None:
    """In a small case each question of each shape finds its result first, in memory and in a file."""
    with connect(url if url == ":memory:" else str(tmp_path / url)) as storage:
        memory = CaseMemory(storage.store)
        asked = questions(loaded(memory, dialogue, [OWN]), random.Random(1))
        assert Counter(question.shape for question in asked) == {"asked": 3, "value": 3, "field": 1}
        assert found_first(memory, asked, among=["trace"]) == asked


@pytest.mark.skipif(not (DIALOGUES and TRANSCRIPTS), reason=NOT_HERE)
@pytest.mark.parametrize("url", [":memory:", "cases.db"])
@pytest.mark.parametrize("seed", [2024, 2025, 2026])
def test_recorded_results_are_found_first(url: str, seed: int, tmp_path: Path) -> None:
    """Of 100 sampled questions about recorded results at least 90 find theirs first, whatever the sample."""
    with connect(url if url == ":memory:" else str(tmp_path / url)) as storage:
        memory = CaseMemory(storage.store)
        results = loaded(memory, dialogue, DIALOGUES) + loaded(memory, transcript, TRANSCRIPTS)
        chance = random.Random(seed)
        sample = chance.sample(questions(results, chance), 100)
        found = found_first(memory, sample, among=["trace"])
    assert len(found) >= 90, missed(sample, found)


def missed(sample: list[Question], found: list[Question]) -> list[tuple[str, str]]:
    """Return what was asked in vain."""
    return [(question.shape, question.text) for question in sample if question not in found]
