"""What is done in a session that is there already, such as that of a notebook; `lastgood.spark` hands it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from lastgood import library
from lastgood.errors import UsageError
from lastgood.library import Evidence, Tell
from lastgood.load.specification import ParseMode
from lastgood.observe.load_asked import LoadOptions
from lastgood.operations.load import Loaded
from lastgood.operations.load import load as load_files
from lastgood.planning.plan import Plan
from lastgood.spark.load_session import require_session, run_in_session
from lastgood.supervise.load_driver import SPARK_OF_LOADS, LoadProgress, LoadQuestion, make_load_error


def rebuild(
    start: Callable[[], object],
    target: str,
    *,
    accept: Iterable[str] = (),
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    max_replay: int | None = None,
    new_code: bool = False,
    config: Path | None = None,
    tell: Tell = lambda _: None,
    **evidence: Unpack[Evidence],
) -> Plan:
    """As `lastgood.rebuild`, in the process that calls it, such as a notebook: without a command or a second driver.

    Meanwhile what this thread starts as a query is not started; a query of this checkpoint must not run. The plan is
    carried out by `apply`, then the query can be started.

    Args:
        start: Builds the query and starts it, as the application always does; it is called once.
        target: Location, or name in `lastgood.toml`.
        accept: As `rebuild`.
        spark: As `rebuild`.
        fail_on_data_loss: As `rebuild`.
        max_replay: As `rebuild`.
        new_code: As `rebuild`.
        config: As `rebuild`.
        tell: As `rebuild`.
        **evidence: As `rebuild`.

    Raises:
        UsageError: the query runs, or its code does not go with the checkpoint, or its session is one of Spark Connect.
        LastgoodError: as `rebuild`.
    """
    return library.rebuild(
        target,
        start,
        accept=accept,
        spark=spark,
        fail_on_data_loss=fail_on_data_loss,
        max_replay=max_replay,
        new_code=new_code,
        config=config,
        tell=tell,
        **evidence,
    )


def load(
    files: str | Sequence[str],
    to: str,
    *,
    form: str | None = None,
    schema: str | None = None,
    infer_schema: bool = False,
    options: Mapping[str, str] | None = None,
    mode: str = "permissive",
    chunk_size: int | None = None,
    checkpoint: str | None = None,
    follow_growth: bool = False,
    reprocess: Iterable[str] = (),
    evolve: bool = False,
    spark: Any = None,
    tell: Callable[[LoadProgress], None] = lambda _: None,
) -> Loaded:
    """As `lastgood load`, in a session that is there already: the same call goes on where one has ended.

    Example::

        lastgood.spark.load("orders.csv", "delta:/lake/orders", schema="id BIGINT", options={"header": "true"})

    Args:
        files: One or several, in the order in which they are read.
        to: `delta:LOCATION`, for which the session has Delta, or `file:LOCATION`.
        form: `csv`, `jsonl` or `text`; None: as the names tell.
        schema: DDL of the columns; None: as Spark finds them.
        infer_schema: Whether Spark finds out their types, for which it reads the files once.
        options: Those of Spark's reader.
        mode: `permissive`, `dropmalformed` or `failfast`.
        chunk_size: Bytes that one batch reads.
        checkpoint: Where the checkpoint lies; None: beside the table.
        follow_growth: Whether what was added to the last file since is read too.
        reprocess: Files of a folder that are loaded once more where they were written again since they were read.
        evolve: Whether columns that came since are taken; in rows loaded before they are null.
        spark: A classic session; None: the active one.
        tell: Is told of each chunk that is committed.

    Raises:
        UsageError: a file, an option, the schema or the session cannot be what was meant.
        LoadDiffersError: another load has begun on this checkpoint.
        InputChangedError: a file is not what it was when the load began.
        CheckpointHeldError: the same load goes on elsewhere.
        LoadFailedError: Spark ended with an error; what was loaded stays.
        StorageError: a file cannot be read, or the checkpoint not written (subclasses).
    """
    session = require_session(spark, SPARK_OF_LOADS)
    modes = [each.value for each in ParseMode]
    if mode not in modes:
        raise UsageError("the mode is not known", found=mode, expected=", ".join(modes))
    wanted = LoadOptions(
        form=form,
        schema=schema,
        infers=infer_schema,
        options=options or {},
        mode=ParseMode(mode),
        chunk=chunk_size,
        checkpoint=checkpoint,
        follows_growth=follow_growth,
        reprocessed=tuple(reprocess),
        evolves=evolve,
    )

    def run(question: LoadQuestion, take: Callable[[Mapping[str, Any]], None], say: Callable[[str], None]) -> None:
        del say
        error = run_in_session(session, question.to_question(), take)
        if error is not None:
            raise make_load_error(error, "see the log of the driver; the same call goes on from there")

    return load_files([files] if isinstance(files, str) else files, to, wanted, tell=tell, run=run)
