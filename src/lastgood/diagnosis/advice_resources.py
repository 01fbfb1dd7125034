"""Advice about a batch that memory or disk did not suffice for, and that reads very much at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.findings import Finding
from lastgood.diagnosis.pace import find_median
from lastgood.failures.classify import Failure
from lastgood.query.observation import Observation
from lastgood.sources.kafka.facts import resolve_offsets
from lastgood.sources.kafka.ranges import Offsets, count_offsets, find_planned_ranges

_RULES = ("out_of_memory", "killed_for_memory", "no_space", "result_too_large")
"""Of failures to which the size of a batch contributes."""
_FAR_LARGER = 10
_USUAL_MIN = 3
"""Batches, before anybody can say what is usual."""
_FILES_MIN = 10


def advise_on_resources(failure: Failure, observed: Observation) -> Iterator[Finding]:
    """Which limit would have made the batch smaller, where it reads far more than usual."""
    if failure.rule not in _RULES:
        return
    orphan = observed.checkpoint.orphan
    if orphan is not None and failure.batch_id not in (None, orphan):
        return  # another batch than the one that is to run
    yield from _advise_on_offsets(observed, orphan)
    if orphan is not None:
        yield from _advise_on_files(observed, orphan)


def _advise_on_offsets(observed: Observation, orphan: int | None) -> Iterator[Finding]:
    """Of Kafka: the batch that runs again, or what waits for the next one."""
    entries = {n: _get_topics(entry) for n, entry in observed.checkpoint.offsets.entries.items()}
    counts = {n: _count(entries[n - 1], ends) for n, ends in entries.items() if n - 1 in entries}
    committed = observed.checkpoint.last_committed
    usual = [count for n, count in counts.items() if committed is not None and n <= committed and count]
    if len(usual) < _USUAL_MIN or committed is None:
        return
    if orphan is not None:
        count, what = counts.get(orphan, 0), f"Batch {orphan} reads {counts.get(orphan, 0):,} offsets"
    else:
        if observed.kafka is None:
            count = 0
        else:
            count = _count(entries.get(committed, {}), _find_latest(observed, entries, committed))
        what = f"{count:,} offsets wait for the next batch"
    typical, largest = round(find_median(usual)), max(usual)
    if count < _FAR_LARGER * largest:
        return
    yield Finding(
        told.BEYOND_RESOURCES,
        "maxOffsetsPerTrigger",
        f"{what}, and a batch usually {typical:,}: memory or disk did not suffice.{_explain_planned(orphan)}",
        {"batch": orphan, "offsets": count, "median_before": typical, "largest_before": largest},
        f'.option("maxOffsetsPerTrigger", "{largest}")',
    )


def _advise_on_files(observed: Observation, orphan: int) -> Iterator[Finding]:
    for source_id, files in observed.files.items():
        if len(files) < _FILES_MIN:
            continue
        evidence: dict[str, Json] = {"batch": orphan, "source": source_id, "files": len(files)}
        yield Finding(
            told.BEYOND_RESOURCES,
            "maxFilesPerTrigger",
            f"Batch {orphan} reads {len(files):,} files at once, and memory or disk did not suffice."
            f"{_explain_planned(orphan)}",
            evidence,
            f'.option("maxFilesPerTrigger", "{len(files) // _FAR_LARGER}")',
        )


def _explain_planned(orphan: int | None) -> str:
    if orphan is None:
        return ""
    return " A limit counts from the next plan on: this one keeps its range until it is dropped (--goal replan)."


def _get_topics(entry: object) -> Mapping[str, Offsets]:
    return entry.topics if isinstance(entry, OffsetEntry) else {}


def _count(starts: Mapping[str, Offsets], ends: Mapping[str, Offsets]) -> int:
    """How many offsets lie between, over the sources that have both."""
    return sum(count_offsets(find_planned_ranges(starts[each], ends[each])) for each in starts.keys() & ends.keys())


def _find_latest(
    observed: Observation, entries: Mapping[int, Mapping[str, Offsets]], committed: int
) -> Mapping[str, Offsets]:
    if observed.kafka is None:
        return {}
    latest = observed.kafka.latest
    return {
        source: {topic: latest.get(topic, {}) for topic in resolve_offsets(offsets, observed.kafka)}
        for source, offsets in entries.get(committed, {}).items()
    }
