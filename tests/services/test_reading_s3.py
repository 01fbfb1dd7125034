"""The reading verbs on a real S3 server: the same answers as on the folder, and an answer whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
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
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.s3 import S3Program, S3Server
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.services import make_impatient
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.network import Proxy

pytestmark = pytest.mark.services

MORE_VERBS = [
    ["inspect", "--offset", "m.a/0/4"],
    ["inspect", "--file", "nowhere.json"],
    ["inspect", "--time", "2001-01-01T00:00Z"],
    ["diagnose"],
]
"""Longer ways of the same verbs, and the one that tells the time."""
KINDS = {
    "healthy, from Kafka": "4.2-kafka-multi-topic",
    "healthy, from files to files": "4.3-file-sink-healthy",
    "healthy, state on RocksDB": "4.3-agg-rocksdb-ckptv2-healthy",
    "damaged offsets": "4.3-offsets-truncated",
    "damaged metadata": "4.3-metadata-garbage",
    "state that is gone": "4.3-state-version-removed",
}
PROOF = dict.fromkeys((*KINDS,)[1:5], pytest.mark.proof)
"""Ten seconds each."""


@pytest.fixture
def put(s3: S3Server, request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Uploads a folder and gives its location below s3a://, empty folders left out, as there are none."""

    def put(folder: Path) -> str:
        name = f"{abs(hash(request.node.nodeid)):x}/{folder.parent.name}-{folder.name}"
        storage = open_storage(parse_location("s3a://lake/x"), s3.options)
        contents = {f"lake/{name}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
        storage.filesystem.pipe({key: path.read_bytes() for key, path in contents.items()})
        return f"s3a://lake/{name}"

    return put


def environment(s3: S3Server) -> dict[str, str]:
    return {**s3.environment, "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def say(s3: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """The environment says where S3 is, as for every tool of AWS."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return Say(capsys)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=kind, marks=PROOF.get(kind, ())) for kind, case in KINDS.items()]
)
def test_every_verb_says_on_s3_what_it_says_of_the_folder(
    case: str, say: Say, put: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / case / "checkpoint", folder)
    subprocess.run([LASTGOOD, "backup", "create", folder], check=True, capture_output=True, timeout=ANSWER_SECONDS)
    s3a = put(folder)
    work = put(Path(f"{folder}.lastgood"))
    assert work == f"{s3a}.lastgood"  # where the verbs look for it
    here = without_local_disk(say(str(folder)))
    assert {code for code, _, _ in here} <= {0, 1, 21, 40, 64}
    assert without_local_disk(say(s3a)) == here
    assert without_local_disk(say(s3a.replace("s3a:", "s3:"))) == here


def test_an_empty_object_as_marker_of_a_folder_is_no_file(s3: S3Server, say: Say, put: Callable[[Path], str]) -> None:
    target = put(CASES / "4.2-kafka-multi-topic" / "checkpoint")
    before = say(target)
    storage = open_storage(parse_location(target), s3.options)
    key = target.removeprefix("s3a://")
    for folder in ("", "offsets/", "commits/", "sources/", "sources/0/"):
        storage.filesystem.call_s3("put_object", Bucket="lake", Key=f"{key.removeprefix('lake/')}/{folder}", Body=b"")
    assert say(target) == before


def test_a_part_of_a_file_is_what_it_is_on_a_disk(s3: S3Server, put: Callable[[Path], str], tmp_path: Path) -> None:
    write(tmp_path / "parts", PARTED)
    require_parts(open_storage(parse_location("s3a://lake/x"), s3.options), parse_location(put(tmp_path / "parts")))


def test_a_folder_that_is_not_there_is_no_checkpoint(say: Say) -> None:
    for verb, (code, out, _) in zip(VERBS, say("s3a://lake/nowhere/chk"), strict=True):
        if verb[0] != "backup":
            assert (code, json.loads(out)["error"]["found"]) == (20, "no such folder"), verb


WRONG = {
    "no such key": {"AWS_ACCESS_KEY_ID": "nobody"},
    "wrong secret": {"AWS_SECRET_ACCESS_KEY": "wrong"},
    "no credentials": {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_who_may_not_look_is_told_so_and_never_that_there_is_nothing(
    wrong: dict[str, str], s3: S3Server, s3_program: S3Program, put: Callable[[Path], str]
) -> None:
    if s3_program.name == "moto" and "AWS_ACCESS_KEY_ID" not in wrong:
        pytest.skip("moto lets everybody in")
    target = put(CASES / "4.2-kafka-multi-topic" / "checkpoint")
    for verb in FEW_VERBS:
        code, said = run(verb, target, {**environment(s3), **wrong})
        # An unknown key is a 403 on AWS; versitygw says 404, under a name that only it uses.
        allowed = {12, 10} if wrong.get("AWS_ACCESS_KEY_ID") == "nobody" else {12}
        assert code in allowed, (verb, said)
        assert said["error"]["found"]


@pytest.mark.parametrize("where", ["nobody", "silent", "stranger", "no such name"])
def test_an_endpoint_that_is_none_is_told_and_never_empty(where: str, s3: S3Server, silent: int, stranger: int) -> None:
    with socket.create_server((LOOPBACK, 0)) as unused:
        nobody = unused.getsockname()[1]
    endpoint = {
        "nobody": f"http://{LOOPBACK}:{nobody}",
        "silent": f"http://{LOOPBACK}:{silent}",
        "stranger": f"http://{LOOPBACK}:{stranger}",
        "no such name": "http://nowhere.invalid",
    }[where]
    for verb in FEW_VERBS[:1] if where == "silent" else FEW_VERBS:
        code, said = run(verb, "s3a://lake/chk", {**environment(s3), "AWS_ENDPOINT_URL": endpoint})
        assert (code, said["error"]["condition"]) == (10, "STORAGE_UNAVAILABLE"), verb


def test_what_fsspec_is_told_by_its_own_variables_holds_too(s3: S3Server, put: Callable[[Path], str]) -> None:
    target = put(CASES / "4.2-kafka-multi-topic" / "checkpoint")
    given = {name.replace("AWS_", "X_"): value for name, value in s3.environment.items()}
    env = {
        "PATH": os.environ["PATH"],
        "FSSPEC_S3_ENDPOINT_URL": given["X_ENDPOINT_URL"],
        "FSSPEC_S3_KEY": given["X_ACCESS_KEY_ID"],
        "FSSPEC_S3_SECRET": given["X_SECRET_ACCESS_KEY"],
        "AWS_REGION": given["X_DEFAULT_REGION"],
    }
    done = subprocess.run([LASTGOOD, "status", target], env=env, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_listing_is_never_remembered(s3: S3Server, tmp_path: Path, put: Callable[[Path], str]) -> None:
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(1)
    target = parse_location(put(tmp_path / "checkpoint"))
    storage = open_storage(target, s3.options)
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    query.run(1)
    put(tmp_path / "checkpoint")
    assert sorted(storage.names(target / "offsets") or ()) == ["0", "1"]
    assert storage.stat(target / "offsets/1") is not None
    storage.filesystem.rm_file(f"lake{target.path}/offsets/1")
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    assert storage.stat(target / "offsets/1") is None


def test_an_answer_that_is_cut_never_reads_as_less(s3: S3Server, tmp_path: Path, put: Callable[[Path], str]) -> None:
    CheckpointBuilder(tmp_path / "checkpoint").run(30)
    target = parse_location(put(tmp_path / "checkpoint"))
    whole = {str(n) for n in range(30)}
    content = (tmp_path / "checkpoint/offsets/7").read_bytes()
    with Proxy(urlsplit(s3.endpoint).port or 0) as proxy:
        options = {**s3.options, "endpoint_url": f"http://{LOOPBACK}:{proxy.port}", "skip_instance_cache": True}
        refused = 0
        for length in (0, 1, 17, 60, 120, 200, 260, 300, 400, 800, 2000, 5000, 7000):
            proxy.cut_after = length
            storage = open_storage(target, {**options, "config_kwargs": {"retries": {"total_max_attempts": 1}}})
            with contextlib.suppress(StorageError):
                refused += 1
                assert set(storage.names(target / "offsets") or ()) == whole, length
                assert storage.read(target / "offsets/7", limit=10_000) == content, length
                refused -= 1
        assert refused >= 10


@pytest.fixture
def distant(s3: S3Server, say: Say, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Stands between `say` and the server; far enough away that a busy machine does not count."""
    filesystem = make_impatient(fsspec.get_filesystem_class("s3"), "s3")
    with Proxy(urlsplit(s3.endpoint).port or 0, seconds=0.1) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{LOOPBACK}:{proxy.port}")
        filesystem.clear_instance_cache()  # it is kept by its arguments, whatever the environment says
        yield proxy
        filesystem.clear_instance_cache()


@pytest.mark.parametrize("case", FEW_ROUND_TRIPS)
def test_a_verb_waits_for_few_answers_in_a_row(case: str, say: Say, distant: Proxy, put: Callable[[Path], str]) -> None:
    target = put(CASES / case / "checkpoint")

    def measure(verb: list[str]) -> int:
        distant.forget()
        (code, out, _), *_ = say(target, [verb])
        assert code in (0, 40, 64), (verb, out)
        return distant.round_trips

    for verb in (*VERBS, *MORE_VERBS):
        trips = fewest(partial(measure, verb), enough=ROUND_TRIPS_MAX)
        assert 0 < trips <= ROUND_TRIPS_MAX, (verb, trips, distant.requests)
