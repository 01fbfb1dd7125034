"""The verbs on emulators of Azure and Google: the same answers as on the folder, and an answer whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from answering import SENSELESS, Server
from emulators import ACCOUNT, BUCKET, CONTAINER, KEY, WRONG_KEY, Azurite, FakeGcs
from reading import PARTED, require_parts, write
from trips import fewest
from verbs import ANSWER_SECONDS, CASES, FEW_VERBS, LASTGOOD, ROUND_TRIPS_MAX, Say, run, without_local_disk

from lastgood.errors import StorageError
from lastgood.lab.ports import LOOPBACK
from lastgood.storage.clouds import AccountMismatchError
from lastgood.storage.reading import StorageDeniedError, open_storage, parse_location
from lastgood.storage.writing import FsspecWriter, open_writable
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.network import Proxy

pytestmark = pytest.mark.services

Emulator = Azurite | FakeGcs
HEALTHY = CASES / "4.2-kafka-multi-topic" / "checkpoint"
PROOF = pytest.mark.proof
KINDS = [
    pytest.param("4.2-kafka-multi-topic", id="healthy, from Kafka"),
    pytest.param("4.3-file-sink-healthy", id="healthy, from files to files", marks=PROOF),
    pytest.param("4.3-agg-rocksdb-ckptv2-healthy", id="healthy, state on RocksDB", marks=PROOF),
    pytest.param("4.3-offsets-truncated", id="damaged offsets", marks=PROOF),
    pytest.param("4.3-state-version-removed", id="state that is gone", marks=PROOF),
]


@pytest.fixture(params=["azure", "gcs"])
def emulator(request: pytest.FixtureRequest) -> Emulator:
    running: Emulator = request.getfixturevalue(request.param)
    return running


def storage_of(emulator: Emulator, port: int | None = None) -> FsspecWriter:
    opened = open_writable(parse_location(f"{emulator.root}/x"), emulator.options(port))
    assert isinstance(opened, FsspecWriter)
    return opened


@pytest.fixture
def put(emulator: Emulator) -> Callable[[Path], str]:
    """Uploads a folder and gives its location, empty folders left out, as there are none."""
    unique = uuid.uuid4().hex

    def put(folder: Path) -> str:
        name = f"{unique}/{folder.parent.name}-{folder.name}"
        files = {f"lake/{name}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
        for key, path in files.items():
            storage_of(emulator).filesystem.pipe_file(key, path.read_bytes())
        return f"{emulator.root}/{name}"

    return put


@pytest.fixture
def say(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """The environment says where the store is, as for every tool of its maker."""
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    type(storage_of(emulator).filesystem).clear_instance_cache()  # kept by arguments, whatever the environment says
    return Say(capsys)


@pytest.mark.parametrize("case", KINDS)
def test_every_verb_says_there_what_it_says_of_the_folder(
    case: str, say: Say, put: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(CASES / case / "checkpoint", folder)
    subprocess.run([LASTGOOD, "backup", "create", folder], check=True, capture_output=True, timeout=ANSWER_SECONDS)
    target = put(folder)
    assert put(Path(f"{folder}.lastgood")) == f"{target}.lastgood"  # where the verbs look for it
    here = without_local_disk(say(str(folder)))
    assert {code for code, _, _ in here} <= {0, 1, 21, 40, 64}
    assert without_local_disk(say(target)) == here


def test_a_part_of_a_file_is_what_it_is_on_a_disk(
    emulator: Emulator, put: Callable[[Path], str], tmp_path: Path
) -> None:
    write(tmp_path / "parts", PARTED)
    require_parts(storage_of(emulator), parse_location(put(tmp_path / "parts")))


def test_a_folder_that_is_not_there_is_no_checkpoint(emulator: Emulator, say: Say) -> None:
    nowhere = emulator.root.replace("lake", "pond", 1)
    for place in (f"{emulator.root}/nowhere/chk", f"{nowhere}/chk"):
        for verb, (code, out, _) in zip(FEW_VERBS, say(place, FEW_VERBS), strict=True):
            if verb[0] != "backup":
                assert (code, json.loads(out)["error"]["found"]) == (20, "no such folder"), verb


def test_files_and_folders_are_told_apart_and_from_nothing(emulator: Emulator, put: Callable[[Path], str]) -> None:
    target, storage = parse_location(put(HEALTHY)), storage_of(emulator)
    storage.write(target / "empty", b"")
    storage.write(target / "hollow/", b"")  # what marks a folder
    assert storage.read(target / "empty", limit=9) == b""
    for file in ("empty", "metadata"):
        assert storage.names(target / file) is None, file
        assert storage.walk(target / file) is None, file
    assert list(storage.names(target / "hollow") or "x") == []
    assert "hollow/" in set(storage.names(target) or ())
    for nothing in ("hollow", "none", "metadata/none", "offsets"):
        assert storage.read(target / nothing, limit=9) is None, nothing
    for nothing in ("none", "offset", "offsets/none"):
        assert storage.stat(target / nothing) is None, nothing
        assert storage.names(target / nothing) is None, nothing
        assert storage.walk(target / nothing) is None, nothing
    folder, found = storage.stat(target / "offsets"), storage.stat(target / "metadata")
    assert folder is not None
    assert folder.is_folder
    assert found is not None
    assert (found.size, found.is_folder) == ((HEALTHY / "metadata").stat().st_size, False)
    assert found.modified_ms is not None
    files = {str(path.relative_to(HEALTHY)) for path in HEALTHY.rglob("*") if path.is_file()}
    assert {entry.name for entry in storage.walk(target) or ()} == files | {"empty"}


def test_a_blob_that_marks_a_folder_is_no_file(azure: Azurite) -> None:
    """Azure marks folders so where names have a hierarchy, and Hadoop everywhere."""
    folder, storage = parse_location(f"{azure.root}/{uuid.uuid4().hex}"), storage_of(azure)
    for name in ("offsets", "hollow"):
        storage.filesystem.pipe_file(f"lake{folder.path}/{name}", b"", metadata={"hdi_isfolder": "true"})
    storage.write(folder / "offsets/0", b"v1")
    assert sorted(storage.names(folder) or ()) == ["hollow/", "offsets/"]
    assert sorted(storage.names(folder / "offsets") or ()) == ["0"]
    assert list(storage.names(folder / "hollow") or "x") == []
    assert storage.read(folder / "hollow", limit=9) is None
    assert [entry.name for entry in storage.walk(folder) or ()] == ["offsets/0"]


@pytest.mark.parametrize("limit", [1, 7, 100, 10**6])
def test_no_more_is_read_than_asked_for(limit: int, emulator: Emulator) -> None:
    file, content = parse_location(f"{emulator.root}/{uuid.uuid4().hex}"), bytes(range(100))
    storage_of(emulator).write(file, content)
    assert storage_of(emulator).read(file, limit=limit) == content[:limit]


@pytest.mark.proof
def test_more_names_are_listed_than_one_answer_holds(gcs: FakeGcs, azure: Azurite) -> None:
    for emulator in (gcs, azure):
        folder, storage = parse_location(f"{emulator.root}/{uuid.uuid4().hex}"), storage_of(emulator)
        names = {f"{number:04}" for number in range(1_010 if emulator is gcs else 20)}
        storage.filesystem.pipe({f"lake{folder.path}/{name}": b"" for name in names})
        assert set(storage.names(folder) or ()) == names


@pytest.mark.parametrize("where", ["nobody", "silent", "stranger"])
def test_an_endpoint_that_is_none_is_told_and_never_empty(
    where: str, emulator: Emulator, silent: int, stranger: int
) -> None:
    with socket.create_server((LOOPBACK, 0)) as unused:
        nobody = unused.getsockname()[1]
    storage = storage_of(emulator, {"nobody": nobody, "silent": silent, "stranger": stranger}[where])
    with pytest.raises(StorageError) as caught:
        storage.names(parse_location(f"{emulator.root}/chk"))
    assert caught.value.condition == "STORAGE_UNAVAILABLE"


def test_a_verb_says_within_its_time_that_there_is_no_such_endpoint(emulator: Emulator) -> None:
    told = {name: value.replace(LOOPBACK, "nowhere.invalid") for name, value in emulator.environment().items()}
    code, said = run(["status"], f"{emulator.root}/chk", told)
    assert (code, said["error"]["condition"]) == (10, "STORAGE_UNAVAILABLE"), said


class Always(dict[str, tuple[int, bytes]]):
    """The same answer to everything."""

    def __init__(self, status: int, content: bytes) -> None:
        self._answer = status, content

    def get(self, *_: object) -> tuple[int, bytes]:  # type: ignore[override]
        return self._answer


ODD = [(200, 3), (404, 3), *(pytest.param(status, len(SENSELESS), marks=PROOF) for status in (200, 404, 401, 500, 503))]


@pytest.mark.parametrize(("status", "contents"), ODD)
def test_an_answer_of_somebody_else_is_never_taken_for_nothing(status: int, contents: int, emulator: Emulator) -> None:
    file = parse_location(f"{emulator.root}/chk/7")
    for content in SENSELESS[:contents]:
        with contextlib.closing(Server(Always(status, content))) as stranger:
            storage = storage_of(emulator, int(stranger.url.rpartition(":")[2]))
            for ask in (storage.names, storage.walk, storage.stat, partial(storage.read, limit=9)):
                with pytest.raises(StorageError):
                    ask(file)


WRONG_KEYS = {
    "wrong key": ({"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acme;AccountKey={wrong};BlobEndpoint={at}"}, 12),
    "no key": ({"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acme;BlobEndpoint={at}"}, 12),
    "another account": (
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=other;AccountKey={key};BlobEndpoint={other}"},
        22,
    ),
    "another cloud": (
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acme;AccountKey={key};EndpointSuffix=core.chinacloudapi.cn"},
        22,
    ),
    "a key of another account": ({"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "{key}"}, 22),
}


@pytest.mark.parametrize(("told", "code"), WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_who_may_not_look_on_azure_is_told_so_and_never_that_there_is_nothing(
    told: dict[str, str], code: int, azure: Azurite
) -> None:
    at = f"http://{LOOPBACK}:{azure.port}"
    known = {"key": KEY, "wrong": WRONG_KEY, "at": f"{at}/{ACCOUNT}", "other": f"{at}/other"}
    env = {name: value.format(**known) for name, value in told.items()}
    for verb in FEW_VERBS[:1]:
        found, said = run(verb, f"{azure.root}/chk", env)
        assert (found, bool(said["error"]["found"])) == (code, True), (verb, said)
        assert KEY not in json.dumps(said)
        assert WRONG_KEY not in json.dumps(said)


def test_who_has_no_credentials_for_azure_is_told_so_and_nothing_else_is_written() -> None:
    code, said = run(["status"], f"{Azurite.root}/chk", {})  # sees that nothing is on standard error
    assert (code, said["error"]["condition"]) == (12, "STORAGE_DENIED"), said


def test_what_a_signature_does_not_allow_is_denied(azure: Azurite) -> None:
    from datetime import UTC, datetime, timedelta

    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    file = parse_location(f"{azure.root}/{uuid.uuid4().hex}")
    storage_of(azure).write(file, b"0")
    may = ContainerSasPermissions(read=True)
    sas = generate_container_sas(
        ACCOUNT, CONTAINER, account_key=KEY, permission=may, expiry=datetime.now(UTC) + timedelta(hours=1)
    )
    at = f"http://{LOOPBACK}:{azure.port}/{ACCOUNT}"
    told = {"connection_string": f"AccountName={ACCOUNT};BlobEndpoint={at};SharedAccessSignature={sas}"}
    reader = open_writable(file, told)
    assert reader.read(file, limit=9) == b"0"
    for denied in (reader.names, lambda file: reader.write(file, b"1"), lambda file: reader.create(file, b"1")):
        with pytest.raises(StorageDeniedError):
            denied(file)
    assert storage_of(azure).read(file, limit=9) == b"0"


def test_an_account_of_the_options_that_is_not_the_locations_is_an_error(azure: Azurite) -> None:
    for told in ({"connection_string": azure.connection(account="other")}, {"account_name": "other"}):
        with pytest.raises(AccountMismatchError, match="not those of the location's account"):
            open_storage(parse_location(f"{azure.root}/x"), {"account_key": KEY, **told})


@pytest.mark.parametrize("status", [401, pytest.param(403, marks=PROOF)])
def test_who_may_not_look_on_google_is_told_so(status: int, gcs: FakeGcs) -> None:
    """The emulator lets everybody in; Google refuses in these words."""
    refusal = json.dumps({"error": {"code": status, "message": "Anonymous caller does not have storage.objects.get"}})

    with contextlib.closing(Server(Always(status, refusal.encode()))) as google:
        for verb in FEW_VERBS[:1]:
            code, said = run(verb, f"gs://{BUCKET}/chk", {"STORAGE_EMULATOR_HOST": google.url})
            assert (code, said["error"]["condition"]) == (12, "STORAGE_DENIED"), (verb, said)
            assert "Anonymous caller" in said["error"]["found"]


def test_a_listing_is_never_remembered(emulator: Emulator, tmp_path: Path, put: Callable[[Path], str]) -> None:
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(1)
    target, storage = parse_location(put(tmp_path / "checkpoint")), storage_of(emulator)
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    query.run(1)
    put(tmp_path / "checkpoint")
    assert sorted(storage.names(target / "offsets") or ()) == ["0", "1"]
    assert storage.stat(target / "offsets/1") is not None
    storage.remove(target / "offsets/1")
    assert sorted(storage.names(target / "offsets") or ()) == ["0"]
    assert storage.stat(target / "offsets/1") is None


@pytest.mark.proof
def test_an_answer_that_is_cut_never_reads_as_less(
    emulator: Emulator, tmp_path: Path, put: Callable[[Path], str]
) -> None:
    CheckpointBuilder(tmp_path / "checkpoint").run(30)
    target = parse_location(put(tmp_path / "checkpoint"))
    whole = {str(n) for n in range(30)}
    content = (tmp_path / "checkpoint/offsets/7").read_bytes()
    refused = 0
    for length in (0, 1, 17, 60, 120, 200, 260, 300, 400, 800, 2000, 5000):
        with Proxy(emulator.port, cut_after=length) as proxy:  # each has a port, and so connections, of its own
            storage = storage_of(emulator, proxy.port)
            for ask, expected in (
                (lambda storage=storage: set(storage.names(target / "offsets") or ()), whole),
                (lambda storage=storage: storage.read(target / "offsets/7", limit=10_000), content),
            ):
                refused += 1
                with contextlib.suppress(StorageError):
                    assert ask() == expected, length
                    refused -= 1
    assert refused >= 14


@pytest.mark.proof
@pytest.mark.parametrize("case", ["4.2-kafka-multi-topic", "4.3-file-sink-healthy"])
def test_a_verb_waits_for_few_answers_in_a_row(case: str, emulator: Emulator, put: Callable[[Path], str]) -> None:
    target = put(CASES / case / "checkpoint")
    with Proxy(emulator.port, seconds=0.1) as proxy:

        def measure(verb: list[str]) -> int:
            proxy.forget()
            code, said = run(verb, target, emulator.environment(proxy.port))
            assert code in (0, 1, 40, 64), said
            return proxy.round_trips

        for verb in (["status"], ["inspect", "--state"], ["diagnose", "--spark", "4.2"]):
            trips = fewest(partial(measure, verb), enough=ROUND_TRIPS_MAX)
            assert 0 < trips <= ROUND_TRIPS_MAX, (verb, trips, proxy.requests)
