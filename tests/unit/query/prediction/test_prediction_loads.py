"""The checkpoint of a load, and the Sparks that know its source, as `test_load_of_other_sparks.py` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from foreign import Lines

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import diagnose
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_1, SPARK_4_2, SPARK_4_3, SPARK_VERSIONS, SparkVersion
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.supervise.load_driver import SPARKS_OF_LOADS
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.mark.parametrize(
    ("spark", "outcome"),
    [(SPARK_4_1, Outcome.FAILS), (SPARK_4_2, Outcome.RESUMES), (SPARK_4_3, Outcome.RESUMES)],
)
def test_load_goes_on_with_the_spark_that_it_needs(tmp_path: Path, spark: SparkVersion, outcome: Outcome) -> None:
    CheckpointBuilder(tmp_path, Lines(['{"lastgood_load":1,"file":0,"position":2}'])).run(1)
    observed = Observation(read_checkpoint(LocalStorage(), parse_location(str(tmp_path))))
    assert diagnose(observed, spark).restart.outcome == outcome
    assert tuple(str(each) for each in SPARK_VERSIONS if each >= SPARK_4_2) == SPARKS_OF_LOADS
