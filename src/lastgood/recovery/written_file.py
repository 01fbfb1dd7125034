"""One file that a step writes or sets aside: as it stands, as it was, and as it will be.

It lies in the checkpoint, or is the one outside of it that the user has named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.journal.room import CheckpointChangedError, Room
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import FileStep, digest
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage

LOG_BYTES_MAX = max(ENTRY_BYTES_MAX, 64 * 1024 * 1024)
"""Larger files are not log files of a query."""

WritingStep: TypeAlias = FileStep | StartFileStep


class WrittenFile:
    """The file of one step."""

    def __init__(self, room: Room, step: WritingStep, open_other: Callable[[Location], WritableStorage]) -> None:
        """Find it; nothing is read yet.

        Args:
            room: Where what it was is kept.
            step: What is done to it.
            open_other: Gives access to a file that does not lie in the checkpoint.
        """
        self._room = room
        self._step = step
        is_other = isinstance(step, StartFileStep)
        self.location = parse_location(step.path) if is_other else room.file(step.path)
        self.kept = room.aside(step.kept_as if isinstance(step, StartFileStep) else step.path)
        """Where what it was is kept."""
        self._storage = open_other(self.location) if is_other else room.storage

    @property
    def is_as_planned(self) -> bool:
        """Whether it is as it was when the plan was made."""
        return self._is(self._read())

    @property
    def is_backed_up(self) -> bool:
        """Whether it can be put back as it was, or is so still."""
        return self._step.before is None or self._is(self._was()) or self.is_as_planned

    def back_up(self) -> None:
        """Keep what it is, and read that back.

        Raises:
            CheckpointChangedError: what was kept is not what it was.
        """
        if self._step.before is None:
            return
        content = self._read()
        if self._is(content) and content is not None:
            self._room.storage.write(self.kept, content)
        if not self._is(self._was()):
            raise CheckpointChangedError("the backup is not what it was made of", subject=str(self.kept))

    def do(self, seal: Collection[str]) -> None:
        """Leave it as the step does.

        Raises:
            CheckpointChangedError: it is neither as the step found it nor as it leaves it.
        """
        if self.is_done(seal):
            return
        if self._step.after is None:
            self._storage.remove(self.location)
        else:
            self._storage.write(self.location, self._step.after)

    def undo(self, seal: Collection[str]) -> None:
        """Put it back as it was.

        Raises:
            CheckpointChangedError: it is neither as the step found it nor as it leaves it.
        """
        if not self.is_done(seal):
            return
        if self._step.before is not None:
            was = self._was()
            if not self._is(was):  # it was looked at before the first step back; that is a while ago
                raise CheckpointChangedError(
                    "the backup is gone or was changed",
                    subject=str(self.kept),
                    found="no such file" if was is None else "another content",
                    effect="the checkpoint stays sealed; no driver can start on it",
                )
            self._storage.write(self.location, was or b"")
        elif self._step.path in seal:
            self._storage.write(self.location, b"")
        else:
            self._storage.remove(self.location)

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether the step is done; False if it is not begun.

        Raises:
            CheckpointChangedError: it is neither as the step found it nor as it leaves it.
        """
        content = self._read()
        if self._step.path in seal and content == b"":
            content = None  # a part of the seal stands where no file is
        if content == self._step.after:
            return True
        if self._is(content):
            return False
        raise CheckpointChangedError(
            "a file was changed while the checkpoint was sealed",
            subject=str(self.location),
            effect="the checkpoint stays sealed; no driver can start on it",
            next="see who writes there; then finish or undo the recovery",
        )

    def _is(self, content: bytes | None) -> bool:
        return digest(content) == self._step.before

    def _read(self) -> bytes | None:
        return self._storage.read(self.location, limit=LOG_BYTES_MAX)

    def _was(self) -> bytes | None:
        return self._room.storage.read(self.kept, limit=LOG_BYTES_MAX)
