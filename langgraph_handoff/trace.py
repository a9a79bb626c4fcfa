"""What happened to a case, read from its saved state; nothing here changes anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Interrupt

from langgraph_handoff.state import Event

__all__ = ("Metrics", "ahops", "ametrics", "graph_of_hops", "hops", "hops_of", "interrupts_in", "metrics", "metrics_of")

_INTERRUPT: Final = "__interrupt__"
"""The key under which the host stores, and returns, what is asked."""
HUMAN: Final = "human"
DONE: Final = "done"
_Graph = CompiledStateGraph[Any, Any, Any, Any]


def hops(graph: _Graph, config: RunnableConfig) -> list[str]:
    """Return who had the case, in order.

    A person's decision counts as a hop to `human` and back, an open request as a hop to `human`, a closed case as `done`.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
    """
    snapshot = graph.get_state(config)
    return hops_of(snapshot.values.get("events") or [], waiting=bool(snapshot.interrupts))


async def ahops(graph: _Graph, config: RunnableConfig) -> list[str]:
    """Return who had the case, in order; the async twin of `hops`."""
    snapshot = await graph.aget_state(config)
    return hops_of(snapshot.values.get("events") or [], waiting=bool(snapshot.interrupts))


def interrupts_in(stored: CheckpointTuple | None) -> list[Interrupt]:
    """Return what a checkpoint waits with: the questions that its tasks raised, and the outer tasks of nested ones."""
    written = (stored.pending_writes if stored else None) or []
    return [each for _, channel, value in written if channel == _INTERRUPT for each in value if isinstance(each, Interrupt)]


def hops_of(events: Sequence[Event], *, waiting: bool = False) -> list[str]:
    """Return who had the case, in order, from its events.

    Args:
        events: The log.
        waiting: Whether a person is being asked right now.
    """
    chain: list[str] = []
    for happened in events:
        for name in _holders(happened):
            if not chain or chain[-1] != name:
                chain.append(name)
    if waiting and (not chain or chain[-1] != HUMAN):
        chain.append(HUMAN)
    return chain


def _holders(happened: Event) -> tuple[str, ...]:
    kind, agent = happened["kind"], happened["agent"]
    if kind in ("opened", "reopened", "stale_owner"):
        return (agent,)
    if kind in ("accepted", "returned", "declined"):
        to = (happened.get("detail") or {}).get("to")
        return (str(to),) if to else ()
    if kind == "asked":
        return (HUMAN,)
    if kind == "decided":
        return (agent,)
    return (DONE,) if kind == "closed" else ()


def graph_of_hops(chain: Sequence[str]) -> str:
    """Draw executed hops as a Mermaid flow chart; each arrow carries the numbers of its hops."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for number, pair in enumerate(pairwise(chain), start=1):
        arrows.setdefault(pair, []).append(str(number))
    ids = {name: f"n{index}" for index, name in enumerate(dict.fromkeys(chain))}
    lines = ["flowchart LR", *(f'    {key}["{name}"]' for name, key in ids.items())]
    lines += [f"    {ids[source]} -->|{', '.join(numbers)}| {ids[target]}" for (source, target), numbers in arrows.items()]
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """Figures of one case."""

    hops: int
    """Handoffs that were accepted, returned or declined."""
    loops: int
    """Times that the case went straight back to where it came from."""
    declined: int
    refused: int
    """Handoffs that the rules refused: bounces, budget, packages that were not valid."""
    forbidden: int
    """Calls of tools that their agent does not hold."""
    asked: int
    approved: int
    written: int
    closed: bool
    tokens: Mapping[str, int]
    """Agent → tokens of its model calls, as the providers reported them."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)


def metrics(graph: _Graph, config: RunnableConfig) -> Metrics:
    """Return the figures of a case.

    Args:
        graph: The compiled graph.
        config: With the case's `thread_id`.
    """
    return metrics_of(graph.get_state(config).values)


async def ametrics(graph: _Graph, config: RunnableConfig) -> Metrics:
    """Return the figures of a case; the async twin of `metrics`."""
    return metrics_of((await graph.aget_state(config)).values)


def metrics_of(state: Mapping[str, Any]) -> Metrics:
    """Return the figures of a case from its state."""
    events: list[Event] = state.get("events") or []
    kinds = Counter(each["kind"] for each in events)
    moves = [each.get("detail") or {} for each in events if each["kind"] in ("accepted", "returned", "declined")]
    pairs = [(move["from"], move["to"]) for move in moves if "from" in move and "to" in move]
    tokens: Counter[str] = Counter()
    for message in state.get("messages") or []:
        if isinstance(message, AIMessage) and message.usage_metadata:
            tokens[message.name or "unnamed"] += message.usage_metadata["total_tokens"]
    return Metrics(
        hops=len(pairs),
        loops=sum(1 for first, second in pairwise(pairs) if first == second[::-1]),
        declined=kinds["declined"],
        refused=kinds["bounce"] + kinds["budget"] + kinds["invalid"] + kinds["withheld"],
        forbidden=kinds["forbidden"],
        asked=kinds["asked"],
        approved=sum(
            1
            for each in events
            if each["kind"] == "decided" and (each.get("detail") or {}).get("decision") in ("approve", "edit")
        ),
        written=kinds["written"],
        closed=bool((state.get("ownership") or {}).get("closed")),
        tokens=dict(tokens),
    )
