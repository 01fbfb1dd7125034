"""Advice about what a query died of: which limit was met, and which option raises it. Pure.

Names and defaults of options are those of Spark 3.5 to 4.2 and of the Kafka client that goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lastgood.diagnosis import advice_conditions as told
from lastgood.diagnosis.advice_resources import advise_on_resources
from lastgood.diagnosis.findings import Finding
from lastgood.failures.classify import Failure
from lastgood.failures.failure_class import FailureClass
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation

_TASK_FAILED = re.compile(
    r"Task \d+ in stage [\d.]+ failed (?P<times>\d{1,6}) times, most recent failure: Lost task [\d.]+ in stage [\d.]+"
    r" \(TID \d+\) \(\S+ executor (?P<executor>[\w-]+)\)"
)
_MAX_FAILURES_DEFAULT = 4
"""`spark.task.maxFailures`."""
_SHUFFLE_LOST = re.compile(r"FetchFailed\w*|Missing an output location for shuffle \d+")
_NOT_TRACKED = re.compile(r"Dynamic allocation of executors requires (?:one of the following|the external shuffle)")


@dataclass(frozen=True, slots=True)
class _Timeout:
    """Words of a client that has waited long enough, and the option of Spark's that says how long that is."""

    text: re.Pattern[str]
    option: str
    default_ms: int
    who: str
    """Who waited, for what."""


_TIMEOUTS = (
    _Timeout(
        re.compile(r"Cannot fetch record for offset \d+ in (?P<ms>\d{1,12}) milliseconds"),
        "kafkaConsumer.pollTimeoutMs",
        120_000,
        "a task waited for the next record",
    ),
    _Timeout(
        re.compile(r"Timeout of (?P<ms>\d{1,12})ms expired before"),
        "kafka.default.api.timeout.ms",
        60_000,
        "a consumer waited for an answer",
    ),
    _Timeout(
        re.compile(r"Failed to get offsets by times in (?P<ms>\d{1,12})ms"),
        "kafka.default.api.timeout.ms",
        60_000,
        "a consumer waited for the offsets of a time",
    ),
    _Timeout(
        re.compile(r"Expiring \d+ record\(s\) for \S+?:\s?(?P<ms>\d{1,12}) ms has passed since"),
        "kafka.delivery.timeout.ms",
        120_000,
        "the sink waited until a broker took its records",
    ),
    _Timeout(
        re.compile(r"Topic (?P<topic>\S+) not present in metadata after (?P<ms>\d{1,12}) ms"),
        "kafka.max.block.ms",
        60_000,
        "the sink waited to hear of its topic, which has to exist",
    ),
)
_OFFSETS_NOT_TOLD = re.compile(
    r"Timed out waiting for a node assignment\. Call: \w+|Call\(callName=\w+, [^)]{0,200}\) timed out"
)
"""Of Kafka's admin client, which Spark asks for topics and offsets."""


def advise_on_failures(
    failures: Sequence[Failure], query_id: str | None, observed: Observation, *, removed_idle: int = 0
) -> Iterator[Finding]:
    """What would have let a query live, as far as a failure names the limit that it met.

    Args:
        failures: What a log tells.
        query_id: Of the query that is looked at; failures of others are left out. None: nobody knows it.
        observed: What else was found.
        removed_idle: How often the log tells of executors that were taken away because they had nothing to do.
    """
    said: set[tuple[str, str]] = set()
    for failure in failures:
        if query_id is not None and failure.query_id not in (None, query_id):
            continue
        for finding in _advise_on(failure, observed, removed_idle):
            key = (finding.condition.name, finding.next or "")
            if key not in said:
                said.add(key)
                yield finding


def _advise_on(failure: Failure, observed: Observation, removed_idle: int) -> Iterator[Finding]:
    messages = [each.message for each in failure.chain] or [failure.message]
    yield from _advise_on_shuffle(failure, messages, removed_idle)
    if failure.cls is FailureClass.TRANSIENT and not failure.is_aftermath:
        yield from _advise_on_timeouts(messages)
        yield from _advise_on_tasks(messages)
    if failure.cls is FailureClass.RESOURCES:
        yield from advise_on_resources(failure, observed)


def _advise_on_timeouts(messages: Sequence[str]) -> Iterator[Finding]:
    """By the innermost exception that names one: the outer ones only repeat it."""
    for message in reversed(messages):
        for timeout in _TIMEOUTS:
            found = timeout.text.search(message)
            if found is None:
                continue
            waited_ms = int(found["ms"])
            value = max(timeout.default_ms, 2 * waited_ms)
            yield Finding(
                told.CLIENT_TIMEOUT,
                timeout.option,
                f"After {waited_ms:,} ms {timeout.who}, and the query failed: a broker that is slow, or away for a"
                " moment, takes longer than that.",
                {
                    "message": found[0],
                    "option": timeout.option,
                    "waited_ms": waited_ms,
                    "default_ms": timeout.default_ms,
                },
                f'.option("{timeout.option}", "{value}")',
            )
            return
        found = _OFFSETS_NOT_TOLD.search(message)
        if found is not None:
            yield _advise_on_offsets_not_told(found[0])
            return


def _advise_on_offsets_not_told(words: str) -> Finding:
    return Finding(
        told.CLIENT_TIMEOUT,
        "fetchOffset.numRetries",
        "Kafka did not tell the driver of its topics and offsets, however often it was asked (three times unless"
        " fetchOffset.numRetries says otherwise), and the query failed: a broker may be away for longer than that.",
        {"message": words, "option": "fetchOffset.numRetries", "default": 3, "default_interval_ms": 1000},
        '.option("fetchOffset.numRetries", "10").option("fetchOffset.retryIntervalMs", "10000")',
    )


def _advise_on_tasks(messages: Sequence[str]) -> Iterator[Finding]:
    """How often a task was tried; only of what passes by itself."""
    found = next((match for message in messages if (match := _TASK_FAILED.search(message))), None)
    if found is None:
        return
    times = int(found["times"])
    evidence = {"attempts": times, "executor": found["executor"], "default": _MAX_FAILURES_DEFAULT}
    if times == 1:
        tried = "once"
    else:
        tried = f"{times} times"
    if found["executor"] == "driver":
        effect = (
            f"A task was tried {tried}, and the query failed of something that passes: in local mode a task gets one"
            " attempt, whatever spark.task.maxFailures says, unless the master names more."
        )
        yield Finding(told.TASK_FAILURES, "--master", effect, evidence, f'--master "local[*,{_raise_limit(times)}]"')
        return
    effect = (
        f"A task was tried {tried}, and the query failed of something that passes; the next attempt may be the one."
    )
    option = f"--conf spark.task.maxFailures={_raise_limit(times)}"
    yield Finding(told.TASK_FAILURES, "spark.task.maxFailures", effect, evidence, option)


def _raise_limit(times: int) -> int:
    if times < _MAX_FAILURES_DEFAULT:
        return _MAX_FAILURES_DEFAULT
    return 2 * times


def _advise_on_shuffle(failure: Failure, messages: Sequence[str], removed_idle: int) -> Iterator[Finding]:
    lost = next((match for message in messages if (match := _SHUFFLE_LOST.search(message))), None)
    if lost is not None and removed_idle:
        if removed_idle == 1:
            times = "once"
        else:
            times = f"{removed_idle:,} times"
        yield Finding(
            told.SHUFFLE_NOT_TRACKED,
            "spark.dynamicAllocation.shuffleTracking.enabled",
            f"Shuffle files were gone that a task had to read, and dynamic allocation removed idle executors {times}:"
            " what they have written is kept where it is tracked, for as long as"
            " spark.dynamicAllocation.shuffleTracking.timeout says, or by an external shuffle service.",
            {"message": lost[0], "executors_removed_idle": removed_idle},
            "--conf spark.dynamicAllocation.shuffleTracking.enabled=true",
        )
        return
    found = next((match for message in messages if (match := _NOT_TRACKED.search(message))), None)
    if found is not None:
        yield Finding(
            told.SHUFFLE_NOT_TRACKED,
            "spark.dynamicAllocation.shuffleTracking.enabled",
            "Dynamic allocation would remove executors with the shuffle files that other tasks still have to read, so"
            " Spark does not start.",
            {"message": found[0], "exception": failure.condition or failure.class_name},
            "--conf spark.dynamicAllocation.shuffleTracking.enabled=true",
        )
