"""The typed package that travels with a case, and the brief that its receiver reads.

A package has two parts. The *content* is what the sending agent says: why, what for, what is known, what is still open.
The *envelope* is what the runtime knows: from whom, to whom, at which hop. A model can only ever fill the content; the
transfer tool's schema (`content_schema`) does not have the envelope's fields.

In state a package is plain JSON (`dump`), never a pickled class, so that a renamed module or a stricter validator shows as a
named error and not as an unvalidated object. Reading (`load`) upcasts older major versions and validates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from langgraph_handoff.errors import (
    PackageError,
    PackageTooLargeError,
    UnsupportedSchemaVersionError,
)

__all__ = (
    "ASKS_FOR_VERDICT",
    "DEFAULT_MAX_BYTES",
    "ENVELOPE",
    "Evidence",
    "HandoffPackage",
    "RequestedAction",
    "Upcast",
    "Verdict",
    "explain",
)

RequestedAction = Literal["review", "continue", "approve", "execute"]
"""What the receiver is asked to do with the case."""

ASKS_FOR_VERDICT: Final = frozenset({"review", "approve"})
"""Requested actions that are answered by a verdict; the case then goes back to who asked."""

Verdict = Literal["approve", "request_changes", "block", "acknowledge"]
"""What a receiver says about something it was asked to review."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Turns a stored package of one major version into the next major version's shape."""

DEFAULT_MAX_BYTES: Final = 256 * 1024
"""Largest package that is accepted, in bytes of its JSON text."""


class Evidence(BaseModel):
    """A pointer to something that supports a statement, so that the receiver need not trust a summary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(description="Where it is: a tool call id, an entry id, a URL or a record id.")
    note: str = Field(default="", description="What it shows, in one line.")


class HandoffPackage(BaseModel):
    """What one agent gives to the next.

    Subclass it to type a destination's contract; new fields are content and appear in the transfer tool's schema:

    ```python
    class RefundPackage(HandoffPackage):
        order_id: str
        amount: Decimal
    ```

    A subclass that changes its shape raises its `major` and gives an entry in `upcasts` from the old major.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    major: ClassVar[int] = 1
    """Major version of this class's stored shape."""
    upcasts: ClassVar[Mapping[int, Upcast]] = {}
    """Old major version → function that returns the shape of the next one."""

    requested_action: RequestedAction = Field(
        default="continue", description="What the receiver should do: review, continue, approve or execute."
    )
    reason: str = Field(default="", description="Why the case moves, in one sentence.")
    goal: str = Field(default="", description="What the user wants in the end.")
    success_criteria: tuple[str, ...] = Field(default=(), description="How the receiver knows that it is done.")
    summary: str = Field(default="", description="What happened so far, short.")
    known_facts: dict[str, JsonValue] = Field(
        default_factory=dict, description="Facts that are settled and need not be asked again, by name."
    )
    constraints: tuple[str, ...] = Field(default=(), description="Rules that hold for whoever works on the case.")
    completed_actions: tuple[str, ...] = Field(default=(), description="What has been done already.")
    open_questions: tuple[str, ...] = Field(default=(), description="What nobody has answered yet.")
    artifacts: dict[str, JsonValue] = Field(
        default_factory=dict, description="Results or pointers to them (ids, paths, URLs), by name."
    )
    evidence: tuple[Evidence, ...] = Field(default=(), description="Pointers that support the statements above.")
    user_summary: str = Field(default="", description="One line for the user about this handoff.")

    schema_version: str = Field(default="", description="Major and minor version of the stored shape.")
    package_type: str = Field(default="", description="Name of the package's class.")
    handoff_id: str = ""
    case_id: str = ""
    task_id: str = ""
    from_agent: str = ""
    to_agent: str = ""
    hop: int = 0
    epoch: int = 0
    created_at: str = ""
    return_to: str | None = None
    user_request: str = ""
    permissions: tuple[str, ...] = ()

    def model_post_init(self, _context: Any, /) -> None:
        """Stamp the class's name and version, which no caller may choose."""
        object.__setattr__(self, "schema_version", self.schema_version or f"{self.major}.0")
        object.__setattr__(self, "package_type", type(self).__name__)

    @classmethod
    def content_fields(cls) -> tuple[str, ...]:
        """Return the names of the fields that a sending agent fills."""
        return tuple(name for name in cls.model_fields if name not in ENVELOPE)

    @classmethod
    def content_schema(cls, name: str, *, actions: tuple[RequestedAction, ...] = ()) -> type[BaseModel]:
        """Return the arguments model of a transfer tool that carries this package.

        Args:
            name: Name of the new model.
            actions: Limits `requested_action` to these; the first is the default. Empty: all are allowed.
        """
        fields: dict[str, Any] = {key: (cls.model_fields[key].annotation, cls.model_fields[key]) for key in cls.content_fields()}
        if len(actions) == 1:
            del fields["requested_action"]
        elif actions:
            fields["requested_action"] = (Literal[actions], actions[0])
        return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], *, max_bytes: int = DEFAULT_MAX_BYTES, **envelope: Any) -> Self:
        """Build a package from an agent's content and the runtime's envelope.

        Args:
            content: What the agent said; keys of the envelope in it are refused.
            max_bytes: Largest size of the JSON text.
            envelope: What the runtime knows.

        Raises:
            PackageError: If a field is unknown, missing or of the wrong type; the text names each one.
            PackageTooLargeError: If the package is larger than `max_bytes`.
        """
        forged = sorted(ENVELOPE & content.keys())
        if forged:
            raise PackageError(problem=f"only the runtime sets {', '.join(forged)}")
        package = cls._validated({**content, **envelope})
        package.check_size(max_bytes)
        return package

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Self:
        """Read a stored package: upcast its major version, then validate.

        Args:
            stored: What `dump` returned, now or in an older release.

        Raises:
            UnsupportedSchemaVersionError: If no chain of upcasts leads from its major version to this class's.
            PackageError: If it does not validate.
        """
        data = dict(stored)
        found = str(data.get("schema_version") or f"{cls.major}.0")
        head = found.split(".", 1)[0]
        version = int(head) if head.isdecimal() else -1
        while version != cls.major and version in cls.upcasts:
            data = dict(cls.upcasts[version](data))
            version += 1
            data["schema_version"] = f"{version}.0"
        if version != cls.major:
            raise UnsupportedSchemaVersionError(package=cls.__name__, found=found, supported=f"{cls.major}.x")
        return cls._validated(data)

    @classmethod
    def _validated(cls, data: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise PackageError(problem=explain(error)) from None
        except Exception as error:  # a validator of the class's author need not foresee what a model sends
            raise PackageError(problem=f"it cannot be read ({type(error).__name__}: {error})") from error

    def dump(self) -> dict[str, Any]:
        """Return the package as plain JSON data, the only form in which it is stored. Fields that say nothing are left out."""
        stored = self.model_dump(mode="json", exclude_defaults=True)
        return {**stored, "schema_version": self.schema_version, "package_type": self.package_type}

    def check_size(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Refuse a package whose JSON text is larger than `max_bytes`.

        Raises:
            PackageTooLargeError: If it is.
        """
        try:
            size = len(json.dumps(self.dump(), ensure_ascii=False, allow_nan=False).encode(errors="surrogatepass"))
        except ValueError:
            raise PackageError(problem="a number in it is not finite") from None
        if size > max_bytes:
            raise PackageTooLargeError(size=size, cap=max_bytes)

    def content(self) -> dict[str, Any]:
        """Return the content that says something, as plain JSON data: empty fields are left out."""
        dumped = self.model_dump(mode="json", include=set(self.content_fields()))
        return {name: value for name, value in dumped.items() if value not in ("", [], {}, None)}

    def brief(self) -> str:
        """Render the package as the lines its receiver reads. Nothing in them is shortened or left out."""
        lines = [f"Handed over by {self.from_agent} to {self.to_agent} (hop {self.hop})."]
        if self.user_request:
            lines.append(f"The user asked: {self.user_request}")
        for name, value in self.content().items():
            title = name.replace("_", " ").capitalize()
            if isinstance(value, dict):
                lines += [f"{title}:", *(f"- {key}: {_shown(item)}" for key, item in value.items())]
            elif isinstance(value, list):
                lines += [f"{title}:", *(f"- {_shown(item)}" for item in value)]
            else:
                lines.append(f"{title}: {_shown(value)}")
        return "\n".join(lines)


ENVELOPE: Final = frozenset(
    {
        "schema_version",
        "package_type",
        "handoff_id",
        "case_id",
        "task_id",
        "from_agent",
        "to_agent",
        "hop",
        "epoch",
        "created_at",
        "return_to",
        "user_request",
        "permissions",
    }
)
"""Fields that only the runtime sets."""


def explain(error: ValidationError) -> str:
    """Return a pydantic error as one line per wrong field, without the value, which may be secret or huge."""
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'value'}: {item['msg']}" for item in error.errors(include_url=False))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
