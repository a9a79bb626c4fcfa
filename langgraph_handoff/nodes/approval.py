"""approval: the one place where a person is asked. One question a pass, and nothing before it that has an effect.

The question is written to the ledger before it is asked, and the answer before anything is done about it. An answer counts only
for a question that was shown: a pass that has just written its question cannot have been answered yet.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, interrupt
from pydantic import ValidationError

from langgraph_handoff.agents import Privilege, args_schema, normal_args
from langgraph_handoff.decisions import (
    Decision,
    NotADecision,
    Request,
    coerce_args,
    read_answer,
    request_payload,
    response_schema,
)
from langgraph_handoff.desk import Desk, tell, user_messages
from langgraph_handoff.gate import Asked, identified, ledger_call, operation_key, recorded, standing
from langgraph_handoff.ledger import Ledger, WriteRecord
from langgraph_handoff.package import HandoffPackage, explain
from langgraph_handoff.state import Event, event, is_user, last_user_text, unanswered
from langgraph_handoff.steps import Steps
from langgraph_handoff.turn import refusal, result

__all__ = ("approval",)

_DOUBLE_CLICK: Final = 1.0
"""Seconds after a new request in which a repeated bare answer is taken for a second click on the old one."""
_UNKNOWN_ANSWERS: Final = ("done", "did_not_happen", "abandon", "approve", "reject")
"""The last two are for screens that have no other buttons."""
_UNKNOWN_HELP: Final = (
    "Answer done or approve: it happened. Answer abandon or reject: give it up. Neither runs it. "
    "Answer did_not_happen, naming this request: run it again."
)


def approval(desk: Desk, state: Mapping[str, Any], config: RunnableConfig) -> Steps:
    """Find the first call of the turn that needs a decision, and ask about it."""
    messages: list[BaseMessage] = list(state.get("messages") or [])
    reply, open_ids = unanswered(messages)
    agent = desk.author(reply, state)
    if agent is None:
        return Command(goto="intake")
    if reply is None or not open_ids:
        return Command(goto=desk.catalog.owner(state.get("active_agent")) or "intake")
    gated = [call for call in reply.tool_calls if call["id"] in open_ids and desk.gated(agent, call["name"])]
    told: list[Event] = []
    for place, call in enumerate(gated):
        if call["name"] not in desk.kinds(agent):  # it was taken from the agent while the request was open
            text = f"{agent} does not hold {call['name']} any more, so this call was not taken further."
            return Command(update={"messages": [refusal(call, text)]}, goto="approval")
        ledger = desk.ledger_of(config, call["name"])
        try:
            asked: Asked = yield from standing(desk, ledger, state, config, call, agent)
        except ValidationError as error:  # the arguments were changed behind our back
            text = f"The arguments of {call['name']} are not valid: {explain(error)}. Nothing was done."
            return Command(update={"messages": [refusal(call, text)]}, goto="approval")
        sitting = _Sitting(desk, ledger, state, agent, reply, asked, last=place == len(gated) - 1)
        settled = yield from sitting.settle()
        if settled is not None:
            return _with(told, settled)
        told += sitting.untold()
    return _with(told, Command(goto=desk.dispatch(reply, open_ids, agent)))


class _Sitting:
    """One look at one gated call."""

    def __init__(
        self,
        desk: Desk,
        ledger: Ledger,
        state: Mapping[str, Any],
        agent: str,
        reply: AIMessage,
        asked: Asked,
        *,
        last: bool,
    ) -> None:
        self.desk, self.ledger, self.state, self.agent, self.reply = desk, ledger, state, agent, reply
        self.asked, self.call, self.last = asked, asked.call, last
        self.privilege = desk.catalog.privileges.get(self.call["name"]) or Privilege(allowed_decisions=("approve", "reject"))
        self.messages: list[BaseMessage] = list(state.get("messages") or [])

    def settle(self) -> Steps:
        """Return None when the call may be carried out, else the command that answers, asks or goes on."""
        asked, record = self.asked, self.asked.record
        if asked.barred:
            barred = event("barred", self.agent, asked.proposal.call_id, tool=self.call["name"])
            return self._refused(asked.barred, [barred], by_rule=True)
        if asked.edited_from is not None and record is not None:
            who = {name: getattr(record, name) for name in ("decision", "approver", "decided_at", "comment", "bare")}
            yield ledger_call(self.ledger, "move", asked.edited_from, "deny", **who)
        if record is not None and record.state in ("approved", "executing", "done"):
            return None
        if record is not None and record.state in ("denied", "abandoned"):
            if record.decision == "reject" and (before := self._done_before()) is not None:
                return self._go_on(self.untold(), [self._as_before(before, record.approver, record.comment)])
            case = {"refused": [self._refusal_line(record, record.comment)]} if record.decision == "reject" else None
            return self._refused(self._denial(record), self.untold(), case=case)
        if record is None and asked.kind == "write" and not self._needs_a_person():
            return (yield from self._pass_by_rule())
        return (yield from self._ask())

    def untold(self) -> list[Event]:
        """Return the story of a decision that the log does not have: its process died right behind the ledger's move."""
        record = self.asked.record
        if (
            record is None
            or record.call_id != self.asked.proposal.call_id  # another call's decision, and that call's story
            or record.decision not in ("approve", "edit", "reject", "respond")
            or record.approver in ("rule", "probe")
        ):
            return []
        story = self._told(record, str(record.decision), record.approver, record.comment)
        known = {each["id"] for each in self.state.get("events") or []}
        return [each for each in story if each["id"] not in known]

    def _needs_a_person(self) -> bool:
        """Return whether a person must decide. A rule that fails on what a model gave lets nothing through."""
        if self.privilege.when is None:
            return True
        try:
            return bool(self.privilege.when(self.asked.proposal.args))
        except Exception:  # noqa: BLE001 (whatever it is, nobody has said that this may pass)
            return True

    def _pass_by_rule(self) -> Steps:
        record, _ = yield ledger_call(self.ledger, "propose", self.asked.proposal, seq=self.asked.seq)
        if record.state == "proposed":
            yield ledger_call(self.ledger, "move", record, "approve", decision="approve", approver="rule", decided_at=time.time())
        return None

    def _ask(self) -> Steps:
        """Put the question into the ledger, ask, and act on the answer."""
        if self.asked.kind == "unknown" and self.asked.record is not None:
            record, fresh = self.asked.record, False
        else:
            record, fresh = yield ledger_call(self.ledger, "propose", self.asked.proposal, seq=self.asked.seq)
        if record.state not in ("proposed", "unknown"):  # another process has just decided or moved it
            return Command(goto="approval")
        if record.state == "proposed" and self._superseded():
            return (yield from self._close(record, "superseded", "The user said something else meanwhile."))
        if record.state == "proposed" and self._expired(record):
            return (yield from self._close(record, "expired", "Nobody decided in time."))
        request = self._request(record)
        answer = interrupt(request_payload(request), response_schema=response_schema(request))
        decision = read_answer(answer, request)
        if isinstance(decision, Decision) and fresh:
            decision = NotADecision(why="The question had not been shown when this answer came.")
        if isinstance(decision, Decision) and record.state == "proposed" and self._expired(record):
            return (yield from self._close(record, "expired", "Nobody decided in time."))
        if isinstance(decision, Decision) and decision.bare:
            decision = yield from self._unless_double_click(decision, record)
        if isinstance(decision, NotADecision):
            return self._again(record, decision)
        return (yield from self._decided(record, decision))

    # Acting on an answer.

    def _decided(self, record: WriteRecord, decision: Decision) -> Steps:
        if self.asked.kind == "unknown":
            return (yield from self._cleared_up(record, decision))
        if decision.type == "approve":
            yield ledger_call(self.ledger, "move", record, "approve", **_who(decision))
            return self._go_on(self._story(record, decision), [])
        if decision.type == "edit":
            return (yield from self._edited(record, decision))
        yield ledger_call(self.ledger, "move", record, "deny", **_who(decision))
        story = self._story(record, decision)
        if decision.type == "respond":
            return self._go_on(story, [result(self.call, decision.message or "")])
        if (before := self._done_before()) is not None:
            return self._go_on(story, [self._as_before(before, decision.by, decision.message)])
        return self._refused(self._rejection(decision), story, case={"refused": [self._refusal_line(record, decision.message)]})

    def _edited(self, record: WriteRecord, decision: Decision) -> Steps:
        """Approve other arguments than the model's: they are an operation of their own, with their own key."""
        tool = self.desk.catalog.tools[self.agent][self.call["name"]]
        if decision.tool not in (None, tool.name):
            return self._again(record, NotADecision(why=f"An edit may change arguments, not the tool ({decision.tool})."))
        try:
            args = normal_args(tool, coerce_args(decision.args or {}, args_schema(tool), record.args))
        except ValidationError as error:
            return self._again(record, NotADecision(why=f"The edited arguments are not valid: {explain(error)}."))
        given = self.asked.proposal
        key = operation_key(given.tenant, given.case_id, given.tool, identified(self.privilege, args))
        proposal = dataclasses.replace(given, key=key, args=args)
        if proposal.key == record.key:  # the edit left the identity as it is: the same question with other details
            revised, _ = yield ledger_call(self.ledger, "propose", proposal, seq=record.seq)
            yield ledger_call(self.ledger, "move", revised, "approve", **_who(decision))
            return self._go_on(self._story(record, decision, args), [])
        rows: list[WriteRecord] = yield ledger_call(self.ledger, "records", key=proposal.key)
        rows.sort(key=lambda row: row.seq)
        if any(each.state in ("done", "executing", "unknown", "approved") and each.call_id != proposal.call_id for each in rows):
            return self._again(
                record, NotADecision(why="A write with exactly these arguments was made before; reject, or edit again.")
            )
        seq = rows[-1].seq + (rows[-1].state != "proposed" and rows[-1].call_id != proposal.call_id) if rows else 1
        edited, _ = yield ledger_call(self.ledger, "propose", proposal, seq=seq)
        if edited.state == "proposed":
            yield ledger_call(self.ledger, "move", edited, "approve", **_who(decision))
        # Last, so that a crash before it leaves a question that can be answered, not an answer without its write.
        yield ledger_call(self.ledger, "move", record, "deny", **_who(decision))
        return self._go_on(self._story(record, decision, args), [])

    def _cleared_up(self, record: WriteRecord, decision: Decision) -> Steps:
        """Act on what a person says about a write of unknown outcome. That it was approved, or edited, stays on record."""
        story = self._story(record, decision)
        who = {name: value for name, value in _who(decision).items() if name != "decision"}
        if decision.type == "done":
            said = decision.message or f"{decision.by or 'A person'} confirmed that it happened."
            yield ledger_call(self.ledger, "move", record, "confirm", result=said, finished_at=time.time(), **who)
            return self._go_on(story, [])
        if decision.type == "did_not_happen":
            yield ledger_call(self.ledger, "move", record, "retry", **who)
            return self._go_on(story, [])
        yield ledger_call(self.ledger, "move", record, "abandon", **who)
        text = f"The outcome of {record.tool} is unknown and it was given up. It was not carried out again."
        return self._refused(text, story, case={"refused": [f"{record.tool}: outcome unknown, given up"]})

    def _close(self, record: WriteRecord, how: str, text: str) -> Steps:
        yield ledger_call(
            self.ledger, "move", record, "deny", decision=how, approver="rule", decided_at=time.time(), comment=text
        )
        told = [event(how, self.agent, record.request_id, tool=record.tool)]
        return self._refused(f"The request was closed without a decision ({how}): {text} Nothing was done.", told)

    # Where it goes next.

    def _again(self, record: WriteRecord, why: NotADecision) -> Command[Any]:
        """Keep the words that came instead of a decision, and ask again."""
        kept, asked = user_messages(why.messages), record.request_id
        count = sum(1 for each in self.state.get("events") or [] if each["kind"] == "not_a_decision")
        told = tell([event("not_a_decision", self.agent, f"{asked}:{count}", why=why.why, request_id=asked)])
        return Command(update={"messages": kept, "events": told}, goto="approval")

    def _go_on(self, story: Sequence[Event], answers: Sequence[BaseMessage]) -> Command[Any]:
        """Record a decision; ask about the next call if there is one, else begin the turn's work."""
        update: dict[str, Any] = {"events": tell(story)}
        if answers:
            update["messages"] = list(answers)
        if not self.last:
            return Command(update=update, goto="approval")
        answered = {self.call["id"]} if answers else set()
        _, open_ids = unanswered(self.messages)
        left = [each for each in open_ids if each not in answered]
        return Command(update=update, goto=self.desk.dispatch(self.reply, left, self.agent))

    def _refused(
        self, text: str, story: Sequence[Event], *, case: dict[str, Any] | None = None, by_rule: bool = False
    ) -> Command[Any]:
        """Answer the call with an error. Only a rule's refusal counts towards ending the turn; a person's is progress."""
        answer = refusal(self.call, text)
        command = self._go_on(story, [answer if by_rule else answer.model_copy(update={"additional_kwargs": {}})])
        if case and isinstance(command.update, dict):
            command.update["case"] = case
        return command

    # What is asked, and what is told of it.

    def _request(self, record: WriteRecord) -> Request:
        proposed = self.asked.proposal if self.asked.kind != "unknown" else record
        allowed = _UNKNOWN_ANSWERS if self.asked.kind == "unknown" else self.privilege.allowed_decisions
        tool = self.desk.catalog.tools.get(self.agent, {}).get(record.tool)
        expires = record.expires_at
        return Request(
            kind=self.asked.kind,  # type: ignore[arg-type]
            request_id=record.request_id,
            digest=record.digest,
            epoch=record.epoch,
            case_id=record.case_id,
            agent=self.agent,
            hop_chain=_hop_chain(self.state),
            reason=record.reason,
            tool=record.tool,
            args=dict(proposed.args),
            description=self._description(record),
            allowed_decisions=tuple(allowed),
            args_schema=args_schema(tool) if tool is not None else None,
            latest_user_message=last_user_text(self.messages),
            expires_at=datetime.datetime.fromtimestamp(expires, datetime.UTC).isoformat() if expires is not None else None,
            note=self._note(record),
            evidence=self._evidence(record),
        )

    def _description(self, record: WriteRecord) -> str:
        """Return the Markdown that screens show: what is asked, by whom, why, and the package."""
        lead = self._lead(record)
        headline = {
            "unknown": f"**Nobody knows whether `{record.tool}` happened.** {_UNKNOWN_HELP}",
            "repeat": f"**`{record.tool}` was done before in this case.** Approve only if it shall be done again.",
            "transfer": f"**{self.agent} wants to hand the case over** with `{record.tool}`.",
        }.get(self.asked.kind, f"**{self.agent} wants to run `{record.tool}`.**")
        parts = [lead, headline] if lead else [headline]
        parts.append("\n".join(f"- `{key}`: {_shown(value)}" for key, value in record.args.items()))
        if record.reason:
            parts.append(f"Reason given: {record.reason}")
        earlier = self.asked.earlier
        if earlier is not None:
            parts.append(f"Earlier: by {earlier.agent}, approved by {earlier.approver}; result: {_shown(earlier.result)}")
        package = self.state.get("handoff")
        if isinstance(package, HandoffPackage) and package.to_agent == self.agent:
            parts.append("\n".join(f"> {line}  " for line in package.brief().splitlines()))
        return "\n\n".join(part for part in parts if part)

    def _lead(self, record: WriteRecord) -> str | None:
        """Return the tool's own words. One that stumbles over what a model gave costs its own words only."""
        given = self.privilege.description
        if not callable(given):
            return given
        try:
            said = given(record.args)
        except Exception:  # noqa: BLE001 (whatever it is, the arguments are shown all the same)
            return None
        return None if said is None else str(said)

    def _evidence(self, record: WriteRecord) -> dict[str, Any]:
        if self.asked.kind == "unknown":
            shown = ("op", "started_at", "token", "error", "approver", "decided_at")
            return {name: getattr(record, name) for name in shown}
        earlier = self.asked.earlier
        if earlier is None:
            return {}
        return {name: getattr(earlier, name) for name in ("op", "agent", "approver", "finished_at", "result")}

    def _note(self, record: WriteRecord) -> str:
        for each in reversed(self.state.get("events") or []):
            detail = each.get("detail") or {}
            if each["kind"] == "not_a_decision" and detail.get("request_id") == record.request_id:
                return str(detail.get("why") or "")
        return ""

    def _story(self, record: WriteRecord, decision: Decision, args: Mapping[str, Any] | None = None) -> list[Event]:
        """Return the record of a gated call: asked, and by whom it was answered."""
        return self._told(record, decision.type, decision.by, decision.message, args)

    def _told(
        self, record: WriteRecord, decision: str, by: str | None, comment: str | None, args: Mapping[str, Any] | None = None
    ) -> list[Event]:
        """Return asked and decided, under ids made from the call: an edit puts another row in the place of the first."""
        about = self.asked.proposal.call_id + (f":unknown:{record.epoch}" if self.asked.kind == "unknown" else "")
        asked = event("asked", self.agent, about, tool=record.tool, digest=record.digest, request=self.asked.kind)
        asked["at"] = record.proposed_at
        detail: dict[str, Any] = {"decision": decision, "by": by or "unnamed", "comment": comment}
        detail |= {"tool": record.tool, "op": record.op}
        if decision == "edit":
            detail["args"] = dict(args if args is not None else record.args)
        return [asked, event("decided", self.agent, about, **detail)]

    def _rejection(self, decision: Decision) -> str:
        who = decision.by or "the reviewer"
        why = f": {decision.message}" if decision.message else " and gave no reason"
        return f"{self.call['name']} was rejected by {who}{why}. Nothing was done."

    def _done_before(self) -> WriteRecord | None:
        """Return the write that a repeat would repeat, if it was carried out."""
        earlier = self.asked.earlier
        return earlier if self.asked.kind == "repeat" and earlier is not None and earlier.state == "done" else None

    def _as_before(self, earlier: WriteRecord, by: str | None, comment: str | None) -> ToolMessage:
        """Answer a repeat that was not wanted with what the write gave when it was done; nothing was lost, so it is no error."""
        message = recorded(self.call, earlier)
        why = f": {comment}" if comment else ""
        note = f"[{by or 'The reviewer'} did not let it run again{why}. This is the result of the time before.]"
        return message.model_copy(update={"content": f"{note}\n{message.text}"})

    def _refusal_line(self, record: WriteRecord, comment: str | None) -> str:
        given = ", ".join(f"{key}={_shown(value)}" for key, value in record.args.items())
        return f"{record.tool}({given}): rejected" + (f" ({comment})" if comment else "")

    def _denial(self, record: WriteRecord) -> str:
        if record.state == "abandoned":
            return f"The outcome of {record.tool} is unknown and it was given up. It was not carried out again."
        return f"{record.tool} was not carried out ({record.decision}): {record.comment or 'no reason was given'}."

    # When an answer does not count.

    def _expired(self, record: WriteRecord) -> bool:
        return record.expires_at is not None and time.time() > record.expires_at

    def _superseded(self) -> bool:
        if self.desk.rules.on_message != "supersede":
            return False
        place = next(i for i, message in enumerate(self.messages) if message.id == self.reply.id)
        return any(is_user(message) for message in self.messages[place:])

    def _unless_double_click(self, decision: Decision, record: WriteRecord) -> Steps:
        """Take a bare answer that repeats the last one within a second of a new request for a second click."""
        if time.time() - record.proposed_at >= _DOUBLE_CLICK:
            return decision
        others: list[WriteRecord] = yield ledger_call(self.ledger, "records", thread_id=record.thread_id)
        decided = [each for each in others if each.decided_at is not None and each.op != record.op]
        last = max(decided, key=lambda each: each.decided_at or 0.0, default=None)
        if last is not None and last.bare and last.decision == decision.type:
            return NotADecision(
                why="The same answer was just given to another request; this looks like a second click on that one."
            )
        return decision


def _with(told: list[Event], command: Command[Any]) -> Command[Any]:
    """Add what calls before this one left untold to what a command records."""
    if not told:
        return command
    update = dict(command.update) if isinstance(command.update, dict) else {}
    update["events"] = [*tell(told), *update.get("events", ())]
    return dataclasses.replace(command, update=update)


def _who(decision: Decision) -> dict[str, Any]:
    return {
        "decision": decision.type,
        "approver": decision.by or "unnamed",
        "decided_at": time.time(),
        "comment": decision.message,
        "bare": decision.bare,
    }


def _hop_chain(state: Mapping[str, Any]) -> tuple[str, ...]:
    owners = [
        each
        for each in state.get("events") or []
        if each["kind"] in ("opened", "reopened", "stale_owner", "accepted", "returned", "declined")
    ]
    chain = [str(each.get("detail", {}).get("to") or each["agent"]) for each in owners]
    return tuple(chain[-12:])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
