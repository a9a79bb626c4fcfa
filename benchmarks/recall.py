"""How long a recall takes in a SQLite file with 100,000 entries.

Two files: 1,000 cases with 100 entries each, and one case that has them all. Half of the queries are words that stand near each
other in some entry, as a question repeats them; a quarter are ids; a quarter are Chinese. Word frequencies follow Zipf's law, as
in real texts, so that every query has very common words. Also: what an entry costs to write, and its bytes on the disk.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph_handoff import CaseMemory, Entry, connect

HERE = Path(__file__).parent
GOAL_MS = 10.0
_SYLLABLES = ("ba", "ke", "ri", "lo", "mun", "ta", "si", "por", "den", "ve", "gra", "no", "fi", "hal", "qu")
_CHANCE = random.Random(7)
_WORDS = ["".join(_CHANCE.choices(_SYLLABLES, k=_CHANCE.randint(1, 5))) for _ in range(8000)]
_SIGNS = [chr(0x4E00 + number) for number in _CHANCE.sample(range(20_000), 1500)]


def zipf(of: list[str]) -> Callable[[int], list[str]]:
    """Return a source of words whose frequencies follow Zipf's law."""
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(of))))
    return lambda count: _CHANCE.choices(of, cum_weights=weights, k=count)


words, signs = zipf(_WORDS), zipf(_SIGNS)


def entry(number: int, cases: int) -> tuple[Entry, str]:
    """Return an entry, and a query that it answers."""
    said, chinese, invoice = words(50), "".join(signs(30)), f"inv_2024-{number:06d}"
    kind = number % 4
    text = " ".join((*said, chinese if kind == 3 else "", invoice))
    place = _CHANCE.randrange(40)
    query = {2: f"what about {invoice}", 3: chinese[5:13]}.get(kind, "what did the " + " ".join(said[place : place + 6]))
    content = {"tool": said[0], "result": text}
    return Entry.of(entry_type="trace", case_id=f"case-{number % cases}", agent="ari", content=content), query


def measured(cases: int, entries: int, queries: int) -> dict[str, Any]:
    """Return the figures of one file."""
    with tempfile.TemporaryDirectory() as folder, connect(f"{folder}/cases.db") as storage:
        memory = CaseMemory(storage.store)
        asking: list[tuple[str, str, str]] = []
        spent = 0.0
        for start in range(0, entries, 500):
            made = [entry(number, cases) for number in range(start, start + 500)]
            asking += [(each.case_id, each.entry_id, query) for each, query in made]
            begun = time.perf_counter()
            memory.append([each for each, _ in made])
            spent += time.perf_counter() - begun
        size = sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder))
        found, times = 0, []
        for case, wanted, query in _CHANCE.sample(asking, queries):
            begun = time.perf_counter()
            recalled = memory.recall(case_id=case, query=query, limit=20)
            times.append((time.perf_counter() - begun) * 1e3)
            found += bool(recalled) and recalled[0].entry_id == wanted
        one = []
        for number in range(entries, entries + 200):
            made_one = entry(number, cases)[0]
            begun = time.perf_counter()
            memory.append([made_one])
            one.append((time.perf_counter() - begun) * 1e3)
    cuts = statistics.quantiles(times, n=100)
    return {
        "cases": cases,
        "entries": entries,
        "queries": queries,
        "p50_ms": round(cuts[49], 2),
        "p95_ms": round(cuts[94], 2),
        "p99_ms": round(cuts[98], 2),
        "first": round(found / queries, 3),
        "write_one_p50_ms": round(statistics.median(one), 2),
        "write_500_ms_each": round(spent / entries * 1e3, 3),
        "bytes_each": round(size / entries),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=400)
    given = parser.parse_args()
    rows = [measured(cases, given.entries, given.queries) for cases in (given.entries // 100, 1)]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}"
    lines = [
        "# Recall", "", __doc__.split("\n\n", 1)[1].strip(), "", f"Measured on {machine}. Goal: p50 at most {GOAL_MS:g} ms.", "",
        "| cases | entries | p50 ms | p95 ms | p99 ms | asked-for first | write one, p50 ms | write of 500, ms each | bytes |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    for row in rows:
        figures = (
            row["cases"],
            row["entries"],
            row["p50_ms"],
            row["p95_ms"],
            row["p99_ms"],
            row["first"],
            row["write_one_p50_ms"],
        )
        lines.append(f"| {' | '.join(map(str, (*figures, row['write_500_ms_each'], row['bytes_each'])))} |")
    print("\n".join(lines))
    if given.entries >= 100_000:
        (HERE / "results" / "recall.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (HERE / "results" / "recall.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
