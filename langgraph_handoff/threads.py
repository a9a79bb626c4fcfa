"""Blocking work of an async run: in a thread, and to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ("to_its_end",)

_T = TypeVar("_T")


async def to_its_end(function: Callable[[], _T], *, undo: Callable[[_T], object] | None = None) -> _T:
    """Run `function` in a thread, to its end even when this task is cancelled.

    A commit cannot be called back. So a cancellation is passed on only when it is settled what stands where, and whoever handles
    the cancellation can read it.

    Args:
        function: What to run.
        undo: Called with the result, in a thread, when nobody is there to take it any more.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, function)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        failed = running.exception()  # read, so that asyncio does not report it as never retrieved
        if failed is None and undo is not None:
            loop.run_in_executor(None, undo, running.result())
        raise cancelled
    return running.result()
