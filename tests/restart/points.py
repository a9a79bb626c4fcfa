"""Kill points: every step that a process passes has a name, and at the chosen one the process ends itself with SIGKILL."""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

LEDGER_CALLS = ("propose", "move")
SAVER_CALLS = ("put", "put_writes", "aput", "aput_writes")


class Points:
    """Names each step that is passed, and dies at the chosen one."""

    def __init__(self, kill: str | None = None, passing: Callable[[str], None] = lambda _: None) -> None:
        self.kill, self.passing = kill, passing
        self.passed: list[str] = []
        self.count: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        """Pass a step."""
        self.count[name] += 1
        point = f"{name}#{self.count[name]}"
        self.passed.append(point)
        self.passing(point)
        if point == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, checkpointer: Any, ledger: Any) -> None:
        """Make each commit of a saver and a ledger two steps: before it and after it."""
        for name in LEDGER_CALLS:
            setattr(ledger, name, self._watched(name, getattr(ledger, name)))
        # A saver whose async methods run the sync ones passes each commit once.
        through = "aput" in vars(type(checkpointer)) and "put" not in vars(type(checkpointer))
        for name in SAVER_CALLS:
            if not (through and name.startswith("a")):
                setattr(checkpointer, name, self._watched(name.removeprefix("a"), getattr(checkpointer, name)))

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def label(args: tuple[Any, ...]) -> str:
            return f"{name} {args[1]}" if name == "move" else name

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.hit(f"before {label(args)}")
            out = original(*args, **kwargs)
            self.hit(f"after {label(args)}")
            return out

        @functools.wraps(original)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            self.hit(f"before {label(args)}")
            out = await original(*args, **kwargs)
            self.hit(f"after {label(args)}")
            return out

        return awaited if inspect.iscoroutinefunction(original) else watched
