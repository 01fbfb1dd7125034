"""Whether a recovery may be closed: the first new batch did what its plan said, or somebody is told."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Sequence

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.errors import LastgoodError, StorageError, explain_error
from lastgood.frozen import dataclass
from lastgood.incident.first_batch import (
    FirstBatch,
    Judged,
    is_of,
    judge_beginnings,
    judge_number,
    judge_passed_over,
    judge_row_count,
    judge_sinks,
)
from lastgood.observe.advice_facts import RECORDS_FOLDER
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.ledger import choose_ledger
from lastgood.observe.open_query import CheckpointMissingError, OpenQuery, gather, read_clock_ms
from lastgood.observe.recorded import read_newest_records
from lastgood.observe.remembered import recall_query
from lastgood.observe.surroundings import look_around
from lastgood.planning.plan import Plan
from lastgood.query.history import BatchRecord
from lastgood.query.prediction.restart import Outcome
from lastgood.records.record import Progress, Record
from lastgood.settings.target import Target
from lastgood.sinks.evidence import SinkEvidence
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.values import JsonValue


class Kept(enum.StrEnum):
    """What became of a promise."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    """Nothing contradicts it, and not all of it could be seen."""


@dataclass(frozen=True, slots=True)
class Promised(JsonValue):
    """What came of looking at the first new batch."""

    state: Kept
    because: tuple[str, ...]
    """One line each: what is otherwise than promised, then what nobody can tell, then what is as promised."""


def check_promise(
    plan: Plan | None,
    target: Target,
    first_batch: int,
    *,
    evidence: EvidenceOptions,
    rows: int | None = None,
) -> Promised:
    """Hold the first new batch against what its plan promised; nothing is changed.

    Its number; where it begins in each source, Kafka partition by partition, by the logs and by a recorder if there is
    one; that a batch that ran again had the ranges that it had; that every sink that can tell shows it; and that a
    range that is not empty gave rows. Where it had nothing to read, the batch after it is looked at too.

    Args:
        plan: What was carried out, or told for a plain restart; None if nobody made a plan: then the batch has to go on
            where the one before it ended.
        target: Which query.
        first_batch: The first batch that was committed since.
        evidence: The sinks; Kafka is not asked.
        rows: How many rows that batch read, if the caller saw it; None: records and ledger are asked.

    Raises:
        UsageError, LocationInvalidError, ExtraMissingError: as `look_around`. A storage that does not answer is no
            error: the state is `unknown`.
    """
    number = first_batch
    if plan is not None and plan.promise.batch is not None:
        number = min(plan.promise.batch, first_batch)
    try:
        found = gather(target, batches=2)
        if (found.checkpoint.last_committed or 0) > number:
            following = [number + 1]
        else:
            following = []
        found = found.with_batches([number - 1, number, *following])
        sinks = look_around(found, evidence, now_ms=read_clock_ms(), kafka=False).seen.sinks
    except (StorageError, CheckpointMissingError) as error:
        if isinstance(error, StorageError):
            why = explain_error(error)
        else:
            why = error.sentence
        return Promised(Kept.UNKNOWN, (f"the checkpoint does not tell: {why}",))
    seen = _Seen(found, sinks, since_ms=0 if plan is None else plan.made_at_ms)
    batch = seen.batch(number, rows if number == first_batch else None)
    judged = list(_judge(plan, first_batch, batch))
    if following and batch.is_empty and all(each.is_kept is not False for each in judged):
        is_plain = plan is None or not plan.steps
        judged += _judge_batch(None, seen.batch(number + 1, None), is_rerun=False, is_plain=is_plain)
    return _sum_up([*judged, *(Judged(why, is_kept=None) for why in seen.unread)])


class _Seen:
    """What logs, sinks and recorders tell of the batches of a query."""

    def __init__(self, found: OpenQuery, sinks: Sequence[SinkEvidence], *, since_ms: int) -> None:
        self._found = found
        self._sinks = sinks
        self._since_ms = since_ms
        self._records: list[Record] | None = None
        self.unread: list[str] = []
        """Why something could not be read."""

    def batch(self, number: int, rows: int | None) -> FirstBatch:
        known = self._found.records([number - 1, number])
        record = known.get(number, BatchRecord(number, None, None))
        progress, by = self._progress(record), "the recorder"
        if rows is None and progress is not None:
            rows = progress.num_input_rows
        if rows is None and record.is_committed:
            rows, by = _count_rows_in_ledger(self._found, number), "the ledger"
        return FirstBatch(
            record=record,
            before=known.get(number - 1),
            initial=self._found.initial,
            progress=progress,
            rows=rows,
            rows_by=by,
            sinks=self._sinks,
        )

    def _progress(self, record: BatchRecord) -> Progress | None:
        """What a recorder beside the checkpoint wrote down of a batch."""
        entry = record.offsets
        if not isinstance(entry, OffsetEntry):
            return None
        query_id, batch_id = self._found.query_id, record.batch_id
        ours = [each for each in self._recorded() if isinstance(each, Progress) and each.query_id == query_id]
        told = [each for each in ours if each.batch_id == batch_id and each.recorded_at_ms >= self._since_ms]
        if told and is_of(told[-1], entry):
            return told[-1]
        return None

    def _recorded(self) -> list[Record]:
        if self._records is None:
            self._records = []
            location, storage = self._found.location, self._found.storage
            try:
                folder = location.sibling(WORK_SUFFIX) / RECORDS_FOLDER
                names = [name for name in storage.names(folder) or () if not name.endswith("/")]
                if names:
                    self._records = read_newest_records(storage, folder, names)
                else:
                    self._records = []
            except StorageError as error:
                self.unread.append(f"what a recorder saw is not known: {explain_error(error)}")
        return self._records


def _judge(plan: Plan | None, first_batch: int, batch: FirstBatch) -> Iterator[Judged]:
    is_number = judge_number(plan, first_batch, batch)
    yield is_number
    if is_number.is_kept is not True:
        return  # nothing was promised of another batch
    is_rerun = plan is None or plan.promise.outcome == Outcome.RERUNS.value  # without a plan it may have been
    yield from _judge_batch(plan, batch, is_rerun=is_rerun, is_plain=plan is None or not plan.steps)


def _judge_batch(plan: Plan | None, batch: FirstBatch, *, is_rerun: bool, is_plain: bool) -> Iterator[Judged]:
    yield from judge_beginnings(plan, batch)
    yield from judge_sinks(() if plan is None else plan.sinks, batch, is_rerun=is_rerun)
    rows = judge_row_count(plan, batch, is_rerun=is_rerun)
    if rows is not None and not (is_plain and rows.is_kept is None):  # Spark's own restart promises no count
        yield rows
    passed_over = judge_passed_over(plan, batch, is_rerun=is_rerun)
    if passed_over is not None:
        yield passed_over


def _sum_up(judged: Sequence[Judged]) -> Promised:
    words = [each.is_kept for each in judged]
    if False in words:
        state = Kept.BROKEN
    elif None in words:
        state = Kept.UNKNOWN
    else:
        state = Kept.KEPT
    worst_first = sorted(judged, key=lambda each: (False, None, True).index(each.is_kept))
    return Promised(state, tuple(each.line for each in worst_first))


def _count_rows_in_ledger(found: OpenQuery, number: int) -> int | None:
    """How many rows a batch read, by the configured ledger; None if there is none, or it does not tell."""
    place = choose_ledger(None, found.target, os.environ)
    if place is None:
        pipeline = found.target.config.pipeline_of(str(found.location))
        place = None if pipeline is None else pipeline.ledger
    if place is None:
        return None
    from lastgood.ledger.opening import open_ledger  # noqa: PLC0415 - a database that few of us have

    try:
        with open_ledger(place, create=False) as ledger:
            known = recall_query(ledger, found.location, found.query_id)
            if known is None:
                facts = None
            else:
                facts = ledger.batches(known.query, [number]).get(number)
    except LastgoodError:  # a count that is missing is told as that
        return None
    if facts is None or facts.progress is None or not facts.is_progress_of_plan:
        return None
    return facts.progress.num_input_rows
