"""Checkpoints that are read in tests: real ones, and such as a test writes."""

from __future__ import annotations

from pathlib import Path

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.storage.reading import LocalStorage, Location, parse_location

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


def read(root: Path, **options: int) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(root)), **options)


def batches(count: int, source: str = '{"t":{"0":%d}}') -> dict[str, bytes]:
    """A stateless query with `count` committed batches."""
    files = {"metadata": f'{{"id":"{ID}"}}'.encode()}
    for n in range(count):
        files[f"offsets/{n}"] = f'v1\n{{"conf":{{"spark.sql.shuffle.partitions":"2"}}}}\n{source % n}'.encode()
        files[f"commits/{n}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    return files
