"""The batches of which `inspect --state` says that their state can be loaded, read by Spark's own reader of states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lastgood.lab.spark import find_default_spark, submit
from lastgood.observe.state_sizes import inspect_state
from lastgood.process.java import Java
from lastgood.settings.target import resolve_target

pytestmark = [pytest.mark.spark, pytest.mark.proof]

APP = Path(__file__).with_name("state_load_app.py")
CASES = Path(__file__).parents[1] / "corpus/cases"
DAMAGED = {
    "nothing": [],
    "a change before a snapshot": ["3.changelog"],
    "a change after a snapshot": ["6.changelog"],
    "a snapshot": ["4.zip"],
    "a snapshot and a change before it": ["3.changelog", "4.zip"],
}


@pytest.mark.parametrize("gone", DAMAGED.values(), ids=DAMAGED)
def test_state_can_be_loaded_as_of_the_batches_that_are_told(
    gone: list[str], java: Java, spark_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    checkpoint, log = tmp_path / "chk", tmp_path / "driver.log"
    shutil.copytree(CASES / "4.0-agg-rocksdb-changelog-healthy/checkpoint", checkpoint)
    for name in gone:
        (checkpoint / "state/0/0" / name).unlink()
    told = [batch for span in inspect_state(resolve_target(str(checkpoint))).loadable for batch in span]
    words = [str(tmp_path / "loaded.json"), str(checkpoint), "8"]
    with log.open("wb") as output:
        child = submit(APP, words, environment=find_default_spark(), java=java, jars=spark_jars, output=output)
        with child:
            child.wait()
    assert json.loads((tmp_path / "loaded.json").read_text()) == told, log.read_text()[-4000:]
