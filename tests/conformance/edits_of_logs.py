"""Damage to the logs of a checkpoint, to `metadata`, to the log of a file sink and to a source's files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.folders import SINK_LOG, checksums, entry, ids, log_folder, remove, source_logs, write
from conformance.rows import Parameters, row

_BOTH = ["offsets", "commits"]
_LOST = "00000000-0000-4000-8000-000000000000"


def _removals(case: Path) -> Iterator[Parameters]:
    for logs in (["offsets"], ["commits"], _BOTH):
        found = ids(case, logs[0])
        for batches in _tops(found) + _holes(found):
            yield {"logs": logs, "batches": batches, "crc": "none"}
    if found := ids(case, "offsets"):
        yield {"logs": ["offsets"], "batches": found[-1:], "crc": "stale"}
        yield {"logs": ["offsets"], "batches": found[-2:], "crc": "stale"}
        yield {"logs": _BOTH, "batches": found[-1:], "crc": "stale"}
    if found := ids(case, "commits"):
        yield {"logs": ["commits"], "batches": found[-1:], "crc": "stale"}


def _log_removals(case: Path) -> Iterator[Parameters]:
    for log in (*source_logs(case), SINK_LOG):
        found = ids(case, log)
        for batches in _tops(found) + _holes(found):
            yield {"logs": [log], "batches": batches, "crc": "none"}
        if found:
            yield {"logs": [log], "batches": found[-1:], "crc": "stale"}


def _tops(found: list[int]) -> list[list[int]]:
    return [found[-count:] for count in sorted({1, 2, 3, len(found)}) if 0 < count <= len(found)]


def _holes(found: list[int]) -> list[list[int]]:
    below = [[found[-count]] for count in (2, 3, 4) if len(found) > count]
    return [*below, found[-3:-1]] if len(found) > 3 else below


@row(_removals, weight=8)
def remove_entries(case: Path, logs: list[str], batches: list[int], crc: str) -> None:
    for log in logs:
        for batch in batches:
            remove(entry(case, log, batch), crc=crc)


@row(_log_removals, weight=4)
def remove_private_entries(case: Path, logs: list[str], batches: list[int], crc: str) -> None:
    remove_entries(case, logs, batches, crc)


def _folders(case: Path) -> Iterator[Parameters]:
    for log in (*_BOTH, *source_logs(case), SINK_LOG, "sources"):
        if log_folder(case, log).is_dir():
            yield {"log": log}


@row(_folders)
def remove_log(case: Path, log: str) -> None:
    shutil.rmtree(log_folder(case, log))


_ANY_LOG = ("empty", "cut-version", "version-99", "version-0", "version-x", "version-only", "garbage", "newline")
_REWRITES = {
    "offsets": (
        *_ANY_LOG,
        *("version-2", "cut-metadata", "cut-source", "blank-metadata", "empty-metadata", "void-source"),
        *("extra-source", "missing-source", "garbage-source", "no-conf"),
    ),
    "commits": (*_ANY_LOG, "version-2", "version-3", "cut-metadata", "empty-metadata", "blank-metadata"),
    "sources": (*_ANY_LOG, "cut-source", "blank-metadata"),
    SINK_LOG: (*_ANY_LOG, "cut-source"),
}


def _rewrites(case: Path) -> Iterator[Parameters]:
    for log in (*_BOTH, *source_logs(case), SINK_LOG):
        found = ids(case, log)
        for how in _REWRITES[log.partition("/")[0]]:
            if found:
                yield {"log": log, "batch": found[-1], "how": how, "crc": "none"}
        for batch in found[-3:-1]:
            for how in ("empty", "garbage", "void-source") if log == "offsets" else ("empty",):
                yield {"log": log, "batch": batch, "how": how, "crc": "none"}
        if found:
            yield {"log": log, "batch": found[-1], "how": "empty", "crc": "stale"}
            yield {"log": log, "batch": found[-1], "how": "newline", "crc": "stale"}


@row(_rewrites, weight=8)
def rewrite(case: Path, log: str, batch: int, how: str, crc: str) -> None:
    path = entry(case, log, batch)
    write(path, rewritten(path.read_bytes() if path.is_file() else b"", how), crc=crc)


def rewritten(content: bytes, how: str) -> bytes:
    """The content of a log entry, damaged in this way."""
    nul = b"\0" if content.startswith(b"\0") else b""
    version, *lines = content.removeprefix(nul).split(b"\n")
    metadata, sources = (lines[0] if lines else b""), lines[1:]
    if how.startswith("version-") and how != "version-only":
        return nul + b"\n".join([b"v" + how.removeprefix("version-").encode(), *lines])
    changed: dict[str, list[bytes]] = {
        "empty": [],
        "cut-version": [version[:1]],
        "version-only": [version],
        "garbage": [b"\x00\xff\x13garbage"],
        "newline": [version, *lines, b""],
        "cut-metadata": [version, metadata[: len(metadata) // 2]],
        "cut-source": [version, *lines[:-1], lines[-1][: len(lines[-1]) // 2] if lines else b""],
        "blank-metadata": [version, b"", *sources],
        "empty-metadata": [version, b"{}", *sources],
        "void-source": [version, metadata, *(b"-" for _ in sources)],
        "extra-source": [version, metadata, *sources, *sources[-1:]],
        "missing-source": [version, metadata, *sources[:-1]],
        "garbage-source": [version, metadata, *sources[:-1], b"garbage"],
        "no-conf": [version, _without_conf(metadata), *sources],
    }
    parts = changed[how]
    return nul + b"\n".join(parts) if parts else b""


def _without_conf(metadata: bytes) -> bytes:
    try:
        return json.dumps({**json.loads(metadata), "conf": {}}, separators=(",", ":")).encode()
    except (ValueError, TypeError):
        return metadata


def _repartitions(case: Path) -> Iterator[Parameters]:
    if found := ids(case, "offsets"):
        yield from ({"batch": found[-1], "partitions": partitions} for partitions in ("1", "3"))


@row(_repartitions)
def pin_partitions(case: Path, batch: int, partitions: str) -> None:
    """Another number of partitions in a plan, as somebody may write it there by hand."""
    path = entry(case, "offsets", batch)
    version, _, rest = path.read_bytes().partition(b"\n")
    metadata, _, sources = rest.partition(b"\n")
    try:
        told = json.loads(metadata)
        told["conf"]["spark.sql.shuffle.partitions"] = partitions
    except (ValueError, TypeError, KeyError):
        return  # an earlier damage has left no settings
    write(path, b"\n".join([version, json.dumps(told, separators=(",", ":")).encode(), sources]), crc="none")


def _moves(case: Path) -> Iterator[Parameters]:
    found = ids(case, "offsets")
    for batch in found[-2:]:
        lines = entry(case, "offsets", batch).read_bytes().split(b"\n")[2:]
        for source in range(len(lines)):
            for by in (-3, -1, 1, 3):
                yield {"batch": batch, "source": source, "by": by, "crc": "none"}
    if found:
        yield {"batch": found[-1], "source": 0, "by": 3, "crc": "stale"}
        yield {"batch": found[-1], "source": 0, "by": -1, "crc": "stale"}


@row(_moves, weight=4)
def move_offset(case: Path, batch: int, source: int, by: int, crc: str) -> None:
    path = entry(case, "offsets", batch)
    lines = path.read_bytes().split(b"\n")
    if len(lines) > source + 2:
        lines[source + 2] = _moved(lines[source + 2], by)
        write(path, b"\n".join(lines), crc=crc)


def _moved(line: bytes, by: int) -> bytes:
    head, text = (line[:2], line[2:]) if line[:1].isdigit() and line[1:2] == b":" else (b"", line)
    try:
        offset = json.loads(text)
    except ValueError:
        return line
    return head + json.dumps(_moved_value(offset, by), separators=(",", ":")).encode()


def _moved_value(offset: Any, by: int) -> Any:
    """A file source counts log entries, the others records: of them a batch is ten."""
    if not isinstance(offset, dict):
        return offset
    if "logOffset" in offset:
        return {**offset, "logOffset": offset["logOffset"] + by}
    if "reservoirVersion" in offset:
        return {**offset, "reservoirVersion": offset["reservoirVersion"] + by}
    if "timestamp" in offset:
        moved = {"offset": offset["offset"] + 10 * by, "timestamp": offset["timestamp"] + 1000 * by}
        return {**offset, **moved}
    return {
        topic: {key: value + by if isinstance(value, int) else value for key, value in ends.items()}
        if isinstance(ends, dict)
        else ends
        for topic, ends in offset.items()
    }


def _names(case: Path) -> Iterator[Parameters]:
    for log in (*_BOTH, *source_logs(case), SINK_LOG):
        if found := ids(case, log):
            top = found[-1]
            for name in (f"0{top}", f"00{top + 1}", f"+{top + 1}", "-1", f"{top + 1}.compact"):
                yield {"log": log, "batch": top, "name": name, "keep": True}
            yield {"log": log, "batch": top, "name": f"0{top}", "keep": False}


@row(_names)
def name_differently(case: Path, log: str, batch: int, name: str, keep: bool) -> None:
    """Copy, or move, an entry to a name that is not how Spark writes a batch."""
    path = entry(case, log, batch)
    if path.is_file():
        write(path.with_name(name), path.read_bytes())
        if not keep:
            remove(path)


def _foreign(case: Path) -> Iterator[Parameters]:
    for log in (*_BOTH, *source_logs(case), SINK_LOG):
        if found := ids(case, log):
            top = found[-1]
            for name in (f"{top}.bak", "readme.txt", f".{top + 1}.{_LOST}.tmp", f".{top + 1}.crc", f".{top + 2}.crc"):
                yield {"log": log, "name": name, "kind": "file"}
            yield {"log": log, "name": str(top + 2), "kind": "folder"}
            yield {"log": log, "name": str(top + 1), "kind": "folder"}


@row(_foreign, weight=4)
def add_foreign(case: Path, log: str, name: str, kind: str) -> None:
    """Add what is no entry of a log: something foreign, or what an interrupted write has left."""
    path = log_folder(case, log) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir(exist_ok=True)
    elif not path.is_dir():
        path.write_bytes(checksums(b"left over") if name.endswith(".crc") else b"left over")


def _aheads(case: Path) -> Iterator[Parameters]:
    for logs in (["offsets"], ["commits"], _BOTH, [SINK_LOG], *([log] for log in source_logs(case))):
        if found := ids(case, logs[0]):
            for by in (1, 2, 3):
                yield {"logs": logs, "batch": found[-1], "by": by}


@row(_aheads, weight=6)
def copy_ahead(case: Path, logs: list[str], batch: int, by: int) -> None:
    """An entry that is not there yet, with the content of one that is; of a plan the time is a later one."""
    done = entry(case, "commits", batch)
    done_ms = done.stat().st_mtime_ns // 1_000_000 if done.is_file() else 0
    for log in logs:
        path = entry(case, log, batch)
        if path.is_file():
            write(log_folder(case, log) / str(batch + by), _plan_later(path.read_bytes(), done_ms, by))


def _plan_later(content: bytes, done_ms: int, by_ms: int) -> bytes:
    """The same plan at another time: Spark plans a batch once the one before is committed."""
    time = re.search(rb'"batchTimestampMs":(\d+)', content)
    if time is None:
        return content
    return content[: time.start(1)] + b"%d" % (max(int(time[1]), done_ms) + by_ms) + content[time.end(1) :]


def _query_ids(case: Path) -> Iterator[Parameters]:
    if (case / "checkpoint" / "metadata").exists():
        yield from ({"how": how} for how in ("missing", "blocked", "empty", "cut", "garbage", "no-id", "other"))


@row(_query_ids, weight=3)
def damage_metadata(case: Path, how: str) -> None:
    path = case / "checkpoint" / "metadata"
    content = path.read_bytes() if path.is_file() else b""
    if how in {"missing", "blocked"}:
        remove(path, crc="stale" if how == "blocked" else "none")
        return
    changed = {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "garbage": b"garbage",
        "no-id": b"{}",
        "other": json.dumps({"id": _LOST}, separators=(",", ":")).encode(),
    }
    write(path, changed[how])


def _inputs(case: Path) -> Iterator[Parameters]:
    """Of what was read, of what is new, and of both; something new is left."""
    for folder in sorted(case.glob("input*")):
        files = sorted(path.name for path in folder.iterdir())
        yield {"folder": folder.name, "files": files[-3:-2]}
        yield {"folder": folder.name, "files": files[-2:-1]}
        yield {"folder": folder.name, "files": files[-3:-1]}


@row(_inputs)
def remove_input(case: Path, folder: str, files: list[str]) -> None:
    for name in files:
        remove(case / folder / name)


def _side_files(case: Path) -> Iterator[Parameters]:
    yield from ({"folder": log} for log in (*_BOTH, *source_logs(case)) if log_folder(case, log).is_dir())
    if (case / "checkpoint" / "state").is_dir():
        yield {"folder": "state"}


@row(_side_files, weight=1)
def remove_side_files(case: Path, folder: str) -> None:
    for path in sorted((case / "checkpoint" / folder).rglob(".*.crc")):
        path.unlink()
