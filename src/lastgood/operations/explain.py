"""`explain`: the story behind a finding or an error."""

from __future__ import annotations

import difflib

from lastgood.diagnosis.catalogue import Topic, list_names, list_topics
from lastgood.errors import UsageError, format_command_line

_NEAR = 3


def explain(condition: str) -> Topic:
    """What a condition means.

    Args:
        condition: Its name, in upper or lower case, words also separated by `-`.

    Raises:
        UsageError: there is no such condition.
    """
    name = condition.strip().upper().replace("-", "_")
    known = list_names()
    found = list_topics([name])
    if found:
        return found[0]
    if name in known:
        raise UsageError(
            "the libraries of the part that has this condition are not installed",
            subject=name,
            next="pip install 'lastgood[all]'",
        )
    near = difflib.get_close_matches(name, known, _NEAR, cutoff=0.5)
    raise UsageError(
        "there is no such condition",
        subject=condition[:80],
        expected=" or ".join(near) if near else "a name that a finding or an error has",
        next=format_command_line("explain", *near[:1]),
    )


def list_conditions_by_theme() -> dict[str, tuple[Topic, ...]]:
    """Every condition, by its theme."""
    found: dict[str, tuple[Topic, ...]] = {}
    for topic in list_topics():
        found[topic.theme] = (*found.get(topic.theme, ()), topic)
    return found
