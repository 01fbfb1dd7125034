"""How often the same batch has failed, from one `recover` or `run` to the next: pure, no clock.

Each start under a scheduler is a `recover` of its own, then the application, or a `run` of its own. So what is
counted is written down beside the checkpoint. It lies in the lake, where others may write: it can make lastgood count,
ask a person, or leave something untried, and never allows anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lastgood.failures.ending import Cause
from lastgood.failures.failure_class import FailureClass
from lastgood.ladder.rungs import Rung, Standing
from lastgood.notes import read_json
from lastgood.settings.policy import Count, GiveUp, Policy, after_failure

FORMAT = 1
_LONGEST = 200
_MOST = 2**53
"""Of a number that is believed: any JSON reader has it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where a query stands: as long as its commits and repairs are the same, it has made no progress."""

    query_id: str | None
    planned: int | None
    """Newest batch in the offset log; None if there is none."""
    committed: int | None
    """Newest batch in the commit log."""
    recovery: str | None = None
    """Id of the newest repair, whoever made it."""
    read: int | None = None
    """Newest batch in the commit log that read something; None: as far as is known, `committed` did."""

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed; None if there is none."""
        planned = self.planned
        return planned if planned is not None and planned > (-1 if self.committed is None else self.committed) else None

    def is_where(self, other: Stand) -> bool:
        """Whether no batch that read something was committed, and nothing was repaired, between the two.

        A repair may use up a number by an empty batch. That it is committed is none of the query's progress.
        """
        return (self.query_id, self._progress, self.recovery) == (other.query_id, other._progress, other.recovery)

    @property
    def _progress(self) -> int | None:
        return self.committed if self.read is None else self.read


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is kept when a start is told."""

    stand: Stand
    told_ms: int
    """When the last start was told, milliseconds since 1970."""
    failures: int = 0
    """Starts that were told and committed nothing, since the newest commit or somebody's repair; of those without a
    planned batch the ones that somebody saw fail."""
    since_ms: int | None = None
    """When the first of them was noticed; None without one."""
    tried: tuple[Rung, ...] = ()
    """What was carried out meanwhile, beyond the last good batch."""
    settled: Cause | None = None
    """Why the last start failed, if somebody saw it end: then it is among `failures`; also the one too many. None: the
    next call finds out."""

    def to_bytes(self) -> bytes:
        """Its file."""
        stand = self.stand
        told = {
            "format": FORMAT,
            "query": stand.query_id,
            "planned": stand.planned,
            "committed": stand.committed,
            "recovery": stand.recovery,
            "read": stand.read,
            "told_ms": self.told_ms,
            "failures": self.failures,
            "since_ms": self.since_ms,
            "tried": [rung.value for rung in self.tried],
            **({} if self.settled is None else {"settled": _told_cause(self.settled)}),
        }
        return json.dumps(told).encode() + b"\n"


def parse_tally(raw: bytes) -> Tally:
    """Read the file of a tally.

    Raises:
        ValueError: it is none, and why.
    """
    told = read_json(raw)
    if not isinstance(told, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - of the content, not of an argument
    if told.get("format") != FORMAT:
        raise ValueError(f"format is {told.get('format')!r:.50}")
    told_ms = _number(told, "told_ms")
    if told_ms is None:
        raise ValueError("told_ms is not there")
    return Tally(
        stand=Stand(
            query_id=_text(told, "query"),
            planned=_number(told, "planned"),
            committed=_number(told, "committed"),
            recovery=_text(told, "recovery"),
            read=_number(told, "read"),
        ),
        told_ms=told_ms,
        failures=_number(told, "failures") or 0,
        since_ms=_number(told, "since_ms"),
        tried=_rungs(told),
        settled=_cause(told),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """What one more call of `recover`, or the beginning of a `run`, makes of a tally."""

    tally: Tally
    """As it is now; what is told next is not in it yet."""
    standing: Standing
    """For the ladder, which goes by what has failed since the last start alone."""
    gives_up: bool = False
    """Whether the same batch has failed as often as the policy allows."""


def judged(
    policy: Policy,
    before: Tally | None,
    stand: Stand,
    cause: Cause,
    began_ms: int,
    *,
    has_failed: bool | None = None,
) -> Judged:
    """Count the start that was told last, if it has failed.

    It has if the batch that was planned then, or any after a first failure, is still not committed. A query without
    such a batch may just have had nothing to do, unless somebody saw how it ended. What was told after this call began
    is told to somebody else at the same moment, and is one attempt with this one.

    Args:
        policy: How often.
        before: What was kept when the last start was told; None: nothing.
        stand: Where the query stands now.
        cause: Why the last start failed, as far as anybody knows; that which passes by itself is not counted.
        began_ms: When this call began, milliseconds since 1970.
        has_failed: Whether the query has failed since the last start, as it wrote down itself; None: it did not.
    """
    if before is None or not stand.is_where(before.stand):
        return Judged(Tally(stand=stand, told_ms=began_ms), Standing())
    now = replace(before, stand=stand)
    if stand.orphan is None and has_failed is False:  # it is well, and had nothing to do
        return Judged(Tally(stand=stand, told_ms=began_ms), Standing())
    is_left = stand.orphan is not None and (before.failures > 0 or before.stand.orphan == stand.orphan)
    is_seen = has_failed is True or before.settled is not None
    if not (is_left or is_seen) or began_ms < before.told_ms:
        # Nothing has failed since: what was tried last has not been started yet, or had nothing to do.
        return Judged(now, _standing(now, None, began_ms))
    if before.settled is not None:
        gives_up = before.failures > policy.max_attempts
        return Judged(now, _standing(now, before.settled, began_ms), gives_up=gives_up)
    decision = after_failure(policy, Count(before.failures), passes_by_itself=cause.passes_by_itself)
    if isinstance(decision, GiveUp):
        # The start that would be one too many is not told: the next call finds the same, and says the same.
        return Judged(now, _standing(now, cause, began_ms), gives_up=True)
    failures = decision.count.attempts
    if failures > before.failures and now.since_ms is None:
        now = replace(now, since_ms=began_ms)
    now = replace(now, failures=failures)
    return Judged(now, _standing(now, cause, began_ms))


def _told_cause(cause: Cause) -> dict[str, Any]:
    return {"class": cause.cls.value, "passes_by_itself": cause.passes_by_itself}


def _cause(told: Mapping[str, Any]) -> Cause | None:
    value = told.get("settled")
    if value is None:
        return None
    known = {each.value: each for each in FailureClass}
    name, passes = (value.get("class"), value.get("passes_by_itself")) if isinstance(value, dict) else (None, None)
    if not isinstance(name, str) or name not in known or not isinstance(passes, bool):
        raise ValueError(f"settled is {value!r:.50}")
    return Cause(known[name], passes_by_itself=passes)


def _standing(tally: Tally, cause: Cause | None, now_ms: int) -> Standing:
    since_ms = now_ms if tally.since_ms is None else tally.since_ms
    return Standing(failures=tally.failures, seconds=max(0, now_ms - since_ms) / 1000, cause=cause)


def _number(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= _MOST):
        raise ValueError(f"{name} is {value!r:.50}")
    return value


def _text(told: Mapping[str, Any], name: str) -> str | None:
    value = told.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _LONGEST):
        raise ValueError(f"{name} is {value!r:.50}")
    return value


def _rungs(told: Mapping[str, Any]) -> tuple[Rung, ...]:
    names = told.get("tried", [])
    known = {rung.value: rung for rung in Rung}
    if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
        raise ValueError(f"tried is {names!r:.50}")
    return tuple(dict.fromkeys(known[name] for name in names))
