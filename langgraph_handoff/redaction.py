"""Secrets are taken out where a text crosses a border: into a package, or into a memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pydantic import JsonValue

__all__ = ("Redactor", "redact_secrets", "redacted", "redactors_of")

Redactor = Callable[[str], str]
"""Takes a text that crosses a border and returns the text that may cross it."""

_SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"\b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9]{16,}\b"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,})"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{12,}"),
    re.compile(r"(?i)(?<=\bpassword[=:])\s*\S+|(?<=\bpasswd[=:])\s*\S+|(?<=\bapi_key[=:])\s*\S+|(?<=\bsecret[=:])\s*\S+"),
)
_CARD: Final = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")


def redact_secrets(text: str) -> str:
    """Replace keys, tokens, passwords and payment card numbers by a mark. Card numbers are known by their check digit."""
    for pattern in _SECRETS:
        text = pattern.sub("[redacted]", text)
    return _CARD.sub(lambda found: "[redacted]" if _is_card(found.group()) else found.group(), text)


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in text if sign.isdigit()]
    doubled = [digit if index % 2 == 0 else sum(divmod(digit * 2, 10)) for index, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def redacted(value: JsonValue, redactors: Iterable[Redactor]) -> JsonValue:
    """Return JSON data with every text in it, keys too, passed through the redactors."""
    redactors = tuple(redactors)
    if isinstance(value, str):
        for redact in redactors:
            value = redact(value)
        return value
    if isinstance(value, list):
        return [redacted(item, redactors) for item in value]
    if isinstance(value, dict):
        return {str(redacted(key, redactors)): redacted(item, redactors) for key, item in value.items()}
    return value


def redactors_of(given: Redactor | Sequence[Redactor] | None) -> tuple[Redactor, ...]:
    """Return what a `redact=` argument stands for: None the default, an empty sequence none at all."""
    if given is None:
        return (redact_secrets,)
    return (given,) if callable(given) else tuple(given)
