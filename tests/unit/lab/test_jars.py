from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.lab.jars import JAR_SETS, Jar, Stamp, fetch_jars, is_verified, list_jars, parse_failed_modules, parse_jars
from lastgood.process.java import Java

IVY = """
<ivy-module version="2.0">
  <dependencies>
    <!-- why -->
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2" conf="spark->default"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="4.1.1" conf="broker->default"/>
  </dependencies>
</ivy-module>
"""
DIGESTS = "aa11  broker/kafka-clients-4.1.1.jar\nbb22  spark/kafka-clients-3.9.2.jar\n"


def test_list_gives_each_artifact_its_set_and_digest() -> None:
    assert parse_jars(IVY, DIGESTS) == (
        Jar("spark", "org.apache.kafka", "kafka-clients", "3.9.2", "bb22"),
        Jar("broker", "org.apache.kafka", "kafka-clients", "4.1.1", "aa11"),
    )


def test_artifact_is_named_as_ivy_does_and_lies_below_its_set() -> None:
    jar = parse_jars(IVY, DIGESTS)[0]
    assert jar.module_id == "org.apache.kafka#kafka-clients;3.9.2"
    assert jar.path == "spark/kafka-clients-3.9.2.jar"


def test_artifact_without_a_digest_is_refused() -> None:
    with pytest.raises(KeyError, match="spark/kafka-clients"):
        parse_jars(IVY, DIGESTS.splitlines()[0])


def test_every_listed_artifact_has_a_digest_and_every_digest_an_artifact() -> None:
    jars = list_jars()
    digests = (Path(__file__).parents[3] / "src/lastgood/lab/ivy/jars.sha256").read_text().splitlines()
    assert sorted(jar.path for jar in jars) == sorted(line.split()[1] for line in digests)
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert {jar.jar_set for jar in jars} == set(JAR_SETS)


REPORT = """
<ivy-report version="1.0"><dependencies>
  <module organisation="io.delta" name="delta-storage">
    <revision name="4.4.0" error="not found"><artifacts/></revision>
  </module>
  <module organisation="org.apache.kafka" name="kafka-clients">
    <revision name="3.9.2"><artifacts><artifact name="kafka-clients" status="failed"/></artifacts></revision>
  </module>
  <module organisation="org.apache.commons" name="commons-pool2">
    <revision name="2.13.1"><artifacts><artifact name="commons-pool2" status="successful"/></artifacts></revision>
  </module>
</dependencies></ivy-report>
"""


def test_report_names_what_was_not_found_and_what_failed_on_its_way() -> None:
    assert parse_failed_modules(REPORT) == ["io.delta#delta-storage;4.4.0", "org.apache.kafka#kafka-clients;3.9.2"]


JAR = Jar("spark", "org", "a", "1", "digest")


def stat(size: int, mtime_ns: int) -> os.stat_result:
    seconds = mtime_ns // 10**9
    return os.stat_result((0, 0, 0, 1, 0, 0, size, seconds, seconds, seconds, *[0.0] * 3, *[mtime_ns] * 3))


def test_file_that_looks_as_when_it_was_verified_is_not_read_again() -> None:
    assert is_verified(JAR, stat(10, 5), Stamp(10, 5, "digest"))


@pytest.mark.parametrize(
    ("found", "stamp"),
    [
        (None, Stamp(10, 5, "digest")),
        (stat(10, 5), None),
        (stat(11, 5), Stamp(10, 5, "digest")),
        (stat(10, 6), Stamp(10, 5, "digest")),
        (stat(10, 5), Stamp(10, 5, "digest of another release")),
    ],
    ids=["missing", "never verified", "another size", "another time", "another digest is expected"],
)
def test_anything_else_is_not_verified(found: os.stat_result | None, stamp: Stamp | None) -> None:
    assert not is_verified(JAR, found, stamp)


def test_unknown_set_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        fetch_jars(["sparc"], java=Java(tmp_path, 17), cache=tmp_path)
    assert raised.value.found == "sparc"
