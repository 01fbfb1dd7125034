from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.journal.topic_ids import read_topic_ids, write_topic_ids
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter

STORAGE = LocalWriter()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path / "chk"))


def test_ids_are_those_of_one_query_and_of_whichever_it_was_if_its_id_is_lost(checkpoint: Location) -> None:
    assert read_topic_ids(STORAGE, checkpoint, "query") == {}
    write_topic_ids(STORAGE, checkpoint, "query", {"orders": "first"})
    assert read_topic_ids(STORAGE, checkpoint, "query") == {"orders": "first"}
    assert read_topic_ids(STORAGE, checkpoint, None) == {"orders": "first"}
    assert read_topic_ids(STORAGE, checkpoint, "another") == {}


def test_what_was_noted_before_a_first_start_is_of_the_query_that_was_started(checkpoint: Location) -> None:
    write_topic_ids(STORAGE, checkpoint, None, {"orders": "first"})
    assert read_topic_ids(STORAGE, checkpoint, "query") == {"orders": "first"}
    write_topic_ids(STORAGE, checkpoint, "query", {"orders": "first"})
    assert read_topic_ids(STORAGE, checkpoint, "another") == {}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"query": "query", "topics": {"orders": 1}}', "[" * 100_000])
def test_what_cannot_be_read_is_not_known(checkpoint: Location, content: str) -> None:
    write_topic_ids(STORAGE, checkpoint, "query", {"orders": "first"})
    Path(f"{checkpoint}.lastgood/topics.json").write_text(content)
    assert read_topic_ids(STORAGE, checkpoint, "query") == {}
