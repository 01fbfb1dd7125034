"""What a command prints: kept in bounded log files, its end in memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from lastgood.storage.rights import make_private, open_privately

TAIL_BYTES = 256 * 1024
"""How much of the end is kept in memory to find the last error in: a Spark failure takes some 20 kB."""
LOG_BYTES = 10 * 1024 * 1024
LOG_FILES = 5
_CHUNK_BYTES = 64 * 1024
_FEW_BYTES = 16 * 1024
_GATHER_SECONDS = 0.01
"""A driver prints line by line, each of which would wake us: so long is waited for more behind a few."""
_RETRY_BYTES = 4 * 1024 * 1024
"""After a failed write (a full disk), how much is let go before the next try."""


class Output:
    """Reads one command's output to its end, whatever becomes of the log file.

    A command must never block or die because its log cannot be written, and one that prints without end
    must fill neither memory nor disk: there are at most `LOG_FILES` files of `LOG_BYTES`.
    """

    def __init__(
        self,
        log: Path,
        *,
        copy_to: IO[bytes] | None = None,
        on_trouble: Callable[[OSError], None] | None = None,
    ) -> None:
        """Open a pipe for a command to write to.

        Args:
            log: The newest log file; older ones stand beside it as `.1`, `.2`, …
            copy_to: Where the output is shown as it comes.
            on_trouble: Told once when the log can no longer be written.
        """
        self.log = log
        self._copy_to = copy_to
        self._on_trouble = on_trouble
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._skip_bytes = 0
        self._has_trouble = False
        self._is_ended = False
        self._read, self.write_end = os.pipe()
        self._thread = threading.Thread(target=self._pump, name="output", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """The end of the output so far."""
        with self._lock:
            return self._tail[-TAIL_BYTES:].decode("utf-8", "replace")

    def move(self, log: Path, copy_to: IO[bytes] | None, on_trouble: Callable[[OSError], None]) -> None:
        """Keep it in another log from now on, which gets what is in memory as well.

        Args:
            log: See `__init__`; so the others.
            copy_to: Where it is shown from now on.
            on_trouble: Told once from now on.
        """
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None
            self.log = log
            self._copy_to = copy_to
            self._on_trouble = on_trouble
            self._has_trouble = False
            self._skip_bytes = 0
            self._keep(bytes(self._tail[-TAIL_BYTES:]))
            self._close_if_ended()

    def hand_over(self) -> None:
        """Close our copy of the writing end, once the command has its own."""
        os.close(self.write_end)

    def finish(self) -> None:
        """Wait until all is read; the command and all its children must have ended."""
        self._thread.join()

    def _pump(self) -> None:
        while chunk := os.read(self._read, _CHUNK_BYTES):
            with self._lock:
                self._tail += chunk
                if len(self._tail) >= 2 * TAIL_BYTES:  # not at each line: to cut moves all that stays
                    del self._tail[:-TAIL_BYTES]
                self._keep(chunk)
            if self._copy_to is not None:
                self._show(chunk)
            if len(chunk) < _FEW_BYTES:  # whoever prints much never waits for us
                time.sleep(_GATHER_SECONDS)
        os.close(self._read)
        with self._lock:
            self._is_ended = True
            self._close_if_ended()

    def _close_if_ended(self) -> None:
        if self._is_ended and self._file is not None:
            self._file.close()

    def _show(self, chunk: bytes) -> None:
        try:
            assert self._copy_to is not None
            self._copy_to.write(chunk)
            self._copy_to.flush()
        except OSError:  # nobody looks any more: the log still has it
            self._copy_to = None

    def _keep(self, chunk: bytes) -> None:
        if self._skip_bytes > 0:
            self._skip_bytes -= len(chunk)
            return
        try:
            if self._file is None:
                make_private(self.log.parent)
                descriptor = open_privately(str(self.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._file = os.fdopen(descriptor, "ab", buffering=0)
            self._file.write(chunk)
            if self._file.tell() >= LOG_BYTES:
                self._rotate()
        except OSError as error:
            self._skip_bytes = _RETRY_BYTES
            if not self._has_trouble and self._on_trouble is not None:
                self._on_trouble(error)
            self._has_trouble = True

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        for number in range(LOG_FILES - 1, 0, -1):
            if number == 1:
                older = self.log
            else:
                older = self.log.with_name(f"{self.log.name}.{number - 1}")
            if older.exists():
                # Safe: what is at the new name is one log more than are kept, or has its next name already.
                older.replace(self.log.with_name(f"{self.log.name}.{number}"))
