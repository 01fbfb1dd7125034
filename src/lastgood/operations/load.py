"""`load`: files into a table, chunk by chunk; the same command again goes on where the last one ended, or undoes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.ledger.opening import require_libraries
from lastgood.load.begun import Begun, read_begun
from lastgood.load.kept import read_counts
from lastgood.load.position import LoadPosition
from lastgood.load.specification import Arrival, LoadSpec
from lastgood.load.undone import put_aside
from lastgood.load.unpacking import unpack_files
from lastgood.observe.ledger import choose_ledger
from lastgood.observe.load_options import LoadOptions
from lastgood.supervise.held_load import hold_load
from lastgood.supervise.load_driver import Follower, LoadProgress, RunLoad, run_load
from lastgood.supervise.load_ledger import LoadLedger
from lastgood.supervise.load_undoing import hold_load_to_undo
from lastgood.values import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(JsonValue):
    """What `load` prints as JSON."""

    load: str
    """Its name, by which the same command finds it again."""
    table: str
    checkpoint: str
    files: tuple[str, ...]
    """Of a table its name alone."""
    bytes: int | None
    """None of a table."""
    rows: int
    """Rows of the load in the table."""
    corrupt: int
    """Records that are not what the schema says."""
    chunks: int
    resumed_at: int | None
    """At which byte this run went on, of a table behind how many rows or versions; None if it began."""
    is_new: bool
    """Whether this run has loaded anything."""
    late: tuple[str, ...]
    """Of a folder, the files of this run that came when files of later names had been read."""
    seconds: float


def load(
    files: Sequence[str],
    to: str,
    options: LoadOptions | None = None,
    *,
    tell: Callable[[LoadProgress], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    run: RunLoad = run_load,
) -> Loaded:
    """Load files into a table, each record once, however often it is called and killed.

    Args:
        files: Their locations, in the order in which they are read; or one folder, whose files are read by their names,
            and those that come later, each once, by the same call; or, with an ordered column, one table.
        to: `delta:LOCATION` or `file:LOCATION`, a folder of Parquet files.
        options: How.
        tell: Is told where it goes on from, and of each chunk that is committed.
        say: Is told, in a few words, what takes time.
        run: Where Spark's part is done: in a Spark of its own, or in a session that is there.

    Raises:
        UsageError: a file, an option or the schema cannot be what was meant.
        LoadDiffersError: another load has begun on this checkpoint.
        InputChangedError: a file is not what it was when the load began.
        TableTakenError: the table is that of another query as well, which it cannot be.
        CheckpointHeldError: the same load goes on in another process.
        LoadFailedError: the Spark job ended with an error.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
        LedgerUrlError, ExtraMissingError: the ledger cannot be meant so, or not be opened; nothing was done.
        LedgerError, NoSpaceError: the ledger was not filled; everything is loaded.
        LastgoodError: Java, pyspark or JVM parts are not there (subclasses).
    """
    began = time.monotonic()
    wanted = options or LoadOptions()
    place = choose_ledger(wanted.ledger, None, os.environ)
    if place is not None:
        require_libraries(place)
    with hold_load(files, to, wanted, say) as held:
        storage, checkpoint, spec, begun = held.storage, held.checkpoint, held.spec, held.begun
        ledger = None if place is None else LoadLedger(place, checkpoint)
        is_new = not held.is_whole
        if is_new or len(read_counts(storage, checkpoint, begun.chunks)) < len(begun.chunks):
            spec = unpack_files(spec, say)
            question = held.ask(spec, wanted)
            heard = [tell] if ledger is None else [tell, ledger.fill_now_and_then]
            with held.raise_if_overtaken():
                follower = Follower(storage, checkpoint, spec, heard, held.check, begun.count_bytes(spec) or 0)
                run(question, follower.take, say)
        held.require_all_there()
        counts = read_counts(storage, checkpoint, read_begun(storage, checkpoint).chunks)
        if spec.is_table:
            new = counts.keys() - set(begun.chunks)
            is_new = sum(counts[batch].rows for batch in new) > 0
        if ledger is not None:
            _fill(ledger)
    corrupt = sum(each.corrupt for each in counts.values())
    rows = sum(each.rows for each in counts.values())
    if spec.drops_corrupt:
        rows -= corrupt
    return Loaded(
        load=held.name,
        table=spec.table,
        checkpoint=str(checkpoint),
        files=tuple(each.location for each in spec.files),
        bytes=None if spec.is_table else spec.size,
        rows=rows,
        corrupt=corrupt,
        chunks=len(counts),
        resumed_at=begun.count_bytes(spec),
        is_new=is_new,
        late=_list_late(spec, begun),
        seconds=round(time.monotonic() - began, 1),
    )


def _list_late(spec: LoadSpec, begun: Begun) -> tuple[str, ...]:
    """The files that came late of those that were not read whole when this run began."""
    at = begun.position or LoadPosition(0, 0)
    found = []
    for number, (file, arrival) in enumerate(zip(spec.files, spec.list_arrivals(), strict=True)):
        is_fresh = LoadPosition(number, file.length) > at
        if is_fresh and arrival is Arrival.LATE:
            found.append(file.location)
    return tuple(found)


def _fill(ledger: LoadLedger) -> None:
    try:
        ledger.fill()
    except LastgoodError as error:
        error.effect = "the ledger was not filled; everything is loaded"
        error.next = error.next or "the same command, which does no more than to fill it"
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadUndone(JsonValue):
    """What `load --undo` prints as JSON."""

    load: str
    table: str
    version: int | None
    """The version of the table that took its rows out; None if it has no versions, or had no rows of the load."""
    rows_kept: str | None
    """Where the rows lie now; None if that is in the history of the table."""
    kept: str
    """Where its checkpoint lies now, with what was noted of it."""


def undo_load(
    files: Sequence[str],
    to: str,
    options: LoadOptions | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> LoadUndone:
    """Take all rows of a load out of its table, and what was noted of it to another place; nothing is deleted.

    Killed at any time, it goes on when it is called again, and until it has ended no load begins there. What the files
    are now does not count.

    Args:
        files: As for `load`.
        to: The table.
        options: How they were loaded; only `checkpoint` and `quarantine` count.
        say: Is told, in a few words, what takes time.
        now_ms: Tells the time.

    Raises:
        UsageError: a file or the table is not understood.
        LoadDiffersError: no such load has begun.
        LoadUndoRefusedError: the table does not allow it: somebody has touched its rows.
        CheckpointHeldError: the load goes on in another process.
        StorageError: it cannot be read or written (subclasses).
    """
    with hold_load_to_undo(files, to, options or LoadOptions(), now_ms(), say) as held:
        say("taking its rows out of the table")
        taken = held.take_out()
        say("moving its checkpoint aside")
        kept = put_aside(held.storage, held.checkpoint, held.undoing, held.check)
    return LoadUndone(load=held.name, table=held.table, version=taken.version, rows_kept=taken.kept, kept=str(kept))
