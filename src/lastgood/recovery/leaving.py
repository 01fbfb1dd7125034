"""A checkpoint that is left behind, and whether a query that begins at batch 0 instead loses anything. Pure."""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import METADATA
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.diagnosis.sink_reading import ABSENT, NONE
from lastgood.recovery.draft import Edit
from lastgood.recovery.log_edits import names_in
from lastgood.recovery.repair import refuse
from lastgood.recovery.standing import Standing
from lastgood.sinks.evidence import DedupeKey, is_query_id
from lastgood.sources.kafka_facts import KafkaFacts
from lastgood.sources.kafka_ranges import Offsets

BEHIND = "it is left behind"


def set_aside(checkpoint: Checkpoint) -> tuple[Edit, ...]:
    """Every file of its logs."""
    files = {log.folder: log.listing for log in (checkpoint.offsets, checkpoint.commits)}
    files |= {log.folder: log.listing for log in checkpoint.sources}
    metadata = () if checkpoint.query is None else (METADATA,)
    logged = (f"{folder}/{name}" for folder, listing in files.items() for name in sorted(names_in(listing)))
    return tuple(Edit(path, None, BEHIND) for path in (*metadata, *logged))


def every_partition(offsets: Offsets, facts: KafkaFacts | None) -> Offsets:
    """The same with the partitions that are newer: Spark wants all of them named; these begin at their earliest."""
    topics = facts.topics if facts else {}
    return {
        topic: {**dict.fromkeys(topics[topic].partitions if topic in topics else (), OFFSET_EARLIEST), **parts}
        for topic, parts in offsets.items()
    }


def require_room_at_zero(standing: Standing, *, otherwise: str) -> None:
    """See that no sink drops batch 0 because of its number.

    Args:
        standing: With its sinks as they know the new query.
        otherwise: The command that looks for another way.

    Raises:
        RepairRefusedError: one does, or might.
    """
    for each in standing.sinks:
        named = {name: last for name, last in each.sink.others.items() if not is_query_id(name)}
        last = max((each.shown, each.skips, *named.values()), default=NONE)
        if last > NONE:
            raise refuse(
                standing,
                "the query would begin at batch 0, and a sink goes by numbers that it has already",
                subject=each.sink.location,
                found=f"batches up to {last}" + (f" of {', '.join(named)}" if named else ""),
                expected="a plan of the query in the checkpoint, the mirror or a backup, whose settings can be copied",
                effect="what is written under these numbers would be dropped without a word",
                next=otherwise,
            )


def numbers_do_not_count(standing: Standing, *, told: bool) -> None:
    """See that every sink takes the batches of a new query whatever their numbers.

    Args:
        standing: With its sinks as they know the new query.
        told: Whether a person says so of sinks that nobody can ask.

    Raises:
        RepairRefusedError: one goes by numbers, or nobody knows.
    """
    otherwise = standing.world.command("plan", "--goal", "fresh")
    require_room_at_zero(standing, otherwise=otherwise)
    unknown = [each.sink for each in standing.sinks if not _goes_by_id(each.sink.kind, each.sink.dedupe_key)]
    if told or (standing.sinks and not unknown):
        return
    raise refuse(
        standing,
        "the query would begin at batch 0, and nobody knows whether its sinks go by numbers",
        subject=unknown[0].location if unknown else None,
        found=unknown[0].because if unknown else "no sink was asked",
        expected="--sink LOCATION of each sink, or --takes-any-number if a person knows that none of them does",
        effect="a sink that does would drop the first batches without a word",
        next=otherwise,
    )


def _goes_by_id(kind: str, key: DedupeKey) -> bool:
    return kind == ABSENT or key is DedupeKey.QUERY_ID
