"""Standard output and error that never break off what a verb does.

A reader may leave, a terminal may hang up, the disk of a log may be full: a verb that changes anything goes on to its
end, and its exit code is that of its work. One that only reads has nothing more to do, and stops.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LEFT = frozenset({errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ENXIO})
"""Nobody will read again; of anything else, such as a full disk, the next write may be better off."""
READER_LEFT = 128 + signal.SIGPIPE


class Stream(io.RawIOBase):
    """Bytes to a descriptor, of which no write fails."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._is_left = False
        self._is_torn = False
        self.stops = False
        """Whether the first failure ends the process, since its answer is all that it is for."""
        self.trouble: OSError | None = None
        """The first failure."""

    def write(self, piece: ReadableBuffer, /) -> int:
        """Write it, or let it go; always all of it."""
        content = memoryview(piece).cast("B")
        if not self._is_left:
            try:
                self._write(b"\n" if self._is_torn else b"")  # a line that was cut gets no other one's end
                self._write(content)
                self._is_torn = False
            except OSError as error:
                self._failed(error)
        return len(content)

    def _write(self, content: bytes | memoryview) -> None:
        while len(content):
            try:
                content = content[os.write(self._descriptor, content) :]
            except BlockingIOError:  # a pipe that somebody has made so
                select.select([], [self._descriptor], [])

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


def guard_streams() -> Stream:
    """Let standard output and error of this process be such streams; gives that of the output.

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
    output = Stream(1)
    sys.stdout = _text(output, sys.stdout)
    sys.stderr = _text(Stream(2), sys.stderr)
    return output


def _text(stream: Stream, before: TextIO | None) -> io.TextIOWrapper:
    if before is not None:
        before.flush()
    # Half a character in a name is shown, not an error.
    return io.TextIOWrapper(
        io.BufferedWriter(stream),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or stream.fileno() == 2,
    )
