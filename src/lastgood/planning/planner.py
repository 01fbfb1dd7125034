"""The pure planner: what is known of a query and what is asked for, to the files that change and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, KafkaOffset, topics_of
from lastgood.planning.draft import Draft, Known, RepairRefusedError
from lastgood.planning.goals.fresh import plan_fresh
from lastgood.planning.goals.replan import plan_replan
from lastgood.planning.goals.reposition import plan_reposition
from lastgood.planning.goals.resume import plan_resume
from lastgood.planning.goals.values import Fresh, Goal, Replan, Reposition, Resume
from lastgood.planning.plan import Alternative
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import WORDS, ends
from lastgood.query.position import locate
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sinks import NONE
from lastgood.query.world import World
from lastgood.sinks.evidence import SinkEvidence, unknown_evidence

_BATCHES_READ = 4
"""The newest batches of each log that any goal looks at, beside those back to what the sinks show."""


def draft(known: Known, goal: Goal, spark: SparkVersion) -> Draft:
    """Which files change so that the query does what is asked for, and what can be said of it then.

    Args:
        known: Checkpoint, sinks, sources and mirror. The checkpoint is read with `batches_wanted` batches at least,
            and the sinks are asked about the query id of the checkpoint; if that is lost, about `known.mirrored_id`.
        goal: What is asked for.
        spark: The version that will run it.

    Raises:
        RepairRefusedError: it cannot be done in a way of which anything can be promised.
    """
    known = replace(known, world=replace(known.world, sinks=tuple(map(_proven, known.world.sinks))))
    try:
        found = _drafted(known, goal, spark)
    except RepairRefusedError as error:
        error.alternatives = _alternatives(known, goal, spark)
        raise
    if found.guarantee is Guarantee.EXACTLY_ONCE:
        return found
    return replace(found, alternatives=ranked((*found.alternatives, *_alternatives(known, goal, spark))))


def _proven(sink: SinkEvidence) -> SinkEvidence:
    """What a sink shows under a name that is only presumed to be this query's is not known of the query."""
    if sink.presumed_app_id is None:
        return sink
    option = f"--txn-app-id {sink.presumed_app_id}"
    because = f"that the query writes as {sink.presumed_app_id} is likely, and not proven: {option} says so"
    others = {**sink.others, sink.presumed_app_id: NONE if sink.last_batch is None else sink.last_batch}
    return replace(unknown_evidence(sink.kind, sink.location, sink.dedupe_key, because), others=others)


def batches_wanted(world: World) -> int:
    """How many of the newest batches the planner has to see: back to what the sinks show."""
    position = locate(world.checkpoint, world.sinks)
    newest = max(position.planned or 0, position.committed or 0)
    shown = [sink.last_batch for sink in world.sinks if sink.known and sink.last_batch is not None]
    return newest - min((position.committed or 0, newest, *shown)) + _BATCHES_READ


def _drafted(known: Known, goal: Goal, spark: SparkVersion) -> Draft:
    match goal:
        case Resume():
            return plan_resume(known, spark)
        case Replan():
            return plan_replan(known, spark)
        case Reposition():
            return plan_reposition(known, goal, spark)
        case Fresh():
            return plan_fresh(known, goal, spark)


def _alternatives(known: Known, goal: Goal, spark: SparkVersion) -> tuple[Alternative, ...]:
    """The other goals, the best first, and last those that are refused as well."""
    found = [_alternative(known, other, command, spark) for other, command in _others(known, goal)]
    earliest = _earliest(known)
    if earliest.offsets and any(each.goal == earliest.name and each.guarantee is None for each in found):
        found.append(_alternative(known, earliest, ("--earliest",), spark))
    return ranked(found)


def alternatives(
    known: Known, goals: Iterable[tuple[Goal, tuple[str, ...]]], spark: SparkVersion
) -> tuple[Alternative, ...]:
    """What further goals come to, each with the options that ask for it."""
    return tuple(_alternative(known, goal, options, spark) for goal, options in goals)


def ranked(found: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """The best first, and last those that are refused as well; what is refused twice for one reason stands once."""
    return tuple(sorted(dict.fromkeys(found), key=_rank))


def _rank(way: Alternative) -> int:
    return len(WORDS) if way.guarantee is None else WORDS.index(way.guarantee)


def _others(known: Known, goal: Goal) -> Iterator[tuple[Goal, tuple[str, ...]]]:
    checkpoint = known.world.checkpoint
    if checkpoint.newest_offsets is None and isinstance(goal, Fresh) and not known.mirror:
        return  # nothing is left that could be gone on with
    if not isinstance(goal, Resume):
        yield Resume(), ()
    if not isinstance(goal, Replan) and checkpoint.orphan is not None:
        yield Replan(), ()
    newest = checkpoint.newest_offsets
    has_offsets = newest is None or any(isinstance(end, KafkaOffset) for end in ends(newest).values())
    if not isinstance(goal, Reposition) and has_offsets:  # of any other source nobody could choose them
        lag = max((checkpoint.last_planned or 0) - (checkpoint.last_committed or 0), 0)
        yield Reposition({}, "it stands, moved to what Kafka still serves"), ("--stable-lag", str(lag))
    if known.mirror and not (isinstance(goal, Fresh) and goal.offsets is None):
        yield Fresh(), ()


def _earliest(known: Known) -> Reposition:
    """Every partition that Kafka has of the topics that are read, from its beginning."""
    facts, newest = known.world.kafka, known.world.checkpoint.newest_offsets
    offsets = {}
    for source_id, offset in ends(newest).items():
        topics = facts.topics if facts else {}
        named = topics_of(offset)
        there = {
            t: dict.fromkeys(topics[t].partitions if t in topics else parts, OFFSET_EARLIEST)
            for t, parts in named.items()
        }
        if there:
            offsets[source_id] = there
    return Reposition(offsets, "Kafka's earliest offsets are")


def _alternative(known: Known, goal: Goal, options: tuple[str, ...], spark: SparkVersion) -> Alternative:
    command = known.world.command("plan", "--goal", goal.name, *options)
    try:
        found = _drafted(known, goal, spark)
    except RepairRefusedError as error:
        return Alternative(goal.name, None, error.sentence)
    return Alternative(goal.name, found.guarantee, _told(found, goal), command)


def _told(found: Draft, goal: Goal) -> str:
    """One line: what it changes, and on what its word rests."""
    what = "Spark's own restart" if found.is_plain else f"{len(found.edits) + len(found.moves)} files change"
    what += f", and the mark in {found.sinks[0].location}" if found.sinks else ""
    ground = found.rests_on[0 if isinstance(goal, Fresh) else -1] if found.rests_on else None
    start = f"from {goal.chosen}; " if isinstance(goal, Fresh) else ""
    return f"{start}{what}; rests on {ground}" if ground else f"{start}{what}"
