"""Where a privileged call stands in the ledger, and what that allows.

The gate asks only the ledger, never the state: a state can be forged, forked or copied. What is written is found by its
content (tenant, case, tool, identity), and a call is recognised by the message that made it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from langgraph_handoff.agents import Privilege, normal_args
from langgraph_handoff.desk import Desk, case_id_of, tell
from langgraph_handoff.errors import LedgerBehindError
from langgraph_handoff.ledger import Ledger, Proposal, WriteRecord, digest_of, identity_key
from langgraph_handoff.state import event, unanswered
from langgraph_handoff.steps import Effect, Steps
from langgraph_handoff.turn import refusal, result

__all__ = ("Asked", "identified", "ledger_call", "operation_key", "recorded", "settle_transfer", "standing", "wanted")

SCHEMA_VERSION: Final = 1
"""Part of every operation's key; raise it when the meaning of the key changes."""
_MOST_REJECTIONS: Final = 2
"""How often a person is asked for one and the same write before it is refused by rule."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A privileged call as the ledger knows it."""

    call: ToolCall
    proposal: Proposal
    record: WriteRecord | None
    """Where it stands; None when it has not been proposed yet."""
    seq: int
    """The sequence number of the next proposal."""
    kind: str
    """What a person would be asked: write, repeat, unknown or transfer."""
    earlier: WriteRecord | None = None
    """The same write as it was done before."""
    edited_from: WriteRecord | None = None
    """The question that an edit answered, while it is still open: the process died between the two moves."""
    barred: str = ""
    """Why it is refused by rule."""


def ledger_call(ledger: Ledger, name: str, *args: Any, **kwargs: Any) -> Effect:
    """Return the effect of calling the ledger's method, or its async twin."""
    return Effect(lambda: getattr(ledger, name)(*args, **kwargs), lambda: getattr(ledger, f"a{name}")(*args, **kwargs))


def identified(privilege: Privilege, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that say which write it is."""
    names = privilege.identity if privilege.identity is not None else tuple(args)
    return {name: args.get(name) for name in names}


def operation_key(tenant: str, case_id: str, tool: str, identity: Mapping[str, Any]) -> str:
    """Return the key under which the ledger knows a write, whoever asks for it and however often."""
    return identity_key(tenant=tenant, case_id=case_id, tool=tool, schema_version=SCHEMA_VERSION, identity=identity)


def wanted(desk: Desk, state: Mapping[str, Any], config: RunnableConfig, call: ToolCall, agent: str) -> Proposal:
    """Return what a call proposes to the ledger.

    Raises:
        pydantic.ValidationError: If the tool does not take the arguments.
    """
    reply, _ = unanswered(state.get("messages") or [])
    message_id = reply.id if reply else ""
    privilege = desk.catalog.privileges.get(call["name"])
    case_id = case_id_of(state, config)
    if privilege is None:  # a transfer that needs approval: each one is a question of its own
        args: dict[str, Any] = dict(call["args"])
        identity: dict[str, Any] = {"call": f"{message_id}/{call['id']}", "args": args}
    else:
        args = normal_args(desk.catalog.tools[agent][call["name"]], call["args"])
        identity = identified(privilege, args)
    ttl = desk.rules.request_ttl
    return Proposal(
        key=operation_key(desk.rules.tenant, case_id, call["name"], identity),
        kind="write" if privilege else "transfer",
        case_id=case_id,
        tenant=desk.rules.tenant,
        thread_id=str((config.get("configurable") or {}).get("thread_id") or ""),
        call_id=f"{message_id}/{call['id']}",
        agent=agent,
        tool=call["name"],
        args=args,
        reason=str(reply.text) if isinstance(reply, AIMessage) else "",
        expires_at=time.time() + ttl if ttl is not None else None,
    )


def standing(desk: Desk, ledger: Ledger, state: Mapping[str, Any], config: RunnableConfig, call: ToolCall, agent: str) -> Steps:
    """Return an `Asked` that says where the call stands."""
    proposal = wanted(desk, state, config, call, agent)
    yield from _not_behind(ledger, state, proposal)
    digest = digest_of(proposal.tool, proposal.args)
    mine: list[WriteRecord] = yield ledger_call(ledger, "records", case_id=proposal.case_id, call_id=proposal.call_id)
    mine = [each for each in mine if each.tenant == proposal.tenant]
    own = next((each for each in reversed(mine) if each.digest == digest), None)
    edited = next((each for each in reversed(mine) if each.decision == "edit" and each.state != "denied"), None)
    if edited is not None and (own is None or own.state in ("proposed", "denied")):
        still_open = own if own is not None and own.state == "proposed" else None
        return dataclasses.replace(_found(call, proposal, edited), edited_from=still_open)
    rows: list[WriteRecord] = yield ledger_call(ledger, "records", key=proposal.key)
    rows.sort(key=lambda row: row.seq)
    if own is not None:
        done = next((each for each in reversed(rows) if each.state == "done" and each.seq < own.seq), None)
        return _found(call, proposal, own, done)
    if rows:
        return _asked_anew(call, proposal, rows, digest)
    barred = ""
    if proposal.kind == "transfer":  # each call has a key of its own, but a person need not see one handoff again and again
        denied: list[WriteRecord] = yield ledger_call(ledger, "records", case_id=proposal.case_id, states=["denied"])
        barred = _barred([each for each in denied if each.digest == digest and each.tenant == proposal.tenant])
    return Asked(call=call, proposal=proposal, record=None, seq=1, kind=proposal.kind, barred=barred)


def _not_behind(ledger: Ledger, state: Mapping[str, Any], proposal: Proposal) -> Steps:
    """Check that the ledger knows the last thing that the case has on record of it: what it forgot could be done twice.

    Raises:
        LedgerBehindError: If it does not.
    """
    told = next((each for each in reversed(state.get("events") or []) if each["detail"].get("op")), None)
    if told is None:
        return
    op = told["detail"]["op"]
    record: WriteRecord | None = yield ledger_call(ledger, "get", op)
    if record is None or (told["kind"] == "written" and record.state != "done"):
        what = f"the {told['kind'].replace('_', ' ')} operation {op}"
        raise LedgerBehindError(location=ledger.location, what=what, thread_id=proposal.thread_id)


def _found(call: ToolCall, proposal: Proposal, record: WriteRecord, earlier: WriteRecord | None = None) -> Asked:
    kind = "unknown" if record.state == "unknown" else "repeat" if earlier else record.kind
    return Asked(call=call, proposal=proposal, record=record, seq=record.seq, kind=kind, earlier=earlier)


def _asked_anew(call: ToolCall, proposal: Proposal, rows: list[WriteRecord], digest: str) -> Asked:
    """A new call for a write that the ledger knows already."""
    last = rows[-1]  # by sequence, not by time: a clock may go back
    done = next((each for each in reversed(rows) if each.state == "done"), None)
    ask: Callable[..., Asked] = lambda **more: Asked(call=call, proposal=proposal, **more)  # noqa: E731 (one shape, five uses)
    if last.state == "proposed":
        return ask(record=None, seq=last.seq, kind="repeat" if done else proposal.kind, earlier=done)
    if last.state in ("executing", "unknown") or (last.state == "approved" and last.digest == digest):
        # It was approved once and is not finished: the new call is answered by that one write.
        return ask(record=last, seq=last.seq, kind="unknown" if last.state == "unknown" else last.kind)
    if barred := _barred([each for each in rows if done is None or each.seq > done.seq]):
        return ask(record=None, seq=last.seq + 1, kind=proposal.kind, barred=barred)
    # Approved with other details and not carried out yet: of the same identity, so it is a repeat all the same.
    known = done or (last if last.state in ("approved", "abandoned") else None)
    return ask(record=None, seq=last.seq + 1, kind="repeat" if known else proposal.kind, earlier=known)


def _barred(rows: list[WriteRecord]) -> str:
    """Return why a person is not asked again; empty while there were too few rejections for that."""
    rejections = [each for each in rows if each.decision == "reject"]
    if len(rejections) < _MOST_REJECTIONS:
        return ""
    said = rejections[-1].comment or "no reason was given"
    return f"This was rejected {len(rejections)} times ({said}) and is not asked again. Do something else."


def recorded(call: ToolCall, record: WriteRecord) -> ToolMessage:
    """Return the result that the ledger holds of a write that is done, as the result of `call`."""
    kept = record.result if isinstance(record.result, dict) and "content" in record.result else {"content": str(record.result)}
    return result(call, kept["content"], status=kept.get("status", "success"))


def settle_transfer(desk: Desk, state: Mapping[str, Any], config: RunnableConfig, call: ToolCall, agent: str) -> Steps:
    """Check, and use up, the approval that a transfer needs. Returns None, or the command that bars it."""
    ledger = desk.ledger_of(config, call["name"])
    asked: Asked = yield from standing(desk, ledger, state, config, call, agent)
    record = asked.record
    if record is not None and record.state == "approved":
        record = yield ledger_call(ledger, "move", record, "start", started_at=time.time())
    if record is not None and record.state == "executing":  # also of a run that was killed between the two moves
        record = yield ledger_call(ledger, "move", record, "finish", finished_at=time.time())
    if record is not None and record.state == "done":
        return None
    if record is not None and record.state == "denied":
        text = f"The handoff was not approved: {record.comment or record.decision}. You keep the case."
        told = tell([event("declined", agent, record.request_id, reason=text)])
        return Command(update={"messages": [refusal(call, text)], "events": told}, goto=agent)
    return Command(goto="approval")
