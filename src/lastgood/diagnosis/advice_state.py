"""Advice about state: its bounds, its size, its partitions. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.operators import OperatorMetadata
from lastgood.checkpoint.partitions import Spread, find_spread
from lastgood.checkpoint.state import StateOperator
from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.findings import Finding
from lastgood.diagnosis.pace import find_median
from lastgood.diagnosis.state_size import measure_partitions
from lastgood.query.observation import Observation

_MIB = 1024 * 1024
_GIB = 1024 * _MIB
_SKEW_BYTES = 64 * _MIB
_SKEW_RATIO = 5
_SKEW_PARTITIONS = 4
_HDFS_PARTITION_BYTES = 100 * _MIB
_HDFS_OPERATOR_BYTES = _GIB
_ROCKSDB_PARTITION_BYTES = _GIB
_TINY_BYTES = _MIB
_MANY_PARTITIONS = 50
_PARTITION_WANTED_BYTES = 64 * _MIB
_PARTITIONS_MIN = 8
_SETTLED_BATCHES = 10
"""A query that has committed fewer may still be filling its state."""
_BUSY_ROWS = 10_000
"""A task with so many rows in a batch is worth its cost, however little it keeps."""
_GROWTH_BATCHES = 20
_GROWING = ("stateStoreSave", "dedupe", "symmetricHashJoin", "sessionWindowStateStoreSaveExec")
"""Operators whose keys only a watermark removes."""
_WATERMARK_BATCHES = 3
_TWS = "transformWithState"
_TTL_MS = 86_400_000
_DEDUPE = "dedupe"


def advise_on_state(observed: Observation) -> Iterator[Finding]:
    """What could be better about the state of a query."""
    checkpoint = observed.checkpoint
    if checkpoint.state is None or checkpoint.last_committed is None:
        return
    sizes = measure_partitions(checkpoint)
    for operator in checkpoint.state.operators:
        yield from _advise_on_unbounded(observed, operator)
        yield from _advise_on_unexpired(observed, operator)
        found = sizes.get(operator.operator)
        if found:
            yield from _advise_on_hdfs_backed(observed, operator, found)
            yield from _advise_on_skewed(observed, operator, found)
            yield from _advise_on_partitions(observed, operator, found)


def _get_name(operator: StateOperator) -> str | None:
    return operator.metadata.operator_name if isinstance(operator.metadata, OperatorMetadata) else None


def _advise_on_unbounded(observed: Observation, operator: StateOperator) -> Iterator[Finding]:
    name = _get_name(operator)
    checkpoint = observed.checkpoint
    plans = [entry for entry in checkpoint.offsets.entries.values() if isinstance(entry, OffsetEntry)]
    commits = [entry for entry in checkpoint.commits.entries.values() if isinstance(entry, CommitEntry)]
    moved = any(plan.batch_watermark_ms for plan in plans)
    moved = moved or any(each.next_batch_watermark_ms for each in commits)
    if moved or len(commits) < _WATERMARK_BATCHES or (name is not None and name not in _GROWING):
        return
    if find_spread(name, operator.schema, [store.partition for store in operator.stores], None) is Spread.SINGLE:
        return  # without keys it keeps one row, or one number
    reading = [batch for batch in observed.advice.batches if batch.rows]
    recorded = [batch for batch in reading if batch.state_rows is not None]
    if recorded:
        first, last = (recorded[0].state_rows, recorded[-1].state_rows)
    else:
        first, last = (None, None)
    if len(recorded) >= _GROWTH_BATCHES and (last or 0) <= (first or 0):
        return  # its keys are a fixed set
    defined = any(batch.has_watermark for batch in observed.advice.batches)
    removed = "nothing ever removes a key from it"
    if name is None:  # Spark before 4.0 does not tell what an operator is
        removed += ", unless the application does (mapGroupsWithState)"
    why = "The watermark is defined, but has not moved" if defined else "Every batch ran without a watermark"
    evidence: dict[str, Json] = {
        "operator": operator.operator,
        "name": name,
        "batches": len(commits),
        "watermark_ms": 0,
    }
    if recorded:
        evidence |= {"state_rows_first": first, "state_rows_last": last, "recorded_batches": len(recorded)}
    yield Finding(
        told.UNBOUNDED,
        f"state/{operator.operator}",
        f"{why}: the state of operator {operator.operator} only grows, since {removed}.",
        evidence,
        '.withWatermark("EVENT_TIME", "1 hour")'
        + ('.dropDuplicatesWithinWatermark(["KEY"])' if name == _DEDUPE else ""),
    )


def _advise_on_unexpired(observed: Observation, operator: StateOperator) -> Iterator[Finding]:
    """Whether variables without a time to live were seen to grow without an end."""
    metadata, state = operator.metadata, observed.checkpoint.state
    if not isinstance(metadata, OperatorMetadata) or not metadata.operator_name.startswith(_TWS):
        return
    variables = metadata.properties.get("stateVariables")
    if isinstance(variables, list):
        told_of = [each for each in variables if isinstance(each, dict)]
    else:
        told_of = []
    if not told_of or any(each.get("ttlEnabled") is not False for each in told_of):
        return
    is_alone = state is not None and len(state.operators) == 1  # the records tell of all operators together
    reading = [batch for batch in observed.advice.batches if batch.rows]
    rows = [batch.state_rows for batch in reading if batch.state_rows is not None]
    if rows:
        first, last = (rows[0], rows[-1])
    else:
        first, last = (0, 0)
    still_grows = len(rows) >= _GROWTH_BATCHES and first < rows[len(rows) * 2 // 3] < last
    if not is_alone or not still_grows:
        return
    names = [str(each.get("stateName")) for each in told_of]
    yield Finding(
        told.NOT_EXPIRED,
        f"state/{operator.operator}",
        f"Over {len(rows)} recorded batches the state grew from {first:,} to {last:,} rows, and no variable has a time"
        f" to live ({', '.join(names)}): whatever the application does not clear itself stays for ever.",
        {
            "operator": operator.operator,
            "variables": names,
            "time_mode": metadata.properties.get("timeMode"),
            "state_rows_first": first,
            "state_rows_last": last,
            "recorded_batches": len(rows),
        },
        f"timeMode=ProcessingTime, ttlDurationMs={_TTL_MS}",
    )


def _advise_on_hdfs_backed(
    observed: Observation, operator: StateOperator, sizes: Mapping[int, int]
) -> Iterator[Finding]:
    total, largest = sum(sizes.values()), max(sizes.values())
    if not operator.is_hdfs_backed or (total < _HDFS_OPERATOR_BYTES and largest < _HDFS_PARTITION_BYTES):
        return
    yield Finding(
        told.HDFS_BACKED,
        f"state/{operator.operator}",
        f"{_format_size(total)} of state on disk are held in the executors' heap, several times as large and in two"
        " versions; a restart waits until all of it is loaded.",
        {"operator": operator.operator, "bytes": total, "largest_partition_bytes": largest, "partitions": len(sizes)},
        observed.command("inspect", "--state"),
    )


def _advise_on_skewed(observed: Observation, operator: StateOperator, sizes: Mapping[int, int]) -> Iterator[Finding]:
    partition, largest = max(sizes.items(), key=lambda item: item[1])
    middle = find_median(sizes.values())
    if len(sizes) < _SKEW_PARTITIONS or largest < _SKEW_BYTES or largest < _SKEW_RATIO * middle:
        return
    ratio = largest / max(middle, 1)
    yield Finding(
        told.SKEWED,
        f"state/{operator.operator}/{partition}",
        f"Partition {partition} holds {_format_size(largest)} of state, {ratio:.0f} times the median: its task decides"
        " how long a batch takes.",
        {"operator": operator.operator, "partition": partition, "bytes": largest, "median_bytes": round(middle)},
        observed.command("inspect", "--state"),
    )


def _advise_on_partitions(
    observed: Observation, operator: StateOperator, sizes: Mapping[int, int]
) -> Iterator[Finding]:
    count, total = len(sizes), sum(sizes.values())
    stores = len(operator.stores) // count
    mean = total // count
    wanted = max(1, math.ceil(total / _PARTITION_WANTED_BYTES))
    evidence: dict[str, Json] = {"operator": operator.operator, "partitions": count, "bytes": total, "mean_bytes": mean}
    subject = f"state/{operator.operator}"
    is_settled = (observed.checkpoint.last_committed or 0) + 1 >= _SETTLED_BATCHES
    busy = find_median(batch.rows or 0 for batch in observed.advice.batches) >= _BUSY_ROWS * count
    too_large = _HDFS_PARTITION_BYTES if operator.is_hdfs_backed else _ROCKSDB_PARTITION_BYTES
    if count >= _MANY_PARTITIONS and mean < _TINY_BYTES and is_settled and not busy:
        fewer = max(_PARTITIONS_MIN, wanted)
        yield Finding(
            told.TOO_MANY_PARTITIONS,
            subject,
            f"Every batch runs {count} tasks and writes {count * stores} files or more for {_format_size(total)} of"
            f" state, {_format_size(mean)} a partition.",
            evidence | {"files_per_batch": count * stores, "suggested": fewer},
            observed.command("inspect", "--state"),
        )
    elif mean >= too_large:
        yield Finding(
            told.TOO_FEW_PARTITIONS,
            subject,
            f"Each of {count} tasks loads, holds and writes {_format_size(mean)} of state.",
            evidence | {"suggested": wanted},
            observed.command("inspect", "--state"),
        )


def _format_size(count: int) -> str:
    for unit, size in (("GiB", _GIB), ("MiB", _MIB), ("KiB", 1024)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
