"""How a step is carried out on real storage: what the engine asks of each, and where that is done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage


class CheckpointChangedError(LastgoodError):
    """A file, or a sink, was changed by somebody else while the checkpoint was sealed."""

    condition = "CHECKPOINT_CHANGED"
    exit_code = 59
    retry = Retry.AFTER_CHANGE


class UndoRefusedError(LastgoodError):
    """The query has moved since: its bytes of before would not fit any more."""

    condition = "UNDO_REFUSED"
    exit_code = 55
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Site:
    """Where the steps of one recovery are carried out."""

    recovery: str
    checkpoint: Location
    storage: WritableStorage
    """Of the checkpoint."""
    kept: Location
    """The folder in which what is touched is kept as it was, beside the checkpoint."""
    now_ms: int
    """The time, for what is noted down."""
    open_other: Callable[[Location], WritableStorage]
    """Gives access to what does not lie in the checkpoint."""


class Carrying(ABC):
    """One step, where it is carried out.

    The storage itself tells how far it has come, and nothing else is remembered: a process can be killed between any
    two changes, and another one goes on. So `do` and `undo` may be called any number of times, from wherever they stand
    between as it was and as it will be, also by who was overtaken and wakes up late; what is done already, they leave.
    What is neither as the step found it nor as it leaves it is somebody else's, and not touched.

    Every method may raise StorageError (subclasses) where the storage does not answer. A `seal` is the paths below the
    checkpoint at which empty files may stand that are no files of the query: there, empty means no file.
    """

    __slots__ = ()

    def require_means(self) -> None:
        """See that the storage can do what the step needs, before anything is begun; nothing is left there.

        Raises:
            ExclusiveCreateUnsupportedError: of several who commit here more than one could.
        """
        return

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether what it touches is as the plan found it; asked while nothing is done yet.

        True also where the plan says more of it than the step: what a sink shows is compared by itself.
        """
        return True

    def back_up(self) -> None:
        """Keep what it changes, and read that back; once more changes nothing, and what is gone is not missed.

        Raises:
            CheckpointChangedError: what was kept is not what it was.
        """
        return

    @abstractmethod
    def do(self, seal: Collection[str]) -> None:
        """Do it.

        Raises:
            CheckpointChangedError: what it touches is gone, or neither as it found it nor as it leaves it.
        """

    def require_done(self) -> None:
        """See, when all steps are done, that this one still is, where who is not sealed off may have written over it.

        Raises:
            CheckpointChangedError: it is not.
        """
        return

    @abstractmethod
    def is_done(self, seal: Collection[str]) -> bool:
        """Whether it is done, and nobody has gone on from there; asked once the recovery is closed.

        Raises:
            CheckpointChangedError: it is neither as the step found it nor as it leaves it.
        """

    def require_backup(self) -> None:
        """See that all is there which `undo` puts back, before anything is.

        Raises:
            UndoRefusedError: it is gone or was changed.
        """
        return

    @abstractmethod
    def undo(self, seal: Collection[str]) -> None:
        """Take it back, if it was done or begun.

        Raises:
            CheckpointChangedError: what it touches is neither as it found it nor as it leaves it, or what is to be put
                back is gone.
        """
