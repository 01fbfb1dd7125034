"""One sink held against the logs of a query: what it shows, what it would drop, and how far it is complete. Pure.

`status`, `diagnose`, the planner and `inspect` all take it from here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import get_topics
from lastgood.frozen import dataclass
from lastgood.query.sink_batches import (
    Held,
    Origin,
    find_held_batches,
    find_planned_anew,
    is_reading_nothing,
    list_names_of_applications,
    list_possible_names,
)
from lastgood.query.spans import Span, find_orphan, list_spans, read_nothing
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, is_query_id
from lastgood.sources.kafka.ranges import find_planned_ranges, ranges_to_json
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS

NONE = -1
"""Below the first batch."""

_NAMED_MAX = 5
_FIRST_VERSION = 0
"""By which a table is made."""


class Shown(enum.Enum):
    """Whether readers of a sink see a batch."""

    LIVE = "live"
    TAKEN_BACK = "taken_back"
    """It was there, and was taken out again."""
    ABSENT = "absent"
    """It was never there."""
    UNKNOWN = "unknown"


class Rerun(enum.Enum):
    """What a sink does with the batch that a start runs again."""

    WRITES = "writes"
    """It has not got it: so it takes it, or drops it by a mark that is higher (`SinkView.would_drop`)."""
    RECOGNISES = "recognises"
    """It has got it, and adds nothing."""
    REPEATS = "repeats"
    """It has got it, and writes it a second time."""
    DROPS = "drops"
    """It has, or may have, another batch of that number, and drops this one."""
    UNKNOWN = "unknown"
    """Nobody can tell whether it writes it a second time."""


class Agreement(enum.Enum):
    """How a sink stands to the checkpoint."""

    AGREES = "agrees"
    """It shows exactly what is committed, or the planned batch as well."""
    NONE = "none"
    """It shows no batch of this query, which has committed some: a foreign sink, or one that notes no batch down."""
    BEHIND = "behind"
    """Committed batches are not in it."""
    AHEAD = "ahead"
    """It holds batches that the checkpoint has not even planned."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SinkView:
    """One sink of a query, and the logs that it is held against."""

    checkpoint: Checkpoint
    sink: SinkEvidence
    spans_of: Mapping[int, list[Span]]
    """What each batch reads, of the plans that were read."""
    held: Mapping[int, Held]
    """Of which plan the batches are that it holds."""
    is_stateful: bool
    """Whether the query keeps state: then a batch that reads nothing may write rows."""
    rewritten: frozenset[int] = frozenset()
    """Batches whose plan a recovery wrote anew after they had been done: its time says nothing of the sink."""

    @property
    def orphan(self) -> int | None:
        """The batch that a start runs again; None if there is none."""
        return find_orphan(self.checkpoint)

    @property
    def committed(self) -> int:
        """The newest committed batch, or `NONE`."""
        return NONE if self.checkpoint.last_committed is None else self.checkpoint.last_committed

    @property
    def planned(self) -> int:
        """The newest batch that is planned or committed, or `NONE`."""
        last_planned = self.checkpoint.last_planned
        if last_planned is None:
            return self.committed
        return max(last_planned, self.committed)

    @property
    def done(self) -> int:
        """The newest batch that Spark takes for done, or `NONE`: it never runs that again."""
        if self.orphan is None:
            return self.committed
        return self.orphan - 1

    @property
    def next_new(self) -> int:
        """The number of the batch that will be planned next."""
        return max(self.done if self.orphan is None else self.orphan, self.committed) + 1

    @property
    def shown(self) -> int:
        """The newest batch that the sink shows, or `NONE`; the truth only if `sink.known`."""
        return NONE if self.sink.last_batch is None else self.sink.last_batch

    @property
    def skips(self) -> int:
        """The sink is known to drop batches up to this one; `NONE` if it is not."""
        if not self.sink.skips_known or self.sink.skips_up_to is None:
            return NONE
        return self.sink.skips_up_to

    @property
    def marked(self) -> int:
        """By a mark that is seen, be it the last one or not, the sink drops batches up to this one; `NONE`: by none."""
        if self.sink.skips_up_to is not None:
            return self.sink.skips_up_to
        names = self.possible_names
        own = [last for last in names.values() if last in (self.committed, self.planned)]
        return max(own or names.values(), default=NONE)

    @property
    def possible_names(self) -> Mapping[str, int]:
        """Names under which the query may write here, with their marks; none where that is settled."""
        return list_possible_names(self.checkpoint, self.sink)

    @property
    def names_ahead(self) -> Mapping[str, int]:
        """Such names whose marks are above all that is planned: what comes would be dropped under them.

        None where one stands where the query does: that is its own.
        """
        return {} if self._has_name_of_its_own else self._names_above

    @property
    def names_passed_over(self) -> Mapping[str, int]:
        """Such names, where one stands where the query does, and is taken for its own."""
        return self._names_above if self._has_name_of_its_own else {}

    @property
    def _names_above(self) -> Mapping[str, int]:
        newest = self._newest_plan
        return {name: last for name, last in self.possible_names.items() if last > newest}

    @property
    def _has_name_of_its_own(self) -> bool:
        newest = self._newest_plan
        stands = {min(self.committed, newest), newest}
        return not stands.isdisjoint(self.possible_names.values())

    @property
    def names_behind(self) -> Mapping[str, int]:
        """Such names whose marks are below what is done: if one is its own, the rest has left no mark, or is missing.

        None where one has come as far: that is its own.
        """
        names = self.possible_names
        if any(last >= self.done for last in names.values()):
            return {}
        nearest = max(names.values(), default=self.done)
        if not self.may_any_have_rows(range(nearest + 1, self.done + 1)):
            return {}
        return names

    @property
    def _newest_plan(self) -> int:
        return NONE if self.checkpoint.last_planned is None else self.checkpoint.last_planned

    @property
    def comes_next(self) -> int:
        """The number that Spark gives to what it plans next: it goes by the plans, also where commits are ahead."""
        return self._newest_plan + 1

    @property
    def shows_none(self) -> bool:
        """Whether it surely knows nothing of the query, neither rows nor a mark."""
        return self.sink.known and self.sink.last_batch is None and self.skips == NONE

    @property
    def is_by_function(self) -> bool:
        """Whether a function (`foreachBatch`) is known to write here: it has written batches, or has its own mark."""
        is_own = self.sink.dedupe_key is DedupeKey.APP_ID
        return is_own or any(batch.is_streaming is False for batch in self.sink.batches)

    @property
    def has_every_mark(self) -> bool:
        """Whether every batch of the query has left a mark here, also one without rows: a function need not do that."""
        by_function = any(batch.is_streaming is False for batch in self.sink.batches)
        is_marked = self.sink.traits.marks_every_batch and self.sink.dedupe_key is not DedupeKey.APP_ID
        return is_marked and not by_function

    def may_have_rows(self, batch_ids: Iterable[int]) -> list[int]:
        """Of these batches, those that are not known to have had nothing to write."""
        return [batch_id for batch_id in batch_ids if not self._wrote_nothing(batch_id)]

    def may_any_have_rows(self, batch_ids: Iterable[int]) -> bool:
        """Whether one of these is not known to have had nothing to write; no more are looked at than it takes."""
        return any(not self._wrote_nothing(batch_id) for batch_id in batch_ids)

    def batches_done(self, first: int, last: int) -> list[int]:
        """The batches from `first` to `last` of which a log tells, and that Spark takes for done."""
        logs = (self.checkpoint.offsets.ids, self.checkpoint.commits.ids)
        end = min(last, self.done) + 1
        parts = (range(max(run.start, first), min(run.stop, end)) for log in logs for run in log.runs)
        return sorted({batch_id for part in parts for batch_id in part})

    @property
    def anew(self) -> Held | None:
        """What it holds under the number of the orphan, where that is, or may be, of an older plan of that number."""
        return find_planned_anew(self.checkpoint, self.sink)

    @property
    def is_planned_anew(self) -> bool:
        """Whether there is such a thing."""
        return self.anew is not None

    @property
    def told_by_clocks(self) -> str | None:
        """What is taken to be so of the orphan where the sink has it and drops it, in one line; None without that.

        A sink that goes by numbers has it of the plan in the logs, if it got it after that was planned. An older plan
        of the number shows so as well, if its driver had a clock that was ahead of the next one's, and nothing else
        tells.
        """
        orphan = self.orphan
        if orphan is None or orphan not in self.held or self.held[orphan].origin is not Origin.THIS_PLAN:
            return None
        if self.sink.would_skip(orphan) is False or self._wrote_nothing(orphan):
            return None
        line = f"no clock was set back between two plans of batch {orphan}"
        return f"{line}: that {self.sink.location} has it of the plan in the logs is told by times alone"

    def list_taken_for_own(self) -> Iterator[str]:
        """What is taken to be so where the sink has the orphan and drops it, by its number alone; one line each."""
        if self.told_by_clocks is None:
            return
        yield f"the assumption that {self.told_by_clocks}"
        if self.sink.dedupe_key is not DedupeKey.QUERY_ID:
            named = "" if self.sink.app_id is None else f" as {self.sink.app_id}"
            yield f"the assumption that no other query writes into {self.sink.location}{named}"

    def dropped(self) -> dict[int, Held]:
        """Batches that are done and read something, and that the sink had, or may have had, before their plan."""
        return {
            batch_id: self.held[batch_id]
            for batch_id in self._has_rows(sorted(self.held))
            if self.held[batch_id].origin.is_doubtful and batch_id <= self.done and batch_id not in self.rewritten
        }

    def doubled(self) -> dict[int, Held]:
        """Batches that read nothing, and of which the sink has rows: what these are of is read by others as well."""
        return {
            batch_id: held
            for batch_id, held in sorted(self.held.items())
            if batch_id <= self.planned
            and is_reading_nothing(self.checkpoint, batch_id)
            and self._has_others_rows(batch_id)
        }

    def absent(self) -> list[int]:
        """Batches that are done and may have had rows, and of which it shows nothing, though it shows later ones.

        Where each batch leaves a mark their rows are missing; a function need not mark a batch without rows.
        """
        first = self._first_told
        if first is None:
            return []
        told = {each.batch_id for each in self.sink.batches}
        return self.may_have_rows(n for n in self.batches_done(first, self.shown) if n not in told)

    def absent_before(self) -> list[int]:
        """Batches that are done and read something, from before the first that it shows, of which it ought to tell.

        They were written elsewhere, or by somebody who left no mark. Where it knows other names, those may have. Where
        each batch leaves a mark, one counts as well of which nobody knows any more what it read.
        """
        first, complete_from = self._first_told, self.sink.complete_from
        if first is None or complete_from is None or self.sink.others:
            return []
        done = self.batches_done(complete_from, first - 1)
        own = self.may_have_rows(done) if self.has_every_mark else self._has_rows(done)
        told = {*self.rewritten, *self.older()}
        return [batch_id for batch_id in own if batch_id not in told]

    @property
    def _first_told(self) -> int | None:
        """The oldest batch from which on it tells of each one by one; None where it does not, or tells by its log."""
        sink = self.sink
        if not sink.known or not sink.batches or sink.complete_from is None or sink.traits.keeps_log:
            return None
        return max(sink.complete_from, min(each.batch_id for each in sink.batches))

    def perhaps_gone(self) -> list[int]:
        """Batches that it has had by its mark, of which it does not tell that they are there.

        No start brings them back: they are done, or run again and are dropped.
        """
        if self.sink.unclear is None:
            return []
        if self.sink.unclear_at_ms is not None:
            return self._find_done_before(self.sink.unclear_at_ms)
        is_mark_seen = self.sink.known or bool(self.sink.batches)  # else what was lost may be the mark itself
        had = self.batches_done(0, self.marked if is_mark_seen else self.done)
        if self.orphan is not None and self.orphan <= self.marked:
            had.append(self.orphan)
        live = {batch.batch_id for batch in self.sink.batches if batch.is_live}
        return [n for n in self.may_have_rows(had) if n not in live]

    def _find_done_before(self, at_ms: int) -> list[int]:
        """Batches that may have had rows and were planned before then, and are done."""
        planned = ((n, self.get_planned_ms(n)) for n in self.batches_done(0, self.done))
        return self.may_have_rows([n for n, planned_ms in planned if planned_ms is not None and planned_ms < at_ms])

    def older(self) -> list[int]:
        """Batches that may have had rows and were done before the sink was made: what they wrote cannot be in it.

        A batch is done before the next one is planned. Where that was planned later, as after a pause, or nobody knows
        when, the batch counts where the sink was made long after it was planned, or where each batch leaves a mark and
        there is none of it. One that the sink shows shows that it was there by then, and one that has made it, that all
        before it were done.
        """
        created_ms, sink = self.sink.created_at_ms, self.sink
        live = [each.batch_id for each in sink.batches if each.is_live is not False]
        if created_ms is None or sink.complete_from is None:
            return []
        # That it shows none at all may be since a function writes, without marks.
        is_marked = self.has_every_mark and bool(live)
        newest_done = max((each.batch_id for each in sink.batches if each.version == _FIRST_VERSION), default=0) - 1
        for number in self.checkpoint.offsets.entries:
            at_ms = self.get_planned_ms(number)
            if at_ms is None or at_ms >= created_ms:
                continue
            is_itself = is_marked or at_ms + MAX_CLOCK_SKEW_MS < created_ms
            newest_done = max(newest_done, number if is_itself else number - 1)
        newest = min(newest_done, min(live, default=self.done + 1) - 1)
        return self.may_have_rows(self.batches_done(max(0, sink.complete_from), newest))

    @property
    def is_surely_made_later(self) -> bool:
        """Whether no clock explains that it seems to have been made after batches of the query were done."""
        created_ms, older = self.sink.created_at_ms, self.older()
        if created_ms is None or not older:
            return False
        next_ms = self.get_planned_ms(older[0] + 1)
        return next_ms is not None and next_ms + MAX_CLOCK_SKEW_MS < created_ms

    def get_planned_ms(self, number: int) -> int | None:
        """When a batch was planned, as far as its plan was read."""
        entry = self.checkpoint.offsets.entries.get(number)
        metadata = entry.metadata if isinstance(entry, OffsetEntry) else None
        return None if metadata is None else metadata.batch_timestamp_ms

    @property
    def would_drop(self) -> range:
        """The batches still to come that the sink would drop without a word, or may, if `sink.skips_known` is False.

        The orphan is none of them where the sink holds it, or where it has nothing to write.
        """
        first = self.next_new
        if self.orphan is None:
            return range(first, max(first, self.marked + 1))
        is_lacking = self.sink.known and self.shown < self.orphan
        if (is_lacking or self.is_planned_anew) and not self._wrote_nothing(self.orphan):
            first = self.orphan
        return range(first, max(first, self.marked + 1))

    @property
    def complete_to(self) -> int | None:
        """The batch up to which the sink surely shows everything, `NONE` if it surely shows none; None: not known."""
        sink = self.sink
        if not sink.known or self.is_planned_anew:  # how far an older plan went, its number does not tell
            return None
        if sink.last_batch is None:
            is_sure = sink.traits.shows_all_or_none and sink.skips_up_to is None
            return NONE if is_sure and self.committed == NONE else None
        behind = range(sink.last_batch + 1, self.committed + 1)
        if behind and not self.has_every_mark:  # a function need not mark a batch without rows
            return None if self.may_any_have_rows(behind) else self.committed
        return sink.last_batch

    @property
    def rerun(self) -> Rerun | None:
        """What it does with the batch that runs again; None without one, or if it does not tell what it holds."""
        orphan, sink = self.orphan, self.sink
        if orphan is None or not sink.known:
            return None
        if self.shown < orphan:
            return Rerun.WRITES
        skips = sink.would_skip(orphan)
        if self.is_planned_anew and skips is not False:
            return Rerun.DROPS
        if sink.traits.is_idempotent:
            return Rerun.RECOGNISES
        if skips is None:
            return Rerun.UNKNOWN
        return Rerun.RECOGNISES if skips else Rerun.REPEATS

    @property
    def recognises_orphan(self) -> bool:
        """Whether the sink is known to take the orphan once: if it holds it, it drops it, and else it writes it."""
        complete_to, planned_id = self.complete_to, self.checkpoint.last_planned
        if complete_to is None or planned_id is None:
            return False
        if complete_to == planned_id:
            return self.rerun is Rerun.RECOGNISES
        return complete_to == planned_id - 1 and self.sink.would_skip(planned_id) is False

    @property
    def agreement(self) -> Agreement:
        """How it stands to what is planned and committed."""
        if not self.sink.known or self.is_planned_anew:
            return Agreement.UNKNOWN
        if self.sink.last_batch is None:
            return Agreement.AGREES if self.committed == NONE else Agreement.NONE
        if self.shown > self.planned:
            return Agreement.AHEAD
        is_behind = self.shown < self.committed and self.complete_to != self.committed
        return Agreement.BEHIND if is_behind else Agreement.AGREES

    def ranges(self, batch_id: int) -> dict[str, Any]:
        """What a batch reads of each Kafka source, by topic and partition, as far as its plans tell."""
        found: dict[str, Any] = {}
        for span in self.spans_of.get(batch_id, []):
            told = find_planned_ranges(get_topics(span.start), get_topics(span.end))
            if told:
                found[span.source_id] = ranges_to_json(told)
        return found

    def _has_others_rows(self, batch_id: int) -> bool:
        """Whether rows of it are of another plan: it has some, or a recovery has used its number up."""
        if batch_id - 1 in self.rewritten:  # where it began is what that one says, and no more
            return False
        counts = [
            each.row_count for each in self.sink.batches if each.batch_id == batch_id and each.is_live is not False
        ]
        if counts and not any(count is None or count > 0 for count in counts):
            return False
        origin = self.held[batch_id].origin
        return origin is Origin.OLDER_PLAN or (origin.is_doubtful and batch_id in self.rewritten)

    def _wrote_nothing(self, batch_id: int) -> bool:
        return not self.is_stateful and read_nothing(self.spans_of.get(batch_id, []))

    def _has_rows(self, batch_ids: Iterable[int]) -> list[int]:
        """Of these batches, those that are known to have read something."""
        read = ((batch_id, self.spans_of.get(batch_id, [])) for batch_id in batch_ids)
        return [batch_id for batch_id, own in read if any(span.start and not span.is_empty for span in own)]


def make_sink_views(
    checkpoint: Checkpoint, sinks: Iterable[SinkEvidence], *, is_stateful: bool, rewritten: Iterable[int] = ()
) -> list[SinkView]:
    """Every sink that was asked.

    Args:
        checkpoint: With its newest entries read.
        sinks: What they say.
        is_stateful: Whether the query keeps state, as far as anybody knows.
        rewritten: Batches whose plan a recovery wrote anew after they had been done.
    """
    seen = [judge_name(checkpoint, sink) for sink in sinks]
    if not seen:
        return []
    by_batch: dict[int, list[Span]] = {}
    for span in list_spans(checkpoint):
        by_batch.setdefault(span.batch_id, []).append(span)
    anew = frozenset(rewritten)
    return [
        SinkView(checkpoint, sink, by_batch, find_held_batches(checkpoint, sink), is_stateful, anew) for sink in seen
    ]


def judge_name(checkpoint: Checkpoint, sink: SinkEvidence) -> SinkEvidence:
    """What a sink says that knows nothing of the query by the name it was asked for, and others by their names.

    A function writes under a name of its own, and the sink drops what comes under that: nobody knows what the query
    has written there, nor what would be dropped. A name that a person gives is doubted only where batches are done.
    """
    passed = _list_names_beyond(checkpoint, sink)
    if passed:
        return _make_passed_unknown(checkpoint, sink, passed)
    shows_none = sink.known and sink.last_batch is None and sink.skips_up_to is None and not sink.batches
    is_told = sink.dedupe_key is DedupeKey.APP_ID and checkpoint.last_committed is None
    names = list_names_of_applications(checkpoint, sink)
    if not shows_none or is_told or not names:
        return sink
    return _make_name_unknown(sink, names)


def name_some(names: Iterable[str]) -> str:
    """Names for a sentence: whoever writes to a table may have left any number of them in it."""
    return ", ".join(sorted(names)[:_NAMED_MAX])


def _make_name_unknown(sink: SinkEvidence, names: Iterable[str]) -> SinkEvidence:
    because = f"{sink.because}; whether the query writes there as {name_some(names)} nobody says (--txn-app-id)"
    return replace(sink, known=False, skips_known=False, because=because, complete_from=None)


def _make_passed_unknown(checkpoint: Checkpoint, sink: SinkEvidence, names: Sequence[str]) -> SinkEvidence:
    """What a sink says whose mark is of a name under which the query may write no more; else it lacks what is done."""
    shown, committed = sink.last_batch, checkpoint.last_committed
    unclear = sink.unclear
    if shown is not None and committed is not None and shown < committed:
        unclear = f"it shows batch {shown} as its newest, unless the query has written on as {', '.join(names)}"
    return _make_name_unknown(replace(sink, last_batch=None, skips_up_to=None, unclear=unclear), names)


def _list_names_beyond(checkpoint: Checkpoint, sink: SinkEvidence) -> list[str]:
    """Names under which the query may write by now, where by the name that the sink was asked for it has stopped short.

    An application that was changed writes under another name from then on, and is dropped by that.
    """
    committed, planned, orphan = checkpoint.last_committed, checkpoint.last_planned, checkpoint.orphan
    shown = sink.last_batch
    if not sink.known or shown is None or planned is None:
        return []
    own = checkpoint.query.query_id if isinstance(checkpoint.query, QueryMetadata) else None
    names = {name: last for name, last in sink.others.items() if name == own or not is_query_id(name)}
    if committed is not None and shown < committed:
        return _list_names_since(sink, names, range(shown + 1, planned + 1))
    if orphan is None or shown >= orphan:
        return []
    at_orphan = [name for name, last in names.items() if last == orphan]
    is_told = sink.dedupe_key is DedupeKey.APP_ID and sink.presumed_app_id is None
    if not is_told:
        return at_orphan
    # A name that a person gives is believed where the other one is known to be that of another query.
    return [name for name in at_orphan if name == own or _may_have_written(checkpoint, sink, name, orphan)]


def _list_names_since(sink: SinkEvidence, names: Mapping[str, int], lacking: range) -> list[str]:
    """Names under which batches may have been written, or dropped, that are done and that a sink does not show.

    One that is higher drops them all. Where they were there by the name that was asked for, and were taken back since,
    the query writes under that.
    """
    was_there = any(batch.batch_id in lacking for batch in sink.batches)
    is_high = {name for name, last in names.items() if last >= lacking.stop and not was_there}
    return [name for name, last in names.items() if last in lacking or name in is_high]


def _may_have_written(checkpoint: Checkpoint, sink: SinkEvidence, name: str, orphan: int) -> bool:
    """Whether the mark of another name at the orphan may be that of the query, as after a change of its name.

    It is not, if it had come before the orphan was planned, or if both names have had a batch of the same number.
    """
    entry, marked_ms = checkpoint.offsets.entries.get(orphan), sink.others_at_ms.get(name)
    metadata = entry.metadata if isinstance(entry, OffsetEntry) else None
    planned_ms = None if metadata is None else metadata.batch_timestamp_ms
    if name in sink.others_beside:
        return False
    return marked_ms is None or planned_ms is None or marked_ms + MAX_CLOCK_SKEW_MS >= planned_ms


def judge_shown_at_last(
    sink: SinkEvidence, batch_id: int, found: Sequence[CommittedBatch], *, was_known: bool = False
) -> Shown:
    """Whether a sink shows a batch that is done: one by one, else by how far it has come.

    A sink that has passed a batch and tells nothing of it has it; one that is behind it has not.

    Args:
        sink: What it says.
        batch_id: The batch.
        found: What it says of that one.
        was_known: Whether it has told before of a batch of this query: then that it shows none now says something.
    """
    shown = judge_shown(sink, batch_id, found)
    if shown is not Shown.UNKNOWN or not sink.known:
        return shown
    if sink.last_batch is None:
        return Shown.ABSENT if was_known else shown
    if sink.last_batch == batch_id:
        return shown
    return Shown.LIVE if sink.last_batch > batch_id else Shown.ABSENT


def judge_shown(sink: SinkEvidence, batch_id: int, found: Sequence[CommittedBatch]) -> Shown:
    """Whether readers of a sink see a batch.

    Args:
        sink: What it says.
        batch_id: The batch.
        found: What it says of that one.
    """
    lives = [batch.is_live for batch in found]
    if sink.last_batch is None and not sink.batches:
        return Shown.UNKNOWN  # it shows nothing of this query at all: no batch can be held against it
    if any(lives):
        return Shown.LIVE
    if lives:
        return Shown.UNKNOWN if None in lives else Shown.TAKEN_BACK
    if sink.complete_from is not None and batch_id >= sink.complete_from:
        return Shown.ABSENT
    if sink.known and batch_id == sink.last_batch:
        return Shown.LIVE  # told by the marker alone
    return Shown.UNKNOWN
