"""Over how many partitions a real Spark spreads the state of each operator, and that this is what is expected of it.

The table of `docs/why/partitions.md`, as far as a Python query can ask for an operator; what only Scala can is in
`tests/corpus/spark`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read

from lastgood.checkpoint.partitions import Partitions
from lastgood.lab.spark import find_default_spark, submit
from lastgood.operations.diagnose import diagnose
from lastgood.process.java import Java
from lastgood.settings.target import resolve_target

pytestmark = [pytest.mark.spark, pytest.mark.proof]

APP = Path(__file__).with_name("spread_app.py")
SINGLE = {"limit": "globalLimit", "no-key": "stateStoreSave"}
SINGLE |= {f"{name}-rocksdb": operator for name, operator in SINGLE.items()}
BY_KEY = {
    "key": "stateStoreSave",
    "key-that-is-null": "stateStoreSave",
    "window": "stateStoreSave",
    "session-window": "sessionWindowStateStoreSaveExec",
    "distinct": "dedupe",
    "within-watermark": "dedupeWithinWatermark",
    "join": "symmetricHashJoin",
    "apply-in-pandas": "applyInPandasWithState",
    "transform-with-state": "transformWithStateInPandasExec",
}
PINNED = 4


@pytest.fixture(scope="module")
def ran(java: Java, spark_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spread")
    log = folder / "driver.log"
    with log.open("wb") as output:
        child = submit(APP, [str(folder)], environment=find_default_spark(), java=java, jars=spark_jars, output=output)
        with child:
            ending = child.wait()
    assert (folder / "refused.json").exists(), f"{ending}: {log.read_text()[-4000:]}"
    return folder


@pytest.mark.parametrize(("name", "operator"), [*SINGLE.items(), *BY_KEY.items()])
def test_state_has_the_partitions_that_are_expected(ran: Path, name: str, operator: str) -> None:
    found = read(ran / name)
    assert found.state
    (state,) = found.state.operators
    assert state.name == operator
    count = 1 if name in SINGLE else PINNED
    assert found.state.partitions(state) == Partitions(count, is_known=True)
    assert len([each for each in (ran / name / "state/0").iterdir() if each.name.isdecimal()]) == count
    absent = [each for each in found.absent if each.split("/")[1] not in found.shared_logs]
    assert (absent, dict(found.damage)) == ([], {})
    assert found.last_loadable == found.last_committed
    assert not [
        each for each in diagnose(resolve_target(str(ran / name))).findings if each.condition.name.startswith("STATE_")
    ]


def test_spark_goes_on_with_a_join_of_a_stream_with_itself_which_cannot_be_told_from_a_lost_log(ran: Path) -> None:
    """Of the two lines of each plan the second has no log of its own; the application has started it twice."""
    assert read(ran / "join").shared_logs == {"1": "0"}
    assert [each.name for each in (ran / "join/sources").iterdir()] == ["0"]
    assert "join" not in json.loads((ran / "refused.json").read_text())
    of_source, of_sink = diagnose(resolve_target(str(ran / "join"))).restart.unknowns
    assert of_source.startswith("source 1: whether its log is lost, or it is the stream of sources/0")
    assert of_sink.endswith("none was asked (--sink)")


def test_what_spark_refuses_without_a_key_never_has_state(ran: Path) -> None:
    refused = json.loads((ran / "refused.json").read_text())
    assert sorted(refused) == ["apply-in-pandas-alone", "session-window-alone"]
    assert not (ran / "session-window-alone/commits/0").exists()
