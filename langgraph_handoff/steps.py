"""How nodes run.

A node's logic is written once, as a generator that yields an `Effect` wherever it needs the world: a model, a tool, the
ledger. A sync run carries an effect out directly, an async run awaits it. So the two can never differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

__all__ = ("Effect", "Node", "Steps")


@dataclass(frozen=True, slots=True)
class Effect:
    """Something outside that a node needs, in both ways of doing it."""

    sync: Callable[[], Any]
    asynchronous: Callable[[], Awaitable[Any]]


Steps = Generator[Effect, Any, Any]
"""A node's logic: yields effects, is sent their results (or thrown their errors), returns the node's output."""


class Node(Runnable[Any, Any]):
    """A node made of steps, for sync and async runs alike."""

    def __init__(self, name: str, steps: Callable[[Any, RunnableConfig], Steps]) -> None:
        """Make a node.

        Args:
            name: Its name in traces.
            steps: Given the node's input and the run's config, returns the logic.
        """
        self.name = name
        self._steps = steps

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the steps and carry out each effect directly."""
        steps = self._steps(input, config or {})
        resume: Callable[[], Effect] = lambda: next(steps)  # noqa: E731 (replaced after every effect)
        while True:
            try:
                effect = resume()
            except StopIteration as stop:
                return stop.value
            try:
                value = effect.sync()
            except BaseException as error:  # noqa: BLE001 (the steps decide what to do with it)
                resume = _throwing(steps, error)
            else:
                resume = _sending(steps, value)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Run the steps and await each effect."""
        steps = self._steps(input, config or {})
        resume: Callable[[], Effect] = lambda: next(steps)  # noqa: E731 (replaced after every effect)
        while True:
            try:
                effect = resume()
            except StopIteration as stop:
                return stop.value
            try:
                value = await effect.asynchronous()
            except BaseException as error:  # noqa: BLE001 (the steps decide what to do with it)
                resume = _throwing(steps, error)
            else:
                resume = _sending(steps, value)


def _sending(steps: Steps, value: Any) -> Callable[[], Effect]:
    return lambda: steps.send(value)


def _throwing(steps: Steps, error: BaseException) -> Callable[[], Effect]:
    return lambda: steps.throw(error)
