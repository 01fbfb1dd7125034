"""Loads, and chunks of files or tables, in the session that calls for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import platformdirs

from lastgood.cli.load_progress import show_load
from lastgood.errors import UsageError
from lastgood.ledger.url import is_ledger_url
from lastgood.load.specification import LoadFormat, ParseMode
from lastgood.load.unpacking import unpack_files
from lastgood.observe.load_options import LoadOptions
from lastgood.operations.load import Loaded
from lastgood.operations.load import load as load_files
from lastgood.spark.load_session import give_chunks, require_session, run_in_session
from lastgood.storage.reading import parse_location
from lastgood.supervise.held_load import hold_chunks
from lastgood.supervise.load_driver import (
    SPARKS_OF_DELTA_LOADS,
    SPARKS_OF_LOADS,
    LoadProgress,
    LoadQuestion,
    make_load_error,
)

if TYPE_CHECKING:
    from lastgood.spark.load_chunks import Chunk

_NAME = re.compile("[A-Za-z0-9_-]{1,60}")
_GOES_ON = "see the log of the driver; the same call goes on from there"


class LoadReading(TypedDict, total=False):
    """How files or a table are read; the same for `load` and `chunks`."""

    form: str | None
    """`csv`, `jsonl`, `text` or `parquet`, of a table `delta`, `parquet` or `jdbc`; None: as the names tell."""
    schema: str | None
    """DDL of the columns; None: as Spark finds them."""
    infer_schema: bool
    """Whether Spark finds out their types, for which it reads the files once."""
    options: Mapping[str, str]
    """Those of Spark's reader."""
    mode: str
    """`permissive`, `dropmalformed` or `failfast`."""
    quarantine: str | None
    """`delta:LOCATION` of records that are not what the schema says, which the table does not get then; None: as the
    mode says."""
    chunk_size: int | None
    """Bytes of a chunk."""
    order_by: str | None
    """The column by which a table is read, whose values only grow; None: files are read, or versions."""
    starting_version: int | None
    """The version of a Delta table from which on its versions are read, into a table; None: files are read, or by a
    column."""
    chunk_rows: int | None
    """About how many rows of a table a chunk has; None: a million."""
    checkpoint: str | None
    """Where the checkpoint lies; None: beside the table, of a job `jobs/NAME` in the user's data folder."""
    follow_growth: bool
    """Whether what was added to the last file since is read too."""
    reprocess: Iterable[str]
    """Files of a folder that are loaded once more where they were written again since they were read."""


def load(
    files: str | Sequence[str],
    to: str,
    *,
    evolve: bool = False,
    ledger: str | None = None,
    spark: Any = None,
    tell: Callable[[LoadProgress], None] | None = None,
    **reading: Unpack[LoadReading],
) -> Loaded:
    """As `lastgood load`, in a session that is there already: the same call goes on where one has ended.

    Example::

        lastgood.spark.load("orders.csv", "delta:/lake/orders", schema="id BIGINT", options={"header": "true"})

    Args:
        files: One or several, in the order in which they are read; or a folder; or, with `order_by`, a table.
        to: `delta:LOCATION`, for which the session has Delta, or `file:LOCATION`.
        evolve: Whether columns that came since are taken; in rows loaded before they are null.
        ledger: URL or path of a ledger that gets the offsets of the chunks, from time to time and at the end; None:
            that of `LASTGOOD_LEDGER`, if there is one.
        spark: A classic session; None: the active one.
        tell: Is told of each chunk that is committed; None: a line in a notebook, or a bar on a terminal, shows it.
        **reading: How they are read; see `LoadReading`.

    Raises:
        UsageError: a file, an option, the schema or the session cannot be what was meant.
        LoadDiffersError: another load has begun on this checkpoint.
        InputChangedError: a file or the table is not what it was when the load began.
        CheckpointHeldError: the same load goes on elsewhere.
        LoadFailedError: Spark ended with an error; what was loaded stays.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
        LedgerUrlError, ExtraMissingError: the ledger cannot be meant so, or not be opened; nothing was done.
        LedgerError, NoSpaceError: the ledger was not filled; everything is loaded.
    """
    is_into_delta = to.startswith(f"{LoadFormat.DELTA.value}:")
    versions = SPARKS_OF_DELTA_LOADS if is_into_delta else SPARKS_OF_LOADS
    session = require_session(spark, versions)
    cores = session.sparkContext.defaultParallelism
    wanted = replace(_make_options(**reading), evolves=evolve, ledger=ledger, cores=cores, is_in_session=True)

    def run(question: LoadQuestion, take: Callable[[Mapping[str, Any]], None], say: Callable[[str], None]) -> None:
        del say
        if question.uses_delta:
            require_session(session, SPARKS_OF_DELTA_LOADS)
        error = run_in_session(session, question.to_question(), take)
        if error is not None:
            raise make_load_error(error, _GOES_ON, question.spec.table)

    named = [files] if isinstance(files, str) else files
    if tell is not None:
        return load_files(named, to, wanted, tell=_make_chunk_teller(tell), run=run)
    with show_load() as (show, say):
        return load_files(named, to, wanted, tell=show, say=say, run=run)


def _make_chunk_teller(tell: Callable[[LoadProgress], None]) -> Callable[[LoadProgress], None]:
    """Tells of chunks alone, and not of where it begins."""

    def tell_chunk(progress: LoadProgress) -> None:
        if progress.chunks:
            tell(progress)

    return tell_chunk


def chunks(
    files: str | Sequence[str] | Any,
    *,
    name: str,
    ledger: str | None = None,
    spark: Any = None,
    **reading: Unpack[LoadReading],
) -> Iterator[Chunk]:
    """The records of files or of a table, chunk by chunk, for a program that writes them where Spark cannot.

    A chunk is done with when the next one is asked for: then it is committed, in the checkpoint of the job, and never
    handed again. One that the program has left before, by an error, `break` or `kill -9`, is handed again by the next
    call, with the same rows and the same `key`. So each row comes *at least once*, and at most one chunk comes again
    for each time that it ended. What the program writes is *exactly once* where it writes the rows of a chunk together
    with its key in one transaction, or to where a key that was there before changes nothing.

    Of a table or a DataFrame a chunk has the rows of a range of the ordered column. Whether up to the last value that
    was read there are as many rows as were read is seen before and after; else it is an error.

    Example::

        for chunk in lastgood.spark.chunks("orders.csv", name="orders-to-erp", schema="id BIGINT, amount DOUBLE"):
            erp.post(chunk.rows.toPandas(), idempotency_key=chunk.key)

    Args:
        files: As `load`; or a DataFrame that is not a stream, with `order_by`: the same one with each call.
        name: Of the job: the same name goes on. Letters, digits, `_` and `-`.
        ledger: Where the progress is recorded, to be asked with SQL, as `Recorder` takes it: `sqlite:`,
            `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`. One that does not answer does not stop the job.
        spark: A classic session; None: the active one.
        **reading: How they are read; see `LoadReading`. The rows of a chunk have to fit into the memory and the disks
            of Spark.

    Returns:
        An iterator; whoever keeps it and leaves it before its end calls its `close`.

    Raises:
        UsageError: a file, an option, the name, the schema or the session cannot be what was meant.
        LoadDiffersError: another job has begun on this checkpoint.
        InputChangedError: a file or the table is not what it was when the job began.
        CheckpointHeldError: the same job goes on elsewhere.
        LoadFailedError: Spark ended with an error.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
    """
    session = require_session(spark, SPARKS_OF_LOADS)
    if not _NAME.fullmatch(name):
        raise UsageError("the name is none for a job", found=name, expected="letters, digits, _ and -, 60 at most")
    if ledger is not None and not is_ledger_url(ledger):
        raise UsageError(
            "the ledger is not understood", found=ledger, expected="sqlite:, sqlite:///FILE, postgresql://…"
        )
    wanted = _make_options(**reading)
    if wanted.starting_version is not None or wanted.quarantine is not None:
        found = "starting_version" if wanted.quarantine is None else "quarantine"
        raise UsageError("chunks know no such option", found=found)
    checkpoint = wanted.checkpoint or str(platformdirs.user_data_path("lastgood") / "jobs" / name)
    cores = session.sparkContext.defaultParallelism
    wanted = replace(wanted, checkpoint=checkpoint, cores=cores, is_in_session=True)
    if isinstance(files, str | Sequence):
        return _take_chunks(session, [files] if isinstance(files, str) else files, name, wanted, ledger)
    if files.isStreaming:
        raise UsageError("a stream has no end, and its rows no order", found="a streaming DataFrame")
    if wanted.order_by is None:
        raise UsageError("a DataFrame is read by an ordered column, which is not named", expected="order_by=COLUMN")
    return _take_chunks(session, [], name, replace(wanted, frame=name), ledger, files)


def _make_options(
    *,
    form: str | None = None,
    schema: str | None = None,
    infer_schema: bool = False,
    options: Mapping[str, str] | None = None,
    mode: str = "permissive",
    quarantine: str | None = None,
    chunk_size: int | None = None,
    order_by: str | None = None,
    starting_version: int | None = None,
    chunk_rows: int | None = None,
    checkpoint: str | None = None,
    follow_growth: bool = False,
    reprocess: Iterable[str] = (),
) -> LoadOptions:
    return LoadOptions(
        form=form,
        schema=schema,
        infers=infer_schema,
        options=options or {},
        mode=_find_mode(mode),
        chunk=chunk_size,
        quarantine=quarantine,
        order_by=order_by,
        starting_version=starting_version,
        chunk_rows=chunk_rows,
        checkpoint=checkpoint,
        follows_growth=follow_growth,
        reprocessed=tuple(reprocess),
    )


def _take_chunks(
    session: Any,
    files: Sequence[str],
    name: str,
    wanted: LoadOptions,
    ledger: str | None,
    frame: Any = None,
) -> Iterator[Chunk]:
    assert wanted.checkpoint is not None  # it was chosen before
    with hold_chunks(files, name, parse_location(wanted.checkpoint), wanted) as held, _start_recorder(session, ledger):
        if held.is_whole:
            return
        question = held.ask(unpack_files(held.spec, lambda _: None), wanted)
        if question.uses_delta:
            require_session(session, SPARKS_OF_DELTA_LOADS)
        asked = question.to_question()
        handed = give_chunks(session, asked, name, lambda error: make_load_error(error, _GOES_ON), frame)
        with closing(handed):
            for chunk in handed:
                held.check()
                yield chunk


def _start_recorder(session: Any, ledger: str | None) -> AbstractContextManager[object]:
    """Record what the session does to a ledger, if there is to be one."""
    if ledger is None:
        return nullcontext()
    from lastgood.spark.recorder import Recorder  # noqa: PLC0415 - loaded only by whoever asks for it

    return Recorder(session, to=ledger)


def _find_mode(named: str) -> ParseMode:
    modes = [each.value for each in ParseMode]
    if named not in modes:
        raise UsageError("the mode is not known", found=named, expected=", ".join(modes))
    return ParseMode(named)
