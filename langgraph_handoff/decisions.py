"""What a person is shown and how every client's answer is read: one payload for all screens, one reader for all answers.

The reader fails closed. What is not clearly a decision on this very request is not a decision; it is kept and the
question is asked again. Shapes: LangChain's `HITLRequest` / `HITLResponse`, their JavaScript spelling, Agent Inbox's list,
and bare answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

__all__ = (
    "Decision",
    "DecisionType",
    "NotADecision",
    "Request",
    "RequestKind",
    "coerce_args",
    "read_answer",
    "request_payload",
    "response_schema",
)

DecisionType = Literal["approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"]
RequestKind = Literal["write", "repeat", "unknown", "transfer"]

_TYPES: Final = frozenset({"approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"})
_VERDICTS: Final = frozenset({"request_changes", "block", "acknowledge"})
_DID_NOT_HAPPEN: Final = re.compile(r"(it )?did not happen(,? run it)?\.?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a person decided."""

    type: DecisionType
    args: dict[str, Any] | None = None
    """For an edit: the arguments as sent; a screen sends every value as a text."""
    tool: str | None = None
    """For an edit: the tool's name, if it was sent."""
    message: str | None = None
    by: str | None = None
    request_id: str | None = None
    digest: str | None = None
    epoch: int | None = None

    @property
    def bare(self) -> bool:
        """Whether it names no request."""
        return self.request_id is None


@dataclass(frozen=True, kw_only=True, slots=True)
class NotADecision:
    """Something else that came as an answer."""

    why: str
    """One sentence for the person; it is part of the next request."""
    messages: tuple[Any, ...] = ()
    """Words of a user that came with it and must not be lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a person is asked."""

    kind: RequestKind
    request_id: str
    digest: str
    epoch: int
    case_id: str
    agent: str
    hop_chain: tuple[str, ...]
    reason: str
    tool: str
    args: dict[str, Any]
    description: str
    """Markdown; screens show it and the arguments, and nothing else."""
    allowed_decisions: tuple[str, ...]
    args_schema: dict[str, Any] | None
    latest_user_message: str
    expires_at: str | None
    """ISO 8601, or None when it stays open for ever."""
    note: str = ""
    """Why the last answer was not taken."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """What is known about an earlier or unfinished attempt."""


def request_payload(request: Request) -> dict[str, Any]:
    """Return the value of the interrupt: a superset that every known screen reads its own keys from."""
    allowed = list(request.allowed_decisions)
    description = f"_{request.note}_\n\n{request.description}" if request.note else request.description
    action = {"name": request.tool, "args": request.args, "arguments": request.args, "description": description}
    review: dict[str, Any] = {
        "action_name": request.tool,
        "allowed_decisions": allowed,
        "actionName": request.tool,
        "allowedDecisions": allowed,
    }
    if request.args_schema is not None:
        review |= {"args_schema": request.args_schema, "argsSchema": request.args_schema}
    return {
        "action_requests": [action],
        "review_configs": [review],
        "handoff": {
            "kind": request.kind,
            "request_id": request.request_id,
            "digest": request.digest,
            "epoch": request.epoch,
            "case_id": request.case_id,
            "agent": request.agent,
            "hop_chain": list(request.hop_chain),
            "reason": request.reason,
            "latest_user_message": request.latest_user_message,
            "expires_at": request.expires_at,
            "note": request.note,
            "evidence": request.evidence,
        },
    }


def response_schema(request: Request) -> dict[str, Any]:
    """Return the JSON Schema of an answer. It is shown, not enforced, so that every client's answer reaches the reader."""
    words = {"type": "string"}
    branches: list[dict[str, Any]] = []
    for kind in request.allowed_decisions:
        properties: dict[str, Any] = {"type": {"const": kind}, "message": words, "by": words, "request_id": words}
        required = ["type"]
        if kind == "edit":
            args = request.args_schema or {"type": "object"}
            action = {"name": {"const": request.tool}, "args": args}
            properties["edited_action"] = {"type": "object", "properties": action, "required": ["name", "args"]}
            required.append("edited_action")
        if kind == "respond":
            required.append("message")
        branches.append({"type": "object", "properties": properties, "required": required})
    decisions = {"type": "array", "items": {"oneOf": branches}, "minItems": 1, "maxItems": 1}
    return {"type": "object", "properties": {"decisions": decisions}, "required": ["decisions"]}


def read_answer(answer: Any, request: Request) -> Decision | NotADecision:
    """Read a client's answer to `request`.

    Args:
        answer: Whatever the client resumed with.
        request: What was asked.

    Returns:
        A decision that is allowed for this request, or why there is none. Never raises.
    """
    read = _shape(answer)
    if isinstance(read, NotADecision):
        return read
    problem = _other_request(read, request)
    if problem:
        return NotADecision(why=problem)
    if request.kind == "unknown":
        return _about_unknown(read)
    if read.type not in request.allowed_decisions:
        return NotADecision(why=f"'{read.type}' is not allowed here; allowed: {', '.join(request.allowed_decisions)}.")
    if read.type == "edit" and read.args is None:
        return NotADecision(why="An edit needs `edited_action` with the arguments as an object.")
    if read.type == "respond" and not (read.message or "").strip():
        return NotADecision(why="A response needs a `message`.")
    return read


def coerce_args(sent: Mapping[str, Any], schema: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """Return edited arguments in the types of the tool's schema: screens send numbers, flags and lists as texts.

    Args:
        sent: The edited arguments. They replace the original ones; nothing is filled in.
        schema: JSON Schema of the tool's arguments.
        original: The arguments that were shown; a value whose text is unchanged keeps its type.

    Returns:
        The arguments; a text that cannot be converted stays a text, so that validation reports it.
    """
    properties = schema.get("properties") or {}
    return {name: _coerced(value, properties.get(name) or {}, original.get(name)) for name, value in sent.items()}


def _coerced(value: Any, schema: Mapping[str, Any], original: Any) -> Any:
    if not isinstance(value, str) or isinstance(original, str):
        return value
    types = _types(schema)
    if "string" in types:
        return None if value == "null" and "null" in types and original is None else value
    try:
        parsed = json.loads(value)
    except ValueError:
        lowered = value.strip().lower()
        return lowered == "true" if lowered in ("true", "false") and "boolean" in types else value
    return parsed if not types or _json_type(parsed) & types else value


def _types(schema: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    given = schema.get("type")
    found |= {given} if isinstance(given, str) else set(given or ())
    for word in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(word) or ():
            found |= _types(branch)
    if "$ref" in schema or "properties" in schema:
        found.add("object")
    for choice in [schema["const"]] if "const" in schema else schema.get("enum") or ():
        found |= _json_type(choice)
    return found


def _json_type(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"}
    names: dict[type, str] = {str: "string", list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]} if type(value) in names else set()


def _shape(answer: Any) -> Decision | NotADecision:
    """Find the one decision in an answer of any known shape."""
    if answer is True or answer is False:
        return Decision(type="approve" if answer else "reject")
    if isinstance(answer, str):
        return NotADecision(
            why="Words alone are not a decision; answer with a decision.", messages=(answer,) if answer.strip() else ()
        )
    if isinstance(answer, Sequence):
        return _inbox(answer)
    if not isinstance(answer, Mapping):
        return NotADecision(why="The answer was not understood; answer with a decision.")
    if set(answer) == {"resume"}:
        return _shape(answer["resume"])
    if "decisions" in answer:
        given = answer["decisions"]
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 1:
            return NotADecision(why="One action was asked about; answer with exactly one decision.")
        if not isinstance(given[0], Mapping):
            return NotADecision(why="The decision was not understood.")
        return _decision({**_names(answer), **given[0]})
    if "messages" in answer:
        given = answer["messages"]
        kept = tuple(given) if isinstance(given, list | tuple) and not _is_pair(given) else (given,)
        return NotADecision(why="The user wrote something while this was open; it is still undecided.", messages=kept)
    if "role" in answer and "content" in answer:
        return NotADecision(why="A message is not a decision.", messages=(dict(answer),))
    return _decision(answer)


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(each, str) for each in given)


def _names(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer says about which request it means and who decided, at its top level or echoed back."""
    echoed = answer.get("handoff")
    echoed = echoed if isinstance(echoed, Mapping) else {}
    found: dict[str, Any] = {}
    for name in ("request_id", "digest", "epoch", "by"):
        value = answer.get(name, echoed.get(name))
        if value is not None:
            found[name] = value
    return found


def _decision(given: Mapping[str, Any]) -> Decision | NotADecision:
    kind = given.get("type")
    if "verdict" in given or (isinstance(kind, str) and kind in _VERDICTS):
        return NotADecision(why="A verdict on a package is not a decision on a write; answer approve, edit or reject.")
    if not isinstance(kind, str) or kind not in _TYPES:
        return NotADecision(why="The answer was not understood; answer with a decision.")
    edited = given.get("edited_action", given.get("editedAction"))
    args, tool = None, None
    if isinstance(edited, Mapping):
        args = dict(edited["args"]) if isinstance(edited.get("args"), Mapping) else None
        tool = str(edited["name"]) if edited.get("name") else None
    elif kind == "edit" and isinstance(given.get("args"), Mapping):
        args = dict(given["args"])
    message = given.get("message")
    names = _names(given)
    return Decision(
        type=cast("DecisionType", kind),
        args=args,
        tool=tool,
        message=message if isinstance(message, str) else None,
        by=str(names["by"]) if "by" in names else None,
        request_id=str(names["request_id"]) if "request_id" in names else None,
        digest=str(names["digest"]) if "digest" in names else None,
        epoch=names.get("epoch"),
    )


def _inbox(answer: Sequence[Any]) -> Decision | NotADecision:
    """Read Agent Inbox's list of one answer."""
    if len(answer) != 1 or not isinstance(answer[0], Mapping):
        return NotADecision(why="One action was asked about; answer with exactly one decision.")
    given = answer[0]
    kind, args = given.get("type"), given.get("args")
    names = _names(given)
    if kind == "accept":  # its args may be empty or texts: what was shown is what runs
        return _decision({"type": "approve", **names})
    if kind == "edit" and isinstance(args, Mapping):
        action = {"name": args.get("action"), "args": args.get("args")}
        return _decision({"type": "edit", "edited_action": action, **names})
    if kind == "response" and isinstance(args, str):
        return _decision({"type": "reject", "message": args, **names})
    if kind == "ignore":
        return NotADecision(why="It was left open.")
    return NotADecision(why="The answer was not understood; answer with a decision.")


def _other_request(read: Decision, request: Request) -> str:
    """Return which other request an answer means; empty when it names this one or none."""
    if read.request_id not in (None, request.request_id):
        return f"The answer is for request {read.request_id}, which is not the open one."
    if read.digest not in (None, request.digest):
        return "The answer is for other arguments than the ones shown here."
    if read.epoch is not None and (isinstance(read.epoch, bool) or read.epoch != request.epoch):
        return "The answer is for an earlier form of this request."
    return ""


def _about_unknown(read: Decision) -> Decision | NotADecision:
    """Read an answer about a write of unknown outcome. Nothing bare can start it again: it was never shown as a start."""
    names = {"message": read.message, "by": read.by, "request_id": read.request_id, "digest": read.digest, "epoch": read.epoch}
    if read.type in ("done", "approve"):
        return Decision(type="done", **names)  # type: ignore[arg-type]
    if read.type in ("abandon", "reject"):
        return Decision(type="abandon", **names)  # type: ignore[arg-type]
    said = read.type == "respond" and _DID_NOT_HAPPEN.fullmatch((read.message or "").strip())
    if said or (read.type == "did_not_happen" and read.request_id is not None):
        return Decision(type="did_not_happen", **names)  # type: ignore[arg-type]
    return NotADecision(why="Say done, abandon, or did_not_happen with the request's id; only that runs it again.")
