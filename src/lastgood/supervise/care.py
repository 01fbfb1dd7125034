"""What the supervisor asks of who looks after its queries: before each start, and after each end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lastgood.errors import LastgoodError, Retry
from lastgood.failures.ending import Cause
from lastgood.frozen import dataclass
from lastgood.journal.incident import ComingBack
from lastgood.ladder.rungs import CommandStanding
from lastgood.supervise import events


class PersonNeededError(LastgoodError):
    """The policy does not allow what would have to be done."""

    condition = "PERSON_NEEDED"
    exit_code = 3
    retry = Retry.AFTER_CHANGE

    file: str | None = None
    """Where the plan is saved that a person has to decide on."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now."""

    because: str


class Care(Protocol):
    """Makes queries ready to start."""

    def before_start(self, standing: CommandStanding) -> Wait | None:
        """See that every query can be started, and do what the policy allows to that end; None: start.

        Raises:
            PersonNeededError: the policy does not allow what would have to be done.
            LastgoodError: nobody can tell what is the matter.
        """
        ...

    def recall_standings(self) -> Mapping[str, CommandStanding]:
        """How queries stood before this supervisor began, as was found since it was asked last.

        Returns:
            Checkpoint → its standing.
        """
        ...

    def has_read(self, checkpoint: str, since: int | None, committed: int) -> bool:
        """Whether a batch that was committed since then read something; a number that a repair used up did not.

        Args:
            checkpoint: Of the query.
            since: The newest batch that was committed before; None: there was none.
            committed: The newest one now.
        """
        ...

    def note_failure(self, ended: events.Ended, cause: Cause) -> None:
        """A run has failed."""
        ...

    def note_end(self, standing: CommandStanding | None, *, is_done: bool = False) -> None:
        """The last run has ended.

        Args:
            standing: With its failure, and with the one too many after which it is not started again; None: it has not
                failed, or it was stopped.
            is_done: Whether it has ended by itself, without an error.
        """
        ...

    def note_first_batch(self, checkpoint: str, batch: int, *, rerun: bool, back: ComingBack) -> None:
        """A query has committed its first batch since the command was started.

        Args:
            checkpoint: Of the query.
            batch: Which one.
            rerun: Whether it had been planned before.
            back: How the command came to run, as far as its supervisor knows.
        """
        ...

    def is_ahead(self, checkpoint: str) -> bool:
        """Whether the sources of a query hold more than is planned, as far as anybody can tell."""
        ...

    def find_strayed(self, checkpoint: str) -> Cause | None:
        """Why a query that runs must not go on: it reads something else than it was started on. Answers at once."""
        ...

    def find_last_resort(self) -> PersonNeededError | None:
        """What a person might allow, where all else was tried."""
        ...
