from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.survey import survey
from lastgood.recovery.stubs import NoStubError, Stub, make_stubs
from lastgood.settings.target import resolve_target
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput, Input

Seen = Callable[..., OpenQuery]
DELTA = b'{"sourceVersion":1,"reservoirId":"t","reservoirVersion":3,"index":-1,"isStartingVersion":false}'


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    """A query of three batches, and how it was asked for."""

    def of(source: Input | None = None, options: EvidenceOptions | None = None, line: bytes | None = None) -> OpenQuery:
        CheckpointBuilder(tmp_path / "chk", source).run(3)
        newest = tmp_path / "chk/offsets/2"
        if line is not None:
            newest.write_bytes(b"\n".join([*newest.read_bytes().split(b"\n")[:2], line]))
        found = survey(resolve_target(str(tmp_path / "chk")), evidence=EvidenceOptions())
        return replace(found, options=options or EvidenceOptions())

    return of


def found(what: OpenQuery) -> Stub:
    (stub,) = make_stubs(what.checkpoint, what, fail_on_data_loss=False)
    return stub


def test_files_are_read_from_the_folder_that_holds_those_of_the_log(seen: Seen) -> None:
    stub = found(seen(FileInput("file:///data/my%20input")))
    assert stub == Stub("text", {"maxFilesPerTrigger": "1"}, ("/data/my input",))


def test_topics_are_read_with_the_settings_of_the_client_and_under_a_group_that_nobody_has(
    seen: Seen, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=other:1\ngroup.id=orders\nsecurity.protocol=PLAINTEXT\n")
    stub = found(seen(options=EvidenceOptions(kafka="b:9092", kafka_config=config)))
    assert stub.options == {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    assert "PLAINTEXT" not in repr(stub)
    pattern = EvidenceOptions(kafka="b:9092", subscribe_pattern="ord.*")
    assert found(seen(options=pattern)).options["subscribePattern"] == "ord.*"


def test_table_is_read_where_it_is_known_to_lie(seen: Seen) -> None:
    without = seen(line=DELTA)
    with pytest.raises(NoStubError, match="Delta table, and no log tells where it lies"):
        found(without)
    known = replace(without, seen=replace(without.seen, tables={"0": DeltaFacts("/lake/in")}))
    assert found(known) == Stub("delta", {"failOnDataLoss": "false"}, ("/lake/in",))


@pytest.mark.parametrize(
    ("source", "options", "line", "says"),
    [
        (None, None, None, "no broker is given: --kafka SERVERS"),
        (FileInput("s3a://lake/input"), None, None, "source 0 lies on s3a"),
        (None, None, b"17", "of the kind number"),
        (None, None, b"{}", "of the kind json"),
    ],
)
def test_source_that_cannot_be_had_is_told(
    seen: Seen, source: Input | None, options: EvidenceOptions | None, line: bytes | None, says: str
) -> None:
    with pytest.raises(NoStubError, match=says):
        found(seen(source, options, line))


def test_broker_that_does_not_answer_or_is_a_file_is_told(seen: Seen, tmp_path: Path) -> None:
    asked = seen(options=EvidenceOptions(kafka="b:9092"))
    silent = replace(asked, seen=replace(asked.seen, kafka=KafkaFacts("b:9092", 0, unknown="timed out")))
    with pytest.raises(NoStubError, match="Kafka does not answer: timed out"):
        found(silent)
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(KafkaFacts("b:9092", 0).to_json()))
    with pytest.raises(NoStubError, match="needs the broker itself"):
        found(replace(asked, options=EvidenceOptions(kafka=str(facts))))


def test_query_without_any_plan_names_no_source(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk")
    empty = survey(resolve_target(str(tmp_path / "chk")), evidence=EvidenceOptions())
    with pytest.raises(NoStubError, match="no log names the sources"):
        make_stubs(empty.checkpoint, empty, fail_on_data_loss=True)
