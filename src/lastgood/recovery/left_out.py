"""What Kafka does not have any more of what the first batch after a plan is to read. Pure.

With `failOnDataLoss` Spark stops there, as is predicted; without it goes on, so that nobody notices what it leaves out.
Where the application is told by its configuration where to start, no prediction knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset
from lastgood.diagnosis.kafka_source import KafkaGap, planning_gaps, replay_gaps
from lastgood.diagnosis.restart import Outcome
from lastgood.diagnosis.world import World
from lastgood.recovery.pricing import ends
from lastgood.sources.kafka_facts import KafkaFacts
from lastgood.sources.kafka_ranges import Offsets


def kafka_gaps(world: World, outcome: Outcome, batch: int) -> Mapping[str, list[KafkaGap]]:
    """Where what a batch is to read and what the broker serves part company, by source, in the order of the plan.

    Args:
        world: With what Kafka serves; nothing is known to part where it was not asked.
        outcome: What Spark does: whether it plans the batch or runs it again.
        batch: The batch.
    """
    facts = _answered(world)
    if facts is None:
        return {}
    plans = {n: entry for n, entry in world.checkpoint.offsets.entries.items() if isinstance(entry, OffsetEntry)}
    starts: Mapping[str, SourceOffset] = ends(plans.get(batch - 1))
    if batch == 0:
        starts = {log.name: log.initial.offset for log in world.checkpoint.sources if log.initial is not None}
    if outcome is not Outcome.RERUNS:
        planned = {name: start for name, start in starts.items() if isinstance(start, KafkaOffset)}
        return {
            name: planning_gaps(start.topics, facts, is_pattern=world.is_pattern) for name, start in planned.items()
        }
    pairs = ((name, starts.get(name), end) for name, end in ends(plans.get(batch)).items())
    return {  # a batch without a row reads nothing: what the next one meets is what counts
        name: planning_gaps(end.topics, facts, is_pattern=world.is_pattern)
        if start == end
        else replay_gaps(start.topics, end.topics, facts, is_pattern=world.is_pattern)
        for name, start, end in pairs
        if isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset)
    }


def is_run(world: World, outcome: Outcome, batch: int) -> bool:
    """Whether the first batch reads at all: none of the sinks has it already."""
    return outcome is not Outcome.RERUNS or not any(sink.would_skip(batch) for sink in world.sinks)


def left_out(world: World, outcome: Outcome, batch: int, *, told: Offsets | None = None) -> tuple[str, ...] | None:
    """What would be left out without an error, one line for each partition; None if Kafka did not tell.

    Args:
        world: As the plan leaves it.
        outcome: What Spark does then.
        batch: Its first batch.
        told: Where the configuration of the application says that it starts; None: the checkpoint says it.
    """
    facts = _answered(world)
    if (told is None and world.fail_on_data_loss) or not is_run(world, outcome, batch):
        return ()
    if facts is None:
        return None
    found = kafka_gaps(world, outcome, batch).values() if told is None else [planning_gaps(told, facts)]
    gaps = (gap for each in found for gap in each)
    return tuple(f"{gap.name} {gap.first}..{gap.end} {gap.gap.name.lower()}" for gap in gaps)


def _answered(world: World) -> KafkaFacts | None:
    return world.kafka if world.kafka is not None and world.kafka.unknown is None else None
