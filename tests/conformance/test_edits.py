"""The damage itself: it can be told, done again, and leaves what Hadoop would have left."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from conformance.cases import Case, case_from
from conformance.edits import Edit, apply, random_edit, single_edits
from conformance.fixed import fixed_cases, known_limits
from conformance.folders import checksums, ids, side_file
from conformance.rows import ROWS
from conformance.trials import VERSIONS, flavours_of

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "cases"
HEALTHY = ("3.5-agg-hdfs-healthy", "4.3-agg-rocksdb-ckptv2-healthy", "4.3-file-sink-healthy", "4.2-kafka-multi-topic")


def copy(name: str, folder: Path) -> Path:
    """The folder of a case, made of a checkpoint of the corpus."""
    shutil.copytree(CORPUS / name / "checkpoint", folder / "checkpoint")
    if (CORPUS / name / "spark_metadata").is_dir():
        shutil.copytree(CORPUS / name / "spark_metadata", folder / "sink" / "_spark_metadata")
    if "kafka" in name:
        ranges = {"0": [0, 40], "1": [0, 40]}
        topic = {"exists": True, "recreated": False, "name": "t", "partitions": ranges}
        (folder / "topic.json").write_text(json.dumps(topic))
    return folder


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", HEALTHY)
def test_damage_that_was_told_can_be_done_again(name: str, tmp_path: Path) -> None:
    healthy = copy(name, tmp_path / "healthy")
    for number, edit in enumerate(random.Random(name).sample(single_edits(healthy), 15)):
        first, again = (tmp_path / f"{number}-{which}" for which in ("first", "again"))
        case = Case("4.3.0", "files", (edit,), "seed", fail_on_data_loss=False, made_by="4.0.5")
        told = case_from(json.loads(json.dumps(case.to_json())))
        assert told == case
        for folder, each in ((first, edit), (again, told.edits[0])):
            shutil.copytree(healthy, folder)
            apply(each, folder)
        assert tree(first) == tree(again)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_seed_chooses_the_same_damage_each_time(name: str, tmp_path: Path) -> None:
    def chosen(seed: int, folder: Path) -> list[Edit]:
        rng = random.Random(seed)
        edits = []
        for _ in range(12):
            edits.append(random_edit(folder, rng))
            apply(edits[-1], folder)
        return edits

    for seed in range(6):
        first, again = (copy(name, tmp_path / f"{seed}-{which}") for which in ("first", "again"))
        assert chosen(seed, first) == chosen(seed, again)


def test_every_kind_of_damage_can_be_done_to_some_checkpoint(tmp_path: Path) -> None:
    possible = {edit.row for name in HEALTHY for edit in single_edits(copy(name, tmp_path / name))}
    # The corpus keeps neither input nor tables that are read.
    assert set(ROWS) - possible == {"remove_input", "clean_up_table", "replace_table", "change_table_offset"}


def test_side_files_hold_what_hadoop_writes() -> None:
    offsets = CORPUS / "3.5-agg-hdfs-healthy" / "checkpoint" / "offsets"
    assert [side_file(offsets / str(batch)).read_bytes() for batch in range(8)] == [
        checksums((offsets / str(batch)).read_bytes()) for batch in range(8)
    ]


def test_only_canonical_names_are_entries_of_a_log(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint" / "offsets"
    (folder / "9").mkdir(parents=True)
    for name in ("0", "1", "006", "+7", "-1", "3.compact", "5.bak", ".8.crc"):
        (folder / name).touch()
    assert ids(tmp_path, "offsets") == [0, 1]


def test_fixed_cases_are_of_versions_and_queries_that_are_run() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in CORPUS.parents[1].glob("conformance/fixed/*.jsonl"))
    fixed = [case for version in VERSIONS for case in (*fixed_cases(version), *known_limits(version))]
    assert len(fixed) == lines
    assert all(case.flavour in {flavour.name for flavour in flavours_of(case.spark)} for case in fixed)
    assert all(edit.row in ROWS for case in fixed for edit in case.edits)
