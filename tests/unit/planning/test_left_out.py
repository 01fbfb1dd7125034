"""What has expired of what the first batch is to read, where Spark would not say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import broker, delta, drafted, known, query

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.left_out import describe_left_out
from lastgood.planning.price import Guarantee
from lastgood.query.prediction.restart import Outcome
from lastgood.sinks.evidence import DedupeKey
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.testing.checkpoints import FileInput

EXPIRED = broker((3, 40), (0, 40))


def told(folder: Path, outcome: Outcome, batch: int, kafka: KafkaFacts | None, **others: object) -> object:
    observed = known(folder, kafka=kafka, **{"fail_on_data_loss": False, **others})
    return describe_left_out(observed, outcome, batch)


def not_yet_planned(folder: Path) -> None:
    """A query that is to begin at offset 0 of both partitions."""
    query(folder, 0, orphan=True)
    (folder / "offsets/0").unlink()


def test_first_batch_leaves_out_what_is_gone_since_its_source_wrote_down_where_it_begins(tmp_path: Path) -> None:
    not_yet_planned(tmp_path)
    assert told(tmp_path, Outcome.STARTS, 0, EXPIRED) == ("orders-0 0..3 expired",)
    assert told(tmp_path, Outcome.STARTS, 0, broker((0, 40), (0, 40))) == ()


def test_batch_that_runs_again_and_the_next_one_leave_out_what_is_gone(tmp_path: Path) -> None:
    query(tmp_path, 1, orphan=True)
    assert told(tmp_path, Outcome.RERUNS, 1, broker((8, 40), (20, 40))) == (
        "orders-0 5..8 expired",
        "orders-1 5..10 expired",
        "orders-1 10..20 expired",
    )
    query(tmp_path / "first", 0, orphan=True)
    assert told(tmp_path / "first", Outcome.RERUNS, 0, EXPIRED) == ("orders-0 0..3 expired",)


def test_new_batch_leaves_out_what_is_gone_after_the_newest_plan(tmp_path: Path) -> None:
    query(tmp_path, 2)
    assert told(tmp_path, Outcome.RESUMES, 2, broker((10, 40), (12, 40))) == ("orders-1 10..12 expired",)


def test_nothing_is_left_out_where_spark_stops_or_the_sink_has_what_is_gone_or_nobody_reads_kafka(
    tmp_path: Path,
) -> None:
    query(tmp_path, 1, orphan=True)
    gone = broker((8, 40), (8, 40))
    assert told(tmp_path, Outcome.RERUNS, 1, gone, fail_on_data_loss=True) == ()
    dropped = replace(known(tmp_path, delta(1), kafka=gone), fail_on_data_loss=False)
    assert describe_left_out(dropped, Outcome.RERUNS, 1) == ()
    further = replace(dropped, kafka=broker((8, 40), (20, 40)))
    assert describe_left_out(further, Outcome.RERUNS, 1) == ("orders-1 10..20 expired",)
    query(tmp_path / "files", 1, orphan=True, source=FileInput())
    assert told(tmp_path / "files", Outcome.RERUNS, 1, gone) == ()


def test_what_one_of_two_tables_of_a_function_has_is_still_read_for_the_other(tmp_path: Path) -> None:
    query(tmp_path, 1, orphan=True)
    by_function = {"dedupe_key": DedupeKey.APP_ID, "location": "/lake/other"}
    has, lacks = replace(delta(1), dedupe_key=DedupeKey.APP_ID), replace(delta(0), **by_function)
    observed = replace(known(tmp_path, has, lacks, kafka=broker((8, 40), (8, 40))), fail_on_data_loss=False)
    assert describe_left_out(observed, Outcome.RERUNS, 1) == ("orders-0 5..8 expired", "orders-1 5..8 expired")
    assert (
        describe_left_out(replace(observed, sinks=(has, replace(has, location="/lake/other"))), Outcome.RERUNS, 1) == ()
    )


def test_nobody_knows_where_kafka_was_not_asked_or_does_not_answer(tmp_path: Path) -> None:
    query(tmp_path, 2)
    assert told(tmp_path, Outcome.RESUMES, 2, None) is None
    assert told(tmp_path, Outcome.RESUMES, 2, replace(EXPIRED, unknown="it does not answer")) is None


def test_query_whose_beginning_has_expired_is_refused_or_lossy(tmp_path: Path) -> None:
    not_yet_planned(tmp_path)
    with pytest.raises(RepairRefusedError, match="records that are still to be read are deleted"):
        drafted(known(tmp_path, kafka=EXPIRED), ResumeGoal())
    found = drafted(known(tmp_path, kafka=EXPIRED, fail_on_data_loss=False), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.LOSSY)
    assert [price.lost for price in found.sources] == [{"orders": {0: ((0, 3),)}}]


@pytest.mark.parametrize("kafka", [None, replace(EXPIRED, unknown="it does not answer")])
def test_nothing_is_promised_where_spark_would_not_tell_and_kafka_does_not(
    tmp_path: Path, kafka: KafkaFacts | None
) -> None:
    query(tmp_path, 2)
    found = drafted(known(tmp_path, delta(1), kafka=kafka, fail_on_data_loss=False), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.LOSSY)
    assert "no Kafka told" in found.rests_on[-1]
    assert drafted(known(tmp_path, delta(1), kafka=kafka), ResumeGoal()).guarantee is Guarantee.EXACTLY_ONCE


def test_batch_that_the_sink_has_already_reads_nothing_and_the_next_one_may_leave_something_out(tmp_path: Path) -> None:
    query(tmp_path, 1, orphan=True)
    served, gone = broker((8, 40), (8, 40)), broker((8, 40), (20, 40))
    found = drafted(known(tmp_path, delta(1), kafka=served, fail_on_data_loss=False), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.EXACTLY_ONCE)
    assert drafted(known(tmp_path, delta(1), fail_on_data_loss=False), ResumeGoal()).guarantee is Guarantee.LOSSY
    lossy = drafted(known(tmp_path, delta(1), kafka=gone, fail_on_data_loss=False), ResumeGoal())
    assert (lossy.is_plain, lossy.guarantee) == (True, Guarantee.LOSSY)
    assert lossy.sources[0].lost == {"orders": {1: ((10, 20),)}}
    with pytest.raises(RepairRefusedError, match="not run the next one"):
        drafted(known(tmp_path, delta(1), kafka=gone), ResumeGoal())
