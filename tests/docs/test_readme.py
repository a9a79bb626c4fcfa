"""README and examples are run, and say what is true."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from langgraph_handoff.lifecycle import TRANSFER, WRITE, mermaid

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("0*.py"))
SAID = {
    "01_two_agents": "hops: ['triage', 'billing']",
    "02_package_and_acceptance": "refunds declined: it needs customer_id",
    "03_approval_gate": "written: ['A-77: 80.0']",
    "04_restart": "went: ['security', 'human', 'security']",
    "05_triage_and_return": "hops: ['triage', 'tech', 'triage', 'billing', 'triage']",
    "06_bring_your_agent": "hops: ['research', 'billing']",
    "07_memory_without_a_graph": "next case, Ari knows: Check for existing credits before computing a refund",
}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_block_of_the_readme_runs(number: int) -> None:
    """Every Python block of the README runs as it stands."""
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(BLOCKS[number], f"README block {number}", "exec"), {"__name__": "readme"})


def test_the_readme_has_its_blocks() -> None:
    """The README shows two agents, a test and an approval."""
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("table", [TRANSFER, WRITE])
def test_the_readme_s_diagrams_are_drawn_from_the_tables(table: object) -> None:
    """The state diagrams in the README are what the tables give."""
    assert mermaid(table) in README  # type: ignore[arg-type]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_runs_and_says_what_it_shows(example: Path, tmp_path: Path) -> None:
    """Every example runs in a process of its own, without a warning, and prints its point."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAID[example.stem] in done.stdout
    assert len(example.read_text().splitlines()) <= 80


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_exposes_a_graph_or_a_builder(example: Path) -> None:
    """An example can be imported without running, so that a reader may play with it."""
    names = runpy.run_path(str(example), run_name="imported")
    assert names.keys() & {"graph", "desk", "storage"}


def test_every_public_name_is_documented() -> None:
    """Every name of the public face has a docstring."""
    import langgraph_handoff

    bare = [name for name in langgraph_handoff.__all__ if not (getattr(langgraph_handoff, name).__doc__ or "").strip()]
    assert bare == []
