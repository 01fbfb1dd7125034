"""Whether a query has got beyond what it read before it was taken back last: else to go back again helps nobody.

Going back lets batches be committed that were committed before. Counted as progress, they would let a query that fails
at the same record for ever go back for ever, and write the same records once more each time.
"""

from __future__ import annotations

from collections.abc import Iterable

from lastgood.journal.room import RecoveryStage, Room, list_newest_first
from lastgood.observe.offsets import find_offsets_after
from lastgood.planning.plan import Plan
from lastgood.settings.target import Target
from lastgood.sources.kafka.ranges import Offsets, Ranges
from lastgood.storage.writing import open_writable

_GO_BACK = ("reposition", "fresh")


def has_passed(target: Target) -> bool:
    """Whether more is committed than had been read when the query was taken back last; True if it never was.

    Raises:
        PlanInvalidError: what a recovery has noted down cannot be read.
        SignatureMissingError, SignatureWrongError: there is a key, and it was not signed by one.
        SourceKindError, BatchUnknownError: no plan tells offsets of Kafka.
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = target.location
    storage = open_writable(checkpoint)
    for recovery in list_newest_first(storage, checkpoint):
        room = Room(checkpoint, recovery, storage, target.keys())
        if room.stage() is not RecoveryStage.CLOSED:
            continue
        again = _read_again(room.plan())
        if again:
            standing = find_offsets_after(target)
            return standing.is_committed and all(_is_beyond(standing.sources.values(), each) for each in again)
    return True


def _read_again(plan: Plan) -> list[Ranges]:
    """What the query was to read again, source by source, if the plan takes it back."""
    if plan.goal in _GO_BACK:
        return [source.reread for source in plan.sources if source.reread]
    return []


def _is_beyond(sources: Iterable[Offsets], again: Ranges) -> bool:
    """Whether some source has read all of this, and something that it had not read before."""
    ends = {(topic, each): spans[-1][1] for topic, parts in again.items() for each, spans in parts.items()}
    for offsets in sources:
        stands = {(topic, each): offsets.get(topic, {}).get(each, -1) for topic, each in ends}
        is_reached = all(stands[each] >= end for each, end in ends.items())
        if is_reached and any(stands[each] > end for each, end in ends.items()):
            return True
    return False
