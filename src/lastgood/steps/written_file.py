"""One file that a step writes or sets aside: as it stands, as it was, and as it will be.

It lies in the checkpoint, or is the one outside of it that the user has named.
"""

from __future__ import annotations

from collections.abc import Collection

from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import FileStep, compute_digest
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage

LOG_BYTES_MAX = max(ENTRY_BYTES_MAX, 64 * 1024 * 1024)
"""Larger files are not log files of a query."""
OUTSIDE = "start-file"
"""Under which name the file outside of the checkpoint is kept, beside those of the checkpoint."""


class WrittenFile(Carrying):
    """The file of one step; what it was is kept beside the checkpoint, wherever it lies itself."""

    def __init__(
        self, step: FileStep | StartFileStep, site: Site, storage: WritableStorage, location: Location, kept: Location
    ) -> None:
        """Find it; nothing is read yet.

        Args:
            step: What is done to it.
            site: Where what it was is kept.
            storage: Of the file.
            location: Of the file.
            kept: Where what it was is kept.
        """
        self._step = step
        self._site = site
        self._storage = storage
        self._location = location
        self._kept = kept

    @classmethod
    def of_checkpoint(cls, step: FileStep, site: Site) -> WrittenFile:
        """A file of the logs."""
        return cls(step, site, site.storage, site.checkpoint / step.path, site.kept / step.path)

    @classmethod
    def outside(cls, step: StartFileStep, site: Site) -> WrittenFile:
        """The file outside of the checkpoint."""
        location = parse_location(step.path)
        return cls(step, site, site.open_other(location), location, site.kept / OUTSIDE)

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether it is as it was when the plan was made, but for the seal."""
        content = self._read()
        return self._is_found(content) or (self._step.path in seal and content == b"")

    def back_up(self) -> None:
        """Keep what it is, and read that back."""
        if self._step.before is None:
            return
        content = self._read()
        if content is not None and self._is_found(content):
            self._site.storage.write(self._kept, content)
        if not self._is_found(self._was()):
            raise CheckpointChangedError("the backup is not what it was made of", subject=str(self._kept))

    def do(self, seal: Collection[str]) -> None:
        """Leave it as the step does."""
        if self.is_done(seal):
            return
        # Safe, both: it was just seen to be byte for byte as the step found it, and those bytes were kept, and read
        # back, before the first step. In between no driver writes to the checkpoint, which the seal keeps it from; and
        # who has taken over from us leaves the same bytes here, or puts back what is kept. Outside of the checkpoint
        # nobody is kept away; there it is the one file that its user has named for us to write.
        if self._step.after is None:
            self._storage.remove(self._location)
        else:
            self._storage.write(self._location, self._step.after)

    def undo(self, seal: Collection[str]) -> None:
        """Put it back as it was; under a seal of which it is a part, that is an empty file."""
        if not self.is_done(seal):
            return
        if self._step.before is not None:
            was = self._was()
            if was is None or not self._is_found(was):  # it was looked at before the first step back, a while ago
                raise CheckpointChangedError(
                    "the backup is gone or was changed",
                    subject=str(self._kept),
                    found=_describe_found(was),
                    effect="the checkpoint stays sealed; no driver can start on it",
                )
            # Safe: it was just seen to be byte for byte as the step left it, and those bytes are in the plan; what is
            # put back is by its digest what the step found.
            self._storage.write(self._location, was)
        elif self._step.path in seal:
            # Safe, as below; the empty file keeps drivers away until the whole seal goes.
            self._storage.write(self._location, b"")
        else:
            # Safe: it was just seen to be byte for byte as the step left it, where there was no file before; so it is
            # ours, and its bytes are in the plan, which is kept.
            self._storage.remove(self._location)

    def is_done(self, seal: Collection[str]) -> bool:
        """Whether the step is done; False if it is not begun."""
        content = self._read()
        if self._step.path in seal and content == b"":
            content = None  # a part of the seal stands where no file is
        if content == self._step.after:
            return True
        if self._is_found(content):
            return False
        raise CheckpointChangedError(
            "a file was changed while the checkpoint was sealed",
            subject=str(self._location),
            effect="the checkpoint stays sealed; no driver can start on it",
            next="see who writes there; then finish or undo the recovery",
        )

    def require_backup(self) -> None:
        """See that it can be put back as it was, or is so still."""
        if self._step.before is None:
            return
        was = self._was()
        if not self._is_found(was) and not self._is_found(self._read()):
            raise UndoRefusedError(
                "the backup is gone or was changed",
                subject=str(self._kept),
                found=_describe_found(was),
                effect="nothing has been changed",
            )

    def _is_found(self, content: bytes | None) -> bool:
        """Whether this is what the step found."""
        return compute_digest(content) == self._step.before

    def _read(self) -> bytes | None:
        return self._storage.read(self._location, limit=LOG_BYTES_MAX)

    def _was(self) -> bytes | None:
        return self._site.storage.read(self._kept, limit=LOG_BYTES_MAX)


def _describe_found(was: bytes | None) -> str:
    return "no such file" if was is None else "another content"
