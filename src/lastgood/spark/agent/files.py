"""Records as lines of JSON in files of this machine: a new file when one has grown, the oldest removed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .driver import FILE, file_stem, make_private

FILE_BYTES_MAX = 32 * 1024 * 1024
FILES_MAX = 8
RECORD_FILE = re.compile(r"\d{13}-\d+\.\d{6}\.jsonl")
"""`PROCESS STARTED IN MS-PID.NUMBER.jsonl`: in the order of their names they are in the order of time."""


def record_file_name(number: int) -> str:
    """Name of the `number`-th file of this process."""
    return f"{file_stem()}.{number:06d}.jsonl"


def encode_records(records: Iterable[dict[str, Any]]) -> bytes:
    """One line of JSON each."""
    return b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)


def surplus(names: Iterable[str], files_max: int) -> list[str]:
    """The files that have to go so that `files_max` stay: the oldest."""
    return sorted(name for name in names if RECORD_FILE.fullmatch(name))[:-files_max]


class FileSink:
    """Appends to a file in a folder; belongs to one thread.

    A process that is killed leaves at worst a torn last line, and never writes to that file again.
    """

    pause_seconds = 0.0

    def __init__(self, folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX) -> None:
        """Write below `folder`, which is made when there is something to write."""
        self._folder = folder
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._number = 0
        self._descriptor: int | None = None
        self._size = 0

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Append all of them or, as far as the disk can, none.

        Raises:
            OSError: the folder or the file cannot be written to.
        """
        content = encode_records(records)
        if self._descriptor is not None and self._size + len(content) > self._file_bytes_max:
            self.close()
        descriptor = self._descriptor = self._open() if self._descriptor is None else self._descriptor
        written = 0
        try:
            while written < len(content):
                written += os.write(descriptor, content[written:])
        except OSError:
            self._take_back(descriptor)
            raise
        self._size += written

    def close(self) -> None:
        """Close the file; what comes later goes to the next."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        make_private(self._folder)
        for name in surplus(os.listdir(self._folder), self._files_max - 1):  # noqa: PTH208 - names are all we need
            (self._folder / name).unlink(missing_ok=True)
        self._size = 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            self._number += 1
            try:
                return os.open(self._folder / record_file_name(self._number), flags, FILE)
            except FileExistsError:  # another recorder of this process
                continue

    def _take_back(self, descriptor: int) -> None:
        """After half a write: leave whole lines; where that fails, leave the file."""
        try:
            os.ftruncate(descriptor, self._size)
        except OSError:
            self.close()
