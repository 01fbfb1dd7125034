"""Records as lines of JSON in files of this machine: a new file when one has grown, the oldest removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .driver import FILE, make_file_stem, make_private

FILE_BYTES_MAX = 32 * 1024 * 1024
FILES_MAX = 8
RECORD_FILE = re.compile(r"\d{13}-\d+\.\d{6}\.jsonl")
"""`PROCESS STARTED IN MS-PID.NUMBER.jsonl`: in the order of their names they are in the order of time."""


def name_record_file(number: int) -> str:
    """Name of the `number`-th file of this process."""
    return f"{make_file_stem()}.{number:06d}.jsonl"


def encode_records(records: Iterable[dict[str, Any]]) -> bytes:
    """One line of JSON each."""
    return b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)


def list_surplus(names: Iterable[str], files_max: int) -> list[str]:
    """The files that have to go so that `files_max` stay: the oldest."""
    return sorted(name for name in names if RECORD_FILE.fullmatch(name))[:-files_max]


def open_folder(folder: Path) -> int:
    """Have a folder there, for its owner alone, and open it; the descriptor is the caller's.

    Raises:
        OSError: it can be neither made nor opened.
    """
    make_private(folder)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class RecordFileWriter:
    """Appends to a file in a folder; belongs to one thread.

    A process that is killed leaves at worst a torn last line, and never writes to that file again.
    """

    pause_seconds = 0.0

    def __init__(
        self,
        folder: Path,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
        mode: int = FILE,
        open_folder: Callable[[Path], int] = open_folder,
    ) -> None:
        """Write below `folder`, which is made when there is something to write.

        Args:
            folder: Where the files go.
            file_bytes_max: After so many the next file is begun.
            files_max: So many files stay.
            mode: Of a file that is made.
            open_folder: Makes the folder where it is not there, and opens it; for folders that others can write to.
        """
        self._folder = folder
        self._open_folder = open_folder
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._mode = mode
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
        if self._descriptor is None:
            descriptor = self._descriptor = self._open()
        else:
            descriptor = self._descriptor = self._descriptor
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
        self._size = 0
        folder = self._open_folder(self._folder)
        try:
            for name in list_surplus(os.listdir(folder), self._files_max - 1):  # noqa: PTH208 - it is open
                with contextlib.suppress(FileNotFoundError):
                    # Safe: only names that a recorder gives, the oldest of them, beyond as many as are kept.
                    os.unlink(name, dir_fd=folder)
            return self._create(folder)
        finally:
            os.close(folder)

    def _create(self, folder: int) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            self._number += 1
            try:
                return os.open(name_record_file(self._number), flags, self._mode, dir_fd=folder)
            except FileExistsError:  # another recorder of this process
                continue

    def _take_back(self, descriptor: int) -> None:
        """After half a write: leave whole lines; where that fails, leave the file."""
        try:
            # Safe: it is our own file, created where none was, and nobody else writes to it; up to here it holds whole
            # lines, and beyond there is the half of one that is not told as written.
            os.ftruncate(descriptor, self._size)
        except OSError:
            self.close()
