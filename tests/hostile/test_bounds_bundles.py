"""A bundle comes by mail from somebody whom nobody here knows: what it says of itself costs nothing."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from hostile.bounded import RESIDENT_KIB, Said, bounded
from rotated import ALL, rotated

from lastgood.bundle.archive import BundleInvalidError
from lastgood.testing.checkpoints import CheckpointBuilder

MILLION = 1_000_000
BOMBS = {
    "lists": b"[" + b"[]," * (10 * MILLION) + b"[]]",
    "objects": b"[" + b"{}," * (10 * MILLION) + b"{}]",
    "texts": b"[" + b'"ab",' * (6 * MILLION) + b"1]",
    "depth": b"[" * (30 * MILLION),
    "digits": b"[" + b"9" * (30 * MILLION) + b"]",
    "one text": b'["' + b"a" * (30 * MILLION) + b'"]',
}
PARTS = ["world.json", "failures.json", "listing.json", "manifest.json"]


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    """What a bundle holds."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    assert bounded(["diagnose", str(tmp_path / "chk"), "--save", str(tmp_path / "good.zip")], tmp_path).code == 0
    with zipfile.ZipFile(tmp_path / "good.zip") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def diagnosed(folder: Path, parts: dict[str, bytes]) -> Said:
    """Pack these parts, with the digests that belong to them, and have the bundle read."""
    given = json.loads(parts["manifest.json"]) if len(parts["manifest.json"]) < MILLION else None
    others = {name: content for name, content in parts.items() if name != "manifest.json"}
    with zipfile.ZipFile(folder / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in others.items():
            archive.writestr(name, content)
        told = {name: hashlib.sha256(content).hexdigest() for name, content in others.items()}
        manifest = parts["manifest.json"] if given is None else json.dumps({**given, "parts": told}).encode()
        archive.writestr("manifest.json", manifest)
    return bounded(["diagnose", str(folder / "bundle.zip")], folder)


@pytest.mark.parametrize(
    ("part", "kinds"),
    [
        *rotated(PARTS, [*BOMBS], 3),
        *(pytest.param(*each, marks=pytest.mark.proof) for each in rotated(PARTS, [*BOMBS], ALL)),
    ],
)
def test_no_part_of_a_bundle_takes_more_memory_than_a_large_one(
    parts: dict[str, bytes], tmp_path: Path, part: str, kinds: list[str]
) -> None:
    for kind in kinds:
        said = diagnosed(tmp_path, {**parts, part: BOMBS[kind]})
        assert (said.code, said.is_bug) == (BundleInvalidError.exit_code, False), (kind, said.code, said.err)
        assert str(tmp_path / "bundle.zip") in said.err
        assert said.resident_kib < RESIDENT_KIB, (kind, said.resident_kib)
        assert len(said.err) < 2_000


@pytest.mark.parametrize(
    "path", ["checkpoint/" + "a" * 100_000, "checkpoint" + "/a" * 13, "checkpoint//a", "elsewhere/a"]
)
def test_no_path_in_a_bundle_is_longer_or_deeper_than_one_of_a_storage(
    parts: dict[str, bytes], tmp_path: Path, path: str
) -> None:
    listing = json.loads(parts["listing.json"])
    listing["files"].append([path, 1, 1])
    said = diagnosed(tmp_path, {**parts, "listing.json": json.dumps(listing).encode()})
    assert (said.code, said.is_bug) == (BundleInvalidError.exit_code, False), said.err
    assert len(said.err) < 2_000
