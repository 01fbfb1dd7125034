"""Who works on a load, where several machines reach its checkpoint, and whether its chunks stay: with a real S3."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from forked import run

from lastgood.lab.s3 import S3Server
from lastgood.load.begun import Begun
from lastgood.load.specification import LoadFormat, LoadSpec, ParseMode
from lastgood.recovery.hold import CheckpointHeldError
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.held_load import HeldLoad
from lastgood.supervise.load_driver import LoadFailedError
from lastgood.supervise.load_hold import check_lease, hold_alone
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def _environment(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "here"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


def test_a_second_machine_is_told_and_a_late_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = parse_location(f"s3a://lake/{tmp_path.name}/chk")
    storage, leases = open_writable(checkpoint), checkpoint.sibling(".lastgood/leases")
    with hold_alone(checkpoint) as lease:
        assert lease is not None
        check_lease(lease, checkpoint)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
            with pytest.raises(CheckpointHeldError, match="on another machine"), hold_alone(checkpoint):
                pass
        storage.write(leases / f"{lease.number + 1}.json", b"{}")
        with pytest.raises(CheckpointHeldError, match="has gone on with this load"):
            check_lease(lease, checkpoint)
        storage.remove(leases / f"{lease.number + 1}.json")
    with hold_alone(checkpoint) as again:
        assert again is not None
        assert again.number > lease.number


def test_what_only_this_machine_reaches_needs_no_lease(tmp_path: Path) -> None:
    checkpoint = parse_location(str(tmp_path / "chk"))
    with hold_alone(checkpoint) as lease:
        assert lease is None
        with pytest.raises(CheckpointHeldError), hold_alone(checkpoint):
            pass


@pytest.mark.parametrize(
    ("bucket", "changed", "code", "condition"),
    [
        ("pond", {}, 2, "USAGE"),
        ("lake", {"AWS_SECRET_ACCESS_KEY": "wrong"}, 12, "STORAGE_DENIED"),
        ("lake", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, 10, "STORAGE_UNAVAILABLE"),
    ],
)
def test_table_that_cannot_be_reached_is_told_before_spark_asks_for_it(
    bucket: str, changed: Mapping[str, str], code: int, condition: str, s3: S3Server, tmp_path: Path
) -> None:
    if s3.program.name == "moto" and code == 12:
        pytest.skip("moto lets everybody in")
    (tmp_path / "a.csv").write_text("1\n")
    table, checkpoint = f"s3a://{bucket}/{tmp_path.name}/table", tmp_path / "chk"
    words = ["load", tmp_path / "a.csv", "--to", f"delta:{table}", "--checkpoint", checkpoint, "--schema", "id INT"]
    told = run(*words, "--format", "json", env={**os.environ, **changed})
    error = json.loads(told.stdout)["error"]
    assert (told.returncode, error["condition"]) == (code, condition)
    assert bucket in (error["subject"] or error["found"])
    assert [each.name for each in tmp_path.iterdir() if each.name != "here"] == ["a.csv"]


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([0, 1, 2], None),
        ([0, 2], "batch 1 stands in 0 versions, and not in one"),
        ([0, 1, 1, 2], "batch 1 stands in 2 versions, and not in one"),
    ],
)
def test_chunk_that_does_not_stand_in_its_table_once_is_told_each_time(
    batches: list[int], found: str | None, s3: S3Server, tmp_path: Path
) -> None:
    place = parse_location(f"s3a://lake/{tmp_path.name}/table")
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": s3.environment["AWS_DEFAULT_REGION"]}
    for batch in batches:
        marks = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch)])
        rows = pa.table({"id": [batch]})
        write_deltalake(str(place), rows, mode="append", commit_properties=marks, storage_options=options)
    CheckpointBuilder(tmp_path / "chk").run(3)
    checkpoint = parse_location(str(tmp_path / "chk"))
    spec = LoadSpec(
        table=f"delta:{place}",
        form=LoadFormat.CSV,
        schema="id INT",
        infers=False,
        options={},
        mode=ParseMode.PERMISSIVE,
        files=(),
    )
    held = HeldLoad(
        name="load",
        place=place,
        checkpoint=checkpoint,
        storage=open_writable(checkpoint),
        spec=spec,
        begun=Begun(None, (), is_settled=True),
    )
    for _ in range(2):
        if found is None:
            held.require_all_there()
            continue
        with pytest.raises(LoadFailedError) as told:
            held.require_all_there()
        assert (told.value.found or "").startswith(found)
