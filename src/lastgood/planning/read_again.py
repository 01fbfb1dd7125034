"""Whether the sources have what was read, so that a state can be made of it once more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lastgood.planning.price import SourcePrice
from lastgood.planning.pricing import list_files_between
from lastgood.planning.repairs.repair import refuse
from lastgood.planning.standing import Standing
from lastgood.query.source_logs import is_whole
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.sources.kafka.facts import KafkaFacts

SAME_OF_THE_SAME: Final = (
    "the assumption that the application is the one that ran them first, and makes the same of the same rows: by no"
    " clock, no table that has changed since, no look-up elsewhere, no random number, and no order of rows in a batch"
)


def require_kept(standing: Standing, facts: KafkaFacts, topics: Iterable[str]) -> Iterator[str]:
    """See that topics keep every record until it expires; gives what is taken for granted of that, one line each.

    Raises:
        RepairRefusedError: one does not.
    """
    for topic in topics:
        told = facts.topics.get(topic)
        is_compacted = None if told is None else told.is_compacted
        if is_compacted:
            raise refuse(
                standing,
                "a topic is compacted: records that the state is made of may be gone from its middle",
                subject=topic,
                found="cleanup.policy=compact",
                expected="a topic that keeps every record until it expires",
            )
        if is_compacted is None:
            yield describe_unsettled(topic)


def describe_unsettled(topic: str) -> str:
    """What is taken for granted of a topic of which nobody knows whether it is compacted."""
    return f"the assumption that {topic} is not compacted: its settings are not known"


def require_few_enough(
    standing: Standing, most: int | None, prices: Iterable[SourcePrice], since: str, otherwise: str = ""
) -> None:
    """See that no more is read again than a person allows.

    Args:
        standing: Where the query stands.
        most: Offsets and files; None: however many.
        prices: What is read again, source by source.
        since: From where on; a few words.
        otherwise: By which less would be.

    Raises:
        RepairRefusedError: it is more.
    """
    count = sum(price.reread_count for price in prices)
    if most is not None and count > most:
        raise refuse(
            standing,
            "more would be read again than is allowed",
            subject="--max-replay",
            found=f"{count:,} offsets and files, {since}",
            expected=f"{most:,} at most{otherwise}",
        )


def find_files(standing: Standing, source_id: str, entries: range) -> list[FileFacts]:
    """What has become of the files of these entries of a source's log, as far as it was looked."""
    told = standing.observed.repair.files_read.get(source_id, ())
    return [each for each in told if each.file.log_id in entries]


def list_files_in_doubt(standing: Standing, source_id: str, entries: range) -> list[str]:
    """Why it is not known of all these files what has become of them; one line each, none if it is known."""
    files = find_files(standing, source_id, entries)
    doubts = [f"{each.file.path}: {each.because}" for each in files if each.state is FileState.UNKNOWN]
    looked_at = {each.file.path for each in files}
    named = list_files_between(standing.checkpoint, source_id, entries.start - 1, entries.stop - 1)
    doubts += [f"{path}: it was not looked at" for path in named if path not in looked_at]
    logs = {log.name: log for log in standing.checkpoint.sources}
    if source_id not in logs or not is_whole(logs[source_id]):
        doubts.append(f"sources/{source_id} does not hold every entry")
    return doubts
