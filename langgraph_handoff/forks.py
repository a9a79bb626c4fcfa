"""What a forked child must not use: its parent's connections, and locks that a thread may hold which does not exist there."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ("Forked", "keep", "watch")


class Forked(Protocol):
    """Something that a forked child begins anew."""

    def forked(self) -> None:
        """Forget what belongs to the parent; called in the child."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_kept: list[object] = []


def watch(thing: Forked) -> None:
    """Call `thing.forked()` in every child that is forked from now on."""
    _watched.add(thing)


def keep(inherited: object) -> None:
    """Keep a parent's connection open and unused in the child: to close it there may end the parent's session."""
    _kept.append(inherited)


def _after_fork() -> None:
    for thing in list(_watched):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
