"""What a query holds as state, as a DataFrame of Spark's own reader of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.logs import name_batches
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError, Retry, UsageError, format_command_line
from lastgood.query.sinks import NONE
from lastgood.settings.target import Target, resolve_target
from lastgood.storage.reading import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIDES = ("left", "right")
_FORMAT = "statestore"
_READS_STATES = 4
"""Spark 4.0 and later has a reader of states."""


class StateUnreadableError(LastgoodError):
    """The state of a query cannot be read as of the batch that was asked for."""

    condition = "STATE_UNREADABLE"
    exit_code = 89
    retry = Retry.AFTER_CHANGE


def state(
    checkpoint: str,
    batch: int | None = None,
    *,
    operator: int = 0,
    store: str | None = None,
    side: str | None = None,
    spark: Any = None,
) -> DataFrame:
    """What a query held as state after a batch: columns `key`, `value` and `partition_id`, as Spark reads them.

    Example::

        lastgood.spark.state("s3a://lake/chk/orders").select("key.*", "value.*").show()

    Args:
        checkpoint: Location of the checkpoint, or a name of `lastgood.toml`.
        batch: After which batch; None: the newest one that is committed and can be loaded.
        operator: Which stateful operator, by the number of its folder.
        store: Which of its stores, where it has several.
        side: `left` or `right`: of a join, the rows of which side.
        spark: A session, classic or of Spark Connect; None: the active one.

    Raises:
        StateUnreadableError: there is no state, no such operator, or it cannot be loaded as of that batch.
        UsageError: no session; a Spark before 4.0, which cannot read states; a side that is none.
        LocationInvalidError, ExtraMissingError, StorageError: the checkpoint cannot be read.
    """
    target = resolve_target(checkpoint)
    location = target.location
    session = _require_session(spark)
    if side is not None and side not in SIDES:
        raise UsageError("a join has two sides", found=repr(side), expected=" or ".join(SIDES))
    found = read_checkpoint(open_storage(location), location)
    options: dict[str, Any] = {"batchId": _choose_batch(target, found, batch), "operatorId": operator}
    _require_operator(target, found, operator)
    told = {"storeName": store, "joinSide": side}
    options |= {name: value for name, value in told.items() if value is not None}
    frame: DataFrame = session.read.format(_FORMAT).options(**options).load(str(location))
    return frame


def _require_session(spark: Any) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded only by whoever asks for a frame

    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise UsageError("there is no Spark session", expected="an active one, or spark=SESSION")
    if int(session.version.partition(".")[0]) < _READS_STATES:
        found, expected = f"Spark {session.version}", "Spark 4.0 or later"
        raise UsageError("this Spark cannot read states", found=found, expected=expected)
    return session


def _choose_batch(target: Target, found: Checkpoint, batch: int | None) -> int:
    if found.state is None:
        raise _refuse(target, "the query has no state", "no folder state")
    committed = NONE if found.last_committed is None else found.last_committed
    batches = [version - 1 for version in found.state.loadable if 0 < version <= committed + 1]
    if not batches:
        raise _refuse(target, "the state cannot be loaded", "no batch as of which it can be loaded, and is committed")
    if batch is None:
        return max(batches)
    if batch not in batches:
        sentence = f"the state cannot be loaded as of batch {batch}"
        raise _refuse(target, sentence, f"it can, as of {name_batches(batches)}")
    return batch


def _require_operator(target: Target, found: Checkpoint, operator: int) -> None:
    operators = () if found.state is None else found.state.operators
    if operator not in {each.operator for each in operators}:
        known = ", ".join(f"{each.operator}: {each.name or 'unknown'}" for each in operators)
        raise _refuse(target, f"there is no stateful operator {operator}", f"operators {known}")


def _refuse(target: Target, sentence: str, found: str) -> StateUnreadableError:
    return StateUnreadableError(
        sentence,
        subject=str(target.location),
        found=found,
        next=format_command_line("inspect", target.typed, "--state"),
    )
