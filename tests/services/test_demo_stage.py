"""A stage with a real broker, on which nothing plays yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lastgood.demo import DemoFailedError, DemoStage, open_stage
from lastgood.demo.stage import FLIGHTS_MAX, TOPIC
from lastgood.demo.tally import ARCHIVE

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoStage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


def test_flights_sent_again_have_the_offsets_that_they_had_also_where_kafka_has_deleted_them(stage: DemoStage) -> None:
    stage.send(1_500)
    stage.send(500)
    stage.await_sent()
    latest = stage.broker.latest_offsets(TOPIC)
    assert sum(latest.values()) == stage.sent == 2_000
    assert stage.expire({0: latest[0] // 2}) == {}
    assert stage.broker.earliest_offsets(TOPIC)[0] == latest[0] // 2
    stage.send_again(ARCHIVE)
    assert stage.broker.latest_offsets(ARCHIVE) == latest
    assert set(stage.broker.earliest_offsets(ARCHIVE).values()) == {0}


def test_more_flights_than_there_are_is_a_clear_error(stage: DemoStage) -> None:
    with pytest.raises(DemoFailedError, match="no more flights"):
        stage.send(FLIGHTS_MAX)


def test_broker_that_was_killed_comes_back_with_all_records_where_it_was(stage: DemoStage) -> None:
    before, latest = stage.broker.bootstrap, stage.broker.latest_offsets(TOPIC)
    stage.broker.kill()
    stage.broker.start()
    assert (stage.broker.bootstrap, stage.broker.latest_offsets(TOPIC)) == (before, latest)


def test_what_was_never_started_has_read_nothing_and_nobody_has_written_of_it(stage: DemoStage) -> None:
    assert stage.committed() == {}
    with pytest.raises(DemoFailedError, match="written nothing down"):
        stage.incident()
