"""Texts and values that every file takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ("storable", "unstorable")

_DEEPEST: Final = 64
"""Levels of lists and objects in one value; the host's checkpoints take some more."""


def storable(text: str) -> str:
    r"""Return the text with lone surrogates and NUL escaped: models and file names bring them, and not every database takes them.

    In JSON the escape is the one of the standard (`\ud800`, `\u0000`), so that nothing is lost there.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def unstorable(value: Any, levels: int = _DEEPEST) -> str:
    """Return why checkpoints cannot hold a value that a model or a person sent; empty when they can."""
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**64 else "a whole number in it has more than 64 bits; send it as a text"
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return "a name in it is not a text"
        value = [*value.values()]
    if not isinstance(value, list | tuple):
        return ""
    if not levels:
        return f"it is nested more than {_DEEPEST} levels deep"
    return next(filter(None, (unstorable(each, levels - 1) for each in value)), "")
