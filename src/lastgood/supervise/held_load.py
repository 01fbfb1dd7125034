"""A load, found again by what is asked for, and held while somebody works on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError, StorageError, UsageError
from lastgood.frozen import dataclass
from lastgood.journal.lease import Lease
from lastgood.load.begun import Begun, find_begun
from lastgood.load.input_files import is_as_it_was
from lastgood.load.kept import ChunkCount, read_counts, read_spec
from lastgood.load.others import find_other_load, make_other_load_error
from lastgood.load.position import LoadPosition
from lastgood.load.specification import (
    PROGRAM,
    LoadNotComparableError,
    LoadSpec,
)
from lastgood.observe.load_asked import find_inputs, look_at_load, require_answer
from lastgood.observe.load_location import locate_load, split_table
from lastgood.observe.load_options import LoadOptions
from lastgood.sinks.kind import OwnRows
from lastgood.sinks.kinds import SINK_KINDS, find_traits
from lastgood.storage.reading import Location, Storage, open_storage, parse_location
from lastgood.supervise.load_driver import LoadFailedError, LoadQuestion, LoadSink
from lastgood.supervise.load_hold import check_lease, hold_alone

CHUNK_LEAST = 128 * 1024 * 1024
"""Bytes; a smaller one costs more than it reads."""
CHUNK_OF_A_CORE = 256 * 1024 * 1024
"""Bytes, at most."""
CHUNKS_LEAST = 20
"""Into so many a large load is cut, or more."""
_HELD_OF_A_CORE = 128 * 1024 * 1024
"""Bytes, at most, of a chunk that is held for a program, or to be read several times."""
_ROWS_OF_A_CHUNK = 1_000_000
_BEFORE = "the same command without --verify, before"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoad:
    """A load that nobody else works on meanwhile."""

    name: str
    """By which the same command finds it again."""
    place: Location | None
    """Of the table; None: a program takes its chunks."""
    checkpoint: Location
    storage: Storage
    """Of the checkpoint."""
    spec: LoadSpec
    begun: Begun
    lease: Lease | None = None
    """By which other machines know that somebody works on it; None where only this one reaches it."""

    def check(self) -> None:
        """See that it is still held.

        Raises:
            CheckpointHeldError: another machine has taken it over, since nothing was heard of this one.
            StorageError: that cannot be told now (subclasses).
        """
        if self.lease is not None:
            check_lease(self.lease, self.checkpoint)

    @contextmanager
    def raise_if_overtaken(self) -> Iterator[None]:
        """Whoever was overtaken is told that, whatever the block has stumbled over; and of a storage what it means.

        Raises:
            CheckpointHeldError: as `check`.
        """
        try:
            yield
        except LastgoodError as error:
            with suppress(StorageError):
                self.check()
            if isinstance(error, StorageError):
                error.effect = error.effect or "what was loaded so far stays"
                error.next = error.next or "the same command goes on from there"
            raise

    def require_all_there(self) -> None:
        """See that tables of which storage and writers keep no two apart have each chunk that is committed once.

        Raises:
            LoadFailedError: one has not.
            StorageError: its log cannot be read (subclasses).
        """
        found = read_checkpoint(self.storage, self.checkpoint)
        if self.place is None or not isinstance(found.query, QueryMetadata) or found.last_committed is None:
            return
        written = range(found.last_committed + 1)
        self._require_there(self.spec.table, found.query.query_id, written)
        if self.spec.quarantine is not None:
            counts = read_counts(self.storage, self.checkpoint, written)
            corrupt = [batch for batch, count in counts.items() if count.corrupt]
            self._require_there(self.spec.quarantine, found.query.query_id, corrupt)

    def _require_there(self, table: str, query_id: str, batches: Collection[int]) -> None:
        kind, place = split_table(table)
        find = SINK_KINDS[kind].find_broken_batch
        if place.scheme == "file" or find is None or not batches:
            return
        broken = find(open_storage(place), place, query_id, batches)
        if broken is not None:
            raise LoadFailedError(
                "a chunk that was committed does not stand in the table once",
                subject=table,
                found=f"{broken}: somebody else may have written another version in its place",
                expected="one version for each chunk",
                effect="rows are lost, or there twice",
                next="--undo added to the same command takes the load back, to load it anew; if it cannot, by hand",
            )

    @property
    def kind(self) -> str:
        """Of the table, as of a sink."""
        return self.spec.table.partition(":")[0]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is loaded."""
        if self.spec.may_have_grown:
            return False
        return self.begun.is_settled and self.begun.position == LoadPosition(*self.spec.end)

    def ask(self, spec: LoadSpec, wanted: LoadOptions) -> LoadQuestion:
        """What the Spark job is asked.

        Args:
            spec: It, with what was found out of its files since.
            wanted: How it is loaded.
        """
        return LoadQuestion(
            spec=spec,
            checkpoint=str(self.checkpoint),
            chunk=spec.chunk or choose_chunk(spec, wanted),
            sink=_make_sink(self.spec.table),
            quarantine=_make_sink(self.spec.quarantine),
            evolves=wanted.evolves,
            lease=None if self.lease is None else self.lease.number,
            parsed=self._estimate_parsed(spec),
            jars=tuple(map(Path, wanted.jars)),
        )

    def _estimate_parsed(self, spec: LoadSpec) -> int | None:
        """Bytes of which Spark has to make rows: of those that are left the part that it was in the chunks before.

        Before the first chunk all of them; None of a table.
        """
        if spec.is_table:
            return None
        left = spec.size - (self.begun.count_bytes(spec) or 0)
        counts = read_counts(self.storage, self.checkpoint, self.begun.chunks).values()
        rows = sum(each.rows for each in counts)
        if not rows:
            return left
        return left * sum(map(_count_parsed, counts)) // rows

    def find_own_rows(self) -> OwnRows:
        """Its rows in the table, of all that is committed, to be compared with its files.

        Raises:
            LoadNotComparableError: they cannot be, and why.
            StorageError: the storage does not answer (subclasses).
        """
        query = read_checkpoint(self.storage, self.checkpoint).query
        if self.begun.position is None or not isinstance(query, QueryMetadata):
            raise LoadNotComparableError("nothing of it is loaded", _BEFORE)
        if not self.begun.is_settled:
            raise LoadNotComparableError("a chunk of it is not committed", _BEFORE)
        files = self.spec.files[: self.begun.position.file + 1]
        for file in files if not self.spec.is_table else ():
            location = parse_location(file.location)
            if not is_as_it_was(open_storage(location), location, file):
                found = f"{file.location} is gone, or no longer what was loaded"
                raise LoadNotComparableError(found, "the files as they were")
        find = SINK_KINDS[self.kind].find_own_rows
        assert find is not None and self.place is not None  # else it is no table for a load  # noqa: PT018
        own = find(open_storage(self.place), self.place, query.query_id, len(self.begun.chunks))
        if isinstance(own, str):
            raise LoadNotComparableError(own, "a table that tells which rows are those of the load")
        return own


def _count_parsed(count: ChunkCount) -> int:
    """Of how many records of a chunk Spark has made rows: of all, if nobody has counted them."""
    if count.parsed is None:
        return count.rows
    return count.parsed


def _make_sink(table: str | None) -> LoadSink | None:
    """None if there is no table, or a program takes the rows."""
    if table is None or table.startswith(f"{PROGRAM}:"):
        return None
    kind, place = split_table(table)
    traits = find_traits(kind)
    assert traits.reader is not None  # else it was refused
    return LoadSink(
        kind=kind,
        format=traits.reader.format,
        location=str(place),
        widening=traits.widening or {},
        marking=traits.marking,
    )


@contextmanager
def hold_load(
    files: Sequence[str], to: str, wanted: LoadOptions, say: Callable[[str], None] = lambda _: None
) -> Iterator[HeldLoad]:
    """Find the load that is asked for, and hold it.

    Args:
        files: As they are named: files, or one folder.
        to: The table, as it is named.
        wanted: How they are loaded.
        say: Is told where it waits.

    Raises:
        UsageError: a file or an option cannot be what was meant.
        LoadDiffersError: another load has begun on this checkpoint.
        InputChangedError: a file is not what it was when the load began.
        CheckpointHeldError: somebody else works on it.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
    """
    located = locate_load(files, to, wanted)
    require_answer(located.place)
    known = _read_known(located.checkpoint)
    asked = look_at_load(located.inputs, located.table, wanted, known)
    if asked.quarantine is not None:
        require_answer(split_table(asked.quarantine)[1])
    with _hold(located.name, located.place, located.checkpoint, asked, wanted, say) as held:
        _require_not_loaded(held, located.place, known)
        yield held


def _require_not_loaded(held: HeldLoad, place: Location, known: LoadSpec | None) -> None:
    """See that no file that the load does not know yet was loaded into the table by another one."""
    begun = () if known is None else known.files
    fresh = {each.location for each in held.spec.files} - {each.location for each in begun}
    found = find_other_load(held.storage, place, held.checkpoint, fresh)
    if found is not None:
        raise make_other_load_error(found)


@contextmanager
def hold_chunks(files: Sequence[str], name: str, checkpoint: Location, wanted: LoadOptions) -> Iterator[HeldLoad]:
    """As `hold_load`, of what a program takes chunk by chunk.

    Args:
        files: As for `hold_load`.
        name: Of the job.
        checkpoint: Of the job.
        wanted: How the files are read.
    """
    inputs = find_inputs(files, wanted)
    asked = look_at_load(inputs, f"{PROGRAM}:{name}", wanted, _read_known(checkpoint))
    with _hold(name, None, checkpoint, asked, wanted) as held:
        yield held


def _read_known(checkpoint: Location) -> LoadSpec | None:
    """The load as it has begun there, if it has."""
    return read_spec(open_storage(checkpoint), checkpoint)


@contextmanager
def _hold(
    name: str,
    place: Location | None,
    checkpoint: Location,
    asked: LoadSpec,
    wanted: LoadOptions,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[HeldLoad]:
    with hold_alone(checkpoint, say) as lease:
        storage = open_storage(checkpoint)
        spec, begun = find_begun(
            storage,
            checkpoint,
            asked,
            follows_growth=wanted.follows_growth,
            reprocessed=[str(parse_location(each)) for each in wanted.reprocessed],
            evolves=wanted.evolves,
        )
        if lease is not None:
            spec = _keep_chunk(spec, wanted)
        yield HeldLoad(
            name=name, place=place, checkpoint=checkpoint, storage=storage, spec=spec, begun=begun, lease=lease
        )


def _keep_chunk(spec: LoadSpec, wanted: LoadOptions) -> LoadSpec:
    """The load with the size of its chunks, which it keeps: so one who wakes up late plans what was planned since.

    Raises:
        UsageError: another size is asked for.
    """
    asked = wanted.chunk_rows if spec.order_by is not None else wanted.chunk
    if spec.chunk is not None and asked not in (None, spec.chunk):
        raise UsageError(
            "a load whose checkpoint lies on an object store keeps the size of its chunks",
            found=str(asked),
            expected=str(spec.chunk),
            effect="nothing was read or written",
        )
    return replace(spec, chunk=spec.chunk or choose_chunk(spec, wanted))


def choose_chunk(spec: LoadSpec, wanted: LoadOptions) -> int:
    """Bytes of a chunk, of a table rows: so many that a batch pays, and that little of the whole is done twice."""
    if spec.order_by is not None:
        return wanted.chunk_rows or _ROWS_OF_A_CHUNK
    if wanted.chunk is not None:
        return wanted.chunk
    is_held = spec.quarantine is not None or spec.table.startswith(f"{PROGRAM}:")
    cores = wanted.cores or os.cpu_count() or 1
    most = cores * (_HELD_OF_A_CORE if is_held else CHUNK_OF_A_CORE)
    if spec.starting_version is not None:
        return most
    return max(CHUNK_LEAST, min(most, spec.size // CHUNKS_LEAST))
