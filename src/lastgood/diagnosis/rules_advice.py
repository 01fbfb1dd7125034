"""Advice: nothing is wrong, and something could be better. Given only where there is evidence for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.operators import OperatorMetadata
from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.checkpoint.state import StateOperator
from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.advice_kafka import advise_on_batches
from lastgood.diagnosis.advice_state import advise_on_state
from lastgood.diagnosis.advice_topics import advise_on_topics
from lastgood.diagnosis.findings import Condition, Finding
from lastgood.query.advice_facts import RecordedBatch, RecordedRun
from lastgood.query.observation import Observation
from lastgood.sinks.kinds import find_traits
from lastgood.storage.location import LocationInvalidError, resolve_location

CONDITIONS: tuple[Condition, ...] = told.CONDITIONS

RETAINED_DEFAULT = 100
"""Spark's `spark.sql.streaming.minBatchesToRetain`."""
_SHORT_LIVED = ("tmpfs", "ramfs", "overlay")


def find_advice(observed: Observation) -> Iterator[Finding]:
    """Everything that could be better, all of severity INFO."""
    yield from _check_place(observed)
    yield from _check_sharing(observed)
    yield from _check_retained(observed)
    yield from advise_on_state(observed)
    yield from advise_on_batches(observed)
    yield from advise_on_topics(observed)
    yield from _check_origin(observed)


def _check_place(observed: Observation) -> Iterator[Finding]:
    facts = observed.advice
    if facts.filesystem is not None:
        lost = "is gone with it" if facts.filesystem in _SHORT_LIVED else "is gone with its disk"
        yield Finding(
            told.ON_LOCAL_DISK,
            observed.location,
            f"A driver on another machine does not find this checkpoint and begins at batch 0; if this machine is lost,"
            f" the checkpoint {lost}.",
            {"filesystem": facts.filesystem},
            '.option("checkpointLocation", "s3a://BUCKET/FOLDER")',
        )
    if facts.table is not None:
        below = observed.checkpoint.location.removeprefix(facts.table.location).strip("/")
        is_hidden = below.startswith(("_", "."))
        cleaned = ", or cleans it up,"
        if is_hidden or not find_traits(facts.table.kind).is_swept:
            cleaned = ""
        yield Finding(
            told.IN_TABLE_FOLDER,
            observed.location,
            f"Whoever drops or replaces the table at {facts.table.location}{cleaned} removes this checkpoint too.",
            {"table": facts.table.location, "kind": facts.table.kind, "below": below, "hidden": is_hidden},
            '.option("checkpointLocation", "FOLDER BESIDE THE TABLE")',
        )


def _check_sharing(observed: Observation) -> Iterator[Finding]:
    facts = observed.advice
    evidence: dict[str, Json] = {}
    for run in facts.runs:
        other = next((each for each in facts.runs if _has_had_company(run, each)), None)
        if other is not None:
            evidence |= {"runs": [run.run_id, other.run_id], "conflict_ms": run.conflict_ms}
            break
    alternating = _find_alternating(facts.batches)
    if alternating is not None:
        before, between, after = alternating
        evidence |= {
            "runs": [before.run_id, between.run_id],
            "batches": [before.batch_id, between.batch_id, after.batch_id],
        }
    if len(facts.query_ids) > len(set(facts.query_ids)) + 1:  # one return may be a query id that was put back
        evidence["query_ids"] = list(facts.query_ids)
    if evidence:
        yield Finding(
            told.SHARED,
            observed.location,
            "Batches that one of them was running were run by the other as well: their rows may be in the sink twice.",
            evidence,
            observed.asked.make_run_command(observed.location),
        )


def _has_had_company(run: RecordedRun, other: RecordedRun) -> bool:
    """Whether `other` lived when Spark ended `run` for writing the same log."""
    if run.conflict_ms is None or run.run_id == other.run_id or run.query_id != other.query_id:
        return False
    return other.first_ms < run.conflict_ms and other.last_ms >= run.first_ms


def _find_alternating(batches: Iterable[RecordedBatch]) -> tuple[RecordedBatch, RecordedBatch, RecordedBatch] | None:
    """Three batches, later in number and in time, of which the first and the last are of one run and the other is not.

    By numbers alone it could be a query that was taken back, by times alone clocks that differ.
    """
    seen = [batch for batch in batches if batch.run_id is not None and batch.trigger_at_ms is not None]
    if len({batch.run_id for batch in seen}) < 2:
        return None
    seen.sort(key=lambda batch: (batch.trigger_at_ms or 0, batch.batch_id))
    first: dict[tuple[str | None, str | None], RecordedBatch] = {}
    for at, last in enumerate(seen):
        run = (last.query_id, last.run_id)
        before = first.setdefault(run, last)
        for between in seen[:at]:
            is_same_query = between.query_id == last.query_id and between.run_id != last.run_id
            if is_same_query and before.batch_id < between.batch_id < last.batch_id and _is_after(between, before):
                return before, between, last
    return None


def _is_after(batch: RecordedBatch, other: RecordedBatch) -> bool:
    return (batch.trigger_at_ms or 0) >= (other.trigger_at_ms or 0)


def _check_retained(observed: Observation) -> Iterator[Finding]:
    checkpoint = observed.checkpoint
    ids = checkpoint.offsets.ids
    retained = len(ids) - 1
    is_short = ids.oldest and not ids.gaps and 0 < retained < RETAINED_DEFAULT
    if checkpoint.mode is not Mode.MICRO_BATCH or not is_short or not _has_been_purged(observed):
        return
    depth = max(0, retained - 1)
    if not depth:
        batches = "no batch"
    elif depth == 1:
        batches = "1 batch"
    else:
        batches = f"{depth} batches"
    yield Finding(
        told.FEW_BATCHES,
        "offsets",
        f"The query can be taken back by {batches} at most, and --stable-lag reaches back {retained}.",
        {"retained": retained, "default": RETAINED_DEFAULT, "oldest": ids.oldest, "newest": ids.newest},
        f"--conf spark.sql.streaming.minBatchesToRetain={RETAINED_DEFAULT}",
    )


def _has_been_purged(observed: Observation) -> bool:
    """Whether there were older batches: a checkpoint that was seeded with a later one has few files, too."""
    checkpoint, facts = observed.checkpoint, observed.advice
    oldest, count = checkpoint.offsets.ids.oldest or 0, len(checkpoint.offsets.ids)
    newest = checkpoint.newest_offsets
    if newest and any(
        isinstance(line.offset, FileOffset) and line.offset.log_offset >= count for line in newest.sources
    ):
        return True
    operators = checkpoint.state.operators if checkpoint.state else ()
    stores = (store for operator in operators for store in operator.stores)
    if any((store.versions.oldest or oldest + 1) <= oldest for store in stores):
        return True
    made, first, last = facts.metadata_modified_ms, facts.oldest_plan_modified_ms, checkpoint.offsets.newest_modified_ms
    if made is None or first is None or last is None or count < 2:
        return False
    return first - made > max(1, (last - first) // (count - 1))


def _check_origin(observed: Observation) -> Iterator[Finding]:
    checkpoint = observed.checkpoint
    written = checkpoint.spark_versions
    wanted = observed.advice.spark
    entries = sorted(checkpoint.offsets.entries.items())
    versions = [
        (batch_id, entry.metadata.spark_versions)
        for batch_id, entry in entries
        if isinstance(entry, OffsetEntry) and entry.metadata and entry.metadata.spark_versions
    ]
    change = next((pair for pair in pairwise(versions) if pair[0][1] != pair[1][1]), None)
    is_other = written and wanted and not _is_within(wanted, written.at_least, written.below)
    if is_other or change:
        evidence: dict[str, Json] = {"written_by": str(written)}
        effect = "A restart with the older of the two may not read what the newer one wrote."
        if is_other:
            evidence["spark"] = wanted
            effect = f"Spark {wanted} goes on with what Spark {written} wrote; the way back may be closed afterwards."
        if change:
            evidence |= {"changed_at_batch": change[1][0], "written_before_by": str(change[0][1])}
        yield Finding(told.OTHER_SPARK, "offsets", effect, evidence, observed.command("backup create"))
    for operator in checkpoint.state.operators if checkpoint.state else ():
        yield from _check_schemas_elsewhere(observed, operator)


def _is_within(version: str, at_least: str, below: str | None) -> bool:
    number = _parse_numbers(version)
    return _parse_numbers(at_least) <= number and (below is None or number < _parse_numbers(below))


def _parse_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _check_schemas_elsewhere(observed: Observation, operator: StateOperator) -> Iterator[Finding]:
    stores = operator.metadata.stores if isinstance(operator.metadata, OperatorMetadata) else ()
    paths = sorted(path for store in stores for path in store.schema_paths)
    marker = f"/state/{operator.operator}/_stateSchema/"
    pointing = [path for path in paths if marker in path]
    roots = {path: path.partition(marker)[0] for path in pointing}
    elsewhere = [path for path, root in roots.items() if _is_elsewhere(root, observed)]
    if elsewhere:
        old = roots[elsewhere[0]]
        yield Finding(
            told.OTHER_ENVIRONMENT,
            operator.metadata_path or f"state/{operator.operator}",
            f"Spark reads the state's schema from {old}, and fails if it is not there.",
            {
                "operator": operator.operator,
                "written_at": old,
                "lies_at": observed.checkpoint.location,
                "files": len(elsewhere),
            },
            observed.command("inspect", "--state"),
        )


def _is_elsewhere(root: str, observed: Observation) -> bool:
    try:
        return resolve_location(root).identity != resolve_location(observed.checkpoint.location).identity
    except LocationInvalidError:
        return False
