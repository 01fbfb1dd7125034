"""Standard output and error that never break off what a verb does.

A reader may leave, or stay and read nothing; a terminal may hang up, the disk of a log may be full: a verb that changes
anything goes on to its end, and its exit code is that of its work. What it says meanwhile waits in memory. A verb that
only reads holds nothing that others wait for: it stops where its reader has left, and waits for one who is slow.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LEFT = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ENXIO})
"""Nobody will read again; of anything else, such as a full disk, the next write may be better off."""
READER_LEFT = 128 + signal.SIGPIPE
UNSENT_BYTES_MAX = 16 * 1024 * 1024
PATIENCE_SECONDS = 1.0
"""How long the work waits for its reader, until it goes on without him; so the lines of output and error keep their
order for everyone who reads."""
LAST_WORDS_SECONDS = 60.0
"""How long the process, its work done, waits for a reader who takes nothing at all."""


class Stream(io.RawIOBase):
    """Bytes to a descriptor, of which no write fails, and none lasts longer than a moment unless it `stops`."""

    def __init__(self, descriptor: int) -> None:
        """Write to a descriptor that is open."""
        super().__init__()
        self._descriptor = descriptor
        self._is_left = False
        self._is_torn = False
        self._changed = threading.Condition()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._sent_bytes = 0
        self._keeps_up = True
        self._has_gap = False
        self._thread: threading.Thread | None = None
        self.stops = False
        """Whether the first failure ends the process, since its answer is all that it is for."""
        self.trouble: OSError | None = None
        """The first failure."""

    def write(self, piece: ReadableBuffer, /) -> int:
        """Write it, have it written as soon as somebody reads, or let it go; always all of it."""
        content = bytes(memoryview(piece).cast("B"))
        if self.stops:
            self._put(content)
        elif content:
            self._hand_over(content)
        return len(content)

    def finish(self, seconds: float = LAST_WORDS_SECONDS) -> None:
        """Wait until all is written, as long as somebody reads.

        Args:
            seconds: After so many in which nothing was taken, the rest is let go.
        """
        with self._changed:
            sent = -1
            while self._unsent and sent < self._sent_bytes:
                sent = self._sent_bytes
                self._changed.wait_for(lambda: not self._unsent, seconds)

    def _hand_over(self, content: bytes) -> None:
        with self._changed:
            if self._has_gap:
                content = b"\n" + content
            self._has_gap = self._unsent_bytes + len(content) > UNSENT_BYTES_MAX
            if self._has_gap:
                return
            self._unsent.append(content)
            self._unsent_bytes += len(content)
            if self._thread is None:
                # Of its own, since no look at a descriptor tells for each kind of it whether a write will wait.
                self._thread = threading.Thread(target=self._send, name=f"output-{self._descriptor}", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if self._keeps_up:
                self._keeps_up = self._changed.wait_for(lambda: not self._unsent, PATIENCE_SECONDS)

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unsent)
                content = self._unsent[0]
            self._put(content)
            with self._changed:
                self._unsent.popleft()
                self._unsent_bytes -= len(content)
                self._keeps_up = self._keeps_up or not self._unsent
                self._changed.notify_all()

    def _put(self, content: bytes) -> None:
        if self._is_left:
            return
        try:
            self._write(b"\n" if self._is_torn else b"")  # a line that was cut gets no other one's end
            self._is_torn = False
            self._write(content)
        except OSError as error:
            self._failed(error)

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            try:
                sent = os.write(self._descriptor, left)
            except BlockingIOError:  # a pipe that somebody has made so
                select.select([], [self._descriptor], [])
                continue
            left = left[sent:]
            self._sent_bytes += sent

    def _failed(self, error: OSError) -> None:
        self._is_torn = True
        self._is_left = self.stops or error.errno in LEFT
        if self.trouble is None:
            self.trouble = error
            if self.stops:
                raise SystemExit(READER_LEFT)

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """Its descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person looks."""
        return os.isatty(self._descriptor)


def guard_streams() -> tuple[Stream, Stream]:
    """Let standard output and error of this process be such streams, and give both.

    A descriptor that was closed is opened on nothing: the next file of ours would have its number, and take whatever
    some library, or a command that we start, prints.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # a lower one is there, so this one was the lowest
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - so that a command that we start has it
    output, errors = Stream(1), Stream(2)
    sys.stdout = _open_text(output, sys.stdout)
    sys.stderr = _open_text(errors, sys.stderr)
    return output, errors


def _open_text(stream: Stream, before: TextIO | None) -> io.TextIOWrapper:
    if before is not None:
        before.flush()
    # Half a character in a name is shown, not an error.
    return io.TextIOWrapper(
        io.BufferedWriter(stream),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or stream.fileno() == 2,
    )
