"""`load`: files into a table, chunk by chunk; the same command again goes on where the last one ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastgood.errors import UsageError
from lastgood.load.begun import find_begun, read_begun
from lastgood.load.input_files import list_folder, look_at_file
from lastgood.load.kept import read_counts, read_spec
from lastgood.load.ranges import LoadPosition
from lastgood.load.specification import (
    InputFile,
    LoadFormat,
    LoadSpec,
    ParseMode,
    choose_form,
    name_load,
    require_known_options,
)
from lastgood.load.unpacking import unpack_files
from lastgood.recovery.hold import HoldReason, hold_checkpoint, locate_lock_file
from lastgood.sinks.kinds import SINK_KINDS, find_traits
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.supervise.load_driver import Follower, LoadProgress, LoadQuestion, run_load
from lastgood.values import JsonValue

RunLoad = Callable[[LoadQuestion, Callable[[Mapping[str, Any]], None], Callable[[str], None]], None]
"""As `run_load`."""
_CHUNK_LEAST = 64 * 1024 * 1024
_CHUNK_OF_A_CORE = 128 * 1024 * 1024
_CHUNKS_LEAST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How files are loaded."""

    form: str | None = None
    """`csv`, `jsonl` or `text`; None: as their names tell."""
    schema: str | None = None
    """DDL of the columns; None: as Spark finds them."""
    infers: bool = False
    """Whether Spark finds out their types, for which it reads the files once."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of Spark's reader."""
    mode: ParseMode = ParseMode.PERMISSIVE
    chunk: int | None = None
    """Bytes that one batch reads; None: so that there are enough chunks, of a size that pays."""
    checkpoint: str | None = None
    """Where the checkpoint lies; None: beside the table."""
    follows_growth: bool = False
    """Whether what was added to the last file since is read too."""


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
    locations, table = _find_places(files, to, wanted)
    place = parse_location(table.partition(":")[2])
    name = name_load([str(each) for each in locations], table)
    checkpoint = (
        parse_location(wanted.checkpoint) if wanted.checkpoint else place.sibling(f"{WORK_SUFFIX}/loads/{name}")
    )
    asked = _look(locations, table, wanted, read_spec(open_storage(checkpoint), checkpoint))
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), HoldReason.LOAD):
        storage = open_storage(checkpoint)
        spec, begun = find_begun(storage, checkpoint, asked, follows_growth=wanted.follows_growth)
        is_new = not begun.is_settled or begun.position != LoadPosition(*spec.end)
        if is_new or len(read_counts(storage, checkpoint, begun.chunks)) < len(begun.chunks):
            spec = unpack_files(spec, say)
            chunk = wanted.chunk or _choose_chunk(spec.size)
            question = LoadQuestion(spec, str(checkpoint), chunk, _find_format(spec), str(place))
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


def _find_places(files: Sequence[str], to: str, wanted: LoadOptions) -> tuple[list[Location], str]:
    """Where the files lie, and the table."""
    if not files:
        raise UsageError("no file is named", expected="FILE, one or several")
    kind, _, place = to.partition(":")
    if kind not in SINK_KINDS or find_traits(kind).reader is None or not place:
        raise UsageError("the table is not understood", found=to, expected="delta:LOCATION or file:LOCATION")
    locations = [parse_location(each) for each in files]
    twice = {str(each) for each in locations if locations.count(each) > 1}
    if twice:
        raise UsageError("a file is named twice", found=min(twice), expected="each file once")
    if wanted.schema is not None and wanted.infers:
        raise UsageError("two options contradict each other", found="--schema and --infer-schema", expected="one")
    for written in filter(None, (place, wanted.checkpoint)):
        _require_here(parse_location(written), "a load writes to a disk of this machine so far", "a path")
    return locations, f"{kind}:{parse_location(place)}"


def _look(locations: Sequence[Location], table: str, wanted: LoadOptions, begun: LoadSpec | None) -> LoadSpec:
    """The load that is asked for, with what its files are now."""
    far = [each for each in locations if each.scheme != "file"]
    if far and wanted.schema is None and choose_form(list(map(str, far)), wanted.form) is not LoadFormat.TEXT:
        _require_here(far[0], "Spark finds the columns of files of this machine only", "--schema DDL")
    inputs, folder = _list_inputs(locations, wanted)
    form = choose_form([str(each) for each in inputs], wanted.form)
    options = require_known_options(form, wanted.options)
    known = {each.location: each for each in begun.files} if begun is not None and folder is not None else {}
    return LoadSpec(
        table=table,
        form=form,
        schema=wanted.schema,
        infers=wanted.infers,
        options=options,
        mode=wanted.mode,
        files=tuple(_look_at(each, known.get(str(each)), form, options) for each in inputs),
        folder=None if folder is None else str(folder),
    )


def _list_inputs(locations: Sequence[Location], wanted: LoadOptions) -> tuple[list[Location], Location | None]:
    """The files, and the folder in which they lie if that was named."""
    listed = {each: list_folder(open_storage(each), each) for each in locations}
    folders = [each for each, files in listed.items() if files is not None]
    if not folders:
        return list(locations), None
    if len(locations) > 1:
        raise UsageError("a folder is loaded alone", found=str(folders[0]), expected="files, or one folder")
    if wanted.follows_growth:
        raise UsageError("two options contradict each other", found="--follow-growth and a folder", expected="one")
    return listed[folders[0]] or [], folders[0]


def _look_at(location: Location, before: InputFile | None, form: LoadFormat, options: Mapping[str, str]) -> InputFile:
    """What a file is now; who has the size and the time that he had is not read again."""
    storage = open_storage(location)
    if before is not None and before.modified_ms is not None:
        now = storage.stat(location)
        if now is not None and (now.size, now.modified_ms) == (before.size, before.modified_ms):
            return before
    return look_at_file(storage, location, form, options)


def _require_here(location: Location, sentence: str, expected: str) -> None:
    """See that Spark gets there with what this machine has installed."""
    if location.scheme != "file":
        raise UsageError(sentence, found=str(location), expected=expected)
