"""Plans that somebody has edited by hand since they were written, told by the mirror or by a checksum. Pure.

Spark writes the time at which it plans into the plan of a batch. A plan that is made anew has another one, and one that
was edited has kept its own: so one time with two ends is an edit. What a recovery wrote counts as written.

Where Hadoop writes a checksum beside each file, as on a local disk, whoever edits a plan has to remove that, since
Spark fails on one that does not fit. So a plan without one, between others that have theirs, is not as Spark wrote it,
or nobody can tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.logs import LogListing
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, parse_source_offset
from lastgood.checkpoint.source_order import OffsetStep, compare_offsets
from lastgood.frozen import dataclass
from lastgood.query.observation import MirroredPlan, Observation


@dataclass(frozen=True, slots=True)
class EditedEnd:
    """Where a batch ends in a source, by hand."""

    batch_id: int
    source_id: str
    written: SourceOffset | None
    """Where it ended when it was planned, or at least; None: nobody tells."""
    leaves_out: bool
    """Whether the next batch may begin after where this one ended: what lies between is read by none."""
    repeats: bool
    """Whether the next batch may begin before it: what lies between is read twice."""
    is_known: bool = True
    """Whether it is known to end elsewhere; False: it lacks the checksum that Spark gave it."""


def find_edited_ends(observed: Observation) -> list[EditedEnd]:
    """Ends that were edited in the plans from which a start goes on: of the newest commit, and what is planned after.

    Args:
        observed: With what the mirror holds.
    """
    entries = {
        number: entry
        for number, entry in sorted(observed.checkpoint.offsets.entries.items())
        if isinstance(entry, OffsetEntry) and number >= (observed.checkpoint.last_committed or 0)
    }
    found: list[EditedEnd] = []
    for number, entry in entries.items():
        if number in observed.rewritten:
            continue
        written = observed.mirrored_plans.get(number)
        if written is not None:
            found += _compare(number, entry, written)
        elif number in observed.unchecked:
            found += _list_unchecked(observed, number, entry)
    return found


def find_unchecked_plans(checkpoint: Checkpoint) -> frozenset[int]:
    """The plans from which a start goes on and that lack the checksum that Spark gave them; a recovery may have.

    Args:
        checkpoint: As it lies there.
    """
    log, committed = checkpoint.offsets, checkpoint.last_committed
    if log.newest is None or committed not in checkpoint.commits.listing.checksums:
        return frozenset()
    checked = log.listing.checksums
    newest = log.ids.within(range(committed or 0, log.newest + 1))
    missing = (number for number in newest if number not in checked and checked.before(number) is not None)
    return frozenset(number for number in missing if not _has_draft_of_checksum(log.listing, number))


def _has_draft_of_checksum(listing: LogListing, number: int) -> bool:
    """Whether a driver was killed when a plan had its name and its checksum had not: that still has its draft's."""
    return any(name.startswith(f"..{number}.") for name in listing.stale_checksums)


def make_mirrored_plan(plan: OffsetEntry) -> MirroredPlan:
    """What of a plan that the mirror has is held against that in the logs."""
    planned_ms = None if plan.metadata is None else plan.metadata.batch_timestamp_ms
    return MirroredPlan(planned_ms, {line.source_id: line.offset.to_text() for line in plan.sources})


def _list_unchecked(observed: Observation, number: int, entry: OffsetEntry) -> Iterator[EditedEnd]:
    before = observed.checkpoint.offsets.entries.get(number - 1)
    for line in entry.sources:
        least = before.source(line.source_id) if isinstance(before, OffsetEntry) else None
        yield EditedEnd(
            number,
            line.source_id,
            None if least is None else least.offset,
            leaves_out=True,
            repeats=True,
            is_known=False,
        )


def _compare(number: int, entry: OffsetEntry, written: MirroredPlan) -> Iterator[EditedEnd]:
    if entry.metadata is None or written.planned_ms != entry.metadata.batch_timestamp_ms:
        return
    for line in entry.sources:
        text = written.ends.get(line.source_id)
        end = line.offset if text is None else parse_source_offset(text)
        if end != line.offset and not isinstance(end, Damage):
            onward, back = _judge_step(end, line.offset)
            yield EditedEnd(number, line.source_id, end, onward, back)


def _judge_step(written: SourceOffset, now: SourceOffset) -> tuple[bool, bool]:
    """Whether an end may have gone on, and whether it may have gone back."""
    if isinstance(written, KafkaOffset) and isinstance(now, KafkaOffset):
        before, after = _list_ends(written), _list_ends(now)
        steps = [at - before[each] for each, at in after.items() if each in before]
        # Of a partition that is there in one of the two only nobody knows where it begins.
        is_open = before.keys() != after.keys()
        return is_open or any(step > 0 for step in steps), is_open or any(step < 0 for step in steps)
    step = compare_offsets(written, now)
    return step is not OffsetStep.BACK, step is not OffsetStep.ONWARD


def _list_ends(offset: KafkaOffset) -> dict[tuple[str, int], int]:
    return {(topic, part): at for topic, parts in offset.topics.items() for part, at in parts.items()}
