"""A rebuild in the session that calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Unpack

from lastgood import library
from lastgood.library import Evidence, Tell
from lastgood.planning.plan import Plan


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
