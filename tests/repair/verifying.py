"""What `verify --data` says after a start, held against the count of the tests; it runs in a Spark that is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.sparks import RunningSpark

import lastgood.spark
from lastgood.audit.specification import make_audit_spec
from lastgood.errors import LastgoodError
from lastgood.planning.price import Guarantee
from lastgood.settings.target import resolve_target
from lastgood.spark.audit import Audit, Difference

_JOB = str(Path(lastgood.spark.__file__).with_name("audit_job.py"))

Place = tuple[int, int]
"""Partition and offset."""


def verified(spark: RunningSpark, checkpoint: Path, **options: Any) -> Audit | str:
    """The answer of the command, which it makes an exit code of; else the kind of the error with which it refuses.

    Args:
        spark: Whose driver knows `audit`.
        checkpoint: What it is asked about.
        options: Those of `make_audit_spec`.
    """
    try:
        spec = make_audit_spec(resolve_target(str(checkpoint)), **options)
    except LastgoodError as error:
        return error.condition
    answered = spark.ask({"do": "audit", "job": _JOB, "spec": spec.to_json()})
    return Audit.of(answered["result"], spec, seconds=0) if "result" in answered else str(answered["error"]["kind"])


def misjudged(audit: Audit, records: Mapping[Place, str], shown: Counter[str]) -> list[str]:
    """Where the verb counts other records than the tests, of all that it says it has compared; one line each.

    Args:
        audit: Its answer.
        records: Every record that the topic has ever had, and the key of its row; each record has another key.
        shown: How often the sink shows each key.
    """
    compared = {
        (each.partition, offset): records[each.partition, offset]
        for each in audit.ranges
        for offset in range(each.begin, each.end)
        if (each.partition, offset) in records
    }
    lost = {place for place, key in compared.items() if not shown[key]}
    twice = {place: shown[key] - 1 for place, key in compared.items() if shown[key] > 1}
    known = set(records.values())
    strangers = sum(times for key, times in shown.items() if key not in known)
    is_told = audit.unknown.total <= strangers <= audit.unknown.total + audit.rows_not_verifiable
    return [
        *_differing("lost", audit.lost, Counter(lost)),
        *_differing("duplicated", audit.duplicated, Counter(twice)),
        *([] if audit.changed.total == 0 else [f"verify: {audit.changed.total} changed"]),
        *([] if is_told else [f"verify: {audit.unknown.total} unknown, {audit.rows_not_verifiable} not verifiable"]),
    ]


def _differing(kind: str, found: Difference, wanted: Counter[Place]) -> Iterable[str]:
    if found.total != wanted.total():
        yield f"verify: {found.total} {kind}, and {wanted.total()} are"
    named = {(each.partition, offset) for each in found.partitions for span in each.ranges for offset in range(*span)}
    if not any(each.ranges_left_out for each in found.partitions) and named != set(wanted):
        yield f"verify: {kind} {sorted(named)[:6]}, and {sorted(wanted)[:6]} are"


def unpromised(audit: Audit, guarantee: Guarantee) -> Iterable[str]:
    """What the verb finds that the guarantee does not allow; one line each."""
    if guarantee is not Guarantee.LOSSY and audit.lost.total:
        yield f"{guarantee.value}, and verify counts {audit.lost.total} lost"
    if guarantee is Guarantee.EXACTLY_ONCE and audit.duplicated.total:
        yield f"exactly_once, and verify counts {audit.duplicated.total} duplicated"
