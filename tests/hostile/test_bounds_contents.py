"""Lengths, depths and packed sizes that files tell of themselves cost nothing."""

from __future__ import annotations

import functools
import gzip
import zlib
from pathlib import Path

import pytest
from hostile.bounded import RESIDENT_KIB, arguments, bounded
from rotated import ALL, rotated

from lastgood.checkpoint.copies import Copy
from lastgood.mirror import copies as module
from lastgood.mirror.copies import CopiesTooLargeError, compress, decompress, decompress_lines, encode_copies
from lastgood.sources.kafka.config import KafkaConfigError, read_kafka_config
from lastgood.testing.checkpoints import CheckpointBuilder

DEEP = {"arrays": b"[" * 200_000, "objects": b'{"a":' * 200_000, "digits": b'{"at_ms":%b}' % (b"9" * 1_000_000)}
NUMBERS = {"nan": b'{"at_ms":NaN,"lease":NaN}', "long": b'{"at_ms":%b,"lease":%b}' % (b"9" * 40, b"9" * 40)}
PLACES = [
    "chk/metadata",
    "chk/offsets/8",
    "chk/commits/7",
    "chk.lastgood/backups/20261121-120000-abcd.json",
    "chk.lastgood/incidents/20261121-120000-abcd.json",
    "chk.lastgood/attempts.json",
    "chk.lastgood/recoveries/20261121-120000-abcd/plan.json",
    "chk.lastgood/recoveries/20261121-120000-abcd/begun.json",
    "chk.lastgood/recoveries/20261121-120000-abcd/closed.json",
]
VERBS = [["status"], ["diagnose"], ["backup", "list"], ["report"], ["undo", "last"], ["plan"]]


@functools.cache
def bomb(line: bytes, megabytes: int) -> bytes:
    """A gzip member of so many megabytes of one line over and over, made without ever holding them."""
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    piece = (line * (1024 * 1024 // len(line) + 1))[: 1024 * 1024]
    return b"".join([*(packer.compress(piece) for _ in range(megabytes)), packer.flush()])


def checkpoint(folder: Path) -> Path:
    query = CheckpointBuilder(folder / "chk")
    query.run(8)
    query.plan()
    return folder / "chk"


def said_by(folder: Path, verb: list[str]) -> tuple[int, str]:
    words = [*verb, "--checkpoint", str(folder / "chk")] if verb[0] == "undo" else arguments(verb, folder / "chk")
    said = bounded(words if verb[0] != "report" else ["report", str(folder / "chk")], folder)
    assert not said.is_bug, (verb, said.code, said.err)
    assert said.resident_kib < RESIDENT_KIB, (verb, said.resident_kib)
    return said.code, said.out + said.err


@pytest.mark.parametrize(
    ("place", "times"), [(PLACES[0], 2), *(pytest.param(place, ALL, marks=pytest.mark.proof) for place in PLACES)]
)
def test_no_depth_and_no_number_of_digits_is_a_bug(tmp_path: Path, place: str, times: int) -> None:
    checkpoint(tmp_path)
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    for content, verbs in rotated((DEEP | NUMBERS).values(), VERBS, times):
        file.write_bytes(b"v1\n" + content if place.startswith("chk/") else content)
        for verb in verbs:
            said_by(tmp_path, verb)


UNPACKED = [(b"\0", 1024), (b"\n", 1024), (b'{"path":"offsets/5","query":null,"seen_ms":1,"text":""}\n', 96)]
READERS = [["status"], ["diagnose"], ["plan"], ["inspect"]]


@pytest.mark.parametrize(
    ("unpacked", "verbs"),
    [
        *rotated(UNPACKED, READERS, 2),
        *(pytest.param(*each, marks=pytest.mark.proof) for each in rotated(UNPACKED, READERS, ALL)),
    ],
)
def test_a_mirror_that_unpacks_to_more_than_logs_can_is_told(
    tmp_path: Path, unpacked: tuple[bytes, int], verbs: list[list[str]]
) -> None:
    checkpoint(tmp_path)
    file = tmp_path / "chk.lastgood/mirror/2026-11-21-abcd1234.jsonl.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(bomb(*unpacked))
    assert file.stat().st_size < 8 * 1024 * 1024
    for verb in verbs:
        code, complained = said_by(tmp_path, verb)
        assert code == CopiesTooLargeError.exit_code, (verb, complained)
        assert str(file) in complained


def test_a_backup_that_unpacks_to_more_than_logs_can_is_told(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(1)
    assert bounded(["backup", "create", str(tmp_path / "chk")], tmp_path).code == 0
    content = next((tmp_path / "chk.lastgood/backups").glob("*.gz"))
    content.write_bytes(bomb(b"\0", 1024))
    (tmp_path / "chk").rename(tmp_path / "before")
    said = bounded(["backup", "restore", str(tmp_path / "chk"), "--from", "last"], tmp_path)
    assert (said.code, said.is_bug) == (CopiesTooLargeError.exit_code, False), said.err
    assert said.resident_kib < RESIDENT_KIB
    assert not (tmp_path / "chk").exists()


def test_idle_logs_that_pack_very_well_are_none(tmp_path: Path) -> None:
    """The lines of a query that reads nothing differ in a number and a time."""
    query = CheckpointBuilder(tmp_path / "chk")
    for _ in range(30):
        query.plan(0)
        query.commit()
    plans = [(tmp_path / f"chk/offsets/{n}").read_bytes() for n in range(30)]
    copies = [Copy("q", f"offsets/{n}", 1000 * n, 1000 * n, plans[n % 30]) for n in range(60_000)]
    raw = encode_copies(copies)
    assert len(raw) > module._UNPACKED_BYTES_FREE
    assert decompress(compress(raw)) == raw


def test_members_one_after_the_other_share_one_bound() -> None:
    small = compress(b"\n" * 1_000_000)
    with pytest.raises(CopiesTooLargeError, match="unpacks to more"):
        for _ in decompress_lines(small * 200, "FILE"):
            pass


def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 1000)
    assert list(decompress_lines(gzip.compress(b"a" * 1000 + b"\n" + b"b" * 90))) == [b"a" * 1000, b"b" * 90]
    with pytest.raises(CopiesTooLargeError):
        list(decompress_lines(gzip.compress(b"a" * 1001 + b"\nb")))


def test_settings_of_a_client_without_an_end_are_told(tmp_path: Path) -> None:
    """A wrong name on the command line: one of a device, or of a file that is nothing but a hole."""
    with (tmp_path / "hole").open("wb") as stream:
        stream.truncate(2**40)
    for file in (tmp_path / "hole", Path("/dev/zero")):
        with pytest.raises(KafkaConfigError, match="too long"):
            read_kafka_config(file)
    (tmp_path / "long").write_text(f"request.timeout.ms={'9' * 10_000}\n")
    with pytest.raises(KafkaConfigError):
        read_kafka_config(tmp_path / "long")
