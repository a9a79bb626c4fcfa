"""Texts that every file takes."""

from __future__ import annotations

__all__ = ("storable",)


def storable(text: str) -> str:
    r"""Return the text with lone surrogates and NUL escaped: models and file names bring them, and not every database takes them.

    In JSON the escape is the one of the standard (`\ud800`, `\u0000`), so that nothing is lost there.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
