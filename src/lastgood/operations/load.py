"""`load`: files into a table, chunk by chunk; the same command again goes on where the last one ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lastgood.frozen import dataclass
from lastgood.load.begun import read_begun
from lastgood.load.kept import read_counts
from lastgood.load.position import LoadPosition
from lastgood.load.specification import ParseMode
from lastgood.load.unpacking import unpack_files
from lastgood.observe.load_asked import LoadOptions
from lastgood.supervise.held_load import hold_load
from lastgood.supervise.load_driver import Follower, LoadProgress, LoadQuestion, run_load
from lastgood.values import JsonValue

RunLoad = Callable[[LoadQuestion, Callable[[Mapping[str, Any]], None], Callable[[str], None]], None]
"""As `run_load`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(JsonValue):
    """What `load` prints as JSON."""

    load: str
    """Its name, by which the same command finds it again."""
    table: str
    checkpoint: str
    files: tuple[str, ...]
    bytes: int
    rows: int
    """Rows of the load in the table."""
    corrupt: int
    """Records that are not what the schema says."""
    chunks: int
    resumed_at: int | None
    """At which byte this run went on; None if it began."""
    is_new: bool
    """Whether this run has loaded anything."""
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
            and those that come later, each once, by the same call.
        to: `delta:LOCATION` or `file:LOCATION`, a folder of Parquet files.
        options: How.
        tell: Is told of each chunk that is committed.
        say: Is told, in a few words, what takes time.
        run: Where Spark's part is done: in a Spark of its own, or in a session that is there.

    Raises:
        UsageError: a file, an option or the schema cannot be what was meant.
        LoadDiffersError: another load has begun on this checkpoint.
        InputChangedError: a file is not what it was when the load began.
        CheckpointHeldError: the same load goes on in another process.
        LoadFailedError: the Spark job ended with an error.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
        LastgoodError: Java, pyspark or JVM parts are not there (subclasses).
    """
    began = time.monotonic()
    wanted = options or LoadOptions()
    with hold_load(files, to, wanted) as held:
        storage, checkpoint, spec, begun = held.storage, held.checkpoint, held.spec, held.begun
        is_new = not begun.is_settled or begun.position != LoadPosition(*spec.end)
        if is_new or len(read_counts(storage, checkpoint, begun.chunks)) < len(begun.chunks):
            spec = unpack_files(spec, say)
            question = held.ask(spec, wanted)
            run(question, Follower(storage, checkpoint, spec, tell).take, say)
        counts = read_counts(storage, checkpoint, read_begun(storage, checkpoint).chunks)
    corrupt = sum(each.corrupt for each in counts.values())
    rows = sum(each.rows for each in counts.values())
    if spec.mode is ParseMode.DROPMALFORMED:
        rows -= corrupt
    return Loaded(
        load=held.name,
        table=spec.table,
        checkpoint=str(checkpoint),
        files=tuple(each.location for each in spec.files),
        bytes=spec.size,
        rows=rows,
        corrupt=corrupt,
        chunks=len(counts),
        resumed_at=begun.count_bytes(spec),
        is_new=is_new,
        seconds=round(time.monotonic() - began, 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCompared(JsonValue):
    """What `load --verify` prints as JSON: the rows of the files against those that the load has written."""

    load: str
    table: str
    checkpoint: str
    files: tuple[str, ...]
    version: int | None
    """Of the table; None where it has none."""
    records: int
    """Rows that Spark's reader makes of what is loaded of the files."""
    rows: int
    """Rows of the load in the table."""
    lost: int
    """Rows that are not there, or not as often."""
    surplus: int
    """Rows too many, or that no record has made."""
    lost_samples: tuple[str, ...]
    """A few of them, as JSON."""
    surplus_samples: tuple[str, ...]
    seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether each row is there once, with the same values."""
        return not self.lost and not self.surplus


def verify_load(
    files: Sequence[str],
    to: str,
    options: LoadOptions | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    run: RunLoad = run_load,
) -> LoadCompared:
    """Compare what a load has written with what its files say, row by row; writes nothing.

    Args:
        files: As for `load`; so are the others.
        to: The table.
        options: How it was loaded.
        say: Is told, in a few words, what takes time.
        run: Where Spark's part is done.

    Raises:
        LoadNotComparableError: nothing is loaded, a chunk is not committed, a file can no longer be read as it was, or
            the table does not tell which rows are those of the load.
        LastgoodError: as `load` (subclasses).
    """
    began = time.monotonic()
    wanted = options or LoadOptions()
    with hold_load(files, to, replace(wanted, evolves=False)) as held:
        own = held.find_own_rows()
        spec = unpack_files(held.spec, say)
        compared: dict[str, Any] = {}
        run(replace(held.ask(spec, wanted), own=own), lambda told: compared.update(told.get("compared", {})), say)
    return LoadCompared(
        load=held.name,
        table=spec.table,
        checkpoint=str(held.checkpoint),
        files=tuple(each.location for each in spec.files),
        version=own.version,
        records=compared["records"],
        rows=compared["rows"],
        lost=compared["lost"],
        surplus=compared["surplus"],
        lost_samples=tuple(compared["lost_samples"]),
        surplus_samples=tuple(compared["surplus_samples"]),
        seconds=round(time.monotonic() - began, 1),
    )
