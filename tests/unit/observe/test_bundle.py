"""A bundle holds what a diagnosis rests on, and nothing that must not leave the house."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.asked import Asked
from lastgood.bundle.archive import PART_BYTES_MAX, BundleInvalidError
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import SourceFile
from lastgood.checkpoint.logs import BatchIds
from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.rules_advice import find_advice
from lastgood.errors import StorageError, UsageError
from lastgood.failures.classify import CodeLine, Failure, OffsetsNamed
from lastgood.failures.failure_class import FailureClass
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.advice_facts import find_advice_facts
from lastgood.observe.bundle import is_bundle, open_bundle, save_bundle
from lastgood.observe.open_query import MirrorUse, OpenQuery, gather
from lastgood.query.advice_facts import AdviceFacts, RecordedBatch, RecordedRun, TableAround
from lastgood.query.observation import CommittedElsewhere, LedgerMemory, LeftBehind, MirroredPlan, Observation, Seal
from lastgood.query.prediction.unsound import Unsound
from lastgood.records.record import (
    ChainedException,
    Progress,
    QueryStarted,
    RecordedFailure,
    RecordedSource,
    Terminated,
)
from lastgood.settings.target import resolve_target
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.files.facts import FileFacts, FileState, WrittenAgain
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.sources.kafka.start_files import StartFile, StartForm
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput
from lastgood.testing.storage import RefusingStorage, SlowStorage

BATCHES = 20
ROW = "alice@example.com"
SECRET = "hunter2Zz9"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    CheckpointBuilder(folder, checksums=True).run(3)
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "out" / "bundle.zip"


@pytest.fixture(autouse=True)
def _folder(saved: Path) -> None:
    saved.parent.mkdir()


def observed(evidence: OpenQuery, **fields: Any) -> Observation:
    return replace(evidence.seen, now_ms=STARTED_MS, **fields)


def read_again(saved: Path) -> tuple[Observation, OpenQuery]:
    with open_bundle(saved) as bundle:
        evidence = bundle.query(batches=BATCHES)
        return evidence.seen, evidence


def report(about: Observation) -> str:
    return json.dumps([diagnose(about).to_json(), [finding.to_json() for finding in find_advice(about)]])


def contents(saved: Path) -> bytes:
    """Every byte of a bundle, unpacked; names as well."""
    with zipfile.ZipFile(saved) as archive:
        return b"\n".join([name.encode() + b"\n" + archive.read(name) for name in archive.namelist()])


@pytest.mark.parametrize("parallel", [True, False])
def test_a_bundle_of_an_object_store_gives_the_same_report(checkpoint: Path, saved: Path, parallel: bool) -> None:
    damaged = checkpoint / "state/0/0"
    damaged.mkdir(parents=True)
    for version in (1, 2, 3):
        (damaged / f"{version}.delta").write_bytes(b"LZ4Block" + ROW.encode())
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    if parallel:
        from lastgood.checkpoint.reader import read_checkpoint

        slow = SlowStorage(seconds=0)
        checkpoint_there = read_checkpoint(slow, evidence.location, batches=BATCHES)
        evidence = replace(evidence, storage=slow, seen=replace(evidence.seen, checkpoint=checkpoint_there))
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    again, read = read_again(saved)
    assert report(again) == report(observed(evidence))
    assert read.storage.parallel == evidence.storage.parallel
    assert ("STATE_FILE_DAMAGED" in report(again)) == (not parallel)


def everything(evidence: OpenQuery) -> Observation:
    """A world in which every field says something."""
    batches = (CommittedBatch(2, 7, row_count=4, committed_at_ms=9, user_metadata=ROW),)
    sink = SinkEvidence(
        "delta", f"s3a://k:{SECRET}@lake/t", DedupeKey.QUERY_ID, 2, known=True, because="txn", batches=batches
    )
    topic = TopicFacts("id", {0: PartitionFacts(0, 9, 9, 1)}, {"retention.ms": "7"}, 3)
    kafka = KafkaFacts("b:9092", 5, {"orders": topic}, {3: {"orders": {0: FoundRecord(1, 2)}}}, unknown=None)
    batch = RecordedBatch(batch_id=2, run_id="r", offsets=5)
    return observed(
        evidence,
        asked=Asked("orders", ("--kafka", "b:9092"), ("--spark", "4.0"), ("loss",), ("--goal", "replan"), "a.toml"),
        sinks=(sink,),
        kafka=kafka,
        topic_ids={"orders": "id"},
        fail_on_data_loss=False,
        source_replays=True,
        is_pattern=True,
        is_same_topic=True,
        is_by_name=True,
        is_local=False,
        files={"0": (FileFacts(SourceFile("file:/a", 1, 0), FileState.CHANGED, 5),)},
        files_again={"0": WrittenAgain((FileFacts(SourceFile("file:/b", 1, 0), FileState.CHANGED, 5),), 9, 3, 4)},
        tables={"1": DeltaFacts("/t", "id", 0, 9, (3,))},
        seal=Seal("20261121-160058-7f3a", "applying", ("offsets/8", "commits/7"), "lastgood apply plan.json"),
        mirrored=BatchIds.of([0, 1, 3]),
        committed_elsewhere=(CommittedElsewhere("the mirror", 9), CommittedElsewhere("the ledger l", unknown="no")),
        left=LeftBehind(
            recovery="20261121-160058-7f3a",
            at_ms=5,
            file=StartFile("/etc/app.conf", StartForm.PROPERTIES, "orders.start"),
            starts={"0": {"orders": {0: 15}}},
            query_id=QUERY_ID,
            word="exactly_once",
            marks={"/lake/t": {QUERY_ID: 2}},
            topic_ids={"orders": "an id"},
            says=True,
        ),
        memory=LedgerMemory("sqlite:///ledger.db", QUERY_ID, 0, 7, 6),
        rewritten={7: "20261121-160058-7f3a"},
        unchecked=frozenset({8}),
        mirrored_plans={8: MirroredPlan(5, {"0": '{"orders":{"0":80}}'})},
        links={"/lake/chk/offsets/7": "elsewhere"},
        unsound={"state/0/0/8.zip": Unsound(Damage(DamageKind.CHECKSUM_MISMATCH), is_snapshot=True, by_spark=False)},
        advice=AdviceFacts(
            filesystem="ext4",
            table=TableAround("/t", "delta"),
            query_ids=("a", "b"),
            batches=(batch,),
            runs=(RecordedRun(run_id="r", query_id=None, first_ms=1, last_ms=2),),
            topic_ids={"orders": "4JsV+tHNSU+gPfgSpzeUDQ"},
            subscriptions=("subscribe",),
            is_stateful=True,
            max_downtime_ms=7,
        ),
    )


def test_every_field_of_an_observation_comes_back(checkpoint: Path, saved: Path) -> None:
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    about = everything(evidence)
    told = {field.name: getattr(about, field.name) for field in dataclasses.fields(Observation)}
    defaults = {
        field.name: getattr(Observation(about.checkpoint), field.name) for field in dataclasses.fields(Observation)
    }
    # Files of their own in the bundle, and what no diagnosis rests on.
    untold = {"checkpoint", "copies", "copied_since", "recalled", "repair"}
    unsaid = [name for name, value in told.items() if value == defaults[name] and name not in untold]
    assert unsaid == [], "give them a value in `everything`, so that it is known to come back"
    save_bundle(saved, replace(evidence, seen=about))
    again, _ = read_again(saved)
    sink = replace(about.sinks[0], location="s3a://k:***@lake/t", batches=(CommittedBatch(2, 7, True, 4, 9),))
    assert replace(again, checkpoint=about.checkpoint) == replace(about, sinks=(sink,))


def chain() -> tuple[ChainedException, ...]:
    return (
        ChainedException(
            language="java", class_name="org.apache.spark.SparkException", condition="STREAM_FAILED", message=ROW
        ),
        ChainedException(
            language="python", class_name="ValueError", message=f"cannot read {ROW}", traceback=f"File x: {ROW}"
        ),
    )


def test_of_a_drivers_log_the_chain_and_the_class_of_its_failure_are_saved(checkpoint: Path, saved: Path) -> None:
    failure = Failure(
        cls=FailureClass.POISON_DATA,
        because="user code fails on the data",
        message=ROW,
        chain=chain(),
        batch_id=3,
        offsets=(OffsetsNamed(topic="orders", partition=0, start=1),),
        user_code=CodeLine(file="/app/orders.py", line=7),
        lines=(1, 9),
    )
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)), failures=[failure])
    with open_bundle(saved) as bundle:
        (found,) = bundle.failures
    wordless = tuple(replace(each, message="", traceback=None) for each in failure.chain)
    assert found == replace(failure, message="", chain=wordless)
    assert ROW.encode() not in contents(saved)


def plant(checkpoint: Path) -> None:
    """Rows and secrets wherever they may come to lie."""
    row, secret = ROW.encode(), SECRET.encode()
    place = checkpoint / "state/0/0"
    (place / "SSTs").mkdir(parents=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as zipped:
        zipped.writestr("metadata", b'v1\n{"sstFiles":[],"numKeys":1}')
        zipped.writestr("000007.log", row)
    block = struct.pack("<8sBiii", b"LZ4Block", 0x10, len(row), len(row), 0) + row
    for name, content in (
        ("1.delta", block),
        ("2.snapshot", row),
        ("3.changelog", block),
        ("3.zip", archive.getvalue()),
        ("SSTs/000009-a.sst", row),
        ("3_aaaaaaaa-0000-0000-0000-000000000000.changelog", block),
    ):
        (place / name).write_bytes(content)
    (place.parent / "_metadata").mkdir()
    (place.parent / "_metadata/metadata").write_bytes(b'v1\n{"token":"' + secret + b'"}')
    (checkpoint / "notes.txt").write_bytes(row + secret)
    (checkpoint / f"password={SECRET}").touch()
    (checkpoint / "offsets/.3.tmp").write_bytes(row)
    (checkpoint / "offsets/notes").write_bytes(row + secret)
    plan = (checkpoint / "offsets/2").read_bytes()
    conf = b'"conf":{"fs.s3a.secret.key":"' + secret + b'","a":"jdbc:x://u:' + secret + b'@h",'
    (checkpoint / "offsets/2").write_bytes(plan.replace(b'"conf":{', conf))
    commit = b'v3\n{"nextBatchWatermarkMs":0,"sinkMetadataMap":{"0":{"userMetadata":"%s"}}}' % row
    (checkpoint / "commits/2").write_bytes(commit)


def plant_records(checkpoint: Path) -> None:
    """As a recorder writes them, when things go wrong."""
    failure = RecordedFailure(condition="STREAM_FAILED", message=ROW, causes=chain())
    source = RecordedSource(description=f"X[https://h/f?sig={SECRET}]", metrics={"token": SECRET})
    records = [
        QueryStarted(recorded_at_ms=1, query_id=QUERY_ID, run_id="r", checkpoint=f"s3a://k:{SECRET}@lake/c"),
        Progress(recorded_at_ms=2, query_id=QUERY_ID, run_id="r", batch_id=2, sources=(source,)),
        Terminated(recorded_at_ms=3, query_id=QUERY_ID, run_id="r", failure=failure),
    ]
    folder = checkpoint.with_name(f"{checkpoint.name}.lastgood") / "records"
    folder.mkdir(parents=True)
    lines = "".join(json.dumps(each.to_json()) + "\n" for each in records)
    (folder / "1795220516284-77.000001.jsonl").write_text(f"{lines}{ROW} {SECRET} torn")


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    target = LocalWriter()
    writer = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=target,
        writer="w",
        now_ms=lambda: STARTED_MS,
    )
    writer.look()
    writer.settle()


def test_no_row_and_no_secret_is_in_a_bundle(checkpoint: Path, saved: Path) -> None:
    plant(checkpoint)
    plant_records(checkpoint)
    mirror(checkpoint)
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES, mirror=MirrorUse.ALWAYS)
    for file in ("offsets/2", "commits/2"):  # all of it was there to be found
        assert {ROW, SECRET} & set((checkpoint / file).read_text().replace('"', " ").split())
    failure = Failure(cls=FailureClass.UNKNOWN, because="", message=f"{ROW} {SECRET}", chain=chain())
    save_bundle(saved, replace(evidence, seen=everything(evidence)), failures=[failure])
    packed = contents(saved)
    assert ROW.encode() not in packed
    assert SECRET.encode() not in packed
    again, read = read_again(saved)
    assert again.checkpoint.last_committed == 2
    assert len(read.seen.copies) == len(evidence.seen.copies)
    assert not again.checkpoint.offsets.damage
    assert not again.checkpoint.offsets.checksum_damage.keys() - evidence.checkpoint.offsets.checksum_damage.keys()


def test_mirror_and_records_come_along(checkpoint: Path, saved: Path) -> None:
    plant_records(checkpoint)
    mirror(checkpoint)
    shutil.rmtree(checkpoint / "offsets")
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    with open_bundle(saved) as bundle:
        read = bundle.query(batches=BATCHES)
        facts = find_advice_facts(read)
    assert read.query_id == QUERY_ID
    assert list(read.records()) == list(evidence.records()) == [0, 1, 2]
    assert [each.batch_id for each in facts.batches] == [2]
    assert facts.filesystem is None  # it is the disk of another machine


def test_the_manifest_tells_who_saved_it(checkpoint: Path, saved: Path) -> None:
    import platform

    from lastgood import __version__

    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    made = save_bundle(saved, replace(evidence, seen=observed(evidence)))
    with open_bundle(saved) as bundle:
        told = bundle.manifest
        assert bundle.location == evidence.location
    assert (told["lastgood"], told["python"], told["saved_at_ms"]) == (
        __version__,
        platform.python_version(),
        STARTED_MS,
    )
    assert len(told["parts"]) == made.parts
    assert made.to_json() == {"path": str(saved), "parts": made.parts, "size": saved.stat().st_size}


def test_a_source_log_and_its_compaction_come_along(tmp_path: Path, saved: Path) -> None:
    CheckpointBuilder(tmp_path / "clicks", FileInput()).run(12)
    evidence = gather(resolve_target(str(tmp_path / "clicks")), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    _, read = read_again(saved)
    assert list(read.source_files("0")) == list(evidence.source_files("0"))


def test_a_lost_checkpoint_is_saved_as_lost(checkpoint: Path, saved: Path) -> None:
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    again, _ = read_again(saved)
    assert again.checkpoint.presence is evidence.checkpoint.presence
    assert report(again) == report(observed(evidence))


def test_nothing_is_overwritten_and_nothing_lands_in_the_checkpoint(checkpoint: Path, saved: Path) -> None:
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    saved.write_text("mine")
    (saved.parent / "link").symlink_to("nowhere")
    work = checkpoint.with_name("orders.lastgood")
    work.mkdir()
    (saved.parent / "alias").symlink_to(checkpoint)
    places = [saved, saved.parent / "link", saved.parent / "none/b.zip", checkpoint / "b.zip", work / "b.zip"]
    places.append(saved.parent / "alias/state.zip")
    for place in places:
        with pytest.raises(UsageError):
            save_bundle(place, replace(evidence, seen=observed(evidence)))
    assert saved.read_text() == "mine"
    assert not (checkpoint / "b.zip").exists()


def test_saving_changes_nothing_in_the_checkpoint(checkpoint: Path, saved: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [path.stat() for path in sorted(checkpoint.rglob("*"))]
        return [(str(each.st_ino), each.st_size, each.st_mtime_ns) for each in found]

    before = state()
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    assert state() == before


def test_a_storage_that_fails_leaves_no_half_bundle(checkpoint: Path, saved: Path) -> None:
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    silent = RefusingStorage(evidence.location / "commits")
    with pytest.raises(StorageError):
        save_bundle(saved, replace(evidence, storage=silent, seen=observed(evidence)))
    assert not saved.exists()


def test_a_file_that_cannot_be_made_is_a_storage_error(checkpoint: Path, saved: Path) -> None:
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    with pytest.raises(StorageError) as caught:
        save_bundle(saved.parent / ("b" * 300), replace(evidence, seen=observed(evidence)))
    assert caught.value.found == "File name too long"


@pytest.fixture
def parts(checkpoint: Path, saved: Path) -> dict[str, bytes]:
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=everything(evidence)))
    with zipfile.ZipFile(saved) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forged(path: Path, parts: dict[str, bytes]) -> Path:
    """A bundle whose manifest vouches for whatever is in it."""
    told = json.loads(parts["manifest.json"])
    others = {name: content for name, content in parts.items() if name != "manifest.json"}
    told["parts"] = {name: hashlib.sha256(content).hexdigest() for name, content in others.items()}
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**others, "manifest.json": json.dumps(told).encode()}.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("world.json", b"[]"),
        ("world.json", b'{"now_ms":"soon"}'),
        ("world.json", b'{"kafka":{"topics":7}}'),
        ("world.json", b'{"sinks":[{"kind":7}]}'),
        ("world.json", b'{"files":{"0":[{"file":{},"state":"gone"}]}}'),
        ("failures.json", b'[{"cls":"new"}]'),
        ("listing.json", b'{"folders":["../x"],"files":[]}'),
        ("listing.json", b"7"),
        ("manifest.json", b'{"format":1,"location":"gopher://x"}'),
        ("manifest.json", b'{"format":1,"location":""}'),
    ],
)
def test_values_that_are_none_of_ours_are_a_clear_error(
    parts: dict[str, bytes], saved: Path, name: str, content: bytes
) -> None:
    with pytest.raises(BundleInvalidError) as caught:
        open_bundle(forged(saved, {**parts, name: content}))
    assert caught.value.subject == str(saved)


@pytest.mark.parametrize("name", ["world.json", "failures.json", "listing.json"])
def test_a_missing_part_is_a_clear_error(parts: dict[str, bytes], saved: Path, name: str) -> None:
    del parts[name]
    with pytest.raises(BundleInvalidError):
        open_bundle(forged(saved, parts))


def test_an_observation_of_another_version_has_defaults_for_what_it_does_not_say(
    parts: dict[str, bytes], saved: Path
) -> None:
    told = {**parts, "world.json": b'{"now_ms":7,"never_heard_of":1}'}
    with open_bundle(forged(saved, told)) as bundle:
        found = bundle.query(batches=2).seen
    assert (found.now_ms, found.sinks, found.kafka) == (7, (), None)


def test_a_damaged_log_in_a_bundle_is_a_finding_as_anywhere(parts: dict[str, bytes], saved: Path) -> None:
    forged(saved, {**parts, "checkpoint/offsets/2": b""})
    again, _ = read_again(saved)
    assert "offsets/2" in again.checkpoint.damage


def test_a_bundle_is_a_file_and_a_checkpoint_is_none(checkpoint: Path, saved: Path) -> None:
    saved.touch()
    assert is_bundle(str(saved))
    assert not any(map(is_bundle, (str(checkpoint), "s3a://lake/chk", "orders", str(saved.parent / "none"))))


@pytest.mark.parametrize("size", [PART_BYTES_MAX + 1])
def test_a_file_too_large_for_a_log_is_listed_without_its_content(checkpoint: Path, saved: Path, size: int) -> None:
    with (checkpoint / "sources/0/9").open("wb") as stream:
        stream.truncate(size)
    evidence = gather(resolve_target(str(checkpoint)), batches=BATCHES)
    save_bundle(saved, replace(evidence, seen=observed(evidence)))
    with open_bundle(saved) as bundle:
        entry = bundle.storage.stat(evidence.location / "sources/0/9")
        assert entry is not None
        assert entry.size == size
        with pytest.raises(StorageError, match="not in the bundle"):
            bundle.storage.read(evidence.location / "sources/0/9", limit=1)
