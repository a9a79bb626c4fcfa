"""The command line, as a person and as a script use it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.prompt import Prompt

from langgraph_handoff.cli import main
from langgraph_handoff.demo import DemoChatModel, bank


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
    issued = json.loads(bank(db).read_text())
    assert (issued["invoice_id"], issued["amount"]) == ("A-102", 80.0)


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
        ["demo", "--db", ":memory:"],
        ["demo", "--db", "postgresql://somewhere/cases"],
        ["demo", "--case", "a\x00b"],
        ["demo", "--case", ""],
        ["demo", "--case", "x" * 513],
        ["demo", "--case", "\udcff"],
        ["demo", "\udcff"],
        ["demo", "--delay", "-1"],
        ["demo", "--delay", "inf"],
        ["demo", "--delay", "soon"],
        ["demo", "--auto", "maybe"],
        ["show"],
        [],
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
    assert not list(tmp_path.glob("*.credits.jsonl"))


def test_a_file_that_is_no_database_is_named(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that holds something else is named, not read and not changed."""
    Path(db).write_bytes(b"a letter to my aunt" * 100)
    for command in (["show", "c1"], ["resume", "c1"], ["hops", "c1"], ["demo"]):
        assert main([*command, "--db", db]) == 2
        assert db in capsys.readouterr().err
    assert Path(db).read_bytes() == b"a letter to my aunt" * 100


def test_an_unknown_case_is_named(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that is not there is named in the error."""
    main(["demo", "--case", "c1", "--db", db])
    assert main(["show", "nope", "--db", db]) == 2
    assert "'nope'" in capsys.readouterr().err


def test_what_waits_is_listed_over_all_cases(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`pending` names each case that waits with what is asked, and says so when nothing waits."""
    for case in ("c1", "c2"):
        main(["demo", "--case", case, "--db", db])
    main(["resume", "c1", "--db", db, "--auto", "approve"])
    capsys.readouterr()
    assert main(["pending", "--db", db]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("c2  write  billing: issue_credit(")
    main(["resume", "c2", "--db", db, "--auto", "reject"])
    capsys.readouterr()
    main(["pending", "--db", db])
    assert capsys.readouterr().out == "Nothing waits.\n"


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


def test_a_model_whose_provider_is_not_installed_is_a_clear_error(
    db: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A known provider without its package, and names without langchain, say in one line what to install."""
    monkeypatch.setenv("HANDOFF_MODEL", "openai:gpt-4o")
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    assert main(["demo", "--db", db]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install langchain-openai" in line
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    assert main(["demo", "--db", db]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "langgraph-handoff[models]" in line


def test_a_model_that_fails_leaves_a_case_that_goes_on(
    db: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failing model ends the command with exit code 1 and one line that says how to go on; then it goes on."""

    def broken(*_args: Any, **_kwargs: Any) -> Any:
        raise ConnectionError("the provider is away")

    with monkeypatch.context() as away:
        away.setattr(DemoChatModel, "_generate", broken)
        assert main(["demo", "--case", "my case", "--db", db]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "ConnectionError: the provider is away" in line
    assert f"resume 'my case' --db {db}" in line
    assert main(["resume", "my case", "--db", db, "--auto", "approve"]) == 0
    assert len(bank(db).read_text().splitlines()) == 1


def test_words_while_a_request_is_open_do_not_repeat_the_credit(db: str) -> None:
    """Who hurries the desk while a person is asked gets the credit once."""
    assert main(["demo", "--case", "c1", "--db", db]) == 3
    assert main(["demo", "please hurry", "--case", "c1", "--db", db, "--auto", "approve"]) == 0
    assert len(bank(db).read_text().splitlines()) == 1


def test_a_new_question_in_an_old_case_gets_a_new_answer(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was solved for an earlier question is no answer to the next one."""
    main(["demo", "--case", "c1", "--db", db, "--auto", "approve"])
    capsys.readouterr()
    assert main(["demo", "now the webhook times out", "--case", "c1", "--db", db]) == 0
    said = capsys.readouterr().out
    assert "service_status()" in said
    assert "401" not in said
    assert "triage, tech, done" in said.rpartition("hops:")[2]


@pytest.mark.parametrize(
    ("text", "answer"), [("Cancel my plan", "cannot change"), ("refund for invoice Z-99", "no invoice Z-99")]
)
def test_what_the_desk_cannot_do_is_said_and_not_credited(
    db: str, capsys: pytest.CaptureFixture[str], text: str, answer: str
) -> None:
    """A wish that is not about a wrong invoice moves no money."""
    assert main(["demo", text, "--case", "c1", "--db", db, "--auto", "approve"]) == 0
    assert answer in " ".join(capsys.readouterr().out.split())
    assert not bank(db).exists()


def test_words_and_names_cannot_draw_on_the_screen(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Markup and control characters are shown, not obeyed: they could repaint what a person is asked."""
    words = "[bold]invoice[/x] \x1b[2J\x1b[31mAPPROVED\x07"
    assert main(["demo", words, "--case", "[/c]", "--db", db]) == 3
    assert main(["show", "[/c]", "--db", db]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]invoice[/x]" in out


def test_an_address_is_as_good_as_a_path(db: str) -> None:
    """With `sqlite:///` the credits stand beside the cases too."""
    assert main(["demo", "--case", "c1", "--db", f"sqlite:///{db}", "--auto", "approve"]) == 0
    assert len(bank(db).read_text().splitlines()) == 1


def _in_a_terminal(db: str, answers: list[tuple[str, str]], **env: str) -> tuple[int, str]:
    """Run the seed case on a terminal, answering each prompt when it stands there."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "langgraph_handoff.cli", "demo", "--case", "c1", "--db", db],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **env},
    )
    os.close(inner)
    seen, said, left = "", "", list(answers)
    while True:
        try:
            said = os.read(outer, 4096).decode(errors="replace")
        except OSError:  # the other side of the terminal was closed
            break
        if not said:
            break
        seen += said
        prompt = seen.rpartition("\n")[2]
        if left and prompt.lstrip().startswith(left[0][0]) and ": " in prompt:
            os.write(outer, left.pop(0)[1].encode())
    os.close(outer)
    return process.wait(60), seen


def test_a_person_edits_on_a_real_terminal(db: str) -> None:
    """On a terminal the question comes in colour; kept and changed arguments run as edited."""
    code, seen = _in_a_terminal(db, [("Your decision", "edit\n"), ("invoice_id", "\n"), ("amount", "75.5\n")])
    assert code == 0, seen
    assert "\x1b[" in seen
    issued = json.loads(bank(db).read_text())
    assert (issued["invoice_id"], issued["amount"]) == ("A-102", 75.5)


def test_who_leaves_the_question_leaves_it_open(db: str) -> None:
    """Ctrl-D at the question decides nothing: exit code 3, and the case waits."""
    code, seen = _in_a_terminal(db, [("Your decision", "\x04")])
    assert code == 3, seen
    assert "Traceback" not in seen
    assert main(["resume", "c1", "--db", db, "--auto", "approve"]) == 0
    assert len(bank(db).read_text().splitlines()) == 1


def test_a_terminal_without_arrows_gets_the_whole_case(db: str) -> None:
    """Characters that the terminal cannot show are replaced; they stop no case."""
    command = [sys.executable, "-m", "langgraph_handoff.cli", "demo", "--case", "c1", "--db", db, "--auto", "approve"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert b"triage ? tech" in done.stdout
