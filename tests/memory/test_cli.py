"""The memory on the command line: an inbox, what is remembered, a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_handoff import CaseMemory, connect
from langgraph_handoff.cli import main
from tests.memory.conftest import asking, noted


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "cases.db")


@pytest.fixture
def handoff(db: str) -> str:
    """A case with an open request and a trace, and a linked case."""
    with connect(db) as storage:
        memory = CaseMemory(storage.store)
        noted(memory, {"tool": "issue_credit", "result": "$400 goodwill [bold]credit[/bold]"}, sources=["call-7"])
        noted(memory, "an older credit", case_id="case-0")
        memory.link("case-0", "case-1")
        return asking(memory)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_a_person_answers_from_the_terminal(db: str, handoff: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The inbox prints the id that `feedback` takes; after the verdict the inbox is empty and the verdict is remembered."""
    assert main(["inbox", "rex", "--db", db]) == 0
    shown = said(capsys)
    assert f"{handoff} case-1 handoff ari approve → rex" in shown
    assert "Refund $1,200?" in shown
    assert main(["feedback", handoff, "block", "--comments", "There is a credit.", "--by", "rex", "--db", db]) == 0
    assert main(["inbox", "rex", "--db", db]) == 0
    assert said(capsys).endswith("Nothing waits for rex.")
    with connect(db) as storage:
        assert CaseMemory(storage.store).await_verdict(handoff_id=handoff, timeout=0) == "block"


def test_recall_prints_what_fits_with_its_sources(db: str, handoff: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Words, types and linked cases choose; markup in an entry is text."""
    assert main(["recall", "case-1", "goodwill", "--db", db]) == 0
    shown = said(capsys)
    assert "$400 goodwill [bold]credit[/bold]" in shown
    assert "sources: call-7" in shown
    assert handoff not in shown
    assert main(["recall", "case-1", "credit", "--type", "handoff", "--db", db]) == 0
    assert said(capsys) == "Nothing that is remembered of this case fits."
    assert main(["recall", "case-1", "older", "--linked", "--db", db]) == 0
    assert "an older credit" in said(capsys)
    assert main(["recall", "case-1", "--limit", "1", "--db", db]) == 0
    assert handoff in said(capsys)


def test_cases_are_listed_with_what_is_open(db: str, handoff: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each case has a line, the last touched first."""
    assert main(["cases", "--db", db]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", last")[0] for line in lines] == ["case-1  2 entries, 1 open", "case-0  1 entries, 0 open"]


def test_an_empty_memory_says_so(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing remembered is no mistake."""
    with connect(db):
        pass
    assert main(["cases", "--db", db]) == 0
    assert said(capsys) == "No case is remembered yet."


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["feedback", "h-404", "approve", "--by", "rex"], "holds no handoff `h-404`"),
        (["feedback", "HANDOFF", "approve", "--by", "ari"], "'ari' asked for it"),
        (["feedback", "HANDOFF", "maybe"], "invalid choice: 'maybe'"),
        (["recall", "case-404", "x"], "Nothing is remembered of a case 'case-404'"),
        (["recall", "case-1", "x", "--limit", "0"], "limit: 0"),
        (["inbox", ""], "agent_id: '' is not a name"),
    ],
)
def test_a_wrong_command_is_explained(
    argv: list[str], told: str, db: str, handoff: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be done exits with 2 and says why."""
    assert main([handoff if each == "HANDOFF" else each for each in argv] + ["--db", db]) == 2
    assert told in capsys.readouterr().err


def test_without_a_file_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading where there is no file is an error and leaves no file behind."""
    assert main(["inbox", "rex", "--db", str(tmp_path / "none.db")]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
