"""What Kafka does not have any more of what the first batches after a plan are to read. Pure.

With `failOnDataLoss` Spark stops there, as is predicted; without it goes on, so that nobody notices what it leaves out.
Where the application is told by its configuration where to start, no prediction knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset
from lastgood.planning.pricing import find_ends
from lastgood.query.observation import Observation
from lastgood.query.prediction.kafka_source import KafkaGap, find_planning_gaps, find_replay_gaps
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.skipping import may_be_skipped
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets


def find_kafka_gaps(observed: Observation, outcome: Outcome, batch: int) -> Mapping[str, list[KafkaGap]]:
    """Where what the query reads next and what the broker serves part company, by source, in the order of the plan.

    A batch that runs again has its recorded range, unless the sinks have it and what it reads is written nowhere; the
    one after it begins where that ends.

    Args:
        observed: With what Kafka serves; nothing is known to part where it was not asked.
        outcome: What Spark does: whether it plans the batch or runs it again.
        batch: The batch.
    """
    facts = _get_answered(observed)
    if facts is None:
        return {}
    plans = {n: entry for n, entry in observed.checkpoint.offsets.entries.items() if isinstance(entry, OffsetEntry)}
    starts: Mapping[str, SourceOffset] = find_ends(plans.get(batch - 1))
    if batch == 0:
        starts = {log.name: log.initial.offset for log in observed.checkpoint.sources if log.initial is not None}
    planned = starts if outcome is not Outcome.RERUNS else find_ends(plans.get(batch))
    found = {
        name: find_planning_gaps(start.topics, facts, is_pattern=observed.is_pattern)
        for name, start in planned.items()
        if isinstance(start, KafkaOffset)
    }
    if outcome is not Outcome.RERUNS or may_be_skipped(observed.sinks, batch):
        return found
    for name, after in found.items():
        start, end = starts.get(name), planned[name]
        if isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset):
            found[name] = [*find_replay_gaps(start.topics, end.topics, facts, is_pattern=observed.is_pattern), *after]
    return found


def describe_left_out(
    observed: Observation, outcome: Outcome, batch: int, *, told: Offsets | None = None
) -> tuple[str, ...] | None:
    """What would be left out without an error, a line for each range; None if Kafka did not tell.

    Args:
        observed: As the plan leaves it.
        outcome: What Spark does then.
        batch: Its first batch.
        told: Where the configuration of the application says that it starts; None: the checkpoint says it.
    """
    facts = _get_answered(observed)
    if told is None and observed.fail_on_data_loss:
        return ()
    if facts is None:
        return None
    found = find_kafka_gaps(observed, outcome, batch).values() if told is None else [find_planning_gaps(told, facts)]
    gaps = (gap for each in found for gap in each)
    return tuple(f"{gap.name} {gap.first}..{gap.end} {gap.gap.name.lower()}" for gap in gaps)


def _get_answered(observed: Observation) -> KafkaFacts | None:
    if observed.kafka is not None and observed.kafka.unknown is None:
        return observed.kafka
    return None
