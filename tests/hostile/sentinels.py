"""A secret and a row of the data that nothing written or printed may hold, and the search for them."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

SECRET = "Zq7hunter2xK"
ROW = "Zr4alice5yM"


def unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The content of a file, and all that is packed in it."""
    yield name, content
    if content.startswith(b"\x1f\x8b"):
        yield from unpacked(f"{name} unpacked", gzip.decompress(content))
    if content.startswith(b"PK\3\4"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for each in archive.namelist():
                yield from unpacked(f"{name}: {each}", archive.read(each))


def require_none(text: str, where: object) -> None:
    assert SECRET not in text, where
    assert ROW not in text, where


def require_none_in(file: Path) -> None:
    for name, content in unpacked(str(file), file.read_bytes()):
        assert SECRET.encode() not in content, name
        assert ROW.encode() not in content, name
