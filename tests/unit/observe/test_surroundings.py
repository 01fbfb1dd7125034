from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from lastgood.asked import Asked
from lastgood.errors import ExtraMissingError, UsageError
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.evidence import EvidenceOptions, make_asked, parse_options
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.observe.surroundings import look_around, make_reading
from lastgood.query.kafka import Reading
from lastgood.query.observation import Observation
from lastgood.settings.config import Config, Kafka
from lastgood.settings.target import Target, resolve_target
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.kafka import cluster as kafka_cluster
from lastgood.sources.kafka.retention import FROM_THE_FIRST_MS, MAX_CLOCK_SKEW_MS, ReadUpTo
from lastgood.storage.reading import LocalStorage, LocationInvalidError, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput

NOW = STARTED_MS + 60_000
FACTS = {"bootstrap": "b:9092", "captured_at_ms": 5, "topics": {"orders": {"partitions": {"0": {"earliest": 0}}}}}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    for batch_id in range(3):
        marker = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch_id, NOW)])
        write_deltalake(folder, pa.table({"n": [1, 2]}), mode="append", commit_properties=marker)
    return folder


@pytest.fixture
def facts(tmp_path: Path) -> str:
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(FACTS))
    return str(file)


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    folder = locate_mirror(location)
    storage = LocalStorage()
    MirrorWriter(
        location, storage=storage, folder=folder, target=LocalWriter(), writer="w", now_ms=lambda: STARTED_MS
    ).look()


def look(checkpoint: Path, *, headroom: bool = False, **options: object) -> Observation:
    given = EvidenceOptions(**options)  # type: ignore[arg-type]
    return look_around(gather(resolve_target(str(checkpoint)), batches=2), given, now_ms=NOW, headroom=headroom).seen


def test_nobody_is_asked_who_is_not_named(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    assert (look(checkpoint).sinks, look(checkpoint).kafka) == ((), None)


def test_sinks_answer_in_the_order_in_which_they_are_named(checkpoint: Path, table: Path, facts: str) -> None:
    CheckpointBuilder(checkpoint).run(3)
    found = look(checkpoint, sinks=(f"delta:{table}", f"{table}/none", str(table)), kafka=facts)
    assert [(sink.kind, sink.last_batch) for sink in found.sinks] == [("delta", 2), ("absent", None), ("delta", 2)]
    assert found.kafka is not None
    assert found.kafka.earliest == {"orders": {0: 0}}
    assert [sink["last_batch"] for sink in map(SinkEvidence.to_json, found.sinks)] == [2, None, 2]


def test_only_those_are_asked_who_are_wanted(checkpoint: Path, table: Path, facts: str) -> None:
    CheckpointBuilder(checkpoint).run(3)
    evidence, options = (
        gather(resolve_target(str(checkpoint)), batches=2),
        EvidenceOptions(sinks=(str(table),), kafka=facts),
    )
    assert look_around(evidence, options, now_ms=NOW, sinks=False).seen.sinks == ()
    assert look_around(evidence, options, now_ms=NOW, kafka=False).seen.kafka is None


def test_the_id_of_a_query_without_metadata_comes_from_the_mirror(checkpoint: Path, table: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    mirror(checkpoint)
    (checkpoint / "metadata").unlink()
    assert look(checkpoint, sinks=(str(table),)).sinks[0].last_batch == 2


def test_table_is_asked_by_the_name_that_the_function_gives(checkpoint: Path, table: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    for name, batch_id in (("etl", 1), ("other", 7)):
        marker = CommitProperties(app_transactions=[Transaction(name, batch_id, NOW)])
        write_deltalake(table, pa.table({"n": [1, 2]}), mode="append", commit_properties=marker)
    (found,) = look(checkpoint, sinks=(str(table),), txn_app_id="etl").sinks
    assert (found.last_batch, found.known, found.app_id, found.dedupe_key) == (1, True, "etl", DedupeKey.APP_ID)
    assert (found.presumed_app_id, found.would_skip(1), found.would_skip(2)) == (None, True, False)
    (checkpoint / "metadata").unlink()
    assert look(checkpoint, sinks=(str(table),), txn_app_id="etl").sinks == (found,)


def test_a_sink_is_asked_though_nobody_knows_the_id(checkpoint: Path, table: Path, tmp_path: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    (checkpoint / "metadata").unlink()
    files = tmp_path / "files"
    (files / "_spark_metadata").mkdir(parents=True)
    (files / "_spark_metadata" / "0").write_text("v1")
    by_id, by_folder = look(checkpoint, sinks=(str(table), str(files))).sinks
    assert (by_id.kind, by_id.known, by_id.last_batch, by_id.skips_known) == ("delta", False, None, False)
    assert by_id.because.startswith("the id of the query is not known")
    assert by_id.others == {QUERY_ID: 2}
    assert (by_folder.kind, by_folder.known, by_folder.last_batch) == ("file", True, 0)


def test_a_broker_that_cannot_be_reached_is_an_answer(
    checkpoint: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_cluster, "_GRACE_SECONDS", 0.1)
    CheckpointBuilder(checkpoint).run(3)
    found = look(checkpoint, kafka=f"{LOOPBACK}:{find_free_port()}", sinks=(str(table),), headroom=True)
    assert found.kafka is not None
    assert found.kafka.unknown is not None
    assert found.kafka.topics["orders"].unknown == found.kafka.unknown
    assert found.sinks[0].known


def test_a_sink_that_cannot_be_listed_is_an_answer(checkpoint: Path, table: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    (table / "_delta_log").rename(table / "log")
    (table / "_delta_log").symlink_to(table / "_delta_log")
    assert not look(checkpoint, sinks=(f"delta:{table}",)).sinks[0].known


def test_a_location_that_is_none_is_an_error(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    with pytest.raises(LocationInvalidError):
        look(checkpoint, sinks=("s3a:/no-bucket",))


def test_a_pattern_that_is_none_is_an_error(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    with pytest.raises(UsageError, match="no regular expression"):
        look(checkpoint, kafka="b:9092", subscribe_pattern="(")


def test_a_query_that_reads_no_topic_does_not_ask_kafka(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, FileInput()).run(2)
    assert look(checkpoint, kafka="b:9092").kafka is None


def test_without_any_log_nobody_knows_a_topic(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint)
    found = look(checkpoint, kafka="b:9092").kafka
    assert found is not None
    assert found.unknown == "no log names a topic: --topic NAME or --subscribe-pattern REGEX does"


@pytest.mark.parametrize("is_default", [False, True])
def test_a_missing_library_is_an_error_only_where_an_option_needs_it(
    is_default: bool, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointBuilder(checkpoint).run(1)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    evidence = gather(resolve_target(str(checkpoint)), batches=2)
    if not is_default:
        with pytest.raises(ExtraMissingError):
            look_around(evidence, EvidenceOptions(kafka="b:9092"), now_ms=NOW)
        return
    target = Target(str(checkpoint), kafka=Kafka(bootstrap="b:9092"))
    evidence = OpenQuery(target, evidence.location, evidence.storage, evidence.seen)
    found = look_around(evidence, EvidenceOptions(), now_ms=NOW).seen.kafka
    assert found is not None
    assert found.unknown == "asking Kafka needs the extra 'kafka': pip install 'lastgood[kafka]'"


def test_the_password_of_a_database_is_not_shown(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointBuilder(checkpoint).run(1)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    evidence = gather(resolve_target(str(checkpoint)), batches=2)
    target = Target(str(checkpoint), sink="postgresql://me:hush@db/fences")
    evidence = OpenQuery(target, evidence.location, evidence.storage, evidence.seen)
    sink = look_around(evidence, EvidenceOptions(), now_ms=NOW).seen.sinks[0]
    assert (sink.location, sink.known) == ("postgresql://me:***@db/fences", False)


def test_what_is_said_counts_before_the_configuration() -> None:
    target = Target("c", "delta:/configured", Kafka(bootstrap="configured:9092", config=Path("c.properties")))
    configured = EvidenceOptions(("delta:/configured",), "configured:9092", kafka_config=Path("c.properties"))
    assert EvidenceOptions().of(target) == configured
    said = EvidenceOptions(("a", "b"), "said:9092", ("t",), "p", Path("s.properties"))
    assert said.of(target) == said
    assert EvidenceOptions().of(Target("c")) == EvidenceOptions()
    assert EvidenceOptions().of(Target("c", txn_app_id="etl")).txn_app_id == "etl"
    assert EvidenceOptions(txn_app_id="said").of(Target("c", txn_app_id="etl")).txn_app_id == "said"
    assert EvidenceOptions().of(Target("c", source_replays=True)).source_replays


def test_the_word_for_a_source_is_kept_among_the_others() -> None:
    for vouched in (True, False):
        said = EvidenceOptions(("a",), "b:9092", ("t",), source_replays=vouched)
        assert parse_options(said.words()) == said
        assert ("--source-replays" in said.words()) is vouched


def test_options_can_be_typed_again() -> None:
    said = EvidenceOptions(("a", "b"), "k:1", ("t",), "p.*", Path("s.properties"), "etl")
    assert parse_options(said.words()) == said
    assert said.words() == (
        *("--sink", "a", "--sink", "b", "--kafka", "k:1", "--kafka-config", "s.properties"),
        *("--topic", "t", "--subscribe-pattern", "p.*", "--txn-app-id", "etl"),
    )
    assert EvidenceOptions().words() == ()


def test_a_query_stands_where_its_newest_committed_batch_ends(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    query.plan()
    found = make_reading(gather(resolve_target(str(checkpoint)), batches=2))
    planned, committed = ReadUpTo(STARTED_MS + 3000, {0: 20, 1: 20}), ReadUpTo(STARTED_MS + 2000, {0: 15, 1: 15})
    assert found == Reading(
        ("orders",),
        {"orders": {0: 15, 1: 15}},
        STARTED_MS + 2000,
        {"orders": (planned, committed)},
        (STARTED_MS + 2001, STARTED_MS + 3001, STARTED_MS + 3001 + MAX_CLOCK_SKEW_MS, FROM_THE_FIRST_MS),
    )


def test_before_its_first_commit_it_stands_where_its_sources_began(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).plan()
    planned = {"orders": (ReadUpTo(STARTED_MS, {0: 5, 1: 5}),)}
    after = (STARTED_MS + 1, STARTED_MS + 1 + MAX_CLOCK_SKEW_MS, FROM_THE_FIRST_MS)
    expected = Reading(("orders",), {"orders": {0: 0, 1: 0}}, None, planned, after)
    assert make_reading(gather(resolve_target(str(checkpoint)), batches=2)) == expected


def test_without_any_commit_the_newest_plan_is_run_again(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(4)
    shutil.rmtree(checkpoint / "commits")
    assert make_reading(gather(resolve_target(str(checkpoint)), batches=2)).next_offsets == {"orders": {0: 15, 1: 15}}


def test_a_lost_checkpoint_stands_where_its_mirror_does(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    query.plan()
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    assert make_reading(gather(resolve_target(str(checkpoint)))).next_offsets == {"orders": {0: 15, 1: 15}}


def test_of_several_sources_on_one_partition_the_lowest_counts(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(2)
    plan = checkpoint / "offsets" / "1"
    plan.write_text(plan.read_text() + '\n{"orders":{"0":7},"more":{"0":1}}')
    assert make_reading(gather(resolve_target(str(checkpoint)), batches=2)).next_offsets == {
        "orders": {0: 7, 1: 10},
        "more": {0: 1},
    }


def test_a_damaged_plan_is_read_from_the_mirror(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    mirror(checkpoint)
    (checkpoint / "offsets" / "2").write_bytes(b"")
    assert make_reading(gather(resolve_target(str(checkpoint)), batches=2)).next_offsets == {"orders": {0: 15, 1: 15}}


def test_words_that_are_kept_hold_no_password_and_are_understood_again() -> None:
    options = EvidenceOptions(
        sinks=("postgresql://me:secret@host/db", "delta:/lake/t"), kafka="broker:9092", topics=("a",)
    )
    assert "secret" not in " ".join(options.words())
    again = parse_options(options.words())
    assert again.sinks == ("postgresql://me@host/db", "delta:/lake/t")
    assert (again.kafka, again.topics) == ("broker:9092", ("a",))
    with pytest.raises(UsageError):
        parse_options(("--sinks", "x"))


def test_a_pipeline_is_named_and_only_what_is_said_beyond_its_configuration() -> None:
    kafka = Kafka(bootstrap="b:9092", config=Path("client.properties"))
    target = Target("/chk", "sqlite:///f.db", kafka, topics=("orders",), name="orders")
    asked = make_asked(target, EvidenceOptions(topics=("more",)).of(target), spark="4.0", fail_on_data_loss=False)
    assert asked == Asked("orders", ("--topic", "more"), ("--spark", "4.0", "--fail-on-data-loss", "false"))


def test_a_location_is_told_with_all_that_the_configuration_knows() -> None:
    config = Config(Path("other.toml"))
    target = Target("/chk", "postgresql://me:secret@db/f", Kafka(bootstrap="b:9092"), config=config)
    asked = make_asked(target, EvidenceOptions())
    assert asked.about("/chk") == Asked(
        "/chk", ("--sink", "postgresql://me@db/f", "--kafka", "b:9092"), policy="other.toml"
    )


def test_a_command_names_a_configuration_only_where_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Config().named is Config(Path("lastgood.toml")).named is Config(tmp_path / "lastgood.toml").named is None
    assert Config(Path("other.toml")).named == "other.toml"
