"""The command line: watch a case travel, answer for it, stop it anywhere, go on; read what is remembered, give a verdict."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, get_args

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, StateSnapshot
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.prompt import Prompt
from rich.segment import Segment
from rich.text import Text

from langgraph_handoff.demo import SEED_CASE, support
from langgraph_handoff.errors import HandoffError
from langgraph_handoff.graph import CompiledHandoffGraph
from langgraph_handoff.memory import ENTRY_TYPES, CaseMemory, Entry
from langgraph_handoff.package import HandoffPackage, Verdict
from langgraph_handoff.state import Event
from langgraph_handoff.storage import Storage, connect
from langgraph_handoff.trace import graph_of_hops, hops
from langgraph_handoff.waiting import pending

__all__ = ("main",)

DONE, FAILED, BAD_INPUT, WAITING, INTERRUPTED = 0, 1, 2, 3, 130
_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue")
_EPILOG: Final = (
    "exit codes: 0 the case was answered, 1 a model, a tool or the disk failed (`resume` goes on), 2 the input was wrong, "
    "3 the case waits for a decision, 130 stopped by Ctrl-C. HANDOFF_MODEL=provider:name runs a real chat model (extra `models`)."
)


_CONTROLS: Final = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")


class _BadInputError(Exception):
    """What the user gave cannot be used; the text says why and what to do."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _BadInputError(f"{message}. See `{self.prog} --help`.")


class _Screen(Console):
    """A console that obeys no control characters and no markup: what users, models and tools say must not repaint a question."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render, with control characters made visible."""
        for each in super().render(renderable, options):
            yield each if each.control else Segment(each.text.translate(_CONTROLS), each.style)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name. None takes those of the process.

    Returns:
        The exit code; `--help` lists them.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character must not stop a case
    console = _Screen(highlight=False, markup=False)
    given = argparse.Namespace(case=None, db=None)
    try:
        _parser().parse_args(argv, given)
        _check_readable(given)
        return int(given.run(given, console))
    except KeyboardInterrupt:
        console.print(f"\nStopped. Nothing is lost: {_again(given)}", soft_wrap=True)
        return INTERRUPTED
    except (_BadInputError, HandoffError, ValueError) as error:
        return _told(error, BAD_INPUT)
    except Exception as error:  # noqa: BLE001 (models, tools and disks fail in their own ways; the case is stored)
        return _told(f"{type(error).__name__}: {error} (nothing is lost: {_again(given)})", FAILED)


def _told(error: object, code: int) -> int:
    print(f"langgraph-handoff: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _check_readable(given: argparse.Namespace) -> None:
    for name, value in vars(given).items():
        if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
            raise _BadInputError(f"{name} is not valid text: {value!r}.")


def _again(given: argparse.Namespace, *more: str) -> str:
    """Return the command that goes on with the case, so that it can be pasted."""
    return f"{_program()} {shlex.join(['resume', given.case or 'CASE', '--db', given.db or 'DB', *more])}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="langgraph-handoff", description=__doc__, epilog=_EPILOG)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about, epilog=_EPILOG)
        made.add_argument("--db", default="cases.db", help="SQLite file of the cases (default: %(default)s)")
        made.set_defaults(run=run)
        return made

    demo = command("demo", _demo, "run a support case from your words")
    demo.add_argument("text", nargs="?", default=SEED_CASE, help="what the user says (default: %(default)r)")
    demo.add_argument("--case", help="name of the case (default: a new one)")
    resume = command("resume", _resume, "go on with a case that was stopped, killed or waits")
    for each in (demo, resume):
        each.add_argument("--auto", choices=("approve", "reject"), help="answer every request so, without a terminal")
        each.add_argument("--delay", type=_seconds, default=0.0, metavar="SECONDS", help="pause between steps, to watch")
    show = command("show", _show, "print owner, hops, package and open request of a case")
    command("pending", _pending, "print what waits for a person, over all cases")
    trail = command("hops", _hops, "print who had the case")
    trail.add_argument("--mermaid", action="store_true", help="as a Mermaid chart")
    for each in (resume, show, trail):
        each.add_argument("case", metavar="CASE", help="name of the case")
    _add_memory(command)
    return parser


def _add_memory(command: Callable[[str, Any, str], argparse.ArgumentParser]) -> None:
    inbox = command("inbox", _inbox, "print the handoffs that wait for an agent's or a person's verdict")
    inbox.add_argument("agent", metavar="AGENT", help="who is asked")
    recall = command("recall", _recall, "print what is remembered of a case and fits some words, best first")
    recall.add_argument("case", metavar="CASE", help="name of the case")
    recall.add_argument("query", metavar="QUERY", nargs="?", default="", help="words, names, ids (default: all, newest first)")
    recall.add_argument("--type", choices=ENTRY_TYPES, action="append", dest="types", help="only such entries; may be repeated")
    recall.add_argument("--linked", action="store_true", help="ask the linked cases too")
    recall.add_argument("--limit", type=int, default=20, help="entries at most (default: %(default)s)")
    feedback = command("feedback", _feedback, "give a verdict on a handoff")
    feedback.add_argument("handoff", metavar="HANDOFF", help="id of the handoff, as `inbox` prints it")
    feedback.add_argument("verdict", metavar="VERDICT", choices=get_args(Verdict), help=f"one of {', '.join(get_args(Verdict))}")
    feedback.add_argument("--comments", default="", help="why, and what to do")
    feedback.add_argument("--by", default=_who(), help="who says it (default: %(default)s)")
    command("cases", _cases, "print the cases that are remembered")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _program() -> str:
    """Return how this command was called, so that what is printed can be pasted: it may not be on the path."""
    called = Path(sys.argv[0])
    if called.name != "langgraph-handoff":
        return "langgraph-handoff"
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here)) if called.is_relative_to(here) else str(called))


def _config(case: str) -> RunnableConfig:
    return {"configurable": {"thread_id": case}}


def _desk(db: str, storage: Storage) -> CompiledHandoffGraph:
    name = os.environ.get("HANDOFF_MODEL") or None
    try:
        return support(db, name).compile(storage=storage)
    except Exception as error:
        if name is None:
            raise
        raise _BadInputError(f"HANDOFF_MODEL={name} cannot be used: {error}") from error


def _existing(db: str) -> Storage:
    if not Path(db.removeprefix("sqlite:///")).is_file():
        raise _BadInputError(f"There is no file {db}. Give --db, or start a case with `{_program()} demo`.")
    return connect(db)


def _saved(graph: CompiledHandoffGraph, case: str, db: str) -> StateSnapshot:
    snapshot = graph.get_state(_config(case))
    if not snapshot.values.get("messages"):
        raise _BadInputError(f"There is no case {case!r} in {db}.")
    return snapshot


def _demo(given: argparse.Namespace, console: Console) -> int:
    if not given.text.strip():
        raise _BadInputError("The text is empty. Say what the case is about.")
    if given.db == ":memory:" or "://" in given.db.removeprefix("sqlite:///"):
        raise _BadInputError("The demo keeps its case and its credits in files, which outlive this command: give --db a file.")
    given.case = f"case-{secrets.token_hex(3)}" if given.case is None else given.case
    with connect(given.db) as storage:
        graph = _desk(given.db, storage)
        console.print(Text.assemble((given.case, "bold"), f" in {given.db}; stop it at any moment and go on with:"))
        console.print(f"  {_again(given)}\n", style="dim", soft_wrap=True)
        if graph.get_state(_config(given.case)).interrupts:
            console.print("A request of this case is open; your words are added to it.", style="dim")
        console.print(Text.assemble(("user  ", "bold"), given.text))
        return _run(graph, {"messages": [{"role": "user", "content": given.text}]}, given, console)


def _resume(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        graph = _desk(given.db, storage)
        snapshot = _saved(graph, given.case, given.db)
        if snapshot.interrupts:
            return _decided(graph, snapshot.interrupts[0], given, console)
        return _run(graph, None, given, console)


def _show(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        graph = _desk(given.db, storage)
        snapshot = _saved(graph, given.case, given.db)
        values = snapshot.values
        closed = bool((values.get("ownership") or {}).get("closed"))
        console.print(f"case    {given.case}" + (" (closed)" if closed else ""))
        console.print(f"owner   {values.get('active_agent')}")
        console.print(f"hops    {', '.join(hops(graph, _config(given.case)))}")
        facts = (values.get("case") or {}).get("facts") or {}
        console.print(f"facts   {'; '.join(f'{key}: {value}' for key, value in facts.items()) or 'none'}")
        package = values.get("handoff")
        if isinstance(package, HandoffPackage):
            console.print(Panel(Text(package.brief()), title="package", title_align="left"))
        for asked in snapshot.interrupts:
            console.print(_request_panel(asked))
        if not snapshot.interrupts:
            console.print("request none is open")
    return DONE


def _pending(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        found = pending(storage)
    for each in found:
        args = ", ".join(f"{key}={value!r}" for key, value in each.args.items())
        console.print(
            Text.assemble((each.thread_id, "bold"), f"  {each.kind}  {each.agent}: {each.tool}({args})"), soft_wrap=True
        )
    if not found:
        console.print("Nothing waits.")
    return DONE


def _hops(given: argparse.Namespace, _console: Console) -> int:
    with _existing(given.db) as storage:
        graph = _desk(given.db, storage)
        _saved(graph, given.case, given.db)
        chain = hops(graph, _config(given.case))
        print(graph_of_hops(chain) if given.mermaid else ", ".join(chain))
    return DONE


def _inbox(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        waiting = CaseMemory(storage.store).receive_handoffs(agent_id=given.agent)
    for entry in waiting:
        _tell_entry(entry, console)
    if not waiting:
        console.print(f"Nothing waits for {given.agent}.")
    return DONE


def _recall(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        memory = CaseMemory(storage.store)
        wanted = {"entry_types": given.types, "include_linked_runs": given.linked, "limit": given.limit}
        found = memory.recall(case_id=given.case, query=given.query, **wanted)
        if not found and all(each.case_id != given.case for each in memory.cases()):
            raise _BadInputError(f"Nothing is remembered of a case {given.case!r} in {given.db}. See `{_program()} cases`.")
    for entry in found:
        _tell_entry(entry, console)
    if not found:
        console.print("Nothing that is remembered of this case fits.")
    return DONE


def _feedback(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        memory = CaseMemory(storage.store)
        said = memory.feedback(handoff_id=given.handoff, from_agent=given.by, verdict=given.verdict, comments=given.comments)
    console.print(f"{given.verdict} by {given.by} ({said})", soft_wrap=True)
    return DONE


def _cases(given: argparse.Namespace, console: Console) -> int:
    with _existing(given.db) as storage:
        found = CaseMemory(storage.store).cases()
    for each in found:
        console.print(
            Text.assemble((each.case_id, "bold"), f"  {each.entries} entries, {each.open} open, last {each.last_at}"),
            soft_wrap=True,
        )
    if not found:
        console.print("No case is remembered yet.")
    return DONE


def _tell_entry(entry: Entry, console: Console) -> None:
    what = entry.verdict or (f"{entry.requested_action} → {entry.to_agent}" if entry.to_agent else "")
    head = (
        f"  {entry.case_id}  {entry.entry_type}  ",
        (entry.agent, _colour(entry.agent)),
        f"  {what}  {entry.created_at:%Y-%m-%d %H:%M}",
    )
    console.print(Text.assemble((entry.entry_id, "bold"), *head), soft_wrap=True)
    for line in entry.text.splitlines():
        console.print(f"    {line}", style="dim")
    if entry.sources:
        console.print(f"    sources: {', '.join(entry.sources)}", style="dim", soft_wrap=True)


def _run(graph: CompiledHandoffGraph, input: Any, given: argparse.Namespace, console: Console) -> int:
    """Run until the case is answered or a person is asked."""
    config = _config(given.case)
    for mode, chunk in graph.stream(input, config, stream_mode=["updates", "custom"]):
        _tell(mode, chunk, console)
        time.sleep(given.delay)
    snapshot = graph.get_state(config)
    if snapshot.interrupts:
        return _decided(graph, snapshot.interrupts[0], given, console)
    console.print(f"\nhops: {', '.join(hops(graph, config))}", style="bold")
    return DONE


def _decided(graph: CompiledHandoffGraph, asked: Interrupt, given: argparse.Namespace, console: Console) -> int:
    """Ask for a decision, record it, and run on."""
    console.print(_request_panel(asked))
    shown = asked.value["handoff"]
    answer = _answer(asked.value, given.auto, console)
    if answer is None:
        console.print("Nobody decides here. The case waits; go on with one of:")
        console.print(f"  {_again(given, '--auto', 'approve')}", soft_wrap=True)
        console.print(f"  {_again(given, '--auto', 'reject')}", soft_wrap=True)
        return WAITING
    decision = {"type": answer.pop("decision"), "by": _who(), "request_id": shown["request_id"], **answer}
    return _run(graph, Command(resume={asked.id: {"decisions": [decision]}}), given, console)


def _answer(value: Mapping[str, Any], auto: str | None, console: Console) -> dict[str, Any] | None:
    allowed = value["review_configs"][0]["allowed_decisions"]
    if auto:
        automatic = {"approve": ("approve", "done"), "reject": ("reject", "abandon")}[auto]
        chosen = next((each for each in automatic if each in allowed), automatic[0])
        return {"decision": chosen, "message": f"--auto {auto}"}
    if not sys.stdin.isatty():
        return None
    try:
        return _asked(value, allowed, console)
    except EOFError:  # Ctrl-D: whoever sits here leaves the question to somebody else
        console.print()
        return None


def _asked(value: Mapping[str, Any], allowed: Sequence[str], console: Console) -> dict[str, Any]:
    choice = Prompt.ask("Your decision", choices=list(allowed), console=console)
    if choice == "edit":
        action = value["action_requests"][0]
        args = {name: _edited(name, old, console) for name, old in action["args"].items()}
        return {"decision": "edit", "edited_action": {"name": action["name"], "args": args}}
    if choice in ("reject", "respond"):
        return {"decision": choice, "message": Prompt.ask("Reason", default="", console=console)}
    return {"decision": choice}


def _edited(name: str, old: Any, console: Console) -> Any:
    text = Prompt.ask(Text(name), default=old if isinstance(old, str) else json.dumps(old), console=console)
    return old if text == json.dumps(old) else text


def _who() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or "terminal"


def _request_panel(asked: Interrupt) -> Panel:
    action = asked.value["action_requests"][0]
    return Panel(
        Markdown(action["description"], hyperlinks=False), title="a person is asked", title_align="left", border_style="yellow"
    )


def _tell(mode: str, chunk: Any, console: Console) -> None:
    """Print one step of a run."""
    if mode == "custom":
        _tell_event(chunk, console)
        return
    for update in chunk.values():
        if not isinstance(update, Mapping):
            continue
        for message in update.get("messages") or []:
            _tell_message(message, console)
        package = update.get("handoff")
        if package:
            facts = ", ".join(package.get("known_facts") or {}) or "none"
            console.print(f"      package: {package.get('reason') or package.get('summary')} (facts: {facts})", style="dim")


def _tell_event(happened: Event | Mapping[str, Any], console: Console) -> None:
    detail = happened.get("detail") or {}
    kind = happened["kind"]
    if kind in ("accepted", "returned", "declined") and "to" in detail:
        line = Text.assemble(("hop   ", "bold"), (str(detail["from"]), _colour(detail["from"])), " → ")
        console.print(line + Text(str(detail["to"]), _colour(detail["to"])) + Text(f" ({kind})", "dim"))
    elif kind in ("decided", "written", "not_written", "closed", "budget", "bounce", "forbidden"):
        said = ", ".join(f"{key}={value}" for key, value in detail.items() if value not in (None, ""))
        console.print(Text(f"      {kind}: {said}", "dim"))


def _tell_message(message: Any, console: Console) -> None:
    if isinstance(message, AIMessage):
        name = str(message.name)
        if str(message.text).strip():
            console.print(Text.assemble((f"{name}  ", f"bold {_colour(name)}"), str(message.text)))
        for call in message.tool_calls:
            args = ", ".join(f"{key}={value!r}" for key, value in call["args"].items())
            console.print(Text.assemble((f"{name}  ", _colour(name)), (f"{call['name']}({args})", "dim")))
    elif isinstance(message, ToolMessage):
        console.print(Text(f"      {message.text}", "red" if message.status == "error" else "dim"))


def _colour(name: str) -> str:
    return _COLOURS[sum(map(ord, name)) % len(_COLOURS)]


if __name__ == "__main__":
    sys.exit(main())
