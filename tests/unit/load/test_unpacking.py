"""What is packed is read from any position on, and only if it is whole."""

from __future__ import annotations

import bz2
import gzip
import os
import random
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.load import packing
from lastgood.load.input_files import look_at_file
from lastgood.load.specification import InputFile, LoadFormat, LoadSpec, ParseMode
from lastgood.load.unpacking import locate_index, make_index, open_input, unpack_files
from lastgood.storage.reading import LocalStorage, parse_location

CONTENT = b"".join(b"%d,%d\n" % (each, each * 7919 % 1013) for each in range(40_000))
WHOLE = gzip.compress(CONTENT)
BLOCKS = bz2.compress(CONTENT, 1)
"""Of 100 kB."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packing, "_SPACING_LEAST", 64 * 1024)


def look(folder: Path, packed: bytes, **options: str) -> InputFile:
    file = folder / f"in.csv{'.bz2' if packed.startswith(b'BZh') else '.gz'}"
    file.write_bytes(packed)
    return look_at_file(LocalStorage(), parse_location(str(file)), LoadFormat.CSV, options)


def make_spec(file: InputFile) -> LoadSpec:
    form, mode = LoadFormat.CSV, ParseMode.PERMISSIVE
    return LoadSpec(table="delta:/t", form=form, schema=None, infers=False, options={}, mode=mode, files=(file,))


@pytest.mark.parametrize(
    "packed",
    [
        WHOLE,
        gzip.compress(CONTENT[:5]) + gzip.compress(b"") + gzip.compress(CONTENT[5:]),
        BLOCKS,
        bz2.compress(CONTENT[:5]) + bz2.compress(b"") + bz2.compress(CONTENT[5:]),
    ],
)
def test_it_is_read_from_any_position_on(tmp_path: Path, packed: bytes) -> None:
    chance = random.Random(1)
    (file,) = unpack_files(make_spec(look(tmp_path, packed)), lambda _: None).files
    assert (file.length, file.size) == (len(CONTENT), len(packed))
    with open_input(file) as read:
        for _ in range(50):
            begin, limit = chance.randrange(len(CONTENT)), chance.randrange(1, 60_000)
            assert read(begin, limit) == CONTENT[begin : begin + limit]
        assert read(len(CONTENT), 1) == b""


def test_it_is_unpacked_once(tmp_path: Path) -> None:
    said: list[str] = []
    spec = unpack_files(make_spec(look(tmp_path, WHOLE)), said.append)
    assert said == ["unpacking in.csv.gz once: 100 %"]
    assert unpack_files(spec, said.append) == spec
    assert len(said) == 1
    locate_index(spec.files[0]).unlink()
    assert unpack_files(spec, said.append) == spec
    assert len(said) == 2


def test_of_another_content_there_is_another_index(tmp_path: Path) -> None:
    first = locate_index(look(tmp_path, WHOLE))
    assert first != locate_index(look(tmp_path, gzip.compress(CONTENT + b"1")))


def test_old_indexes_go(tmp_path: Path) -> None:
    file = look(tmp_path, WHOLE)
    make_index(file, lambda _: None)
    old, new = (locate_index(file).with_name(f"packed-{name}") for name in ("old", "new"))
    for each, at in ((old, 0), (new, locate_index(file).stat().st_mtime - 86_400)):
        each.touch()
        os.utime(each, (at, at))
    locate_index(file).unlink()
    make_index(file, lambda _: None)
    assert sorted(each.name for each in old.parent.iterdir()) == sorted([locate_index(file).name, new.name])


@pytest.mark.parametrize(
    "packed",
    [
        WHOLE[:-100],
        WHOLE[:-4],
        WHOLE[: len(WHOLE) // 2],
        WHOLE + b"more",
        WHOLE + bytes(9),
        WHOLE[:-8] + bytes(4) + WHOLE[-4:],
        WHOLE[:5000] + b"\0" + WHOLE[5001:],
        b"\x1f\x8b",
        BLOCKS[:-1],
        BLOCKS[: len(BLOCKS) // 2],
        BLOCKS + b"more",
        BLOCKS + bytes(9),
        BLOCKS[:5000] + b"\0" + BLOCKS[5001:],
        b"BZh",
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, packed: bytes) -> None:
    with pytest.raises(UsageError, match=r"not what (gzip|bzip2) has packed"):
        make_index(look(tmp_path, packed), lambda _: None)
    assert not list((tmp_path / "cache").rglob("packed-*"))


@pytest.mark.parametrize(
    ("content", "begins"),
    [(b"a,b\n1,2", 4), (b"\xef\xbb\xbf\n \na,b\r\n1,2\n", 11), (b"a,b", 3), (b"", 0), (b"\n\n", 2)],
)
def test_its_first_record_comes_behind_mark_and_header(tmp_path: Path, content: bytes, begins: int) -> None:
    file = look(tmp_path, gzip.compress(content), header="true")
    assert (file.begins, file.is_packed, file.is_ended, file.length) == (begins, True, False, 0)
    assert make_index(file, lambda _: None) == len(content)
