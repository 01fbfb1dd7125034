"""What `run` makes of the attempts that are kept beside a checkpoint.

It goes on where the last `run` or `recover` has stopped, and leaves to the next what it counts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from lastgood.errors import LastgoodError
from lastgood.failures.ending import Cause
from lastgood.ladder.rungs import CommandStanding, Rung
from lastgood.ladder.tally import Tally
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import read_clock_ms
from lastgood.recovery.attempts import Attempts, describe_error, read_stand, write_tally
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import make_signer
from lastgood.settings.target import Target
from lastgood.storage.reading import Location
from lastgood.storage.writing import open_writable


class RunAttempts:
    """The attempts of one query, for as long as one `run` goes; belongs to the supervisor's thread.

    First `find`; then in turn `started` and `ended`. What cannot be read or written stands in nobody's way, and is
    told.
    """

    def __init__(
        self, location: Location, evidence: EvidenceOptions, pipeline: Pipeline, tell: Callable[[str], None]
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            location: The checkpoint.
            evidence: Where it is looked whether Kafka answers.
            pipeline: How often the same batch may fail.
            tell: Gets a line for a person.
        """
        self._location = location
        self._evidence = evidence
        self._pipeline = pipeline
        self._tell = tell
        self._kept: Tally | None = None
        """What lies there, as far as we know."""
        self._cause: Cause | None = None
        """Of the last failure that was seen."""

    def find(self, *, go_on: bool = False) -> Attempts:
        """What was kept before this `run` began, with the start that was told last, if it has failed.

        Args:
            go_on: A person has looked: what has failed before counts no more.
        """
        attempts = Attempts.found(
            target=Target(str(self._location), config=self._pipeline.config),
            location=self._location,
            policy=self._pipeline.policy,
            evidence=self._evidence,
            began_ms=read_clock_ms(),
            tell=self._tell,
        )
        if go_on:
            attempts = attempts.forget_failures(is_for_good=True)
        self._kept = attempts.before
        self._cause = None if self._kept is None else self._kept.settled
        return attempts

    def note_start(self, standing: CommandStanding, tried: Collection[Rung]) -> None:
        """Keep that the application is started now: whoever comes next after we were killed finds it.

        Args:
            standing: How the query stands.
            tried: What was carried out since it made progress, beyond the last good batch.
        """
        self._keep(standing, tuple(tried), None)

    def note_end(self, standing: CommandStanding | None, *, is_done: bool = False) -> None:
        """Keep what became of the start.

        Args:
            standing: With this failure; None: it has not failed, or it was stopped.
            is_done: Whether the command has ended by itself, without an error.
        """
        if standing is not None:
            tried = () if self._kept is None else self._kept.tried
            self._cause = standing.cause
            self._keep(standing, tried, self._cause or Cause())
        elif self._kept is not None:
            before = self._kept
            if before.since_ms is None:
                seconds = 0.0
            else:
                seconds = max(0, read_clock_ms() - before.since_ms) / 1000
            still = CommandStanding(failures=before.failures, seconds=seconds)
            self._keep(still, before.tried, self._cause or Cause(), before, is_done=is_done)

    def _keep(
        self,
        standing: CommandStanding,
        tried: tuple[Rung, ...],
        settled: Cause | None,
        before: Tally | None = None,
        *,
        is_done: bool = False,
    ) -> None:
        """Keep it, unless the query has made progress since `before`, or has done all that there was to do."""
        try:
            storage = open_writable(self._location)
            stand = read_stand(storage, self._location)
            at_ms, failures = read_clock_ms(), standing.failures
            if before is not None and not stand.is_where(before.stand):
                failures = 0
            if is_done and stand.orphan is None:
                failures = 0
            is_worth = failures > 0 or (settled is None and stand.orphan is not None)
            if not is_worth and self._kept is None:
                return
            if failures > 0:
                since_ms = at_ms - int(standing.seconds * 1000)
            else:
                since_ms = None
            made = Tally(stand=stand, told_ms=at_ms, failures=failures, since_ms=since_ms, tried=tried, settled=settled)
            signer = make_signer(self._pipeline.config, self._location)
            write_tally(storage, self._location, made, signer, is_worth=is_worth)
            self._kept = made if is_worth else None
        except LastgoodError as error:
            self._tell(f"how often the same batch has failed is not kept for the next start: {describe_error(error)}")
