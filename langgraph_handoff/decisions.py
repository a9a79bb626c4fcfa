"""What a person is shown and how every client's answer is read: one payload for all screens, one reader for all.

The reader fails closed. What is not clearly a decision on this very request is not a decision; it is kept and the
question is asked again. Shapes: LangChain's `HITLRequest` / `HITLResponse`, their JavaScript spelling, Agent Inbox's
list, and bare answers.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from langchain_core.messages import HumanMessage

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
    "words_in",
)

DecisionType = Literal["approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"]
RequestKind = Literal["write", "repeat", "unknown", "transfer"]

_TYPES: Final = frozenset({"approve", "edit", "reject", "respond", "done", "did_not_happen", "abandon"})
_VERDICTS: Final = frozenset({"request_changes", "block", "acknowledge"})
_USER: Final = ("user", "human")
_NOT_UNDERSTOOD: Final = "The answer was not understood; answer with a decision."
_ONE: Final = "One action was asked about; answer with exactly one decision."
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
    """The user's words that came with it and must not be lost, in forms that langchain-core reads as messages."""


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
    """Return the JSON Schema of an answer: shown, not enforced, so that every client's answer reaches the reader."""
    words = {"type": "string"}
    args = dict(request.args_schema or {"type": "object"})
    shared = args.pop("$defs", None)  # references count from the root of the whole schema
    action = {"name": {"const": request.tool}, "args": args}
    branches: list[dict[str, Any]] = []
    for kind in request.allowed_decisions:
        properties: dict[str, Any] = {"type": {"const": kind}, "message": words, "by": words, "request_id": words}
        properties |= {"digest": words, "epoch": {"type": "integer"}}
        required = ["type"]
        if kind == "edit":
            properties["edited_action"] = {"type": "object", "properties": action, "required": ["name", "args"]}
            required.append("edited_action")
        if kind == "respond":
            required.append("message")
        if kind == "did_not_happen":
            required.append("request_id")
        branches.append({"type": "object", "properties": properties, "required": required})
    decisions = {"type": "array", "items": {"oneOf": branches}, "minItems": 1, "maxItems": 1}
    schema = {"type": "object", "properties": {"decisions": decisions}, "required": ["decisions"]}
    return schema if shared is None else {**schema, "$defs": shared}


def read_answer(answer: Any, request: Request) -> Decision | NotADecision:
    """Read a client's answer to `request`.

    Args:
        answer: Whatever the client resumed with.
        request: What was asked.

    Returns:
        A decision that is allowed for this request, or why there is none. Never raises.
    """
    answer = _unwrapped(answer)
    read = _shape(answer)
    if isinstance(read, NotADecision):
        return read
    places = _places(answer)
    problem = _other_request(places, request)
    if problem:
        return NotADecision(why=problem)
    read = dataclasses.replace(read, **_names(places))
    if request.kind == "unknown":
        return _about_unknown(read)
    if read.type not in request.allowed_decisions:
        return _not_allowed(read.type, request)
    if read.type == "edit":
        return _edit(read, request)
    if read.type == "respond" and not (read.message or "").strip():
        return NotADecision(why="A response needs a `message`.")
    return read


def words_in(answer: Any) -> tuple[Any, ...]:
    """Return a user's words that a client sent in the place of an answer."""
    read = _shape(_unwrapped(answer))
    return read.messages if isinstance(read, NotADecision) else ()


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
    shared = schema.get("$defs") or schema.get("definitions") or {}
    types = {name: _types(properties.get(name), shared) for name in sent}
    return {name: _coerced(value, types[name], original.get(name, value)) for name, value in sent.items()}


def _coerced(value: Any, types: set[str], original: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        lowered = value.strip().lower()
        flag = "boolean" in types and "string" not in types and lowered in ("true", "false")
        return lowered == "true" if flag else value
    if not isinstance(original, str) and _same(parsed, original):
        return original  # nobody changed it
    if "string" in types or (not types and isinstance(original, str)):
        return value
    return parsed if not types or _json_type(parsed) & types else value


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, also in type: to Python `1`, `1.0` and `True` are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _types(schema: Any, shared: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema allows; none when it does not say."""
    if not isinstance(schema, Mapping):  # `true` is a schema, too
        return set()
    given = schema.get("type")
    found = {given} if isinstance(given, str) else set(given or ())
    for word in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(word) or ():
            found |= _types(branch, shared)
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        rest = {key: value for key, value in shared.items() if key != name}  # a reference to itself ends here
        found |= _types(shared[name], rest) if name in shared else {"object"}
    if "properties" in schema:
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


def _unwrapped(answer: Any) -> Any:
    return answer["resume"] if isinstance(answer, Mapping) and set(answer) == {"resume"} else answer


def _shape(answer: Any) -> Decision | NotADecision:
    """Find the one decision in an answer of any known shape."""
    if answer is True or answer is False:
        return Decision(type="approve" if answer else "reject")
    words = _words(answer)
    if words or isinstance(answer, str):
        return NotADecision(why="Words alone are not a decision; answer with a decision.", messages=words)
    if isinstance(answer, Sequence):
        return _inbox(answer)
    if not isinstance(answer, Mapping):
        return NotADecision(why=_NOT_UNDERSTOOD)
    if "messages" in answer:  # a chat turn, whatever else comes with it: a click does not say these words
        why = "The user wrote something while this was open; it is still undecided."
        return NotADecision(why=why, messages=_words(answer["messages"]))
    if "decisions" not in answer or "verdict" in answer:
        return _decision(answer)
    given = answer["decisions"]
    if not isinstance(given, Sequence) or len(given) != 1:
        return NotADecision(why=_ONE)
    return _decision(given[0]) if isinstance(given[0], Mapping) else NotADecision(why=_NOT_UNDERSTOOD)


def _words(given: Any) -> tuple[Any, ...]:
    """Return a user's messages: one, or those of a list. What the host cannot read is left out: it would raise."""
    one = _message(given)
    if one is not None:
        return (one,)
    several = given if isinstance(given, list | tuple) else ()
    return tuple(message for message in map(_message, several) if message is not None)


def _message(given: Any) -> Any:
    """Return one message of a user in a form that the host reads for certain, else None."""
    if isinstance(given, str):
        return given if given.strip() else None
    if isinstance(given, HumanMessage):
        return given
    if isinstance(given, list | tuple):
        is_pair = len(given) == 2 and given[0] in _USER and isinstance(given[1], str)
        return tuple(given) if is_pair else None
    if not isinstance(given, Mapping) or given.get("role", given.get("type")) not in _USER:
        return None
    content, known = given.get("content"), given.get("id")
    blocks = isinstance(content, list) and all(isinstance(each, str | dict) for each in content)
    if not content or not (blocks or isinstance(content, str)):
        return None
    return {"role": "user", "content": content, **({"id": known} if known and isinstance(known, str) else {})}


def _decision(given: Mapping[str, Any]) -> Decision | NotADecision:
    kind = given.get("type")
    verdict = isinstance(kind, str) and (kind in _VERDICTS or (kind == "approve" and "comments" in given))
    if verdict or "verdict" in given:
        return NotADecision(why="A verdict on a package is not a decision on a write; answer approve, edit or reject.")
    if not isinstance(kind, str) or kind not in _TYPES or ("role" in given and "content" in given):
        return NotADecision(why=_NOT_UNDERSTOOD)
    message = given.get("message")
    read = Decision(type=cast("DecisionType", kind), message=message if isinstance(message, str) else None)
    edited = next((given[name] for name in ("edited_action", "editedAction") if given.get(name) is not None), None)
    if kind == "approve" and edited is not None:
        return NotADecision(why="An approval runs what was shown; send changed arguments as an edit.")
    if kind != "edit" or not isinstance(edited, Mapping):
        return read
    args, name = edited.get("args"), edited.get("name")
    args = dict(args) if isinstance(args, Mapping) else None
    return dataclasses.replace(read, args=args, tool=str(name) if name else None)


def _inbox(answer: Sequence[Any]) -> Decision | NotADecision:
    """Read Agent Inbox's list of one answer."""
    if len(answer) != 1 or not isinstance(answer[0], Mapping):
        return NotADecision(why=_ONE)
    kind, args = answer[0].get("type"), answer[0].get("args")
    if kind == "accept":  # its args may be empty or texts: what was shown is what runs
        return Decision(type="approve")
    if kind == "edit" and isinstance(args, Mapping):
        return _decision({"type": "edit", "edited_action": {"name": args.get("action"), "args": args.get("args")}})
    if kind == "response" and isinstance(args, str):
        return Decision(type="reject", message=args)
    if kind == "ignore":
        return NotADecision(why="It was left open.")
    return NotADecision(why=_NOT_UNDERSTOOD)


def _places(answer: Any) -> list[Mapping[str, Any]]:
    """Return every part of an answer that may say which request it means, the decision itself first."""
    outer = answer if isinstance(answer, Mapping) else {}
    inner = outer.get("decisions", answer)
    parts = [*inner, outer] if isinstance(inner, Sequence) else [outer]
    found = [each for part in parts if isinstance(part, Mapping) for each in (part, part.get("handoff"))]
    return [each for each in found if isinstance(each, Mapping)]


def _names(places: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what an answer says about which request it means and who decided."""
    found: dict[str, Any] = {}
    for place in places:
        for name in ("request_id", "digest", "epoch", "by"):
            value = place.get(name)
            if value is not None:
                found.setdefault(name, str(value) if name == "by" else value)
    return found


def _other_request(places: Sequence[Mapping[str, Any]], request: Request) -> str:
    """Return which other request any part of an answer means; empty when all that is named is this one."""
    for place in places:
        named = place.get("request_id")
        if named not in (None, request.request_id):
            return f"The answer is for request {str(named)[:80]}, which is not the open one."
        if place.get("digest") not in (None, request.digest):
            return "The answer is for other arguments than the ones shown here."
        epoch = place.get("epoch")
        if epoch is not None and not _same(epoch, request.epoch):
            return "The answer is for an earlier form of this request."
    return ""


def _not_allowed(kind: DecisionType, request: Request) -> NotADecision:
    return NotADecision(why=f"'{kind}' is not allowed here; allowed: {', '.join(request.allowed_decisions)}.")


def _edit(read: Decision, request: Request) -> Decision | NotADecision:
    """Read an edit. One that changes nothing is an approval, which must then be allowed itself."""
    if read.args is None:
        return NotADecision(why="An edit needs `edited_action` with the arguments as an object.")
    if read.tool not in (None, request.tool) or not _same(read.args, request.args):
        return read
    if "approve" not in request.allowed_decisions:
        return _not_allowed("approve", request)
    return dataclasses.replace(read, type="approve", args=None, tool=None)


def _about_unknown(read: Decision) -> Decision | NotADecision:
    """Read an answer about a write of unknown outcome. Nothing bare starts it again: it was not shown as a start."""
    if read.type in ("done", "approve"):
        return dataclasses.replace(read, type="done")
    if read.type in ("abandon", "reject"):
        return dataclasses.replace(read, type="abandon")
    said = read.type == "respond" and _DID_NOT_HAPPEN.fullmatch((read.message or "").strip())
    if said or (read.type == "did_not_happen" and read.request_id is not None):
        return dataclasses.replace(read, type="did_not_happen")
    return NotADecision(why="Say done, abandon, or did_not_happen with the request's id; only that runs it again.")
