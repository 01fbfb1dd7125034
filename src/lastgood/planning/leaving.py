"""A checkpoint that is left behind, and whether a query that begins at batch 0 instead loses anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import METADATA
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.diagnosis.rules_left import find_begun_since
from lastgood.planning.draft import Edit
from lastgood.planning.log_edits import list_names_in
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import choose_weakest
from lastgood.planning.repairs.repair import Outlook, refuse
from lastgood.planning.standing import Standing
from lastgood.query.observation import LeftBehind, Observation
from lastgood.query.sinks import NONE
from lastgood.query.topics import find_other_ids
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, is_query_id
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import format_starting_offsets

BEHIND = "it is left behind"


def set_logs_aside(checkpoint: Checkpoint) -> tuple[Edit, ...]:
    """Every file of its logs."""
    files = {log.folder: log.listing for log in (checkpoint.offsets, checkpoint.commits)}
    files |= {log.folder: log.listing for log in checkpoint.sources}
    metadata = () if checkpoint.query is None else (METADATA,)
    logged = (f"{folder}/{name}" for folder, listing in files.items() for name in sorted(list_names_in(listing)))
    return tuple(Edit(path, None, BEHIND) for path in (*metadata, *logged))


def add_newer_partitions(offsets: Offsets, facts: KafkaFacts | None) -> Offsets:
    """The same with the partitions that are newer: Spark wants all of them named; these begin at their earliest."""
    topics = facts.topics if facts else {}
    every = {}
    for topic, parts in offsets.items():
        there = topics[topic].partitions if topic in topics else ()
        every[topic] = {**dict.fromkeys(there, OFFSET_EARLIEST), **parts}
    return every


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


def require_numbers_do_not_count(standing: Standing, *, told: bool) -> None:
    """See that every sink takes the batches of a new query whatever their numbers.

    Args:
        standing: With its sinks as they know the new query.
        told: Whether a person says so of sinks that nobody can ask.

    Raises:
        RepairRefusedError: one goes by numbers, or nobody knows.
    """
    otherwise = standing.observed.make_checkpoint_command()
    require_room_at_zero(standing, otherwise=otherwise)
    unknown = [each.sink for each in standing.sinks if not _is_by_id(each.sink)]
    if told or (standing.sinks and not unknown):
        return
    subject = None
    if unknown:
        subject = unknown[0].location
    if unknown:
        because = unknown[0].because
    else:
        because = "no sink was asked"
    raise refuse(
        standing,
        "the query would begin at batch 0, and nobody knows whether its sinks go by numbers",
        subject=subject,
        found=because,
        expected="--sink LOCATION of each sink, or --takes-any-number if a person knows that none of them does",
        effect="a sink that does would drop the first batches without a word",
        next=otherwise,
    )


def collect_marks(sinks: tuple[SinkEvidence, ...], query_id: str | None) -> dict[str, dict[str, int]]:
    """Per sink that goes by query ids every name that it knows, with its last batch: another one is of a later query.

    Args:
        sinks: As they answered.
        query_id: About which they were asked; None if nobody knew it.
    """
    found = {}
    for sink in sinks:
        if _is_by_id(sink):
            if query_id is None or sink.last_batch is None:
                own = {}
            else:
                own = {query_id: sink.last_batch}
            found[sink.location] = {**sink.others, **own}
    return found


def predict_start_as_told(standing: Standing, left: LeftBehind) -> Outlook:
    """What can be said of the start for which a checkpoint was left behind.

    Raises:
        RepairRefusedError: a query has begun since, or the application is not told so any more.
    """
    _require_nobody_since(standing, left)
    _require_same_topics(standing, left)
    if left.says is False:
        at = format_starting_offsets({topic: parts for each in left.starts.values() for topic, parts in each.items()})
        words = ("--via", "app-config", *left.file.words(), "--at", at)
        raise refuse(
            standing,
            "the file does not say any more where the application begins on the checkpoint that was left behind for it",
            subject=left.file.location,
            found=f"other offsets than recovery {left.recovery} wrote there, or none",
            expected=at,
            effect="from elsewhere records might be lost, or come twice",
            next=standing.observed.command("plan", "--goal", "fresh", *words),
        )
    word = Guarantee(left.word)
    lines = [f"recovery {left.recovery}, which left the checkpoint behind: {left.file.location} says where it begins"]
    if left.says is None:
        lines.append(f"the assumption that {left.file.location} still says so: it was not named, and not looked at")
    silent = list_untold_sinks(standing.observed)
    if silent or not standing.sinks:
        if silent:
            whom = f"{silent[0]} does not tell"
        else:
            whom = "no sink was asked"
        lines.append(f"the assumption that the query has not run since: {whom}")
        word = choose_weakest((word, Guarantee.AT_LEAST_ONCE))
    else:
        lines += [f"{each.sink.location} knows no other query than it did then" for each in standing.sinks]
    return Outlook(word, tuple(lines))


def list_untold_sinks(observed: Observation) -> tuple[str, ...]:
    """The sinks that do not tell whether a query has begun since the checkpoint was left behind."""
    marks = {} if observed.left is None else observed.left.marks
    return tuple(sink.location for sink in observed.sinks if not _has_told(sink, marks))


def _require_nobody_since(standing: Standing, left: LeftBehind) -> None:
    later = find_begun_since(standing.observed)
    if later is not None:
        raise refuse(
            standing,
            "a query has begun since this checkpoint was left behind, and no batch of it is here",
            subject=later.sink,
            found=f"batches up to {later.last_batch} of {later.name}",
            expected=f"no other names than recovery {left.recovery} found there",
            effect="what it has written would be written again, from where that recovery let it begin",
            next=standing.observed.command("plan", "--goal", "fresh"),
        )


def _require_same_topics(standing: Standing, left: LeftBehind) -> None:
    topics = standing.kafka.topics if standing.kafka else {}
    for name, was, topic_id in find_other_ids(left.topic_ids, {name: topic.topic_id for name, topic in topics.items()}):
        raise refuse(
            standing,
            "a topic was created again since this checkpoint was left behind",
            subject=name,
            found=f"topic id {topic_id}",
            expected=was,
            effect="the offsets that the application is told are of another topic",
            next=standing.observed.make_undo_command(left),
        )


def _has_told(sink: SinkEvidence, marks: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a sink would show a query that has begun since: one that had no name in it then need not."""
    known = marks.get(sink.location, {})
    return bool(known) and known.keys() <= sink.others.keys()


def _is_by_id(sink: SinkEvidence) -> bool:
    return not sink.traits.is_there or sink.dedupe_key is DedupeKey.QUERY_ID
