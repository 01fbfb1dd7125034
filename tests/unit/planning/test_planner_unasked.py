"""Sources that cannot be asked: nothing exact is promised of them but by a person's word."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import AUTO_LOADER, KINESIS, NUMBERS, PULSAR, PYTHON, Lines
from planning import SPARK, broker, delta, drafted, known, mirror_of, query

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.diagnosis.engine import diagnose
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.prediction.predict import predict
from lastgood.testing.checkpoints import QUERY_ID

EXACT, AT_LEAST, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
ID = QueryMetadata(QUERY_ID).to_bytes()
TITLES = {
    "Kinesis": KINESIS,
    "Auto Loader": AUTO_LOADER,
    "Pulsar": PULSAR,
    "a source that lastgood does not know": PYTHON,
}


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("orphan", [False, True])
def test_that_it_serves_a_range_again_is_an_assumption(tmp_path: Path, name: str, orphan: bool) -> None:
    query(tmp_path, 3, orphan=orphan, source=Lines(TITLES[name]))
    found = drafted(known(tmp_path, delta(2)), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (AT_LEAST, True)
    assert f"source 0 ({name})" in found.rests_on[-1]
    assert "--source-replays" in found.rests_on[-1]
    told = [each for each in predict(known(tmp_path), SPARK).unknowns if f"({name})" in each]
    assert len(told) == 1


@pytest.mark.parametrize("orphan", [False, True])
def test_a_person_may_vouch_for_it_and_is_named(tmp_path: Path, orphan: bool) -> None:
    query(tmp_path, 3, orphan=orphan, source=Lines(KINESIS))
    vouched = known(tmp_path, delta(2), source_replays=True)
    found = drafted(vouched, ResumeGoal())
    assert (found.guarantee, found.is_plain) == (EXACT, True)
    assert "as --source-replays says" in found.rests_on[-1]
    assert predict(vouched, SPARK).unknowns == ()


@pytest.mark.parametrize("vouched", [False, True])
def test_its_plan_is_not_dropped_whoever_vouches_for_it(tmp_path: Path, vouched: bool) -> None:
    query(tmp_path, 3, orphan=True, source=Lines(AUTO_LOADER))
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), source_replays=vouched), ReplanGoal())
    words = {each.goal: each.guarantee for each in refused.value.alternatives}
    assert words[ResumeGoal.name] is (EXACT if vouched else AT_LEAST)


def test_alternatives_say_so_too(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=Lines(KINESIS))
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2)), ReplanGoal())
    resume = next(each for each in refused.value.alternatives if each.goal == ResumeGoal.name)
    assert (resume.guarantee, "(Kinesis)" in resume.because) == (AT_LEAST, True)


def test_a_repair_after_which_the_logs_tell_the_same_is_as_good_as_a_restart(tmp_path: Path) -> None:
    folder = query(tmp_path, 3, source=Lines(KINESIS)).folder
    (folder / "metadata").unlink()
    found = drafted(known(tmp_path, delta(2, others={}), mirror={**mirror_of(folder), "metadata": ID}), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (AT_LEAST, False)


@pytest.mark.parametrize("vouched", [False, True])
def test_a_socket_never_serves_anything_again(tmp_path: Path, vouched: bool) -> None:
    query(tmp_path, 3, orphan=True, source=Lines(NUMBERS))
    what = known(tmp_path, delta(2), source_replays=vouched)
    found = drafted(what, ResumeGoal())
    assert found.guarantee is LOSSY
    assert "cannot serve again" in found.rests_on[-1]
    assert any("socket" in each for each in predict(what, SPARK).unknowns)


def test_rate_is_told_from_a_socket_by_its_beginning(tmp_path: Path) -> None:
    query(tmp_path, 3, source=Lines(NUMBERS, began_ms=1_790_000_000_000))
    found = drafted(known(tmp_path, delta(2)), ResumeGoal())
    assert (found.guarantee, found.rests_on[-1].count("(rate)")) == (AT_LEAST, 1)


def test_kafka_is_what_writes_down_its_beginning_or_what_a_broker_has(tmp_path: Path) -> None:
    builder = query(tmp_path, 3)
    assert drafted(known(tmp_path, delta(2)), ResumeGoal()).guarantee is EXACT
    (builder.folder / "sources/0/0").unlink()
    found = drafted(known(tmp_path, delta(2)), ResumeGoal())
    assert (found.guarantee, "Kafka by its offsets" in found.rests_on[-1]) == (AT_LEAST, True)


def test_a_plan_that_goes_back_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=Lines(("4", "5", "6", "2"), began_ms=1))
    with pytest.raises(RepairRefusedError, match="does not go on"):
        drafted(known(tmp_path, delta(2), source_replays=True), ResumeGoal())


def test_reposition_of_another_source_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 3, source=Lines(KINESIS))
    found = drafted(known(tmp_path, delta(2)), RepositionGoal({}, "it stands"))
    assert found.guarantee is not EXACT


@pytest.mark.parametrize(("sources", "word"), [(None, EXACT), (1, EXACT), (0, AT_LEAST)])
def test_kafka_is_not_what_a_recorder_saw_to_be_something_else(
    tmp_path: Path, sources: int | None, word: Guarantee
) -> None:
    """The offsets of Azure Event Hubs, and the beginning that it writes down, look like Kafka's."""
    query(tmp_path, 3)
    advice = AdviceFacts(kafka_sources=sources)
    found = drafted(known(tmp_path, delta(2), advice=advice), ResumeGoal())
    assert (found.guarantee, found.is_plain) == (word, True)
    assert ("where a recorder saw another source" in found.rests_on[-1]) == (word is AT_LEAST)
    told = [each for each in predict(known(tmp_path, advice=advice), SPARK).unknowns if "a recorder saw" in each]
    assert len(told) == (word is AT_LEAST)
    assert (
        drafted(known(tmp_path, delta(2), advice=advice, kafka=broker((0, 40), (0, 40))), ResumeGoal()).guarantee
        is EXACT
    )


@pytest.mark.parametrize("goal", [ResumeGoal(), ReplanGoal()], ids=["resume", "replan"])
def test_where_the_first_batch_of_a_delta_table_begins_is_an_assumption(goal: Goal, tmp_path: Path) -> None:
    """With `startingVersion` `latest` it is elsewhere at each start: 6 and 25 rows were lost, called at least once."""
    query(tmp_path, 0, orphan=True, source=Lines([DeltaOffset(1, "id", 4, -1, is_starting_version=False).to_text()]))
    what = known(tmp_path, delta(None))
    found = drafted(what, goal)
    (told,) = [line for line in found.rests_on if line.startswith("the assumption that") and "begin" in line]
    assert "at the latest" in told or "startingVersion latest" in told
    report = diagnose(what, SPARK)
    assert [line for line in report.restart.unknowns if "startingVersion latest" in line]


def test_a_sink_that_shows_nothing_of_the_query_is_among_what_is_not_known(tmp_path: Path) -> None:
    query(tmp_path, 3)
    told = [
        line for line in diagnose(known(tmp_path, delta(None)), SPARK).restart.unknowns if line.startswith("/lake/out")
    ]
    assert told == ["/lake/out: whether it holds what is committed, and no more: it shows no batch of this query"]
