"""transfer: the one place where a case changes its owner.

Package, `active_agent`, ownership, events and the call's result are one update, so no stored state has one without the
others. Nothing moves before everything was checked; what fails is a result for the sender, who keeps the case.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Command

from langgraph_handoff.agents import ESCALATE, Handoff, OnReply
from langgraph_handoff.desk import Desk, case_id_of, tell, timestamp
from langgraph_handoff.errors import PackageError, PackageTooLargeError
from langgraph_handoff.gate import settle_transfer
from langgraph_handoff.lifecycle import TRANSFER, advance
from langgraph_handoff.notebook import note_move, note_results, note_verdict
from langgraph_handoff.package import ASKS_FOR_VERDICT, HandoffPackage, Verdict
from langgraph_handoff.redaction import redacted
from langgraph_handoff.shapes import Given, Lender, Waiting
from langgraph_handoff.state import Event, Ownership, event, is_user, last_user_text, ownership_of, unanswered, user_turn
from langgraph_handoff.steps import Steps
from langgraph_handoff.turn import refusal, result

__all__ = ("transfer",)


_LONGEST: Final = 8_000
"""Characters of somebody's words that the runtime itself puts into a package."""
_SHORT: Final = 200
"""Characters of each text in a package that would be too large otherwise."""
_SHOWN: Final = 400
"""Characters of a result that a package repeats; the whole result stays in the talk."""


def transfer(desk: Desk, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Carry out the call that ends the turn, or give a lent case back after its owner has answered."""
    reply, open_ids = unanswered(state.get("messages") or [])
    agent = desk.author(reply, state)
    if agent is None:
        return Command(goto="intake")
    yield from note_results(desk, state, config)
    call = next((each for each in reply.tool_calls if each["id"] in open_ids), None) if reply else None
    move = _Move(desk, state, config, agent, reply)
    edge = _edge(desk, agent, call) if call else None
    if call and edge and edge.approval:
        barred = yield from settle_transfer(desk, state, config, call, agent)
        if barred is not None:
            return barred
    ended = move.by(call, edge)
    if move.said is not None:
        yield from note_verdict(desk, *move.said)
    if move.sent is not None:
        yield from note_move(desk, *move.sent)
    return ended


def _edge(desk: Desk, agent: str, call: ToolCall) -> Handoff | None:
    """Return the edge that a call goes over; an escalation has one of its own. None for a handoff that is not declared."""
    declared = desk.catalog.edges[agent].get(call["name"])
    if declared is not None:
        return declared
    if call["name"] == ESCALATE and desk.catalog.people:
        return Handoff(to=next(iter(desk.catalog.people)), tool_name=ESCALATE)
    return None


class _Move:
    """One change of owner in the making: what is known before it, and the update that it becomes."""

    def __init__(self, desk: Desk, state: Mapping[str, Any], config: RunnableConfig, agent: str, reply: AIMessage | None) -> None:
        self.desk, self.state, self.agent, self.reply = desk, state, agent, reply
        self.ownership = ownership_of(state)
        self.messages: list[BaseMessage] = list(state.get("messages") or [])
        self.case_id = case_id_of(state, config)
        package = state.get("handoff")
        self.held = package if isinstance(package, HandoffPackage) and package.to_agent == agent else None
        self.sent: tuple[HandoffPackage, str, HandoffPackage | None] | None = None
        """What the new owner is given, how, and what the former one was given; once the case moves."""
        self.said: tuple[HandoffPackage, Verdict, str, str] | None = None
        """The package that a verdict answers, the verdict, its comments, and the call that gave it."""

    def by(self, call: ToolCall | None, edge: Handoff | None) -> Command[Any]:
        """Carry out the call that ends the turn."""
        if call is None:
            return self.unwind()
        ways: dict[str, Callable[[ToolCall], Command[Any]]] = {
            "close": self.close,
            "decline": self.decline,
            "return": self.give_back,
            "verdict": self.answer,
        }
        way = ways.get(self.desk.kinds(self.agent).get(call["name"], ""))
        if way is not None:
            return way(call)
        return self.hand_over(call, edge) if edge else self.undeclared(call)

    # The ways in which a turn ends.

    def hand_over(self, call: ToolCall, edge: Handoff) -> Command[Any]:
        """Check an offered package and, if all is well, give the case to the edge's destination."""
        over = self._budget_over()
        target = self.desk.rules.on_budget if over and self.desk.rules.on_budget else edge.to
        if over and target == edge.to and not self.desk.rules.on_budget:
            return self._stay(call, "budget", over)
        offered = event("offered", self.agent, self._id(call), to=target)
        try:
            package = self._package(edge, target, call["args"])
        except PackageError as error:
            return self._stay(call, "invalid", f"{error}", offered)
        reason = self._declines(edge, package)
        if reason:
            return self._stay(call, "declined", f"{target} declined: {reason}", offered, advance(TRANSFER, "offered", "decline"))
        if not over and (bounce := self._bounce(package)):
            return self._stay(call, "bounce", bounce, offered)
        advance(TRANSFER, "offered", "accept")
        stack = self._stack(edge, package)
        text = f"{target} has the case now." if not over else f"The handoffs of this turn are used; {target} has the case now."
        said = self._announced(edge, package)
        accepted = event("accepted", target, self._id(call), **self._detail(package))
        events = [offered, accepted] if not over else [event("budget", self.agent, self._id(call)), offered, accepted]
        return self._moved(package, stack, [result(call, text), *said], events, target, via=call["name"])

    def undeclared(self, call: ToolCall) -> Command[Any]:
        """Refuse a handoff that the catalogue does not know; an agent with a graph of its own may ask for one."""
        known = ", ".join(self.desk.catalog.edges[self.agent]) or "none"
        return self._stay(call, "forbidden", f"{self.agent} has no handoff called {call['name']!r}. Declared: {known}.")

    def give_back(self, call: ToolCall) -> Command[Any]:
        """Give a lent case back to its lender, by the borrower's own call."""
        target = self.desk.return_target(self.agent, self.state)
        if target is None:
            return self._stay(call, "invalid", "Nobody lent you this case, so there is nobody to give it back to.")
        try:
            package = self._report(target, call["args"])
        except PackageError as error:
            return self._stay(call, "invalid", f"{error}")
        stack = [*(self.ownership.get("stack") or [])][:-1]
        done = event(advance(TRANSFER, "accepted", "return"), self.agent, self._id(call), **self._detail(package))
        return self._moved(package, stack, [result(call, f"{target} has the case again.")], [done], target, how="return")

    def answer(self, call: ToolCall) -> Command[Any]:
        """Give the case back to who asked for a verdict, with the verdict."""
        asked = self.desk.verdict_asked(self.agent, self.state)
        if asked is None:
            return self._stay(call, "invalid", "Nobody asks for your verdict on this case.")
        given, comments = call["args"].get("verdict"), str(call["args"].get("comments") or "").strip()
        verdict: Verdict | None = next((each for each in get_args(Verdict) if each == given), None)
        if verdict is None:
            return self._stay(call, "invalid", f"`verdict` is one of {', '.join(get_args(Verdict))}, not {given!r}.")
        if verdict in ("block", "request_changes") and not comments:
            return self._stay(call, "invalid", "Say why, and what to do instead: `comments` is empty.")
        sender = str(self.desk.return_target(self.agent, self.state))
        content = {"reason": f"The verdict of {self.agent} on your request: {verdict}.", "summary": comments}
        try:
            package = self._report(sender, content)
        except PackageError as error:
            return self._stay(call, "invalid", f"{error}")
        self.said = (asked, verdict, comments, self._id(call))
        stack = [*(self.ownership.get("stack") or [])][:-1]
        told = event("verdict", self.agent, self._id(call), verdict=verdict, handoff_id=asked.handoff_id, comments=comments)
        back = event(advance(TRANSFER, "accepted", "return"), self.agent, self._id(call), **self._detail(package))
        return self._moved(package, stack, [result(call, f"{sender} has the case again.")], [told, back], sender, how="return")

    def decline(self, call: ToolCall) -> Command[Any]:
        """Give a case that was just received back to its sender, with the reason."""
        sender = self.desk.catalog.owner(self.held.from_agent) if self.held else None
        reason = str(call["args"].get("reason") or "").strip()
        if sender is None or sender == self.agent or self.ownership.get("how") == "decline":
            return self._stay(call, "invalid", "This case cannot be declined any more: answer, or hand it on.")
        if not reason:
            return self._stay(call, "invalid", "Say why: `reason` is empty.")
        package = self._own_words(sender, {"reason": f"{self.agent} declined: {reason}"[:_LONGEST]})
        stack = self.ownership.get("stack") or []
        if stack and stack[-1]["agent"] == sender:
            stack = stack[:-1]
        declined = event(advance(TRANSFER, "accepted", "decline"), self.agent, self._id(call), **self._detail(package))
        return self._moved(package, stack, [result(call, f"{sender} has the case again.")], [declined], sender, how="decline")

    def close(self, call: ToolCall) -> Command[Any]:
        """Close the case with the owner's last words, or open the next follow-up first."""
        words = str(call["args"].get("message") or "").strip()
        if not words:
            return self._stay(call, "invalid", "Say your last words to the user: `message` is empty.")
        queue = self.ownership.get("queue") or []
        said = AIMessage(words, name=self.agent, id=f"{self._id(call)}:said")
        lender = self.desk.return_target(self.agent, self.state)
        if lender is not None:  # a borrower's last words are its answer; only the lender may close the case
            return self.unwind(words, [result(call, f"Your part is closed; {lender} has the case again."), said])
        if queue and not self._budget_over():
            return self._follow_up(call, queue, said)
        self.ownership["closed"] = True
        self.ownership["stack"] = []
        self.ownership["queue"] = []
        closed = event(advance(TRANSFER, "accepted", "close"), self.agent, self._id(call))
        update = {"messages": [result(call, "The case is closed."), said], "ownership": self.ownership, "events": tell([closed])}
        return Command(update=update, goto=END)

    def unwind(self, spoken: str | None = None, written: Sequence[BaseMessage] = ()) -> Command[Any]:
        """Give a lent case back after its borrower has answered, without asking a model."""
        target = self.desk.return_target(self.agent, self.state)
        stack = [*(self.ownership.get("stack") or [])]
        if target is None or self.reply is None:
            return Command(goto=END)
        rule = stack.pop()["rule"]
        summary = (str(self.reply.text) if spoken is None else spoken)[:_LONGEST]
        package = self._report(target, {"reason": f"{self.agent} has answered the user.", "summary": summary}, own=True)
        done = event(advance(TRANSFER, "accepted", "return"), self.agent, f"{self.reply.id}:back", **self._detail(package))
        goto = target if rule == "report" or self.desk.errand(target, self.ownership) else END
        return self._moved(package, stack, written, [done], target, how="return", goto=goto)

    # What is checked.

    def _budget_over(self) -> str:
        rules, held = self.desk.rules, self.ownership
        if held.get("turn_hops", 0) >= rules.max_handoffs or held.get("hop", 0) >= rules.max_case_handoffs:
            return "The handoffs of this turn are used. You keep the case: answer the user now."
        return ""

    def _own_words(self, target: str, content: Mapping[str, Any]) -> HandoffPackage:
        """Return a package that the runtime writes itself; it is shortened rather than refused, since nobody could mend it."""
        try:
            return self._package(None, target, content)
        except PackageTooLargeError:
            return self._package(None, target, {"reason": str(content.get("reason", ""))[:_SHORT]}, short=True)

    def _package(self, edge: Handoff | None, target: str, content: Mapping[str, Any], *, short: bool = False) -> HandoffPackage:
        kind = self.desk.catalog.package_of(edge) if edge and target == edge.to else HandoffPackage
        given = dict(content)
        if edge and len(edge.actions) == 1:
            given["requested_action"] = edge.actions[0]
        elif edge and edge.actions and given.get("requested_action", edge.actions[0]) not in edge.actions:
            raise PackageError(problem=f"requested_action must be one of {', '.join(edge.actions)}")
        if kind is HandoffPackage and edge and target != edge.to:
            given = {name: value for name, value in given.items() if name in HandoffPackage.content_fields()}
        done, failed = self._beside() if not short else ([], [])
        for name, lines in (("completed_actions", done), ("open_questions", failed)):
            told = given.get(name) or []
            if lines and isinstance(told, list | tuple):  # anything else is a mistake that validation names
                given[name] = [*told, *lines]
        redactors = self.desk.rules.redactors
        given = {name: value if name == "requested_action" else redacted(value, redactors) for name, value in given.items()}
        # The receiver is shown the user's last words whole; here they are a record, which must not fill the package.
        longest = _SHORT if short else min(_LONGEST, self.desk.rules.max_package_bytes // 16)
        request = redacted(last_user_text(self.messages)[:longest], redactors)
        hop = self.ownership.get("hop", 0) + 1
        return kind.from_content(
            given,
            max_bytes=self.desk.rules.max_package_bytes,
            handoff_id=f"{self.case_id}:{self.ownership.get('epoch', 0) + 1}",
            case_id=self.case_id,
            from_agent=self.agent,
            to_agent=target,
            hop=hop,
            epoch=self.ownership.get("epoch", 0) + 1,
            created_at=timestamp(),
            return_to=self.agent if edge and edge.on_reply != "keep" else None,
            user_request=request,
            permissions=tuple(sorted(self.desk.catalog.tools.get(target, ()))),
        )

    def _report(self, lender: str, content: Mapping[str, Any], *, own: bool = False) -> HandoffPackage:
        """Return the package of a case that goes back.

        While the lender's next errand waits, the report is kept in the case file too: the next package takes this one's place.
        """
        if self.desk.errand(lender, self.ownership):
            content = {**content, "completed_actions": [f"{self.agent} reported: {content.get('summary', '')}"]}
        return self._own_words(lender, content) if own else self._package(None, lender, content)

    def _beside(self) -> tuple[list[str], list[str]]:
        """Return what became of the calls that stood beside the handoff, which the sender could not tell of yet: done, failed."""
        done: list[str] = []
        failed: list[str] = []
        calls = {call["id"]: call for call in self.reply.tool_calls} if self.reply else {}
        kinds = self.desk.kinds(self.agent)
        for message in self.messages:
            call = calls.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
            if call is not None and isinstance(message, ToolMessage) and kinds.get(call["name"]) in ("read", "write"):
                given = ", ".join(f"{key}={value!r}" for key, value in call["args"].items())
                line = f"{call['name']}({given})"[:_SHOWN] + f" -> {str(message.text)[:_SHOWN]}"
                if message.status == "error":
                    failed.append(f"Not done: {line}")
                else:
                    done.append(line)
        return done, failed

    def _declines(self, edge: Handoff, package: HandoffPackage) -> str:
        """Return the destination's reason against the package; empty when it takes the case."""
        if edge.is_enabled is not None and not edge.is_enabled(self.state):
            return "this handoff is not available now"
        target = self.desk.catalog.agents.get(package.to_agent)
        wanted = dict.fromkeys((*edge.requires, *(target.requires if target else ())))
        facts = {**((self.state.get("case") or {}).get("facts") or {}), **package.known_facts}
        own = package.content()
        missing = [name for name in wanted if facts.get(name) in (None, "") and own.get(name) in (None, "")]
        if missing:
            return f"it needs {', '.join(missing)}. Find out and put it into `known_facts`"
        try:
            verdict = target.accepts(package) if target and target.accepts else None
        except Exception as error:  # noqa: BLE001 (what a model left out must not end the run)
            return f"it could not judge this package ({type(error).__name__}: {error})"
        if verdict is False:
            return "it does not take this package"
        return verdict if isinstance(verdict, str) else ""

    def _bounce(self, package: HandoffPackage) -> str:
        """Return why a case may not go straight back to where it came from; empty when something new is known."""
        given = self.ownership.get("given") or {}
        if given.get("from") != package.to_agent or given.get("to") != self.agent:
            return ""
        if given.get("asked") not in (None, _mark(package)):
            return ""  # a worker that has reported may be asked something else
        since = _since(self.messages, given.get("message", ""))
        if any(is_user(each) or self._is_news(each) for each in since):
            return ""
        if set(_known(package)) - set(given.get("known", ())):
            return ""
        return (
            f"{package.to_agent} gave you this case and nothing new is known since. A new fact, artifact, tool result, "
            "completed action, decision or user message would count. Work on it, hand it to somebody else, or answer the user."
        )

    def _is_news(self, message: BaseMessage) -> bool:
        if not isinstance(message, ToolMessage) or message.status == "error":
            return False
        kinds = self.desk.kinds(self.agent)
        return kinds.get(message.name or "", "") in ("read", "write")

    def _stack(self, edge: Handoff, package: HandoffPackage) -> list[Lender]:
        """Return the return stack after a handoff: lenders on top of each other; handing to one of them unwinds to it."""
        target = package.to_agent
        stack = [*(self.ownership.get("stack") or [])]
        lenders = [item["agent"] for item in stack]
        if target in lenders:
            return stack[: lenders.index(target)]
        agent = self.desk.catalog.agents.get(target)
        rule: OnReply = edge.on_reply if edge.to == target else "keep"
        if agent and rule == "keep" and package.requested_action in ASKS_FOR_VERDICT:
            rule = "report"  # who asks for a verdict gets it
        if rule != "keep":
            return [*stack, {"agent": self.agent, "rule": rule}]
        if agent and agent.return_to:
            return [*stack, {"agent": agent.return_to, "rule": "return"}]
        return stack

    # What it becomes.

    def _moved(
        self,
        package: HandoffPackage,
        stack: Sequence[Lender],
        written: Sequence[BaseMessage],
        happened: Sequence[Event],
        target: str,
        *,
        how: Literal["handoff", "return", "decline"] = "handoff",
        via: str = "",
        goto: str | None = None,
    ) -> Command[Any]:
        held = self.ownership
        last = (self.reply.id if self.reply else "") or ""
        step: Given = {"from": self.agent, "to": target, "message": last, "known": _known(package)}
        if how == "return" and self.held is not None:
            step["asked"] = _mark(self.held)

        counted = held.get("turn_hops", 0) + (how == "handoff")
        queue = [item for item in held.get("queue") or [] if item["to"] != target]
        ownership = Ownership(
            epoch=held.get("epoch", 0) + 1,
            hop=package.hop,
            turn=user_turn(self.messages),
            turn_hops=counted,
            # Who owns the case again waits for nobody to give it back.
            stack=[*itertools.takewhile(lambda item: item["agent"] != target, stack)],
            queue=queue,
            given=step,
            how=how,
            via=via,
            closed=False,
        )
        update = {
            "messages": list(written),
            "active_agent": target,
            "handoff": package.dump(),
            "ownership": ownership,
            "case": _learned(package),
            "events": tell(happened),
        }
        if self.desk.rules.on_handoff is not None:
            self.desk.rules.on_handoff(package)
        self.sent = (package, how, self.held)
        return Command(update=update, goto=goto or target)

    def _stay(self, call: ToolCall, kind: str, text: str, *earlier: Event | str) -> Command[Any]:
        """Answer the call with a refusal; the sender keeps the case and its budget."""
        events = [each for each in earlier if not isinstance(each, str)]
        events.append(event(kind, self.agent, self._id(call), reason=text))
        return Command(update={"messages": [refusal(call, text, kind)], "events": tell(events)}, goto=self.agent)

    def _dropped(self, call: ToolCall, kind: str, text: str) -> Command[Any]:
        """Tell the owner why a follow-up was not opened; it does not wait any more, so the next `close_case` gets past it."""
        told = event(kind, self.agent, self._id(call), reason=text)
        update = {"messages": [refusal(call, text, kind)], "events": tell([told]), "ownership": self.ownership}
        return Command(update=update, goto=self.agent)

    def _follow_up(self, call: ToolCall, queue: Sequence[Waiting], said: AIMessage) -> Command[Any]:
        """Open the first waiting follow-up instead of closing; one that is not valid is dropped with an event."""
        first = queue[0]
        self.ownership["queue"] = [*queue[1:]]
        tool, catalog = str(first.get("tool") or ""), self.desk.catalog
        sender, target = catalog.owner(first["from"]), catalog.owner(first["to"])
        if target is None or target == self.agent:
            return self.close(call)
        edge = catalog.edge_of(sender or "", target, tool) or Handoff(to=target)
        if edge.approval:
            text = f"The follow-up for {edge.to} needs a person's approval and was not opened."
            return self._dropped(call, "declined", f"{text} Hand it over yourself, or close the case.")
        try:
            package = self._package(edge, edge.to, first["content"])
        except PackageError as error:
            return self._dropped(call, "invalid", f"The follow-up for {edge.to} has no valid package: {error}")
        if reason := self._declines(edge, package):
            return self._dropped(call, "declined", f"The follow-up for {edge.to} was declined: {reason}")
        opened = event("accepted", edge.to, self._id(call), **self._detail(package), follow_up=True)
        text = f"Your part is closed; {edge.to} has the case for the follow-up."
        return self._moved(package, [], [result(call, text), said], [opened], edge.to, via=tool)

    def _announced(self, edge: Handoff, package: HandoffPackage) -> list[AIMessage]:
        if edge.announce is None or package.to_agent != edge.to:
            return []
        text = edge.announce(package) if callable(edge.announce) else edge.announce
        return [AIMessage(text, name=self.agent, id=f"{package.handoff_id}:announced")]

    def _detail(self, package: HandoffPackage) -> dict[str, Any]:
        return {
            "from": package.from_agent,
            "to": package.to_agent,
            "hop": package.hop,
            "handoff_id": package.handoff_id,
            "reason": package.reason,
        }

    def _id(self, call: ToolCall) -> str:
        return f"{self.reply.id if self.reply else ''}/{call['id']}"


def _learned(package: HandoffPackage) -> dict[str, Any]:
    """Return what a package adds to the case file."""
    learned: dict[str, Any] = {
        "facts": package.known_facts,
        "constraints": list(package.constraints),
        "artifacts": package.artifacts,
        "completed_actions": list(package.completed_actions),
        "open_questions": list(package.open_questions),
    }
    return {name: value for name, value in learned.items() if value}


def _known(package: HandoffPackage) -> list[str]:
    """Return what a package says is known, each as one short text that can be compared."""
    named = {**package.known_facts, **package.artifacts}
    told = [*(f"{name}={value!r}" for name, value in named.items()), *package.completed_actions]
    return [_hashed(each) for each in told]


def _mark(package: HandoffPackage) -> str:
    """Return what a package asks for, as one short text that can be compared."""
    return _hashed(json.dumps(package.content(), sort_keys=True))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _since(messages: Sequence[BaseMessage], message_id: str) -> Sequence[BaseMessage]:
    start = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].id == message_id), -1)
    return messages[start + 1 :]
