"""How often the same batch has failed, from one `recover` or `run` to the next: pure, no clock.

Each start under a scheduler is a `recover` of its own, then the application, or a `run` of its own. So what is
counted is written down beside the checkpoint. It lies in the lake, where others may write: it can make lastgood count,
ask a person, or leave something untried, and never allows anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeAlias

from lastgood.failures.ending import Cause
from lastgood.frozen import dataclass
from lastgood.ladder.rungs import CommandStanding, Rung
from lastgood.notes import read_json
from lastgood.settings.policy import Count, GiveUp, Policy, decide_after_failure
from lastgood.values import AtMost, Between, JsonValue, make_form

FORMAT = 1
Text: TypeAlias = Annotated[str, AtMost(200)]
Number: TypeAlias = Annotated[int, Between(0, 2**53)]
"""One that is believed: any JSON reader has it whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyStand:
    """Where a query stands: as long as its commits and repairs are the same, it has made no progress."""

    query_id: Text | None
    planned: Number | None
    """Newest batch in the offset log; None if there is none."""
    committed: Number | None
    """Newest batch in the commit log."""
    recovery: Text | None = None
    """Id of the newest repair, whoever made it."""
    read: Number | None = None
    """Newest batch in the commit log that read something; None: as far as is known, `committed` did."""

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed; None if there is none."""
        committed = -1 if self.committed is None else self.committed
        if self.planned is None or self.planned <= committed:
            return None
        return self.planned

    def is_where(self, other: TallyStand) -> bool:
        """Whether no batch that read something was committed, and nothing was repaired, between the two.

        A repair may use up a number by an empty batch. That it is committed is none of the query's progress.
        """
        return (self.query_id, self._progress, self.recovery) == (other.query_id, other._progress, other.recovery)

    @property
    def _progress(self) -> int | None:
        return self.committed if self.read is None else self.read


def _part_fields(told: Mapping[str, Any]) -> dict[str, Any]:
    """What stands flat in the file, by the names of the fields."""
    names = {
        "query_id": "query",
        "planned": "planned",
        "committed": "committed",
        "recovery": "recovery",
        "read": "read",
    }
    failures, tried, settled = told.get("failures"), told.get("tried", []), told.get("settled")
    if settled is not None:
        is_cause = isinstance(settled, dict) and {"class", "passes_by_itself"} <= settled.keys()
        if not is_cause:
            raise ValueError(f"settled is {settled!r:.50}")
        settled = {"cls": settled["class"], "passes_by_itself": settled["passes_by_itself"]}
    if failures is None:
        failures = 0
    if _are_texts(tried):
        tried = list(dict.fromkeys(tried))
    return {
        "stand": {name: told.get(key) for name, key in names.items()},
        "told_ms": told.get("told_ms"),
        "failures": failures,
        "since_ms": told.get("since_ms"),
        "tried": tried,
        "settled": settled,
    }


def _are_texts(told: object) -> bool:
    return isinstance(told, list) and all(isinstance(each, str) for each in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally(JsonValue):
    """What is kept when a start is told."""

    json = make_form(
        "format query=stand.query_id planned=stand.planned committed=stand.committed recovery=stand.recovery "
        "read=stand.read told_ms failures since_ms tried settled=_told_settled",
        left_out="read settled",
        prepare=_part_fields,
    )
    format: ClassVar = FORMAT

    stand: TallyStand
    told_ms: Number
    """When the last start was told, milliseconds since 1970."""
    failures: Number = 0
    """Starts that were told and committed nothing, since the newest commit or somebody's repair; of those without a
    planned batch the ones that somebody saw fail."""
    since_ms: Number | None = None
    """When the first of them was noticed; None without one."""
    tried: tuple[Rung, ...] = ()
    """What was carried out meanwhile, beyond the last good batch."""
    settled: Cause | None = None
    """Why the last start failed, if somebody saw it end: then it is among `failures`; also the one too many. None: the
    next call finds out."""

    @property
    def _told_settled(self) -> dict[str, Any] | None:
        """All of the cause that is kept."""
        cause = self.settled
        if cause is None:
            return None
        return {"class": cause.cls.value, "passes_by_itself": cause.passes_by_itself}

    def to_bytes(self) -> bytes:
        """Its file."""
        return json.dumps(self.to_json()).encode() + b"\n"


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
    return Tally.from_json(told)


@dataclass(frozen=True, slots=True)
class JudgedTally:
    """What one more call of `recover`, or the beginning of a `run`, makes of a tally."""

    tally: Tally
    """As it is now; what is told next is not in it yet."""
    standing: CommandStanding
    """For the ladder, which goes by what has failed since the last start alone."""
    gives_up: bool = False
    """Whether the same batch has failed as often as the policy allows."""


def judge_tally(
    policy: Policy,
    before: Tally | None,
    stand: TallyStand,
    cause: Cause,
    began_ms: int,
    *,
    has_failed: bool | None = None,
) -> JudgedTally:
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
        return JudgedTally(Tally(stand=stand, told_ms=began_ms), CommandStanding())
    now = replace(before, stand=stand)
    if stand.orphan is None and has_failed is False:  # it is well, and had nothing to do
        return JudgedTally(Tally(stand=stand, told_ms=began_ms), CommandStanding())
    is_left = stand.orphan is not None and (before.failures > 0 or before.stand.orphan == stand.orphan)
    is_seen = has_failed is True or before.settled is not None
    if not (is_left or is_seen) or began_ms < before.told_ms:
        # Nothing has failed since: what was tried last has not been started yet, or had nothing to do.
        return JudgedTally(now, _make_standing(now, None, began_ms))
    if before.settled is not None:
        gives_up = before.failures > policy.max_attempts
        return JudgedTally(now, _make_standing(now, before.settled, began_ms), gives_up=gives_up)
    decision = decide_after_failure(policy, Count(before.failures), passes_by_itself=cause.passes_by_itself)
    if isinstance(decision, GiveUp):
        # The start that would be one too many is not told: the next call finds the same, and says the same.
        return JudgedTally(now, _make_standing(now, cause, began_ms), gives_up=True)
    failures = decision.count.attempts
    if failures > before.failures and now.since_ms is None:
        now = replace(now, since_ms=began_ms)
    now = replace(now, failures=failures)
    return JudgedTally(now, _make_standing(now, cause, began_ms))


def _make_standing(tally: Tally, cause: Cause | None, now_ms: int) -> CommandStanding:
    since_ms = now_ms if tally.since_ms is None else tally.since_ms
    return CommandStanding(failures=tally.failures, seconds=max(0, now_ms - since_ms) / 1000, cause=cause)


@dataclass(frozen=True, slots=True)
class FailedBatch(JsonValue):
    """A batch that was started again and again, and committed nothing."""

    batch: int | None
    """None once it was dropped, and until it is planned anew."""
    times: int
    """Starts that failed, since the newest commit."""
    since_ms: int | None
    """When the first of them was noticed, milliseconds since 1970."""

    @classmethod
    def of(cls, tally: Tally | None) -> FailedBatch | None:
        """What a tally tells; None if nothing has failed."""
        if tally is None or tally.failures == 0:
            return None
        return cls(tally.stand.orphan, tally.failures, tally.since_ms)


def find_failed_batch(kept: bytes, committed: int | None) -> FailedBatch | None:
    """What has failed since the newest commit, as far as anybody has counted it.

    Args:
        kept: What `read_attempts` found.
        committed: The newest committed batch.
    """
    try:
        tally = parse_tally(kept)
    except ValueError:  # `recover` says so, and begins anew
        return None
    if tally.stand.committed == committed:
        return FailedBatch.of(tally)
    return None
