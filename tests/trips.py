"""How many times something has to wait for an answer before it can ask on."""

from __future__ import annotations

from collections.abc import Callable

_ATTEMPTS_MAX = 12


def fewest(measure: Callable[[], int], *, enough: int) -> int:
    """The fewest round trips of some attempts, which end with the first that takes no more than `enough`.

    A busy machine starts late what could have been asked at once. So it only ever adds some, and one attempt shows how
    few are possible.
    """
    found = measure()
    for _ in range(_ATTEMPTS_MAX - 1):
        if found <= enough:
            break
        found = min(found, measure())
    return found
