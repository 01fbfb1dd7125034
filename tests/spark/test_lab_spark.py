"""Scripts that run on real Spark, as the lab starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import (
    SparkEnvironment,
    SparkUnavailableError,
    find_default_spark,
    provide_spark,
    submit,
)
from lastgood.process.java import Java

pytestmark = pytest.mark.spark

DEADLINE_SECONDS = 180

COUNT = """
import json, os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
told = {
    "version": spark.version,
    "count": spark.range(int(sys.argv[1])).count(),
    "python": sys.executable,
    "java": spark._jvm.java.lang.System.getProperty("java.home"),
    "master": spark.sparkContext.master,
    "variable": os.environ.get("VARIABLE"),
}
open(sys.argv[2], "w").write(json.dumps(told))
spark.stop()
"""


@pytest.mark.proof
@pytest.mark.parametrize("version", ["3.5.9", find_default_spark().version])
def test_script_runs_on_the_spark_of_its_environment_whatever_the_shell_exports(
    version: str,
    spark_of: Callable[[str], SparkEnvironment],
    java: Java,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/there/is/no/spark")
    monkeypatch.setenv("PYSPARK_PYTHON", "/there/is/no/python")
    monkeypatch.setenv("JAVA_HOME", "/there/is/no/java")
    spark = spark_of(version)
    script, result, log = tmp_path / "count.py", tmp_path / "result.json", tmp_path / "log"
    script.write_text(COUNT)
    with (
        log.open("wb") as output,
        submit(
            script,
            ["1000", str(result)],
            environment=spark,
            java=java,
            conf={"spark.master": "local[1]"},
            env={"VARIABLE": "value"},
            cwd=tmp_path,
            output=output,
        ) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None
    assert ending.is_success, log.read_text()
    told = json.loads(result.read_text())
    assert Path(told.pop("java")).samefile(java.home)
    assert told == {
        "version": version,
        "count": 1000,
        "python": str(spark.python),
        "master": "local[1]",
        "variable": "value",
    }


KAFKA_TO_DELTA = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, table, result = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
records = (
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic).option("startingOffsets", "earliest").load()
)
query = (
    records.selectExpr("cast(value as string) as value", "offset").writeStream.format("delta")
    .option("checkpointLocation", table + ".checkpoint").trigger(availableNow=True).start(table)
)
query.awaitTermination()
spark.sql(f"delete from delta.`{table}` where value = 'b'")
rows = spark.read.format("delta").load(table).orderBy("offset").collect()
open(result, "w").write(" ".join(f"{row.offset}:{row.value}" for row in rows))
"""


@pytest.mark.proof
def test_default_spark_reads_kafka_and_writes_delta_with_the_jars_of_its_set(
    spark_jars: tuple[Path, ...],
    broker: KafkaBroker,
    topic: str,
    java: Java,
    tmp_path: Path,
) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in ("a", "b", "c"):
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_SECONDS) == 0
    script, result, log = tmp_path / "kafka_to_delta.py", tmp_path / "result", tmp_path / "log"
    script.write_text(KAFKA_TO_DELTA)
    with (
        log.open("wb") as output,
        submit(
            script,
            [broker.bootstrap, topic, str(tmp_path / "table"), str(result)],
            environment=find_default_spark(),
            java=java,
            jars=spark_jars,
            cwd=tmp_path,
            output=output,
        ) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None
    assert ending.is_success, log.read_text()
    assert result.read_text() == "0:a 2:c"


OWNER = """
import os, sys, time
from pathlib import Path
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import find_java
script = Path(sys.argv[1])
script.write_text("import time; print('up', flush=True); time.sleep(600)")
child = submit(script, environment=find_default_spark(), java=find_java(os.environ))
child.wait()
"""


def test_spark_ends_with_its_owner_even_when_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "sleep.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        assert any(line == "up\n" for line in owner.stdout)
        started = psutil.Process(owner.pid).children(recursive=True)
        assert any(process.name() == "java" for process in started)
        owner.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=DEADLINE_SECONDS)
    assert alive == []


def test_environment_that_pip_cannot_fill_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    told = []
    with pytest.raises(SparkUnavailableError) as raised:
        provide_spark("3.5.9", cache=tmp_path, progress=told.append)
    assert "pyspark==3.5.9" in (raised.value.found or "")
    assert Path(raised.value.subject or "").is_file()
    assert not (tmp_path / "spark-3.5.9").exists()
    assert len(told) == 2
