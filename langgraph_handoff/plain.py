"""Texts that every file takes."""

from __future__ import annotations

__all__ = ("storable",)


def storable(text: str) -> str:
    r"""Return the text with lone surrogates escaped: models and file names bring them, and no UTF-8 file takes them.

    In JSON the escape is the one of the standard (`\ud800`), so that nothing is lost there.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
