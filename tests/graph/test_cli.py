"""The command line, as a person and as a script use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.prompt import Prompt

from langgraph_handoff.cli import main
from langgraph_handoff.demo import bank


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "cases.db")


def test_without_a_terminal_the_demo_stops_at_the_question(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that cannot be asked gets exit code 3 and is told how to go on."""
    assert main(["demo", "--case", "c1", "--db", db]) == 3
    assert f"resume c1 --db {db} --auto approve" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("auto", "credits"), [("approve", 1), ("reject", 0)])
def test_auto_answers_decide_without_a_terminal(db: str, auto: str, credits: int) -> None:
    """`--auto approve` issues the credit, `--auto reject` does not, and both end the case."""
    assert main(["demo", "--case", "c1", "--db", db, "--auto", auto]) == 0
    file = bank(db)
    assert len(file.read_text().splitlines() if file.exists() else []) == credits


def test_a_person_edits_the_arguments_in_the_terminal(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit at the prompt runs with the edited arguments."""
    answers = iter(["edit", "A-102", "80"])
    monkeypatch.setattr(Prompt, "ask", lambda *_args, **_kwargs: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert main(["demo", "--case", "c1", "--db", db]) == 0
    assert json.loads(bank(db).read_text()) == {"invoice_id": "A-102", "amount": 80.0}


def test_a_person_rejects_with_a_reason_in_the_terminal(
    db: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason of a rejection reaches the agent, and nothing is written."""
    answers = iter(["reject", "not our fault"])
    monkeypatch.setattr(Prompt, "ask", lambda *_args, **_kwargs: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert main(["demo", "--case", "c1", "--db", db]) == 0
    assert "not our fault" in " ".join(capsys.readouterr().out.split())
    assert not bank(db).exists()


@pytest.mark.parametrize(
    "args",
    [
        ["show", "c1", "--db", "missing.db"],
        ["resume", "c1", "--db", "/no/such/folder/cases.db"],
        ["demo", "   ", "--db", "x.db"],
        ["demo", "--db", "/no/such/folder/cases.db"],
        ["demo", "--case", "a\x00b"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Input that cannot be used gives one clear line on stderr and no traceback."""
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("langgraph-handoff: ")


def test_an_unknown_case_is_named(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that is not there is named in the error."""
    main(["demo", "--case", "c1", "--db", db])
    assert main(["show", "nope", "--db", db]) == 2
    assert "'nope'" in capsys.readouterr().err


def test_hops_as_a_chart(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The executed hops can be drawn."""
    main(["demo", "The API returns 401", "--case", "c1", "--db", db])
    capsys.readouterr()
    assert main(["hops", "c1", "--db", db, "--mermaid"]) == 0
    assert "-->|1| n1" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["hello", "Ich habe eine Frage", "401 401 401", "refund please, invoice A-55", "🙂"])
def test_any_words_get_an_answer(db: str, text: str) -> None:
    """Whatever a user types is answered."""
    assert main(["demo", text, "--case", "c1", "--db", db, "--auto", "approve"]) == 0


def test_a_model_name_without_its_package_is_a_clear_error(
    db: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """HANDOFF_MODEL with a provider that is not installed fails with one line."""
    monkeypatch.setenv("HANDOFF_MODEL", "nobody:model")
    assert main(["demo", "--db", db]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
