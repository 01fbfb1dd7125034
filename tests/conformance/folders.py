"""The files of a case on disk: logs, their entries, and Hadoop's side files, written as Hadoop writes them."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

SINK_LOG = "sink"
_CHUNK = 512
_STATE_SUFFIXES = (".delta", ".snapshot", ".changelog", ".zip")


def log_folder(case: Path, log: str) -> Path:
    """`offsets`, `commits`, `sources/0` of the checkpoint, or `sink`: the file sink's log."""
    return case / "sink" / "_spark_metadata" if log == SINK_LOG else case / "checkpoint" / log


def ids(case: Path, log: str) -> list[int]:
    """The batch ids in a log, ascending; only the logs of file sources and sinks have compacted entries."""
    folder = log_folder(case, log)
    suffix = "" if log in {"offsets", "commits"} else ".compact"
    files = (path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else ()
    names = (path.name.removesuffix(suffix) for path in files)
    return sorted({int(name) for name in names if name.isdecimal() and str(int(name)) == name})


def entry(case: Path, log: str, batch: int) -> Path:
    """The file of a batch, whether it is there or not; a compacted one if it is that."""
    plain = log_folder(case, log) / str(batch)
    compact = plain.with_name(f"{batch}.compact")
    return compact if compact.exists() else plain


def source_logs(case: Path) -> list[str]:
    """`sources/0`, … for each source that keeps a log."""
    folder = case / "checkpoint" / "sources"
    return sorted(f"sources/{path.name}" for path in folder.iterdir()) if folder.is_dir() else []


def side_file(path: Path) -> Path:
    """Where Hadoop's local file system keeps the checksums of a file."""
    return path.with_name(f".{path.name}.crc")


def checksums(content: bytes) -> bytes:
    """What Hadoop writes beside a file."""
    chunks = (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK))
    return b"crc\0" + _CHUNK.to_bytes(4, "big") + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def write(path: Path, content: bytes, *, crc: str = "fresh") -> None:
    """Write a file; its side file is made anew (`fresh`), removed (`none`), or left as it was (`stale`).

    Nothing happens where an earlier damage has put a folder in its place.
    """
    if path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if crc == "fresh":
        side_file(path).write_bytes(checksums(content))
    elif crc == "none":
        side_file(path).unlink(missing_ok=True)


def remove(path: Path, *, crc: str = "none") -> None:
    """Remove a file, and its side file unless that is to be left (`stale`)."""
    if path.is_file():
        path.unlink()
    if crc != "stale":
        side_file(path).unlink(missing_ok=True)


def copy_case(healthy: Path, case: Path) -> None:
    """Copy the folder of a case; the absolute paths in the logs of file sources and sinks lead into the copy."""
    shutil.copytree(healthy, case)
    here = f"file://{healthy.absolute()}/".encode()
    there = f"file://{case.absolute()}/".encode()
    logs = [*source_logs(case), SINK_LOG]
    for path in [path for log in logs for path in _plain_files(log_folder(case, log))]:
        content = path.read_bytes()
        if here in content:
            write(path, content.replace(here, there))


def partitions(case: Path) -> list[Path]:
    """The state folders that hold versions: one for each operator, partition and store."""
    state = case / "checkpoint" / "state"
    return sorted({path.parent for path in state.rglob("*") if state_version(path) is not None})


def state_files(folder: Path, version: int) -> list[Path]:
    """The files of one version of one partition's store."""
    return sorted(path for path in folder.iterdir() if state_version(path) == version)


def state_version(path: Path) -> int | None:
    """The version that a state file is of; None if it is none."""
    number = path.name.partition(".")[0].partition("_")[0]
    is_version = path.name.endswith(_STATE_SUFFIXES) and number.isdecimal()
    return int(number) if is_version else None


def state_versions(case: Path) -> list[int]:
    """The versions that any partition has, ascending."""
    found = {state_version(path) for folder in partitions(case) for path in folder.iterdir()}
    return sorted(version for version in found if version is not None)


def _plain_files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
