"""What is remembered: how often the same batch has failed, whoever it was that started the application.

cron, systemd, Kubernetes and Airflow call a new `recover` before each start. What cannot be read or written here stands
in nobody's way: the query is judged as if it had not failed before, and a person is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lastgood.checkpoint.layout import METADATA, OFFSETS
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.errors import LastgoodError, Retry
from lastgood.failures.ending import Cause, find_cause, find_decisive_failure, has_failed
from lastgood.frozen import dataclass
from lastgood.journal.attempts_file import locate_attempts_file, read_attempts
from lastgood.journal.room import list_recoveries
from lastgood.ladder.rungs import CommandStanding, Rung
from lastgood.ladder.tally import FailedBatch, JudgedTally, Tally, TallyStand, judge_tally, parse_tally
from lastgood.notes import read_json
from lastgood.observe.advice_facts import RECORDS_FOLDER
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import gather, read_clock_ms
from lastgood.observe.progress import LogWatch
from lastgood.observe.surroundings import look_around
from lastgood.records.record import Record
from lastgood.settings.policy import Policy
from lastgood.settings.target import Target
from lastgood.signing import ATTEMPTS, SignatureMissingError, SignatureWrongError, Signer
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, open_writable

if TYPE_CHECKING:
    from lastgood.recovery.decision import Decision

Tell = Callable[[str], None]
_EMPTY_BATCHES_MAX = 10
"""In a row. A repair makes one or two of them; a query that commits more by itself goes on."""
_LINES_BEFORE_SOURCES = 2
"""Of a plan: its version, and what Spark notes of the batch."""


class AttemptsExhaustedError(LastgoodError):
    """The command failed again and again without committing a batch."""

    condition = "ATTEMPTS_EXHAUSTED"
    exit_code = 71
    retry = Retry.AFTER_CHANGE


def read_stand(storage: Storage, checkpoint: Location) -> TallyStand:
    """Where a query stands, by a few names and one small file.

    Raises:
        StorageError: the checkpoint cannot be read (subclasses).
    """
    progress = LogWatch(checkpoint).look()
    raw = storage.read(checkpoint / METADATA, limit=LOG_BYTES_MAX)
    query = None
    if raw is not None:
        query = parse_query_metadata(raw)
    return TallyStand(
        query_id=query.query_id if isinstance(query, QueryMetadata) else None,
        planned=progress.planned,
        committed=progress.committed,
        recovery=max(list_recoveries(storage, checkpoint), default=None),
        read=find_newest_read(storage, checkpoint, progress.committed),
    )


def find_newest_read(storage: Storage, checkpoint: Location, committed: int | None) -> int | None:
    """The newest committed batch that read something, as far as the plans tell; None if there is none.

    Args:
        storage: Of the checkpoint.
        checkpoint: Its location.
        committed: The newest committed batch.

    Raises:
        StorageError: a plan cannot be read (subclasses).
    """
    if committed is None:
        return None
    ends = _read_ends(storage, checkpoint, committed)
    for batch in range(committed, max(0, committed - _EMPTY_BATCHES_MAX), -1):
        before = _read_ends(storage, checkpoint, batch - 1)
        if ends is None or ends != before:
            return batch
        ends = before
    return max(0, committed - _EMPTY_BATCHES_MAX)


def _read_ends(storage: Storage, checkpoint: Location, batch: int) -> list[bytes] | None:
    """Where a plan ends in each source, as it says so; None if it is not there."""
    content = storage.read(checkpoint / f"{OFFSETS}/{batch}", limit=LOG_BYTES_MAX)
    if content is None:
        return None
    return content.splitlines()[_LINES_BEFORE_SOURCES:]


def write_tally(
    storage: WritableStorage, checkpoint: Location, tally: Tally, signer: Signer, *, is_worth: bool
) -> None:
    """Keep a tally for the next call, signed if there is a key; or that there is none.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    if is_worth:
        told = signer.signed(ATTEMPTS, (), tally.to_json())
        storage.write(locate_attempts_file(checkpoint), json.dumps(told).encode() + b"\n")
    else:
        # Safe: what is not worth keeping counts no failure, and none at all says the same.
        storage.remove(locate_attempts_file(checkpoint))


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of one query, as a call of `recover` finds and leaves them, and `run` finds them at its first start.

    Begin with `Attempts.found`.
    """

    target: Target
    location: Location
    policy: Policy
    began_ms: int
    tell: Tell
    before: Tally | None = None
    """What was kept when the last start was told."""
    judged: JudgedTally | None = None
    """With the start that was told last; None where none was, or it cannot be read."""
    is_damaged: bool = False
    """Whether something lies there that is none of ours."""
    """What signs them, and is to have signed them."""

    @classmethod
    def found(
        cls,
        *,
        target: Target,
        location: Location,
        policy: Policy,
        evidence: EvidenceOptions,
        began_ms: int,
        tell: Tell,
    ) -> Attempts:
        """Count the start that was told last, if it has failed.

        Args:
            target: Which query.
            location: Its checkpoint.
            policy: How often the same batch may fail.
            evidence: Where it is looked whether Kafka answers: while it does not, nothing is counted.
            began_ms: When this call began, milliseconds since 1970.
            tell: Gets a line for a person.
        """
        attempts = cls(target, location, policy, began_ms, tell)
        try:
            storage = open_writable(location)
            kept = read_attempts(storage, location)
            if kept is None:
                return attempts
            before = parse_tally(kept)
            signer = Signer.at(target.keys(), location)
            signer.require(ATTEMPTS, (), read_json(kept), locate_attempts_file(location))
            stand = read_stand(storage, location)
            if before.settled is None:
                records = _read_records(storage, location, before)
            else:
                records = ()
            ended = has_failed(records, stand.query_id)
            found = judge_tally(policy, before, stand, Cause(), began_ms, has_failed=ended)
            if before.settled is None and (found.gives_up or found.tally.failures > before.failures):
                cause = _find_cause(location, records)
                if not cause.passes_by_itself and _is_kafka_away(target, evidence):
                    cause = replace(cause, passes_by_itself=True)
                found = judge_tally(policy, before, stand, cause, began_ms, has_failed=ended)
        except ValueError as error:
            tell(f"{locate_attempts_file(location)} is not understood, and is left out of account: {error}")
            return replace(attempts, is_damaged=True)
        except (SignatureMissingError, SignatureWrongError) as error:
            tell(f"{locate_attempts_file(location)} is left out of account: {error.sentence}")
            return replace(attempts, is_damaged=True)
        except LastgoodError as error:
            tell(f"how often the same batch has failed is not known: {describe_error(error)}")
            return attempts
        return replace(attempts, before=before, judged=found)

    @property
    def gives_up(self) -> bool:
        """Whether the same batch has failed as often as the policy allows."""
        return self.judged is not None and self.judged.gives_up

    @property
    def standing(self) -> CommandStanding:
        """How the query stands, for the ladder."""
        if self.judged is not None:
            return self.judged.standing
        return CommandStanding()

    @property
    def tried(self) -> tuple[Rung, ...]:
        """What was carried out since it made progress, beyond the last good batch."""
        return () if self.judged is None else self.judged.tally.tried

    @property
    def because(self) -> str:
        """Why it is given up, in one line for a person."""
        failed = self.failed
        if failed is None or failed.times == 1:
            often = "once"
        else:
            often = f"{failed.times} times in a row"
        if self.orphan is None:
            return f"the query failed {often} before it had planned a batch"
        return f"batch {self.orphan} failed {often} without a new committed batch"

    def exhausted(self, go_on: str) -> AttemptsExhaustedError:
        """The same as an error.

        Args:
            go_on: The command by which a person begins the count anew.
        """
        return AttemptsExhaustedError(
            self.because,
            subject=str(self.location),
            expected=f"a new committed batch after {self.policy.max_attempts} such failures at the latest",
            effect="the application is not started again before a person has looked",
            next=go_on,
        )

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed; None if there is none, or nothing was kept of it before."""
        return None if self.judged is None else self.judged.tally.stand.orphan

    @property
    def failed(self) -> FailedBatch | None:
        """The batch that has failed; None if none has."""
        found = None
        if self.judged is not None:
            found = FailedBatch.of(self.judged.tally)
        if found is None or self.judged is None or not self.gives_up or self.judged.tally.settled is not None:
            return found
        # The one start too many is not kept, so that the next call says the same; it has failed all the same.
        return replace(found, times=found.times + 1)

    def keep(self, decision: Decision, rung: Rung) -> None:
        """Keep that a start was told, and what was done before it; nothing else is an attempt.

        Args:
            decision: What is told.
            rung: Of which part of the ladder it is.
        """
        if decision.verdict.value != "start":
            return
        try:
            storage = open_writable(self.location)
            is_recorded = _is_recorded(storage, self.location)
            if not (is_recorded or self._is_worth_keeping(decision)):
                return
            stand = read_stand(storage, self.location)
            if self.judged is None:
                tally = Tally(stand=stand, told_ms=0)
            else:
                tally = replace(self.judged.tally, stand=stand)
            if decision.changes and rung is not Rung.RESUME:
                tally = replace(tally, tried=tuple(dict.fromkeys((*tally.tried, rung))))
            tally = replace(tally, told_ms=read_clock_ms(), settled=None)
            is_worth = stand.orphan is not None or tally.failures > 0 or is_recorded
            write_tally(storage, self.location, tally, Signer.at(self.target.keys(), self.location), is_worth=is_worth)
        except LastgoodError as error:
            self.tell(
                f"that a start was told is not kept, so that a failure of it is not counted: {describe_error(error)}"
            )

    def forget_failures(self, *, is_for_good: bool) -> Attempts:
        """The same once a person has looked: what has failed before counts no more.

        Args:
            is_for_good: Whether the next call is to know it too.
        """
        if is_for_good:
            try:
                # Safe: a person has looked at what has failed before, and asks that it counts no more.
                open_writable(self.location).remove(locate_attempts_file(self.location))
            except LastgoodError as error:
                self.tell(f"what has failed before is not forgotten: {describe_error(error)}")
        return replace(self, before=None, judged=None, is_damaged=False)

    def _is_worth_keeping(self, decision: Decision) -> bool:
        """Most nights there is nothing to keep."""
        position = {} if decision.plan is None else decision.plan.position
        is_planned = position.get("planned") != position.get("committed")
        return self.before is not None or self.is_damaged or decision.changes or is_planned


def _read_records(storage: Storage, location: Location, before: Tally) -> Sequence[Record]:
    """What a recorder in the application has written down since the last start, oldest first."""
    from lastgood.observe.recorded import read_newest_records  # noqa: PLC0415 - as in `find_advice_facts`

    folder = location.sibling(WORK_SUFFIX) / RECORDS_FOLDER
    names = [name for name in storage.names(folder) or () if not name.endswith("/")]
    since = [each for each in read_newest_records(storage, folder, names) if each.recorded_at_ms >= before.told_ms]
    return [each for each in since if each.query_id in (None, before.stand.query_id)]


def _find_cause(location: Location, records: Sequence[Record]) -> Cause:
    """Why the last start failed, as a recorder in the application has written it down; else nobody knows."""
    ended = find_decisive_failure(records)
    if ended is None:
        cause = Cause()
    else:
        cause = find_cause("", ended.failure)
    return replace(cause, checkpoint=str(location))


def _is_recorded(storage: Storage, location: Location) -> bool:
    """Whether a recorder in the application will tell how the next start ends."""
    return bool(storage.names(location.sibling(WORK_SUFFIX) / RECORDS_FOLDER))


def _is_kafka_away(target: Target, evidence: EvidenceOptions) -> bool:
    found = gather(target, batches=1)
    kafka = look_around(found, evidence, now_ms=read_clock_ms(), sinks=False).seen.kafka
    return kafka is not None and kafka.unknown is not None


def describe_error(error: LastgoodError) -> str:
    """A failure in one line."""
    found = error.found or error.subject
    return f"{error.sentence}{f' ({found})' if found else ''}"
