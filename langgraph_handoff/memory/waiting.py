"""Waiting for another's entry without asking all the time.

Memories over one store in one process share a bell: who writes, rings it. What another process writes rings no bell here, so a
waiter also looks by itself, at once and then after pauses that grow; where the store can say cheaply that nothing was written
since (`Shelf.mark`, on SQLite `PRAGMA data_version`, which reads one counter), a look is no more than that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from langgraph.store.base import BaseStore

__all__ = ("Common", "common_of", "pauses")

_FIRST, _GROWTH, _LONGEST = 0.005, 1.5, 0.25
"""Seconds of the first pause, factor to the next one, seconds of the longest."""
_UNMARKED: Final = 4
"""How much longer the pauses grow where every look is a query."""


class Common:
    """What the memories over one store share in a process."""

    def __init__(self) -> None:
        """Make a lock that nobody holds and a bell that nobody hears."""
        self.lock = threading.RLock()
        self._ears: list[Callable[[], object]] = []

    def ring(self) -> None:
        """Wake those who wait."""
        with self.lock:
            ears = list(self._ears)
        for ear in ears:
            ear()

    @contextmanager
    def heard_by(self, ear: Callable[[], object]) -> Iterator[None]:
        """Call `ear` at each ring while the context lasts; it may be called in any thread."""
        with self.lock:
            self._ears.append(ear)
        try:
            yield
        finally:
            with self.lock:
                self._ears.remove(ear)


_known: WeakKeyDictionary[BaseStore, Common] = WeakKeyDictionary()
_making = threading.Lock()


def common_of(store: BaseStore) -> Common:
    """Return what the memories over a store share."""
    with _making:
        return _known.setdefault(store, Common())


def pauses(timeout: float | None, *, marked: bool) -> Iterator[float]:
    """Return the seconds to wait before each further look, until the time is over.

    Args:
        timeout: Seconds in all; None waits for ever.
        marked: Whether a look is cheap.
    """
    end = None if timeout is None else time.monotonic() + timeout
    pause, longest = _FIRST, _LONGEST if marked else _LONGEST * _UNMARKED
    while True:
        left = pause if end is None else end - time.monotonic()
        if left <= 0:
            return
        yield min(pause, left)
        pause = min(pause * _GROWTH, longest)
