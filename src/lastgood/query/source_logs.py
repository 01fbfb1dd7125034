"""Whether the log of a file source goes as far as the plans that name its entries. Pure.

Spark takes the number of the newest entry for how far the source has come. Where the newest entries are lost, the next
files that it finds are noted down under numbers that count as read: no batch reads them, and nothing fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.logs import SourceLog
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset


def find_logs_behind(checkpoint: Checkpoint) -> Mapping[str, range]:
    """Per file source the entries up to where the newest plan ends that its log has lost at its end.

    Left out are sources that may go by the log of another one, of which nobody can tell.
    """
    planned = checkpoint.last_planned
    plan = None if planned is None else checkpoint.offsets.entries.get(planned)
    if not isinstance(plan, OffsetEntry) or checkpoint.mode is not Mode.MICRO_BATCH:
        return {}
    newest = {log.name: log.listing.newest_listed for log in checkpoint.sources}
    found = {}
    for line in plan.sources:
        if not isinstance(line.offset, FileOffset) or line.source_id in checkpoint.shared_logs:
            continue
        reached = newest.get(line.source_id)
        lost = range(0 if reached is None else reached + 1, line.offset.log_offset + 1)
        if lost:
            found[line.source_id] = lost
    return found


def is_whole(log: SourceLog) -> bool:
    """Whether every file that a source has noted down is known, from its newest compaction or first entry on."""
    first, newest = log.listing.compact.newest or 0, log.listing.ids.newest
    wanted = range(first, first if newest is None else newest + 1)
    return all(isinstance(log.entries.get(each), FileLogEntry) for each in wanted)
