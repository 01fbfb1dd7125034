"""Checkpoints that are read in tests: real ones, and such as a test writes."""

from __future__ import annotations

import itertools
from pathlib import Path

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.storage.reading import LocalStorage, Location, Storage, parse_location, read_part

CASES = Path(__file__).parent / "corpus" / "cases"
ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"
A = "68ed4850-d346-4756-94d9-8f64625f261a"


def write(root: Path, files: dict[str, bytes]) -> Location:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return parse_location(str(root))


def read_files(folder: Path | str) -> dict[str, bytes]:
    """What every file below a folder holds, by its path from there."""
    root = Path(folder)
    return {each.relative_to(root).as_posix(): each.read_bytes() for each in root.rglob("*") if each.is_file()}


PARTED = {"in.csv": b"id,name\n1,a\n2,b", "empty.csv": b""}
"""Files of which `require_parts` reads parts."""


def require_parts(storage: Storage, folder: Location) -> None:
    """Each part of a file is what it is of one on a disk, also at its end, behind it, and of no length."""
    for name, begin, limit in itertools.product(PARTED, (0, 1, 14, 15, 16), (0, 1, 5, 100)):
        part = read_part(storage, folder / name, begin=begin, limit=limit)
        assert part == PARTED[name][begin : begin + limit], (name, begin, limit)
    assert read_part(storage, folder / "nowhere", begin=3, limit=1) is None


def read(root: Path, **options: int) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(root)), **options)


def batches(count: int, source: str = '{"t":{"0":%d}}') -> dict[str, bytes]:
    """A stateless query with `count` committed batches."""
    files = {"metadata": f'{{"id":"{ID}"}}'.encode()}
    for n in range(count):
        files[f"offsets/{n}"] = f'v1\n{{"conf":{{"spark.sql.shuffle.partitions":"2"}}}}\n{source % n}'.encode()
        files[f"commits/{n}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    return files
