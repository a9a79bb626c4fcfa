"""Functions that users give: looked at when the graph is built, since a wrong one fails with a user waiting, or opens a gate."""

from __future__ import annotations

import inspect
from typing import Any

from langgraph_handoff.errors import CatalogError

__all__ = ("check_hook",)


def check_hook(what: str, given: Any, *, awaited: bool = False) -> None:
    """Check that a function can be called with one argument and answers when it is called.

    Args:
        what: Its name in the error, for example "`when` of 'refund'".
        given: The function; None means that there is none.
        awaited: Whether its caller waits for an async answer. Elsewhere a coroutine would count as "yes".

    Raises:
        CatalogError: If it cannot be used; the text says why.
    """
    if given is None:
        return
    if not callable(given):
        raise CatalogError(problem=f"{what} is {given!r}, not a function")
    if not awaited and (inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__)):
        raise CatalogError(problem=f"{what} is async, and nobody would wait for its answer; give an ordinary function")
    try:
        signature = inspect.signature(given)
    except ValueError:  # written in C, so that it does not say what it takes
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise CatalogError(problem=f"{what} must take one argument ({error})") from None
