"""Copies of a checkpoint's files as they once stood, and which of them count. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.layout import COMMITS, OFFSETS, parse_batch
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Copy:
    """One file of a checkpoint as it once stood."""

    query_id: str | None
    """The id in the checkpoint's `metadata` at that time; None if there was none that could be read."""
    path: str
    """Below the checkpoint, such as `offsets/7`."""
    seen_ms: int
    """When it was copied, milliseconds since 1970."""
    modified_ms: int | None
    """When the storage says that it was written; None if it does not say."""
    content: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content)

    @property
    def is_empty(self) -> bool:
        """Whether the file was empty."""
        return not self.content


def select_standing(copies: Iterable[Copy]) -> dict[str, Copy]:
    """Of each file of one query the version that counts, by its path: the newest, or the newest that is not damaged.

    Where Spark planned a batch anew, it had been taken back: what was planned after it, and committed from it on, no
    longer counts.
    """
    current: dict[str, Copy] = {}
    for copy in sorted(copies, key=attrgetter("seen_ms")):
        older = current.get(copy.path)
        if copy.is_empty and parse_batch(copy.path, OFFSETS) is not None:
            continue  # a seal, or what a crash left: never the plan of a batch
        if older is not None:
            if not _is_whole(copy):
                continue
            if 0 < _parse_planned_ms(older) < _parse_planned_ms(copy):
                _forget(current, int(copy.path.rpartition("/")[2]), seen_before_ms=copy.seen_ms)
        current[copy.path] = copy
    return current


def _parse_planned_ms(copy: Copy) -> int:
    """Processing time of an entry of the offset log, which an edit keeps and a new plan does not; 0 of other files."""
    entry = parse_offset_entry(copy.content) if parse_batch(copy.path, OFFSETS) is not None else None
    if isinstance(entry, OffsetEntry) and entry.metadata:
        return entry.metadata.batch_timestamp_ms
    return 0


def _is_whole(copy: Copy) -> bool:
    if parse_batch(copy.path, OFFSETS) is not None:
        return isinstance(parse_offset_entry(copy.content), OffsetEntry)
    if parse_batch(copy.path, COMMITS) is not None:
        return isinstance(parse_commit_entry(copy.content), CommitEntry)
    return bool(copy.content)


def _forget(current: dict[str, Copy], batch_id: int, *, seen_before_ms: int) -> None:
    for path, copy in list(current.items()):
        planned, committed = parse_batch(path, OFFSETS), parse_batch(path, COMMITS)
        is_later = planned is not None and planned > batch_id
        if (is_later or (committed is not None and committed >= batch_id)) and copy.seen_ms < seen_before_ms:
            del current[path]
