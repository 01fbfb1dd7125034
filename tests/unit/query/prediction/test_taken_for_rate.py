"""A place and a time are what `rate-micro-batch` of Spark keeps, which makes its rows anew, and others do as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import Lines

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.source_replay import list_taken_for_rate, list_unasked_sources
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

RATE = tuple(f'{{"offset":{10 * n},"timestamp":{1_700_000_000_000 + 1000 * n}}}' for n in range(1, 4))
UNEVEN = tuple(f'{{"offset":{n},"timestamp":1700000000000}}' for n in (4, 9, 16))
OF_PYTHON = tuple(f'{{"offset": {10 * n}, "timestamp": 1700000000000}}' for n in range(1, 4))


def observed(folder: Path, texts: tuple[str, ...], **others: bool) -> Observation:
    builder = CheckpointBuilder(folder, Lines(texts))
    for number, text in enumerate(texts):
        builder.plan()
        plan = folder / f"offsets/{number}"
        plan.write_text("\n".join([*plan.read_text().split("\n")[:2], text]))  # as its connector writes it
        if number < len(texts) - 1:
            builder.commit()
    checkpoint = read_checkpoint(LocalStorage(), parse_location(str(folder)))
    return Observation(checkpoint, location="/chk", **others)


def test_what_looks_like_it_in_all_is_taken_for_it_and_that_is_said(tmp_path: Path) -> None:
    seen = observed(tmp_path, RATE)
    (told,) = list_taken_for_rate(seen)
    assert told.startswith("source 0 is Spark's rate-micro-batch, as it looks, ")
    assert list_unasked_sources(seen) == []
    assert told in predict(seen, SPARK_4_2).unknowns


@pytest.mark.parametrize("texts", [UNEVEN, OF_PYTHON])
def test_what_has_its_keys_only_is_a_source_that_nobody_asked(tmp_path: Path, texts: tuple[str, ...]) -> None:
    seen = observed(tmp_path, texts)
    (found,) = list_unasked_sources(seen)
    assert list_taken_for_rate(seen) == []
    assert found.unknown in predict(seen, SPARK_4_2).unknowns


def test_nothing_is_taken_for_granted_where_a_person_vouches_for_it(tmp_path: Path) -> None:
    seen = observed(tmp_path, RATE, source_replays=True)
    assert list_taken_for_rate(seen) == []
    assert predict(seen, SPARK_4_2).unknowns == ()
