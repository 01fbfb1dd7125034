"""`load`: files into a table, chunk by chunk; the same command again goes on where the last one ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lastgood.frozen import dataclass
from lastgood.load.begun import find_begun, read_begun
from lastgood.load.kept import read_counts, read_spec
from lastgood.load.position import LoadPosition
from lastgood.load.specification import LoadSpec, ParseMode, name_load
from lastgood.load.unpacking import unpack_files
from lastgood.observe.load_asked import LoadOptions, find_places, look_at_load
from lastgood.recovery.hold import HoldReason, hold_checkpoint, locate_lock_file
from lastgood.sinks.kinds import find_traits
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.supervise.load_driver import Follower, LoadProgress, LoadQuestion, run_load
from lastgood.values import JsonValue

RunLoad = Callable[[LoadQuestion, Callable[[Mapping[str, Any]], None], Callable[[str], None]], None]
"""As `run_load`."""
_CHUNK_LEAST = 64 * 1024 * 1024
_CHUNK_OF_A_CORE = 128 * 1024 * 1024
_CHUNKS_LEAST = 50


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
    locations, table = find_places(files, to, wanted)
    place = parse_location(table.partition(":")[2])
    name = name_load([str(each) for each in locations], table)
    checkpoint = (
        parse_location(wanted.checkpoint) if wanted.checkpoint else place.sibling(f"{WORK_SUFFIX}/loads/{name}")
    )
    asked = look_at_load(locations, table, wanted, read_spec(open_storage(checkpoint), checkpoint))
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), HoldReason.LOAD):
        storage = open_storage(checkpoint)
        again = [str(parse_location(each)) for each in wanted.reprocessed]
        spec, begun = find_begun(
            storage,
            checkpoint,
            asked,
            follows_growth=wanted.follows_growth,
            reprocessed=again,
            evolves=wanted.evolves,
        )
        is_new = not begun.is_settled or begun.position != LoadPosition(*spec.end)
        if is_new or len(read_counts(storage, checkpoint, begun.chunks)) < len(begun.chunks):
            spec = unpack_files(spec, say)
            chunk = wanted.chunk or _choose_chunk(spec.size)
            question = LoadQuestion(
                spec=spec,
                checkpoint=str(checkpoint),
                chunk=chunk,
                format=_find_format(spec),
                location=str(place),
                widening=find_traits(spec.table.partition(":")[0]).widening or {},
                evolves=wanted.evolves,
            )
            run(question, Follower(storage, checkpoint, spec, tell).take, say)
        counts = read_counts(storage, checkpoint, read_begun(storage, checkpoint).chunks)
    corrupt = sum(each.corrupt for each in counts.values())
    rows = sum(each.rows for each in counts.values())
    if spec.mode is ParseMode.DROPMALFORMED:
        rows -= corrupt
    return Loaded(
        load=name,
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


def _choose_chunk(size: int) -> int:
    """Large enough that a batch pays, and so that what is done twice after a failure is little of the whole."""
    return max(_CHUNK_LEAST, min(_CHUNK_OF_A_CORE * (os.cpu_count() or 1), size // _CHUNKS_LEAST))


def _find_format(spec: LoadSpec) -> str:
    """Of the table, as Spark names it."""
    reader = find_traits(spec.table.partition(":")[0]).reader
    assert reader is not None  # else it was refused
    return reader.format
