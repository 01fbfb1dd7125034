"""A sample of a product that leaves nothing out: each thing meets some of the verbs, all together meet every verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import TypeVar

ALL = 10**6
"""So many times that each thing meets every verb: what the proof does."""

Thing = TypeVar("Thing")
Verb = TypeVar("Verb")


def rotated(things: Iterable[Thing], verbs: Sequence[Verb], times: int) -> list[tuple[Thing, list[Verb]]]:
    """Each thing with so many of the verbs, which take turns.

    Args:
        things: What is to be met, such as damage.
        verbs: Who is to meet it.
        times: How many of the verbs each thing meets; `ALL`: every one.
    """
    turns = cycle(verbs)
    return [(thing, list(islice(turns, min(times, len(verbs))))) for thing in things]
