"""How a state begins whose first batches have lost their plans: in one batch, which reads at once what they have read.

Batch by batch, as the silent checkpoint is furnished:

1. Beside it, a batch 0 without a row shows which stores the query keeps.
2. Each store is put down empty, at the version with which the gathering batch begins.
3. The gathering batch reads from the beginning, under watermark 0: every row enters the state, nothing is dropped.
4. The first batch whose plan is there runs as planned. Nothing is left for it to read, and its watermark evicts what
   had been closed by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from lastgood.checkpoint.commits import CommitEntry, StateUniqueIds, parse_commit_entry
from lastgood.checkpoint.empty_state import make_empty_archive
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset
from lastgood.checkpoint.state_files import StateFile, StateFileKind, parse_state_file_name
from lastgood.planning.goals.reposition import replace_lines
from lastgood.recovery.rebuilding import Muted, SilentCheckpoint
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.reading import Location

_FIRST = 1
"""The version that batch 0 makes."""


def gather(silent: SilentCheckpoint, muted: Muted, tell: Callable[[str], None]) -> None:
    """Make the state as it is after the first batch whose plan is there.

    Args:
        silent: Where; filled as `fill` does.
        muted: The application.
        tell: Is told, in a few words, what takes time.

    Raises:
        RebuildFailedError: the application did not run one of the batches.
        StorageError: something cannot be read or written (subclasses).
    """
    replay = silent.replay
    number = replay.begins
    plan = silent.read_plan(number + 1)
    if plan is None:
        raise silent.refuse(number + 1, "its plan cannot be read any more", "the plan by which it ran")
    begin = replace_lines(plan.with_watermark(0), replay.starts)
    tell("a batch without a row shows which stores the query keeps")
    ids = _put_empty_stores(silent, begin, muted)
    _put_log(silent.root, silent, OFFSETS, number - 1, begin.to_bytes())
    version = 1 if ids is None else 2
    commit = CommitEntry.of(version, next_batch_watermark_ms=0, state_unique_ids=ids)
    _put_log(silent.root, silent, COMMITS, number - 1, commit.to_bytes())
    tell(f"batch {number} reads at once what batches 0 to {number + 1} have read, without a sink")
    _put_log(silent.root, silent, OFFSETS, number, plan.with_watermark(0).to_bytes())
    muted.run(silent.below, number)
    _set_watermark(silent, number, plan.batch_watermark_ms)
    tell(f"batch {number + 1} drops from the state what had been closed by then")
    silent.put_plan(number + 1)
    muted.run(silent.below, number + 1)
    after = silent.read_plan(number + 2)
    if after is not None:
        _set_watermark(silent, number + 1, after.batch_watermark_ms)


def _put_empty_stores(silent: SilentCheckpoint, begin: OffsetEntry, muted: Muted) -> StateUniqueIds | None:
    """Each store of the query without a row; the ids by which a commit names them, in state checkpoint format v2."""
    root = silent.probe_root
    silent.copy(METADATA, root)
    for source_id, start in silent.replay.starts.items():
        _put_beginning(silent, root, source_id, start)
    _put_log(root, silent, OFFSETS, 0, begin.to_bytes())
    muted.run(silent.probe_below, 0)
    made = parse_commit_entry(silent.storage.read(root / f"{COMMITS}/0", limit=LOG_BYTES_MAX) or b"")
    ids = made.state_unique_ids if isinstance(made, CommitEntry) else None
    renamed = {each: str(uuid.uuid4()) for each in _list_ids(ids)}
    for entry in list(silent.storage.walk(root / STATE) or ()):
        folder, _, name = entry.name.rpartition("/")
        file = parse_state_file_name(name)
        if file is not None and file.version == _FIRST:
            _put_empty_store(silent, f"{STATE}/{folder}", name, file, renamed)
    silent.clear_probe()
    if ids is None:
        return None
    return {
        number: tuple(tuple(renamed[each] for each in stores) for stores in partitions)
        for number, partitions in ids.items()
    }


def _put_empty_store(
    silent: SilentCheckpoint, folder: str, name: str, file: StateFile, renamed: Mapping[str, str]
) -> None:
    """One store, as a snapshot: of RocksDB an archive without a file, else what batch 0 has made, which is the same."""
    if file.kind in (StateFileKind.DELTA, StateFileKind.SNAPSHOT):
        kind = StateFileKind.SNAPSHOT
        content = silent.storage.read(silent.probe_root / f"{folder}/{name}", limit=LOG_BYTES_MAX) or b""
    else:
        kind, content = StateFileKind.ZIP, make_empty_archive()
    unique_id = None if file.unique_id is None else renamed.get(file.unique_id)
    put = StateFile(silent.replay.begins, kind, unique_id)
    silent.storage.write(silent.root / f"{folder}/{put.name}", content)


def _list_ids(ids: StateUniqueIds | None) -> list[str]:
    partitions = [each for operator in (ids or {}).values() for each in operator]
    return [each for stores in partitions for each in stores]


def _put_beginning(silent: SilentCheckpoint, root: Location, source_id: str, start: SourceOffset) -> None:
    """What a source reads where batch 0 begins."""
    if isinstance(start, KafkaOffset):
        content = InitialOffset(start, has_nul=True).to_bytes()
        silent.storage.write(root / f"{SOURCES}/{source_id}/0", content)
        return
    for entry in silent.storage.walk(silent.query.location / f"{SOURCES}/{source_id}") or ():
        silent.copy(f"{SOURCES}/{source_id}/{entry.name}", root)


def _put_log(root: Location, silent: SilentCheckpoint, log: str, batch: int, content: bytes) -> None:
    silent.storage.write(root / f"{log}/{batch}", content)


def _set_watermark(silent: SilentCheckpoint, batch: int, watermark_ms: int) -> None:
    """Have the batch after one begin with the watermark that it is planned with."""
    made = silent.read_made(batch)
    if made is None:
        raise silent.refuse(batch, "it was not committed", "a commit")
    _put_log(silent.root, silent, COMMITS, batch, made.with_watermark(watermark_ms).to_bytes())
