"""The verbs on a real HDFS: the same answers as on the folder, and an answer whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from reading import PARTED, require_parts, write
from trips import fewest
from verbs import (
    ANSWER_SECONDS,
    CASES,
    FEW_ROUND_TRIPS,
    FEW_VERBS,
    LASTGOOD,
    ROUND_TRIPS_MAX,
    VERBS,
    Say,
    run,
    without_local_disk,
)

from lastgood.errors import StorageError
from lastgood.lab.hdfs import SUPERUSER, HdfsCluster
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import Java
from lastgood.storage.reading import FsspecStorage, StorageDeniedError, parse_location
from lastgood.storage.writing import FsspecWriter, open_writable
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.network import Proxy

pytestmark = pytest.mark.services

HEALTHY = CASES / "4.2-kafka-multi-topic" / "checkpoint"
SPARK_SECONDS = 300

KINDS = {
    "healthy, from Kafka": "4.2-kafka-multi-topic",
    "healthy, from files to files": "4.3-file-sink-healthy",
    "healthy, state on RocksDB": "4.3-agg-rocksdb-ckptv2-healthy",
    "damaged offsets": "4.3-offsets-truncated",
    "state that is gone": "4.3-state-version-removed",
}
PROOF = dict.fromkeys((*KINDS,)[1:4], pytest.mark.proof)
"""Half a minute each."""


@pytest.fixture
def put(hdfs: HdfsCluster, request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Uploads a folder and gives its location as Spark names it."""

    def put(folder: Path) -> str:
        target = parse_location(f"{hdfs.uri}/{abs(hash(request.node.nodeid)):x}/{folder.parent.name}-{folder.name}")
        filesystem = storage_of(hdfs).filesystem
        for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            filesystem.makedirs(f"{target.path}/{path.relative_to(folder)}".removesuffix("/."), exist_ok=True)
        files = [path for path in folder.rglob("*") if path.is_file()]
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda path: filesystem.pipe_file(f"{target.path}/{path.relative_to(folder)}", path.read_bytes()),
                    files,
                )
            )
        return str(target)

    return put


def storage_of(hdfs: HdfsCluster, **options: object) -> FsspecWriter:
    opened = open_writable(parse_location(hdfs.uri), {**hdfs.options, **options})
    assert isinstance(opened, FsspecWriter)
    return opened


@pytest.fixture
def say(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """The environment says where HDFS is, as for Spark."""
    for name, value in hdfs.environment.items():
        monkeypatch.setenv(name, value)
    return Say(capsys)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=kind, marks=PROOF.get(kind, ())) for kind, case in KINDS.items()]
)
def test_every_verb_says_on_hdfs_what_it_says_of_the_folder(
    case: str, hdfs: HdfsCluster, say: Say, put: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / case / "checkpoint", folder)
    subprocess.run([LASTGOOD, "backup", "create", folder], check=True, capture_output=True, timeout=ANSWER_SECONDS)
    target = put(folder)
    assert put(Path(f"{folder}.lastgood")) == f"{target}.lastgood"  # where the verbs look for it
    here = without_local_disk(say(str(folder)))
    assert {code for code, _, _ in here} <= {0, 1, 21, 40, 64}
    assert without_local_disk(say(target)) == here
    directly = say(target.replace(hdfs.uri, hdfs.webhdfs), FEW_VERBS)
    assert without_local_disk(directly) == [here[VERBS.index(verb)] for verb in FEW_VERBS]


def contents(storage: FsspecStorage, root: str) -> dict[str, bytes | None]:
    location = parse_location(root)
    return {entry.name: storage.read(location / entry.name, limit=10**6) for entry in storage.walk(location) or ()}


@pytest.mark.parametrize("source", ["mirror", "last"])
def test_a_lost_checkpoint_comes_back_as_on_a_disk(
    source: str, hdfs: HdfsCluster, say: Say, put: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(HEALTHY, folder)
    target = put(folder)
    create, restore = ["backup", "create"], ["backup", "restore", "--from", source]

    def timeless(said: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
        """Without times, and without the digest of the copies: it covers the times of the files."""
        return [
            (code, re.sub(r"[0-9a-f]{64}|\d{8}-\d{6}-\w{4}|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{13}", "T", out), err)
            for code, out, err in said
        ]

    assert timeless(say(target, [create])) == timeless(say(str(folder), [create]))
    shutil.rmtree(folder)
    storage = storage_of(hdfs)
    storage.filesystem.rm(parse_location(target).path, recursive=True)
    assert timeless(say(target, [restore])) == timeless(say(str(folder), [restore]))
    back = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert back
    assert contents(storage, target) == back
    assert say(target, [["status"], ["inspect"]]) == say(str(folder), [["status"], ["inspect"]])


def test_a_part_of_a_file_is_what_it_is_on_a_disk(
    hdfs: HdfsCluster, put: Callable[[Path], str], tmp_path: Path
) -> None:
    write(tmp_path / "parts", PARTED)
    require_parts(storage_of(hdfs), parse_location(put(tmp_path / "parts")))


def test_a_folder_that_is_not_there_is_no_checkpoint(hdfs: HdfsCluster, say: Say) -> None:
    for verb, (code, out, _) in zip(VERBS, say(f"{hdfs.uri}/nowhere/chk"), strict=True):
        if verb[0] != "backup":
            assert (code, json.loads(out)["error"]["found"]) == (20, "no such folder"), verb


def test_files_and_folders_are_told_apart_and_from_nothing(hdfs: HdfsCluster, put: Callable[[Path], str]) -> None:
    target, storage = parse_location(put(HEALTHY)), storage_of(hdfs)
    storage.write(target / "empty", b"")
    storage.filesystem.makedirs(f"{target.path}/hollow", exist_ok=True)
    assert storage.read(target / "empty", limit=9) == b""
    for file in ("empty", "metadata"):
        assert storage.names(target / file) is None, file
        assert storage.walk(target / file) is None, file
    assert list(storage.names(target / "hollow") or "x") == []
    for nothing in ("hollow", "none", "metadata/none"):
        assert storage.read(target / nothing, limit=9) is None, nothing
    assert storage.stat(target / "none") is None
    assert storage.names(target / "none") is None
    found = storage.stat(target / "metadata")
    assert found is not None
    assert (found.size, found.is_folder) == ((HEALTHY / "metadata").stat().st_size, False)
    assert found.modified_ms is not None


def test_who_may_not_look_is_told_so_and_never_that_there_is_nothing(
    hdfs: HdfsCluster, put: Callable[[Path], str]
) -> None:
    target = parse_location(put(HEALTHY))
    storage = storage_of(hdfs)
    for shut in ("/offsets/0", "/offsets", ""):
        storage.filesystem.chmod(target.path + shut, "700")
        others = storage_of(hdfs, user="nobody")
        with pytest.raises(StorageDeniedError, match="does not let us look") as denied:
            others.read(target / "offsets/0", limit=9)
        assert "Permission denied: user=nobody, access=" in (denied.value.found or "")
    for verb in FEW_VERBS[:2]:
        code, said = run(verb, str(target), {**hdfs.environment, "HADOOP_USER_NAME": "nobody"})
        assert (code, said["error"]["condition"]) == (12, "STORAGE_DENIED"), verb
    assert run(["status"], str(target), {**hdfs.environment, "HADOOP_USER_NAME": SUPERUSER})[0] == 0


def test_who_may_not_write_is_told_so_and_leaves_nothing(hdfs: HdfsCluster, put: Callable[[Path], str]) -> None:
    target = put(HEALTHY)
    before = contents(storage_of(hdfs), target)
    code, said = run(["backup", "create"], target, {**hdfs.environment, "HADOOP_USER_NAME": "nobody"})
    assert (code, said["error"]["condition"]) == (12, "STORAGE_DENIED")
    assert contents(storage_of(hdfs), target) == before
    assert storage_of(hdfs).names(parse_location(f"{target}.lastgood")) is None


def test_a_quota_that_is_used_up_is_told_as_no_space(hdfs: HdfsCluster, put: Callable[[Path], str]) -> None:
    target = put(HEALTHY)
    parent = parse_location(target.rpartition("/")[0])
    storage_of(hdfs).filesystem._call("SETQUOTA", "put", parent.path, namespacequota="3")
    code, said = run(["backup", "create"], target, hdfs.environment)
    assert (code, said["error"]["condition"]) == (11, "NO_SPACE")


@pytest.mark.parametrize("where", ["nobody", "silent", "stranger", "no such name"])
def test_a_name_node_that_is_none_is_told_and_never_empty(
    where: str, hdfs: HdfsCluster, silent: int, stranger: int
) -> None:
    at = {
        "nobody": f"{LOOPBACK}:{find_free_port()}",
        "silent": f"{LOOPBACK}:{silent}",
        "stranger": f"{LOOPBACK}:{stranger}",
        "no such name": "nowhere.invalid",
    }[where]
    for verb in FEW_VERBS[:1] if where == "silent" else FEW_VERBS:
        code, said = run(verb, f"webhdfs://{at}/chk", hdfs.environment)
        assert (code, said["error"]["condition"]) == (10, "STORAGE_UNAVAILABLE"), verb
        assert at in said["error"]["found"]


def test_a_listing_is_never_remembered(hdfs: HdfsCluster, tmp_path: Path, put: Callable[[Path], str]) -> None:
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(1)
    target, storage = parse_location(put(tmp_path / "checkpoint")), storage_of(hdfs)
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    query.run(1)
    put(tmp_path / "checkpoint")
    assert sorted(storage.names(target / "offsets") or ()) == ["0", "1"]
    assert storage.stat(target / "offsets/1") is not None
    storage.remove(target / "offsets/1")
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    assert storage.stat(target / "offsets/1") is None


def test_an_answer_that_is_cut_never_reads_as_less(
    hdfs: HdfsCluster, tmp_path: Path, put: Callable[[Path], str]
) -> None:
    CheckpointBuilder(tmp_path / "checkpoint").run(30)
    target = parse_location(put(tmp_path / "checkpoint"))
    content = (tmp_path / "checkpoint/offsets/7").read_bytes()
    whole = {str(n) for n in range(30)}
    at = storage_of(hdfs).filesystem._call("OPEN", path=f"{target.path}/offsets/7", redirect=False).headers["Location"]
    datanode = re.match(r"http://[^/]*?:(\d+)/", at)
    assert datanode is not None
    with Proxy(hdfs.http_port) as names, Proxy(int(datanode[1])) as data:
        through = {f":{datanode[1]}/": f":{data.port}/", f":{hdfs.http_port}/": f":{names.port}/"}
        storage = storage_of(hdfs, data_proxy=through)
        refused = 0
        for length in (0, 1, 17, 60, 120, 200, 260, 300, 400, 800, 2000, 5000):
            names.cut_after = data.cut_after = length
            storage.filesystem.session.close()  # so that it connects anew
            with contextlib.suppress(StorageError):
                refused += 1
                assert set(storage.names(target / "offsets") or ()) == whole, length
                refused -= 1
            names.cut_after = None
            storage.filesystem.session.close()  # so that it connects anew
            with contextlib.suppress(StorageError):
                refused += 1
                assert storage.read(target / "offsets/7", limit=10_000) == content, length
                refused -= 1
        assert refused >= 14


@pytest.mark.parametrize("case", FEW_ROUND_TRIPS)
def test_a_verb_waits_for_few_answers_in_a_row(case: str, hdfs: HdfsCluster, put: Callable[[Path], str]) -> None:
    target = put(CASES / case / "checkpoint")
    with Proxy(hdfs.http_port, seconds=0.03) as proxy:
        slow = target.replace(hdfs.uri, f"webhdfs://{LOOPBACK}:{proxy.port}")

        def measure(verb: list[str]) -> int:
            proxy.forget()
            code, _ = run(verb, slow, hdfs.environment)
            assert code in (0, 1, 64)
            return proxy.round_trips

        for verb in (["status"], ["inspect"], ["inspect", "--state"], ["offsets"], ["diagnose", "--spark", "4.2"]):
            trips = fewest(partial(measure, verb), enough=ROUND_TRIPS_MAX)
            assert 0 < trips <= ROUND_TRIPS_MAX, (verb, trips, proxy.requests)


QUERY = """
import sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
counts = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load().groupBy("value").count()
query = (
    counts.writeStream.outputMode("update").foreachBatch(lambda batch, _: batch.count())
    .option("checkpointLocation", sys.argv[1]).start()
)
while (query.lastProgress or {"batchId": 0})["batchId"] < 2:
    time.sleep(0.1)
query.stop()
"""


@pytest.mark.proof
def test_what_spark_has_written_to_hdfs_is_read_by_the_name_that_spark_was_given(
    hdfs: HdfsCluster, java: Java, say: Say, tmp_path: Path
) -> None:
    target, script, log = f"{hdfs.uri}/spark/chk", tmp_path / "query.py", tmp_path / "spark.log"
    script.write_text(QUERY)
    with log.open("wb") as output:
        started = submit(
            script, [target], environment=find_default_spark(), java=java, env=hdfs.environment, output=output
        )
        with started as spark:
            ending = spark.wait(SPARK_SECONDS)
    assert ending is not None, log.read_text()
    assert ending.is_success, log.read_text()
    (code, shown, _), (state_code, state, _) = say(target, [["inspect"], ["inspect", "--state"]])
    assert (code, state_code) == (0, 0)
    assert json.loads(shown)["last_committed"] >= 2
    assert json.loads(state)["absent"] == []
