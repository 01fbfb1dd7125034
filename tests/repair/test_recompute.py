"""State that is made anew in place: no window is written twice, none is missed, none counts other rows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import typed
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.sparks import Sparks
from reading import read_files
from repair.windows import CHANGELOG, CHECKPOINT_V2, HDFS, ROCKSDB, STATE, SWITCH, Windows, make_events, write_file

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
BATCHES = 6
RUN = 4


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def produce(broker: KafkaBroker, topic: str, events: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, event in enumerate(events):
        at_ms = int(datetime.fromisoformat(event["t"]).timestamp() * 1000)
        producer.produce(topic, json.dumps(event), partition=(0, 0, 0, 1, 1, 2)[number % 6], timestamp=at_ms)
    assert producer.flush(30) == 0


def delete_before(broker: KafkaBroker, topic: str, starts: Mapping[int, int]) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [TopicPartition(topic, partition, at) for partition, at in starts.items() if at]
    for future in admin.delete_records(wanted).values():
        future.result(30)


FORMATS = {"hdfs": HDFS, "rocksdb": ROCKSDB, "changelog": CHANGELOG, "v2": CHECKPOINT_V2}
CODECS = {name: {**HDFS, f"{STATE}.compression.codec": name} for name in ("zstd", "snappy", "lzf")}
SINKS = ("parquet", "delta", "foreachBatch")


def begun(
    sparks: Sparks, folder: Path, sink: str, conf: Mapping[str, str], *, broken: bool = False, version: str = "4.2.0"
) -> Windows:
    """The old code has read the first files, one by one; where it is broken, it has died in the batch after them."""
    query = Windows(sparks.of(version), folder, sink, {"spark.sql.shuffle.partitions": "2", **conf})
    # The files that a batch which died has noted down are read together with the next one.
    query.events = make_events(SEED, BATCHES, are_late=not broken)
    give(query, range(RUN))
    assert query.start("old") is None
    query.start_reference()  # stopped at the same place, so that it plans the same batches
    if broken:
        give(query, [RUN])
        assert "is not true" in (query.start("old", where=BROKEN) or "")
    return query


BROKEN = "assert_true(v < 0) is null"
"""A bug in the application: it ends with the first row."""


def require_exact(query: Windows, old: int) -> None:
    """See that each window is there once and counts right; all but `old` of them with the sum of new code."""
    wanted, found = query.rows("reference"), query.rows()
    assert [row[:2] for row in found] == [row[:2] for row in wanted]
    new = [row for row in found if row[2] is not None]
    assert new == [row for row in wanted if row[0] in {each[0] for each in new}]
    assert len(found) - len(new) == old


def give(query: Windows, numbers: Iterable[int]) -> None:
    """More of the input comes; its last file closes every window."""
    for number in numbers:
        write_file(query.folder / "input", number, query.events[number])


def plan_recompute(query: Windows, kafka: str | None = None, **options: Any) -> Plan:
    said = {"appends_windows": query.sink == "foreachBatch", **options}
    goal = lastgood.Recompute(**said)
    name = "windows" if query.sink == "foreachBatch" else None
    return lastgood.plan(str(query.checkpoint), goal=goal, sink=query.table, txn_app_id=name, kafka=kafka)


def recompute(query: Windows, kafka: str | None = None, **options: Any) -> Plan:
    """What is promised without a person's consent is exact."""
    plan = plan_recompute(query, kafka, **options)
    assert (plan.guarantee, plan.needs, plan.promise.outcome) == (Guarantee.EXACTLY_ONCE, (), "reruns")
    lastgood.apply(plan, driver_is_dead=True)
    return plan


def finish(query: Windows, old: int) -> None:
    """The rest comes, and the new code reads it."""
    give(query, range(RUN, BATCHES + 1))
    assert query.start("new") is None
    query.start_reference()
    require_exact(query, old)


@pytest.mark.spark
def test_open_windows_come_from_the_new_code_and_written_ones_stay(sparks: Sparks, tmp_path: Path) -> None:
    query = begun(sparks, tmp_path, "parquet", HDFS)
    old = len(query.rows())
    assert old
    recompute(query)
    finish(query, old)
    found = typed.call("verify", query.checkpoint)
    assert (found.returncode, "has filled an emptied state" in found.stdout) == (0, True)


@pytest.mark.proof
def test_new_code_that_fails_is_tried_again_and_taken_back(sparks: Sparks, tmp_path: Path) -> None:
    """What the failed batch has made of the state goes, and what there was comes back byte for byte."""
    query = begun(sparks, tmp_path, "delta", ROCKSDB, broken=True)
    old, before = len(query.rows()), read_files(query.checkpoint)
    plan = recompute(query)
    assert "is not true" in (query.start("new", where=BROKEN) or "")
    lastgood.undo(plan.recovery, driver_is_dead=True)
    assert {path: content for path, content in read_files(query.checkpoint).items() if path in before} == before
    recompute(query)
    assert "is not true" in (query.start("newer", where=BROKEN) or "")
    with pytest.raises(lastgood.LastgoodError, match="fills the state again"):
        lastgood.plan(str(query.checkpoint), goal=lastgood.Replan(), sink=query.table)
    recompute(query)
    finish(query, old)


@pytest.mark.proof
@pytest.mark.parametrize("form", {**FORMATS, **CODECS})
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("broken", [False, True], ids=["stopped", "broken"])
def test_every_form_of_state_and_every_sink(
    sparks: Sparks, tmp_path: Path, form: str, sink: str, *, broken: bool
) -> None:
    query = begun(sparks, tmp_path, sink, {**FORMATS, **CODECS}[form], broken=broken)
    old = len(query.rows())
    recompute(query)
    finish(query, old)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("version", "form"),
    [
        (each, form)
        for each in ("3.5.9", "4.0.5", "4.1.4", "4.3.0")
        for form in FORMATS
        if (each, form) != ("3.5.9", "v2")
    ],
)
def test_every_version_of_spark(sparks: Sparks, tmp_path: Path, version: str, form: str) -> None:
    query = begun(sparks, tmp_path, "parquet", FORMATS[form], version=version, broken=True)
    old = len(query.rows())
    recompute(query)
    finish(query, old)


@dataclass(frozen=True)
class Change:
    """How the state was kept, and how it is to be kept from then on."""

    before: Mapping[str, str]
    """As the application sets it, before and after: what the log pins counts."""
    said: Mapping[str, Any]
    """Of `lastgood.Recompute`."""
    partitions: int = 2
    """Then."""
    provider: str = "HDFSBacked"
    """Then."""
    started_with: Mapping[str, str] = field(default_factory=dict)
    """What the application sets then beside that: no log pins it."""


PARTITIONS = "spark.sql.shuffle.partitions"
CHANGES = {
    "hdfs to rocksdb": Change(HDFS, {"state_store": "rocksdb"}, provider="RocksDB"),
    "rocksdb to hdfs": Change(ROCKSDB, {"state_store": "hdfs"}),
    "changelog to hdfs": Change(CHANGELOG, {"state_store": "hdfs"}),
    "hdfs to changelog": Change(
        HDFS, {"state_store": "rocksdb", "changelog": True}, provider="RocksDB", started_with={SWITCH: "true"}
    ),
    "changelog on": Change(ROCKSDB, {"changelog": True}, provider="RocksDB", started_with={SWITCH: "true"}),
    "changelog off": Change(CHANGELOG, {"changelog": False}, provider="RocksDB", started_with={SWITCH: "false"}),
    "2 to 5": Change(HDFS, {"shuffle_partitions": 5}, 5),
    "5 to 2": Change({**HDFS, PARTITIONS: "5"}, {"shuffle_partitions": 2}),
    "2 to 1": Change(HDFS, {"shuffle_partitions": 1}, 1),
    "rocksdb, 2 to 5": Change(ROCKSDB, {"shuffle_partitions": 5}, 5, "RocksDB"),
    "changelog, 5 to 2": Change({**CHANGELOG, PARTITIONS: "5"}, {"shuffle_partitions": 2}, 2, "RocksDB"),
    "both": Change(HDFS, {"shuffle_partitions": 5, "state_store": "rocksdb"}, 5, "RocksDB"),
    "both back": Change({**ROCKSDB, PARTITIONS: "5"}, {"shuffle_partitions": 2, "state_store": "hdfs"}),
    "v2, 2 to 5": Change(CHECKPOINT_V2, {"shuffle_partitions": 5}, 5, "RocksDB"),
    "v2, 5 to 2": Change({**CHECKPOINT_V2, PARTITIONS: "5"}, {"shuffle_partitions": 2}, 2, "RocksDB"),
    "codec": Change(HDFS, {"conf": {f"{STATE}.compression.codec": "zstd"}}),
    "format of rows": Change(HDFS, {"conf": {"spark.sql.streaming.aggregation.stateFormatVersion": "1"}}),
}


WITHOUT_V2 = "3.5.9"
BY_VERSION = [
    (name, version)
    for version in (WITHOUT_V2, "4.0.5", "4.1.4", "4.3.0")
    for name in CHANGES
    if not (version == WITHOUT_V2 and name.startswith("v2"))
]


def require_kept_as_said(query: Windows, change: Change) -> None:
    """See that each plan since pins it, and that Spark has written the state so, whatever the application sets."""
    plans = sorted((each for each in (query.checkpoint / "offsets").iterdir() if each.name.isdecimal()), key=by_number)
    conf = json.loads(plans[-1].read_text().splitlines()[1])["conf"]
    assert (conf[PARTITIONS], change.provider in conf[f"{STATE}.providerClass"]) == (str(change.partitions), True)
    assert change.said.get("conf", {}).items() <= conf.items()
    newest = f"{int(plans[-1].name) + 1}"
    kinds = "*.delta" if change.provider == "HDFSBacked" else "*.[zc][ih]*"
    written = [each for each in (query.checkpoint / "state/0").glob(f"*/{kinds}") if each.name[0] != "."]
    found = {each.parent.name for each in written if each.name.replace("_", ".").split(".")[0] == newest}
    assert found == {str(number) for number in range(change.partitions)}


def by_number(file: Path) -> int:
    return int(file.name)


def change(query: Windows, wanted: Change) -> None:
    """Say it, start new code, and see each window, and how the state is kept then."""
    old = len(query.rows())
    recompute(query, **wanted.said)
    query.conf = {**query.conf, **wanted.started_with}
    finish(query, old)
    require_kept_as_said(query, wanted)
    found = typed.call("diagnose", query.checkpoint, "--sink", query.table)
    assert found.returncode == 0, found.stdout
    assert typed.call("verify", query.checkpoint).returncode == 0


@pytest.mark.proof
@pytest.mark.parametrize("name", CHANGES)
def test_state_is_kept_otherwise_from_then_on(sparks: Sparks, tmp_path: Path, name: str) -> None:
    change(begun(sparks, tmp_path, "parquet", CHANGES[name].before), CHANGES[name])


@pytest.mark.proof
@pytest.mark.parametrize(("name", "version"), BY_VERSION)
def test_state_is_kept_otherwise_by_every_version(sparks: Sparks, tmp_path: Path, name: str, version: str) -> None:
    change(begun(sparks, tmp_path, "parquet", CHANGES[name].before, version=version, broken=True), CHANGES[name])


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sink", SINKS)
def test_batch_that_the_sink_has_and_that_is_not_committed(
    sparks: Sparks, tmp_path: Path, form: str, sink: str
) -> None:
    query = begun(sparks, tmp_path, sink, FORMATS[form])
    newest = max(int(each.name) for each in (query.checkpoint / "commits").iterdir() if each.name.isdecimal())
    for name in (str(newest), f".{newest}.crc"):
        (query.checkpoint / "commits" / name).unlink()
    old = len(query.rows())
    recompute(query)
    finish(query, old)


def of_topic(
    sparks: Sparks,
    folder: Path,
    broker: KafkaBroker,
    topic: str,
    form: str,
    *,
    run: int = RUN,
    ledger: str | None = None,
) -> Windows:
    """The same of a topic, whose partitions hold unlike shares of the events; Kafka has each at its time."""
    told = {"bootstrap": broker.bootstrap, "topic": topic, "limit": "40"}
    conf = {"spark.sql.shuffle.partitions": "2", **FORMATS[form]}
    query = Windows(sparks.of("4.2.0"), folder, "delta", conf, told, make_events(SEED, run + 2, are_late=True))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    kept = NewTopic(topic, 3, 1, config={"retention.ms": "-1"})  # the events are of long ago
    admin.create_topics([kept])[topic].result(30)
    for events in query.events[:run]:
        produce(broker, topic, events)
    assert query.start("old", ledger=ledger) is None
    query.start_reference()
    return query


def finish_topic(query: Windows, broker: KafkaBroker, old: int) -> None:
    for events in query.events[-3:]:
        produce(broker, query.source["topic"], events)
    assert query.start("new") is None
    query.start_reference()
    require_exact(query, old)


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_topic_is_read_again_from_its_beginning(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path, form: str
) -> None:
    query = of_topic(sparks, tmp_path, broker, topic, form)
    old = len(query.rows())
    plan = recompute(query, kafka=broker.bootstrap)
    (price,) = plan.sources
    assert sum(end - start for parts in price.reread[topic].values() for start, end in parts) == 40 * RUN
    finish_topic(query, broker, old)


EVENT_TIME = "timestamp(get_json_object(cast(value as string), '$.t'))"


@pytest.mark.proof
@pytest.mark.parametrize("recorded", [False, True], ids=["index of times", "ledger"])
def test_what_has_expired_is_not_needed_where_windows_are_short(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    """Kafka's index of times tells it, or what a recorder has told a ledger of each batch."""
    ledger = f"sqlite:///{tmp_path}/ledger.sqlite"
    if recorded:
        monkeypatch.setenv("LASTGOOD_LEDGER", ledger)
    query = of_topic(sparks, tmp_path, broker, topic, "hdfs", run=12, ledger=ledger if recorded else None)
    old = len(query.rows())
    choice = {"window_ms": 600_000, "max_clock_skew_ms": None if recorded else 0}
    (price,) = plan_recompute(query, broker.bootstrap, **choice).sources
    starts = {partition: ranges[0][0] for partition, ranges in price.reread[topic].items()}
    assert any(starts.values())
    delete_before(broker, topic, starts)
    with pytest.raises(lastgood.LastgoodError, match="would not run"):
        recompute(query, kafka=broker.bootstrap)
    recompute(query, kafka=broker.bootstrap, **choice)
    finish_topic(query, broker, old)


@pytest.mark.proof
def test_events_themselves_tell_from_where_on_they_count(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    query = of_topic(sparks, tmp_path, broker, topic, "hdfs", run=12)
    old = len(query.rows())
    plan = recompute(query, kafka=broker.bootstrap, window_ms=600_000, event_time=EVENT_TIME)
    (price,) = plan.sources
    assert 0 < sum(end - start for parts in price.reread[topic].values() for start, end in parts) < 40 * 12
    finish_topic(query, broker, old)


@pytest.mark.proof
def test_what_nobody_can_tell_any_more_is_not_guessed(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """Records have expired: events come in any order, and one that an open window counts may have been among them."""
    query = of_topic(sparks, tmp_path, broker, topic, "hdfs", run=12)
    choice: dict[str, Any] = {"window_ms": 600_000, "event_time": EVENT_TIME}
    (price,) = plan_recompute(query, broker.bootstrap, **choice).sources
    starts = {partition: spans[0][0] for partition, spans in price.reread[topic].items()}
    delete_before(broker, topic, {partition: max(start - 1, 1) for partition, start in starts.items()})
    with pytest.raises(lastgood.LastgoodError, match="would not run"):
        recompute(query, kafka=broker.bootstrap, **choice)
    with pytest.raises(lastgood.LastgoodError) as silent:
        plan_recompute(query, "127.0.0.1:1", **choice)
    assert silent.value.condition == "KAFKA_UNREACHABLE"
    for wrong, found in {"timestamp(": "PARSE_SYNTAX_ERROR", "cast(value as string)": "type string"}.items():
        with pytest.raises(lastgood.LastgoodError) as refused:
            plan_recompute(query, broker.bootstrap, window_ms=600_000, event_time=wrong)
        assert refused.value.condition == "EVENT_TIME_INVALID"
        assert found in (refused.value.found or "")


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_state_of_which_files_are_lost(sparks: Sparks, tmp_path: Path, form: str) -> None:
    query = begun(sparks, tmp_path, "parquet", FORMATS[form])
    for file in (query.checkpoint / "state/0/1").rglob("*.*"):
        file.unlink()
    old = len(query.rows())
    recompute(query)
    finish(query, old)


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_state_that_is_lost_as_a_whole(sparks: Sparks, tmp_path: Path, form: str) -> None:
    """Nothing tells then what it was of: a person says it."""
    query = begun(sparks, tmp_path, "parquet", FORMATS[form])
    shutil.rmtree(query.checkpoint / "state")
    old = len(query.rows())
    recompute(query, appends_windows=True)
    finish(query, old)


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_checkpoint_of_files_that_is_lost_comes_back_from_the_mirror_first(
    sparks: Sparks, tmp_path: Path, form: str
) -> None:
    query = begun(sparks, tmp_path, "parquet", FORMATS[form])
    assert typed.call("backup", "create", query.checkpoint).returncode == 0
    shutil.rmtree(query.checkpoint)
    with pytest.raises(lastgood.LastgoodError, match="where the logs stand") as refused:
        plan_recompute(query, appends_windows=True)
    assert "backup restore" in str(refused.value.next)
    assert typed.call("backup", "restore", query.checkpoint).returncode == 0
    old = len(query.rows())
    recompute(query, appends_windows=True)
    finish(query, old)


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_checkpoint_of_a_topic_that_is_lost_comes_back_with_its_state(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path, form: str
) -> None:
    """The mirror has the logs, and no state."""
    query = of_topic(sparks, tmp_path, broker, topic, form)
    assert typed.call("backup", "create", query.checkpoint).returncode == 0
    shutil.rmtree(query.checkpoint)
    old = len(query.rows())
    plan = recompute(query, kafka=broker.bootstrap, appends_windows=True)
    lastgood.undo(plan.recovery, driver_is_dead=True)
    left = {path.partition("/")[0] for path in read_files(query.checkpoint)}
    assert left.isdisjoint({"offsets", "commits", "state"})
    recompute(query, kafka=broker.bootstrap, appends_windows=True)
    finish_topic(query, broker, old)
