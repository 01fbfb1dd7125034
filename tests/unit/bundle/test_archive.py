"""A bundle may come from anybody: whatever it is, the answer is clear and the memory bounded."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lastgood.bundle import archive as module
from lastgood.bundle.archive import (
    MANIFEST,
    PART_BYTES_MAX,
    BundleArchive,
    BundleInvalidError,
    BundleStorage,
    BundleWriter,
    is_part,
)
from lastgood.bundle.tree import CHECKPOINT, WORK, BundleTree, NotInBundleError
from lastgood.errors import StorageError, UsageError
from lastgood.storage.reading import PARALLEL_LOCAL, PARALLEL_REMOTE, parse_location

LOCATION = parse_location("/lake/orders")
ROOTS = {CHECKPOINT: LOCATION, WORK: LOCATION.sibling(".lastgood")}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.zip"
    with path.open("wb") as stream, BundleWriter(stream, {"location": str(LOCATION)}) as writer:
        writer.add("checkpoint/offsets/7", b"v1\n{}")
        writer.add_json("world.json", {"n": 1})
        writer.add("checkpoint/offsets/8", bytes(PART_BYTES_MAX + 1))
        assert writer.finish() == 2
    return path


@pytest.fixture
def storage(bundle: Path) -> Iterator[BundleStorage]:
    tree = BundleTree(ROOTS)
    for name in ("offsets/7", "offsets/8", "state/0/0/1.delta"):
        tree.add_file(f"checkpoint/{name}", 5, 99)
    tree.add_folder("checkpoint/commits")
    with closing(BundleArchive(bundle)) as archive:
        yield BundleStorage(archive, tree)


def forged(path: Path, parts: dict[str, bytes], manifest: object | None = None) -> Path:
    told = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in parts.items():
            zipped.writestr(name, content)
        zipped.writestr(MANIFEST, json.dumps({"format": 1, "parts": told} if manifest is None else manifest))
    return path


def refused(path: Path) -> BundleInvalidError:
    with pytest.raises(BundleInvalidError) as caught:
        BundleArchive(path)
    assert caught.value.subject == str(path)
    assert caught.value.found
    return caught.value


def test_parts_come_back_and_too_large_ones_are_left_out(bundle: Path) -> None:
    with closing(BundleArchive(bundle)) as archive:
        assert archive.manifest["location"] == str(LOCATION)
        assert archive.read("checkpoint/offsets/7") == b"v1\n{}"
        assert archive.read_json("world.json") == {"n": 1}
        assert "checkpoint/offsets/8" not in archive
        with pytest.raises(BundleInvalidError):
            archive.read_json("failures.json")


def test_the_same_parts_make_the_same_bytes(tmp_path: Path) -> None:
    made = [tmp_path / "a", tmp_path / "b"]
    for path in made:
        with path.open("wb") as stream, BundleWriter(stream, {}) as writer:
            writer.add("checkpoint/offsets/7", b"v1")
            writer.finish()
    assert made[0].read_bytes() == made[1].read_bytes()


def test_no_file_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError):
            BundleArchive(path)


@pytest.mark.parametrize("content", [b"", b"v1\n{}", b"PK\3\4", b"PK\5\6" + bytes(18), bytes(100_000)])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    refused(path)


def test_a_truncated_bundle_is_refused_wherever_it_ends(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    cut = tmp_path / "cut"
    for size in range(0, len(whole), 7):
        cut.write_bytes(whole[:size])
        refused(cut)


def test_a_damaged_bundle_is_refused_or_reads_as_it_was(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    damaged = tmp_path / "damaged"
    for at in range(0, len(whole), 5):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            with closing(BundleArchive(damaged)) as archive:
                assert archive.read("checkpoint/offsets/7") == b"v1\n{}"
        except BundleInvalidError:
            pass


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "checkpoint/../../evil",
        "checkpoint/./a",
        "checkpoint//a",
        "checkpoint\\..\\evil",
        "C:/evil",
        "checkpoint/offsets/",
        "evil.sh",
        "other/offsets/7",
        "checkpoint",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert not is_part(name)
    assert "no bundle does" in refused(forged(tmp_path / "b", {name: b"x"})).sentence


def test_a_part_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "b", {"world.json": b"{}"})
    with zipfile.ZipFile(path, "a") as zipped, pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr("world.json", "[]")
    refused(path)


@pytest.mark.parametrize(
    ("parts", "manifest"),
    [
        ({}, []),
        ({}, {"format": 2, "parts": {}}),
        ({}, {"format": 1}),
        ({"world.json": b"{}"}, {"format": 1, "parts": {}}),
        ({}, {"format": 1, "parts": {"world.json": "0"}}),
        ({"world.json": b"{}"}, {"format": 1, "parts": {"world.json": 7}}),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path, parts: dict[str, bytes], manifest: object) -> None:
    refused(forged(tmp_path / "b", parts, manifest))


def test_a_zip_without_manifest_and_one_whose_manifest_is_no_json_are_refused(tmp_path: Path) -> None:
    for name, content in (("world.json", b"{}"), (MANIFEST, b"{"), (MANIFEST, b"[" * 100_000)):
        path = tmp_path / "b"
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr(name, content)
        refused(path)


def test_a_part_that_is_not_what_the_manifest_says_is_refused(tmp_path: Path) -> None:
    told = {"format": 1, "parts": {"world.json": "0" * 64}}
    path = forged(tmp_path / "b", {"world.json": b"{}"}, told)
    with closing(BundleArchive(path)) as archive, pytest.raises(BundleInvalidError):
        archive.read("world.json")


def test_a_part_that_is_no_json_is_refused(tmp_path: Path) -> None:
    for content in (b"{", b"[" * 200_000, b"\xff"):
        path = forged(tmp_path / "b", {"world.json": content})
        with closing(BundleArchive(path)) as archive, pytest.raises(BundleInvalidError):
            archive.read_json("world.json")


def test_json_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JSON_BYTES_MAX", 1000)
    with closing(BundleArchive(forged(tmp_path / "b", {"world.json": b"[" + b"[]," * 400 + b"0]"}))) as archive:
        assert archive.read("world.json", 1) == b"["
        with pytest.raises(BundleInvalidError):
            archive.read_json("world.json")
    refused(forged(tmp_path / "c", {f"checkpoint/offsets/{n}": b"" for n in range(20)}))
    with (tmp_path / "d").open("wb") as stream, BundleWriter(stream, {}) as writer, pytest.raises(StorageError):
        writer.add_json("world.json", "x" * 1000)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    zeros = bytes(1024 * 1024)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped, zipped.open("world.json", "w") as part:
        for _ in range(65):
            part.write(zeros)
    tracemalloc.start()
    assert "unpack" in refused(path).sentence
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


def test_a_size_that_lies_unpacks_to_no_more_than_it_says(tmp_path: Path) -> None:
    path = forged(tmp_path / "b", {"world.json": bytes(1_000_000)})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\1\2")
    struct.pack_into("<L", raw, at + 24, 10)  # the unpacked size in the directory
    path.write_bytes(raw)
    with closing(BundleArchive(path)) as archive, pytest.raises(BundleInvalidError):
        archive.read("world.json")


def test_too_many_parts_are_refused_before_the_directory_is_read(tmp_path: Path) -> None:
    path = forged(tmp_path / "b", {"world.json": b"{}"})
    raw = bytearray(path.read_bytes())
    end = raw.rindex(b"PK\5\6")
    directory = raw[:]
    struct.pack_into("<L", directory, end + 12, 500_000_000)
    path.write_bytes(directory)
    assert "too many parts" in refused(path).sentence


@pytest.mark.parametrize(
    "change", [lambda entry: (6, entry | 1), lambda entry: (8, entry)], ids=["encrypted", "packing"]
)
def test_a_bundle_that_is_packed_otherwise_is_refused(tmp_path: Path, change: Callable[[int], tuple[int, int]]) -> None:
    path = forged(tmp_path / "b", {"world.json": b"{}"})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\1\2")
    offset, value = change(12 if change(0)[0] == 8 else 0)
    struct.pack_into("<H", raw, at + 2 + offset, value)
    path.write_bytes(raw)
    assert "packed" in refused(path).sentence


def test_a_file_larger_than_any_bundle_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = forged(tmp_path / "b", {"world.json": b"{}"})
    monkeypatch.setattr(module, "_FILE_BYTES_MAX", 10)
    assert "too large" in refused(path).sentence


def test_a_storage_shows_names_without_contents(storage: BundleStorage) -> None:
    assert sorted(storage.names(LOCATION) or ()) == ["commits/", "offsets/", "state/"]
    assert storage.names(LOCATION / "sources") is None
    assert [each.size for each in storage.scan(LOCATION / "offsets") or ()] == [5, 5]
    assert [each.size for each in storage.scan(LOCATION / "offsets", facts=False) or ()] == [None, None]
    assert storage.scan(LOCATION / "offsets/9") is None
    assert [each.name for each in storage.walk(LOCATION / "state") or ()] == ["0/0/1.delta"]
    assert storage.walk(LOCATION / "sources") is None
    found = storage.stat(LOCATION / "offsets/7")
    assert found is not None
    assert (found.size, found.modified_ms) == (5, 99)


def test_a_storage_reads_what_was_saved_and_says_what_was_not(storage: BundleStorage) -> None:
    assert storage.read(LOCATION / "offsets/7", limit=100) == b"v1\n{}"
    assert storage.read(LOCATION / "offsets/7", limit=2) == b"v1"
    assert storage.read(LOCATION / "offsets/9", limit=9) is None
    assert storage.read(LOCATION / "commits", limit=9) is None
    for place in (LOCATION / "state/0/0/1.delta", parse_location("/etc/passwd")):
        with pytest.raises(NotInBundleError) as caught:
            storage.read(place, limit=9)
        assert caught.value.subject == str(place)


def test_a_storage_is_as_parallel_as_the_one_it_stands_for(bundle: Path) -> None:
    with closing(BundleArchive(bundle)) as archive:
        assert BundleStorage(archive, BundleTree(ROOTS)).parallel == PARALLEL_LOCAL
        assert BundleStorage(archive, BundleTree(ROOTS), parallel=PARALLEL_REMOTE).parallel == PARALLEL_REMOTE
