"""Every real checkpoint parses to what its `about.json` says, and every file in it writes back byte for byte.

`cases/` comes with the sources; the large corpus lies beside the repository where there is one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import ABSENT, SHARED

from lastgood.checkpoint.checksums import HadoopChecksum, SparkChecksum, parse_hadoop_checksum, parse_spark_checksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.contents import Checkpoint, Mode, Presence
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import (
    FileLogEntry,
    SinkFile,
    make_sink_log_entry,
    make_source_log_entry,
    parse_sink_log_entry,
)
from lastgood.checkpoint.initial import InitialOffset, parse_source_entry
from lastgood.checkpoint.layout import (
    CheckpointFile,
    ForeignFile,
    HadoopChecksumFile,
    LogFile,
    OperatorMetadataFile,
    QueryMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    StateStoreFile,
    TemporaryFile,
    classify,
)
from lastgood.checkpoint.lines import to_json
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine, parse_offset_entry
from lastgood.checkpoint.operators import OperatorMetadata, StateSchema, parse_operator_metadata, parse_state_schema
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import JsonOffset, TextOffset
from lastgood.checkpoint.state_files import (
    LineageItem,
    SnapshotMetadata,
    StateFileKind,
    parse_lineage,
    parse_snapshot,
)
from lastgood.storage.reading import LocalStorage, parse_location

CASES = Path(__file__).parent / "cases"

# What was done to these by hand: the damage that is to be found, and what is to be absent.
CUT = {"offsets/5": DamageKind.TRUNCATED}
DONE: dict[str, tuple[dict[str, DamageKind], tuple[str, ...]]] = {
    "damaged-offset_last_truncated": (CUT, ()),
    "damaged-offset_last_empty": ({"offsets/5": DamageKind.EMPTY}, ()),
    "damaged-metadata_garbage": ({"metadata": DamageKind.NOT_JSON}, ()),
    "damaged-rm_metadata": ({}, ("metadata",)),
    "damaged-rm_offset_last": ({}, ("offsets/5",)),
    "damaged-rm_all_offsets": ({}, tuple(f"offsets/{n}" for n in range(6))),
    "damaged-offset_gap_ahead": ({}, ("offsets/6",)),
    "damaged-commit_extra": ({}, ("offsets/6",)),
    "damaged-rm_source_last": ({}, ("sources/0/5",)),
    "agg-hdfs-rm-last-version-files": ({}, ("state/0/0/8.delta", "state/0/1/8.delta")),
    "agg-rocksdb-changelog-rm-partition0": ({}, ("state/0/0/1.changelog",)),
    "agg-rocksdb-ckptv2-rm-partition0": ({}, ("state/0/0/8_a0bc0fd7-a10e-4004-b158-8b24dde9591f.changelog",)),
}
# (planned, committed) after what was done, where `about.json` does not say it in numbers.
LEFT = {
    "agg-hdfs-rm-last-version-files": (7, 7),
    "agg-rocksdb-changelog-rm-partition0": (7, 7),
    "agg-rocksdb-ckptv2-rm-partition0": (7, 7),
    "damaged-offset_gap_ahead": (7, 5),
    "damaged-offset_last_empty": (5, 5),
    "damaged-offset_last_truncated": (5, 5),
    "damaged-metadata_garbage": (5, 5),
    "damaged-rm_all_offsets": (None, 5),
    "damaged-rm_commit_last": (5, 4),
    "damaged-rm_commit_middle": (5, 5),
    "damaged-rm_metadata": (5, 5),
    "damaged-rm_off_com_last3": (2, 2),
    "damaged-rm_offset_last": (4, 5),
    "damaged-rm_source_last": (5, 5),
    "damaged-commit_extra": (5, 6),
    "file-orphan-dropped-src-kept": (1, 1),
    "agg-hdfs-rolled-back": (4, 4),
    "file-sink-rolled-back": (3, 3),
}
STATEFUL = re.compile(r"agg-|dedup|join|chained|watermark|transform|sigkill|window")
STATE_LOST = re.compile(r"rm-partition0")


def folders(root: Path, pattern: str) -> list[Path]:
    return sorted(path.parent for path in root.glob(pattern))


def read(root: Path) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(root)))


def about(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "about.json").read_text())
    return found


def needs_shared() -> None:
    if not SHARED.is_dir():
        pytest.skip(ABSENT)


def parser_of(kind: CheckpointFile) -> Callable[[bytes], Any] | None:
    """What reads such a file as a whole; None for those of which only a part is read."""
    match kind:
        case LogFile(log="offsets"):
            return parse_offset_entry
        case LogFile(log="commits"):
            return parse_commit_entry
        case LogFile(log="_spark_metadata"):
            return parse_sink_log_entry
    return {
        QueryMetadataFile: parse_query_metadata,
        LogFile: parse_source_entry,
        HadoopChecksumFile: parse_hadoop_checksum,
        SparkChecksumFile: parse_spark_checksum,
        OperatorMetadataFile: parse_operator_metadata,
        StateSchemaFile: parse_state_schema,
    }.get(type(kind))


def canonical(value: Any) -> bytes:
    """The bytes of a value that has forgotten those it was read from: they have to be those that Spark writes."""
    match value:
        case FileLogEntry():
            files = list(value)
            return (
                make_sink_log_entry(files) if files and isinstance(files[0], SinkFile) else make_source_log_entry(files)
            ).raw
        case OffsetEntry(metadata=metadata):
            lines = [SourceLine(line.source_id, line.offset.to_text()) for line in value.sources]
            assert not any(isinstance(line.offset, JsonOffset | TextOffset) for line in lines)
            plain = metadata and dataclasses.replace(metadata, text=to_json(metadata.fields))
            return dataclasses.replace(value, metadata=plain, sources=tuple(lines), raw=None).to_bytes()
        case QueryMetadata() | CommitEntry() | InitialOffset() | SparkChecksum():
            return dataclasses.replace(value, raw=None).to_bytes()
    written: bytes = value.to_bytes()
    return written


def check_bytes(root: Path, prefix: str = "", *, by_spark: bool = True) -> None:
    """Every file below `root` is known, parses, and is written back to the very same bytes."""
    damaged = read(root).damage if not prefix else {}
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        path = prefix + file.relative_to(root).as_posix()
        kind = classify(path)
        assert not isinstance(kind, ForeignFile), path
        raw = file.read_bytes()
        parse = parser_of(kind)
        if parse:
            value = parse(raw)
            assert isinstance(value, Damage) == (path in damaged), path
            assert isinstance(value, Damage) or value.to_bytes() == raw, path
            assert isinstance(value, Damage) or canonical(value) == raw or not by_spark, path
        check_state_file(file, kind, raw)
        check_side_file(file, kind, raw)


def check_side_file(file: Path, kind: CheckpointFile, raw: bytes) -> None:
    if isinstance(kind, HadoopChecksumFile):
        checksum: Any = parse_hadoop_checksum(raw)
        main = file.with_name(file.name[1:-4])
    elif isinstance(kind, SparkChecksumFile):
        checksum = parse_spark_checksum(raw)
        main = file.with_name(file.name[:-4])
        again = checksum.for_content(main.read_bytes())
        assert again.to_bytes() == raw
    else:
        return
    content = main.read_bytes()
    assert checksum.check(content) is None, file
    assert checksum.check(content + b"x") is not None
    if isinstance(checksum, HadoopChecksum):
        assert HadoopChecksum.of(content).to_bytes() == raw


def check_state_file(file: Path, kind: CheckpointFile, raw: bytes) -> None:
    if not isinstance(kind, StateStoreFile):
        return
    if kind.file.kind is StateFileKind.ZIP:
        snapshot = parse_snapshot(raw)
        assert isinstance(snapshot, SnapshotMetadata), file
        with zipfile.ZipFile(file) as archive:
            written = archive.read("metadata")
        assert snapshot.to_bytes() == dataclasses.replace(snapshot, raw=None).to_bytes() == written
        sizes = {name: (file.parent / "SSTs" / name).stat().st_size for name in snapshot.files}
        assert sizes == snapshot.files
    elif kind.file.kind is StateFileKind.CHANGELOG and kind.file.unique_id:
        lineage = parse_lineage(raw)
        assert isinstance(lineage, tuple), file
        assert [item.version for item in lineage] == list(range(kind.file.version - len(lineage), kind.file.version))
        assert all(list(file.parent.glob(f"{item.version}_{item.unique_id}.*")) for item in lineage)


@pytest.mark.parametrize("case", folders(CASES, "*/about.json"), ids=lambda path: path.name)
def test_a_case_parses_to_what_it_says(case: Path) -> None:
    expected, found = about(case)["expect"], read(case / "checkpoint")
    operators = found.state.operators if found.state else ()
    assert {
        "planned": found.last_planned,
        "committed": found.last_committed,
        "loadable": found.last_loadable,
        "stateful": found.is_stateful,
        "mode": found.mode.value,
        "formats": sorted({store.format.value for each in operators for store in each.stores if store.format}),
        "sources": [line.offset.kind for line in found.newest_offsets.sources] if found.newest_offsets else [],
        "damage": {path: damage.kind.value for path, damage in found.damage.items()},
        "absent": list(found.absent),
    } == expected


@pytest.mark.parametrize("case", folders(CASES, "*/about.json"), ids=lambda path: path.name)
def test_every_file_of_a_case_is_written_back_byte_for_byte(case: Path) -> None:
    check_bytes(case / "checkpoint")
    if (case / "spark_metadata").is_dir():
        check_bytes(case / "spark_metadata", "_spark_metadata/")


def test_the_cases_hold_every_format() -> None:
    """Nobody who takes a case away loses a format unnoticed."""
    seen: set[str] = set()
    for file in CASES.rglob("*"):
        path = file.relative_to(CASES).as_posix().partition("/")[2].removeprefix("checkpoint/")
        kind = classify(path.replace("spark_metadata/", "_spark_metadata/"))
        match kind:
            case LogFile(log=log, name=name) if file.is_file():
                version = file.read_bytes().lstrip(b"\0").partition(b"\n")[0].decode()
                seen.add(f"{log.partition('/')[0]} {version}{' compact' * name.is_compact}")
            case OperatorMetadataFile() | StateSchemaFile():
                raw = file.read_bytes()
                value = (
                    parse_operator_metadata(raw) if isinstance(kind, OperatorMetadataFile) else parse_state_schema(raw)
                )
                assert isinstance(value, OperatorMetadata | StateSchema)
                seen.add(f"{type(value).__name__} v{value.version}")
            case StateStoreFile(file=state):
                seen.add(f"{state.kind.value}{'_uuid' * bool(state.unique_id)}")
            case SparkChecksumFile() | HadoopChecksumFile() | TemporaryFile():
                seen.add(type(kind).__name__)
    logs = {"offsets v1", "offsets v2", "commits v1", "commits v2", "commits v3", "sources v1", "sources v1 compact"}
    assert seen >= logs | {"_spark_metadata v1", "_spark_metadata v1 compact"}
    assert seen >= {"OperatorMetadata v1", "OperatorMetadata v2", "StateSchema v2", "StateSchema v3"}
    assert seen >= {"delta", "snapshot", "zip", "changelog", "zip_uuid", "changelog_uuid"}
    assert seen >= {"SparkChecksumFile", "HadoopChecksumFile", "TemporaryFile"}


def test_the_lineage_of_a_real_changelog_is_what_its_commits_say() -> None:
    root = CASES / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint"
    commits = [parse_commit_entry((root / f"commits/{n}").read_bytes()) for n in range(8)]
    ids = {n + 1: each.state_unique_ids for n, each in enumerate(commits) if isinstance(each, CommitEntry)}
    for partition in (0, 1):
        (newest,) = (root / f"state/0/{partition}").glob("8_*.changelog")
        named = {version: (each or {})[0][partition][0] for version, each in ids.items()}
        assert parse_lineage(newest.read_bytes()) == tuple(LineageItem(version, named[version]) for version in (6, 7))
        assert newest.name == f"8_{named[8]}.changelog"


def corpus() -> list[Path]:
    return folders(SHARED / "corpus", "*/about.json") or [SHARED]


def samples() -> list[Path]:
    return folders(SHARED / "sink-samples", "*/**/metadata") or [SHARED]


@pytest.mark.parametrize("case", corpus(), ids=lambda path: path.name)
def test_a_checkpoint_of_the_large_corpus_parses_to_what_it_says(case: Path) -> None:
    needs_shared()
    says, found = about(case), read(case / "checkpoint")
    name = case.name.partition("-")[2]
    assert found.presence is Presence.PRESENT
    assert found.foreign == ()
    damage, absent = DONE.get(name, ({}, ()))
    assert {path: each.kind for path, each in found.damage.items()} == damage
    assert found.absent == absent
    assert (found.last_planned, found.last_committed) == left(name, says, found)
    check_spark_version(says["spark"], found)
    check_mode(name, says, found)
    assert found.is_stateful is bool(STATEFUL.search(name))
    if found.state and not absent:
        assert found.last_loadable is not None
        assert found.last_committed is not None
        assert found.last_loadable >= found.last_committed
    elif STATE_LOST.search(name):
        assert found.last_loadable is None


def left(name: str, says: dict[str, Any], found: Checkpoint) -> tuple[int | None, int | None]:
    """The newest planned and committed batch, as far as `about.json` tells."""
    if name in LEFT:
        return LEFT[name]
    if "next_batch" in says and name != "dedup-hdfs":  # there it counts what the query would have gone on with
        return says["next_batch"] - 1, says["next_batch"] - 1
    if "offsets" in says:
        return says["offsets"][-1], says["commits"][-1]
    orphan = re.search(r"uncommitted last batch (\d+)|orphan (\d+)", says["state"])
    if orphan:
        batch_id = int(orphan[1] or orphan[2])
        return batch_id, batch_id - 1
    if name.startswith("kafka") and says["restart"]["batches_run"]:
        first = says["restart"]["batches_run"][0]
        is_orphan = "uncommitted" in says["state"] or "offsets/0 and sources/0/0 only" in says["state"]
        committed = first - 1 if first else None
        return (first, committed) if is_orphan else (committed, committed)
    assert "healthy" in says["state"]
    assert found.orphan is None or "or uncommitted" in says["state"]
    return found.last_planned, found.last_committed


def check_spark_version(spark: str, found: Checkpoint) -> None:
    versions = found.spark_versions
    if versions is None:
        assert found.newest_offsets is None or found.newest_offsets.metadata is None
        return
    number = [int(part) for part in spark.split(".")[:2]]
    assert [int(part) for part in versions.at_least.split(".")] <= number
    assert versions.below is None or number < [int(part) for part in versions.below.split(".")]


def check_mode(name: str, says: dict[str, Any], found: Checkpoint) -> None:
    if name == "async-progress":
        assert found.mode is Mode.ASYNC_PROGRESS
        assert (list(found.offsets.ids), list(found.commits.ids)) == (says["offsets"], says["commits"])
    elif name == "continuous-rate":
        assert found.mode is Mode.CONTINUOUS
    else:
        assert found.mode is Mode.MICRO_BATCH
        hole = (range(3, 4),) if name == "damaged-rm_commit_middle" else ()
        assert found.commits.ids.gaps == hole


@pytest.mark.parametrize("case", corpus(), ids=lambda path: path.name)
def test_every_file_of_the_large_corpus_is_written_back_byte_for_byte(case: Path) -> None:
    needs_shared()
    check_bytes(case / "checkpoint")
    if (case / "spark_metadata").is_dir():
        check_bytes(case / "spark_metadata", "_spark_metadata/")


@pytest.mark.parametrize("root", samples(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_checkpoint_beside_a_sink_parses_and_is_written_back(root: Path) -> None:
    needs_shared()
    found = read(root)
    assert (found.damage, found.absent, found.orphan) == ({}, (), None)
    assert found.last_planned is not None
    check_spark_version("4.0.5", found)
    check_bytes(root, by_spark="numbered-above" not in str(root))  # that one was made by hand


@pytest.mark.parametrize("log", folders(SHARED / "sink-samples", "*/sink/_spark_metadata/0") or [SHARED], ids=str)
def test_a_sink_log_beside_a_checkpoint_is_written_back(log: Path) -> None:
    needs_shared()
    check_bytes(log, "_spark_metadata/")
