"""What a real Spark does with a link in its offset log: it follows it, which lastgood says and does not do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastgood.lab.spark import find_default_spark, submit
from lastgood.observe.open_query import CheckpointHasLinksError, gather
from lastgood.operations.diagnose import diagnose
from lastgood.process.java import Java
from lastgood.settings.target import resolve_target

pytestmark = pytest.mark.spark

DEADLINE_SECONDS = 240
QUERY = """
import json, sys
from pyspark.sql import SparkSession

checkpoint, source, seen = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()

def write(rows, batch_id):
    with open(seen, "a") as file:
        file.write(json.dumps([batch_id, sorted(row.value for row in rows.collect())]) + "\\n")

rows = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source)
query = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
query.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


def run(folder: Path, java: Java) -> list[list[object]]:
    """What batches the sink gets from one start to its end."""
    seen = folder / "seen"
    seen.unlink(missing_ok=True)
    script = folder / "query.py"
    script.write_text(QUERY)
    log = folder / "spark.log"
    arguments = [str(folder / "chk"), str(folder / "source"), str(seen)]
    conf = {"spark.driver.memory": "600m"}
    with (
        log.open("wb") as output,
        submit(script, arguments, environment=find_default_spark(), java=java, conf=conf, output=output) as child,
    ):
        ended = child.wait(DEADLINE_SECONDS)
        assert ended is not None
        assert ended.exit_code == 0, log.read_text()[-3000:]
    return [json.loads(line) for line in seen.read_text().splitlines()]


@pytest.mark.proof
def test_spark_follows_a_link_in_its_offset_log(tmp_path: Path, java: Java) -> None:
    (tmp_path / "source").mkdir()
    for number in range(3):
        (tmp_path / f"source/{number}.txt").write_text(f"row {number}\n")
    first = run(tmp_path, java)
    assert [batch for batch, _ in first] == [0, 1, 2]
    chk = tmp_path / "chk"
    for name in ("commits/2", "commits/.2.crc", "offsets/.2.crc"):
        (chk / name).unlink()
    (chk / "offsets/2").rename(tmp_path / "elsewhere")
    (chk / "offsets/2").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CheckpointHasLinksError):
        gather(resolve_target(str(chk)))
    found = diagnose(resolve_target(str(chk)))
    assert found.findings[0].condition.name == "CHECKPOINT_HAS_LINKS"
    assert any("which Spark follows" in each for each in found.restart.unknowns)

    assert run(tmp_path, java) == [first[2]]  # the batch whose plan it found behind the link, and no other
    assert (chk / "commits/2").is_file()
    assert (chk / "offsets/2").is_symlink()
