"""A load that is taken back, found by what it was made of, and held meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.frozen import dataclass
from lastgood.ids import make_id
from lastgood.journal.holding import HoldReason
from lastgood.journal.lease import Lease
from lastgood.load.kept import read_spec
from lastgood.load.specification import LoadDiffersError, LoadSpec, LoadUndoRefusedError
from lastgood.load.undone import Undoing, keep_undoing, read_undoing
from lastgood.observe.load_asked import find_quarantine
from lastgood.observe.load_location import locate_load, split_table
from lastgood.observe.load_options import LoadOptions
from lastgood.sinks.kind import TakenOut, Taking
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage, open_writable
from lastgood.supervise.load_hold import check_lease, hold_alone


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadToUndo:
    """A load that has begun, whatever its files are now, and that nobody else works on meanwhile."""

    name: str
    checkpoint: Location
    storage: WritableStorage
    """Of the checkpoint."""
    table: str
    quarantine: str | None
    """Where its corrupt records are; None: not apart."""
    undoing: Undoing
    lease: Lease | None = None
    """Where several machines reach its checkpoint; None: the lock holds it."""

    def check(self) -> None:
        """See that it is still held.

        Raises:
            CheckpointHeldError, StorageError: as `check_lease`.
        """
        if self.lease is not None:
            check_lease(self.lease, self.checkpoint)

    def take_out(self) -> TakenOut:
        """Take its rows out of its table, and its corrupt records out of theirs.

        Raises:
            LoadUndoRefusedError: that cannot be done, and why; the rows stay.
            StorageError: the storage does not answer (subclasses).
        """
        if self.quarantine is not None:
            self._take_out_of(self.quarantine)
        return self._take_out_of(self.table)

    def _take_out_of(self, table: str) -> TakenOut:
        undoing, (kind, place) = self.undoing, split_table(table)
        if undoing.query_id is None:
            return TakenOut(None, None)
        taking = Taking(
            query_id=undoing.query_id,
            checkpoint=str(self.checkpoint),
            recovery=undoing.id,
            at_ms=undoing.at_ms,
            may_write=undoing.may_write,
        )
        take_out = SINK_KINDS[kind].take_out
        assert take_out is not None  # else it is no table for a load
        self.check()
        found = take_out(open_writable(place), place, taking)
        if isinstance(found, str):
            raise LoadUndoRefusedError(
                "the rows of the load cannot be taken out of the table",
                subject=table,
                found=found,
                expected="a table in which nobody has touched them",
                effect="they stay where they are",
                next="take them out by hand; then the same command again",
            )
        return found


@contextmanager
def hold_load_to_undo(
    files: Sequence[str], to: str, wanted: LoadOptions, now_ms: int, say: Callable[[str], None] = lambda _: None
) -> Iterator[LoadToUndo]:
    """Find the load that was made of files, hold it, and note down that it is being taken back.

    Args:
        files: As they are named: files, or one folder.
        to: The table, as it is named.
        wanted: How they were loaded; only `checkpoint` and `quarantine` count.
        now_ms: The time.
        say: Is told where it waits.

    Raises:
        UsageError: a file or the table is not understood.
        LoadDiffersError: no such load has begun.
        CheckpointHeldError: somebody else works on it.
        StorageError: it cannot be read or written (subclasses).
    """
    located = locate_load(files, to, wanted)
    checkpoint, table = located.checkpoint, located.table
    quarantine = find_quarantine(table, wanted)
    with hold_alone(checkpoint, say, HoldReason.UNDO) as lease:
        storage = open_writable(checkpoint)
        undoing, spec = read_undoing(storage, checkpoint), read_spec(storage, checkpoint)
        if undoing is None or spec is not None:  # which is there until its rows are out
            _require_begun(spec, located.inputs, table, quarantine)
        if undoing is None:
            undoing = _begin_undoing(storage, checkpoint, table, now_ms, is_shared=lease is not None)
            keep_undoing(storage, checkpoint, undoing)
        elif undoing.table not in (None, table):
            raise _make_no_such_load_error("another one", located.inputs, table, quarantine)
        yield LoadToUndo(
            name=located.name,
            checkpoint=checkpoint,
            storage=storage,
            table=table,
            quarantine=quarantine,
            undoing=undoing,
            lease=lease,
        )


def _begin_undoing(storage: Storage, checkpoint: Location, table: str, now_ms: int, *, is_shared: bool) -> Undoing:
    """What is noted down before anything is taken back."""
    found = read_checkpoint(storage, checkpoint)
    query_id = may_write = None
    if isinstance(found.query, QueryMetadata):
        query_id = found.query.query_id
    if is_shared and found.last_planned is not None:
        may_write = found.last_planned + 1  # its driver may have asked whether it may plan that, and sleep since
    return Undoing(make_id(now_ms), now_ms, query_id, table, may_write)


def _require_begun(spec: LoadSpec | None, inputs: Sequence[str], table: str, quarantine: str | None) -> None:
    """See that a load of these files into this table has begun."""
    if spec is None or spec.list_inputs() != inputs or (spec.table, spec.quarantine) != (table, quarantine):
        raise _make_no_such_load_error("another one" if spec else "none", inputs, table, quarantine)


def _make_no_such_load_error(found: str, inputs: Sequence[str], table: str, quarantine: str | None) -> LoadDiffersError:
    apart = "" if quarantine is None else f", with --quarantine {quarantine}"
    return LoadDiffersError(
        "there is no such load",
        found=found,
        expected=f"one of {', '.join(inputs)} into {table}{apart}",
        effect="nothing was changed",
    )
