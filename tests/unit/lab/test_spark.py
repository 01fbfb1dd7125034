from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.errors import ExtraMissingError, UsageError
from lastgood.lab.spark import (
    JAVA_OPTIONS,
    SMALL_CONF,
    SPARK_VERSIONS,
    SparkEnvironment,
    find_class_archive,
    find_default_spark,
    make_small_conf,
    provide_spark,
    submit_command,
    submit_env,
)
from lastgood.process.java import Java

SPARK = SparkEnvironment("4.0.5", Path("/venv/bin/python"), Path("/venv/pyspark"))


def test_default_spark_is_that_of_the_running_python() -> None:
    spark = find_default_spark()
    assert spark.python == Path(sys.executable)
    assert (spark.home / "bin" / "spark-submit").is_file()
    assert spark.version in SPARK_VERSIONS


LAZY = """
import sys
import lastgood.lab.jars, lastgood.lab.kafka
from lastgood.lab.spark import find_default_spark
find_default_spark()
assert not {"pyspark", "confluent_kafka"} & set(sys.modules)
"""


def test_neither_pyspark_nor_the_kafka_client_is_imported() -> None:
    subprocess.run([sys.executable, "-c", LAZY], check=True)


def test_missing_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError) as raised:
        find_default_spark()
    assert raised.value.next == "pip install 'lastgood[demo]'"


def test_installed_version_needs_no_environment_of_its_own(tmp_path: Path) -> None:
    spark = find_default_spark()
    assert provide_spark(spark.version, cache=tmp_path) == spark
    assert list(tmp_path.iterdir()) == []


def test_version_that_is_not_listed_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        provide_spark("3.4.0", cache=tmp_path)
    assert raised.value.expected == ", ".join(SPARK_VERSIONS)


def test_environment_in_the_cache_is_found_without_making_it(tmp_path: Path) -> None:
    environment = fake_environment(tmp_path, "4.0.5")
    (tmp_path / "spark-4.0.5").symlink_to(environment.name)
    spark = provide_spark("4.0.5", cache=tmp_path)
    assert spark.version == "4.0.5"
    assert spark.python == environment / "bin" / "python"
    assert spark.home == environment / "lib" / "python3.11" / "site-packages" / "pyspark"


def fake_environment(cache: Path, version: str) -> Path:
    folder = cache / f"spark-{version}-abc"
    home = folder / "lib" / "python3.11" / "site-packages" / "pyspark"
    home.mkdir(parents=True)
    (home / "version.py").write_text(f'__version__: str = "{version}"\n')
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_only_versions_with_a_published_pair_have_jars() -> None:
    assert SparkEnvironment("4.2.0", Path("p"), Path("h")).jar_set == "spark"
    assert SPARK.jar_set is None


def test_small_session_stays_on_loopback_and_small() -> None:
    assert SMALL_CONF["spark.driver.bindAddress"] == "127.0.0.1"
    assert SMALL_CONF["spark.ui.enabled"] == "false"
    assert make_small_conf() == SMALL_CONF


def test_jars_are_named_and_delta_is_switched_on_where_it_is_among_them() -> None:
    kafka_alone = make_small_conf([Path("/j/kafka-clients-3.9.2.jar")])
    assert kafka_alone["spark.jars"] == "/j/kafka-clients-3.9.2.jar"
    assert "spark.sql.extensions" not in kafka_alone
    with_delta = make_small_conf([Path("/j/delta-spark_4.2_2.13-4.4.0.jar"), Path("/j/delta-storage-4.4.0.jar")])
    assert with_delta["spark.jars"] == "/j/delta-spark_4.2_2.13-4.4.0.jar,/j/delta-storage-4.4.0.jar"
    assert with_delta["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert with_delta["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_jvm_takes_classes_from_an_archive_beside_what_else_it_is_told() -> None:
    options = make_small_conf(archive=Path("/c/spark.jsa"))[JAVA_OPTIONS]
    assert options == f"{SMALL_CONF[JAVA_OPTIONS]} -XX:SharedArchiveFile=/c/spark.jsa"


def test_jars_whose_classes_are_in_an_archive_are_on_the_class_path_of_the_jvm() -> None:
    conf = make_small_conf([Path("/j/a.jar"), Path("/j/b.jar")], archive=Path("/c/spark.jsa"))
    assert conf["spark.driver.extraClassPath"] == "/j/a.jar:/j/b.jar"
    assert "spark.jars" not in conf


def test_each_spark_on_each_java_has_a_class_archive_of_its_own_and_a_changed_one_another(tmp_path: Path) -> None:
    here, there = (SparkEnvironment("4.2.0", Path("p"), tmp_path / name) for name in ("here", "there"))
    (here.home / "jars").mkdir(parents=True)
    java = Java(Path("/java"), 17)
    archive = find_class_archive(here, java, cache=tmp_path)
    assert archive == find_class_archive(here, java, cache=tmp_path)
    assert archive.parent.parent == tmp_path
    assert archive != find_class_archive(there, java, cache=tmp_path)
    assert archive != find_class_archive(here, Java(Path("/other"), 17), cache=tmp_path)
    assert archive != find_class_archive(here, java, [Path("/j/delta.jar")], cache=tmp_path)
    os.utime(here.home / "jars", (1, 1))
    assert archive != find_class_archive(here, java, cache=tmp_path)


def test_command_is_the_spark_submit_of_the_environment() -> None:
    conf = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": "-Da=b -Dc=d"}
    assert submit_command(Path("app.py"), ["--x", "1"], environment=SPARK, conf=conf) == [
        "/venv/pyspark/bin/spark-submit",
        *("--conf", "spark.master=local[2]", "--conf", "spark.driver.extraJavaOptions=-Da=b -Dc=d"),
        *("app.py", "--x", "1"),
    ]


def test_exports_of_the_shell_lead_to_no_other_spark_python_or_java() -> None:
    shell = {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "SPARK_HOME": "/opt/spark",
        "SPARK_CONF_DIR": "/etc/spark",
        "PYSPARK_PYTHON": "/opt/python",
        "PYSPARK_SUBMIT_ARGS": "--master yarn",
        "PYTHONPATH": "/opt/spark/python",
        "HADOOP_CONF_DIR": "/etc/hadoop",
        "JAVA_TOOL_OPTIONS": "-Xmx16g",
        "_JAVA_OPTIONS": "-Xmx16g",
    }
    assert submit_env(SPARK, Java(Path("/java"), 17), shell) == {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "JAVA_HOME": "/java",
        "SPARK_HOME": "/venv/pyspark",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": "/venv/bin/python",
        "PYSPARK_DRIVER_PYTHON": "/venv/bin/python",
    }
