"""What became of an incident: the recoveries that were carried out, and what the first new batch did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lastgood.asked import Asked
from lastgood.checkpoint.layout import COMMITS, find_newest_batch
from lastgood.frozen import dataclass
from lastgood.ids import is_id
from lastgood.incident.promise import Kept, Promised, check_promise
from lastgood.journal.incident import OPEN, PERSON, RECOVERED, STOPPED, Incident
from lastgood.journal.room import RecoveryStage, RecoveryUnknownError, Room, list_recoveries
from lastgood.journal.signed_files import find_worst, read_files_of_recovery
from lastgood.observe.evidence import EvidenceOptions
from lastgood.planning.plan import Plan, PlanInvalidError
from lastgood.query.prediction.restart import Outcome
from lastgood.recovery.driver_death import list_words_needed
from lastgood.recovery.whereabouts import recall_evidence
from lastgood.settings.config import Config
from lastgood.settings.target import Target, find_target_at
from lastgood.signing import NO_KEYS, KeyRing, SignatureStanding
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class CarriedOut(JsonValue):
    """A recovery that was begun, as its folder tells."""

    json = make_form(
        "recovery state goal=plan.goal guarantee=plan.guarantee stages=_stages proof backup undo=_undo signature"
    )
    """One of `recoveries` of a report."""

    recovery: str
    checkpoint: str
    plan: Plan | None
    """None if its file is gone or damaged."""
    stages: tuple[tuple[RecoveryStage, int | None], ...]
    """Those that it has reached, in their order, and when; None: the storage does not tell."""
    proof: str | None
    """Why no driver was alive, as was noted down then: for a person to read."""
    backup: str
    """Where every touched file is kept as it was."""
    undo_words: tuple[str, ...] = ()
    """What a person has to say to take it back."""
    signature: SignatureStanding | None = None
    """What the keys of this machine say of its plan and its notes; None without a key."""

    @property
    def stage(self) -> RecoveryStage:
        """How far it has come."""
        return self.stages[-1][0]

    @property
    def state(self) -> str:
        """`applied`, `undone`; `interrupted`: somebody has to finish it or take it back."""
        return {RecoveryStage.CLOSED: "applied", RecoveryStage.TAKEN_BACK: "undone"}.get(self.stage, "interrupted")

    @property
    def undo_command(self) -> str:
        """What takes it back."""
        return Asked(self.checkpoint).command("undo", self.recovery, *self.undo_words)

    @property
    def _stages(self) -> list[dict[str, Any]]:
        return [{"stage": stage.value, "at_ms": at_ms} for stage, at_ms in self.stages]

    @property
    def _undo(self) -> str | None:
        return None if self.state == "undone" else self.undo_command


def list_carried_out(
    storage: WritableStorage, checkpoint: Location, ids: Iterable[str], config: Config, keys: KeyRing = NO_KEYS
) -> tuple[CarriedOut, ...]:
    """What became of recoveries; those of which nothing was ever done are left out. Only reads.

    What is not signed is told as well: each says what the keys make of it.

    Raises:
        StorageError: one cannot be read (subclasses).
    """
    found = (_find_carried_out(storage, checkpoint, each, config, keys) for each in ids if is_id(each))
    return tuple(each for each in found if each is not None)


def _find_carried_out(
    storage: WritableStorage, checkpoint: Location, recovery: str, config: Config, keys: KeyRing
) -> CarriedOut | None:
    room = Room(checkpoint, recovery, storage)
    entries = {entry.name: entry.modified_ms for entry in storage.scan(room.folder) or ()}
    stages = tuple(
        (stage, entries[f"{stage.value}.json"]) for stage in RecoveryStage if f"{stage.value}.json" in entries
    )
    if not stages:
        return None
    try:
        plan = room.plan()
    except (RecoveryUnknownError, PlanInvalidError):
        plan = None
    proof = room.note(RecoveryStage.BEGUN).get("proof")
    if not isinstance(proof, str):
        proof = None
    return CarriedOut(
        recovery,
        str(checkpoint),
        plan,
        stages,
        proof,
        str(room.folder / "before"),
        list_words_needed(str(checkpoint), config),
        find_worst(read_files_of_recovery(storage, checkpoint, recovery, keys)) if keys else None,
    )


def close_incident(
    incident: Incident,
    done: Sequence[CarriedOut],
    storage: Storage,
    *,
    target: Target,
    options: EvidenceOptions,
    started_by: Plan | None = None,
    rows: int | None = None,
) -> Incident:
    """The incident with its first new batch, and whether that kept the promise; as it is if there is none yet.

    Args:
        incident: As it was written down.
        done: Its recoveries that were begun, oldest first.
        storage: Of the checkpoint.
        target: Which query.
        options: The sinks; where none is named, those at which this machine has looked then, else those of the
            configuration.
        started_by: The plan of the last start, if it is known; None: the last one of `done`.
        rows: How many rows the first new batch read, if the caller saw it.

    Raises:
        UsageError, ExtraMissingError: as `check_promise` (subclasses).
        StorageError: the checkpoint cannot be listed (subclasses).
    """
    is_told = incident.promise_state in (Kept.KEPT, Kept.BROKEN)
    is_left = bool(done) and done[-1].stage is not RecoveryStage.CLOSED
    is_waiting = incident.outcome == PERSON and not done
    if is_told or is_left or is_waiting or incident.outcome == STOPPED:
        return incident
    # Which checkpoint an incident names lies in the lake; the one that was asked about does not.
    location = target.location
    plan = started_by
    if plan is None and done:
        plan = done[-1].plan
    first = _choose_first_batch(incident, plan)
    newest = find_newest_batch(storage.names(location / COMMITS) or ())
    if newest is None or newest < first:
        return incident
    commit = storage.stat(location / f"{COMMITS}/{first}")
    if commit is not None and commit.size == 0:
        return incident  # the seal of a later recovery
    own = set(incident.recoveries)
    later = [each for each in list_recoveries(storage, location) if each > max((*own, incident.id)) and each not in own]
    if later:
        promised = Promised(Kept.UNKNOWN, (f"recovery {later[0]} has changed the logs since",))
    else:
        evidence = _choose_evidence(incident, location, options, target.config)
        promised = check_promise(plan, target, first, evidence=evidence, rows=rows)
    if promised.state is Kept.UNKNOWN and incident.promise is not None:
        return incident
    rerun = incident.rerun
    if rerun is None:
        rerun = _is_rerun(incident, plan, first)
    first_batch_at_ms = incident.first_batch_at_ms
    if not first_batch_at_ms:
        first_batch_at_ms = None if commit is None else commit.modified_ms
    return replace(
        incident,
        first_batch=first,
        rerun=rerun,
        first_batch_at_ms=first_batch_at_ms,
        promise=promised.to_json(),
        outcome=RECOVERED if incident.outcome in (OPEN, PERSON) else incident.outcome,
    )


def _choose_first_batch(incident: Incident, plan: Plan | None) -> int:
    """The batch that is looked at: the one that was seen, else the one that was promised, else the next one."""
    told = (incident.plan or {}).get("from_batch")
    if incident.first_batch is not None:
        return incident.first_batch
    if plan is not None and plan.promise.batch is not None:
        return plan.promise.batch
    committed = incident.position.get("committed")
    if isinstance(told, int):
        return told
    if committed is None:
        return 0
    return committed + 1


def _is_rerun(incident: Incident, plan: Plan | None, first: int) -> bool:
    if plan is not None:
        return plan.promise.outcome == Outcome.RERUNS.value
    planned = incident.position.get("planned")
    return planned is not None and planned >= first


def _choose_evidence(
    incident: Incident, location: Location, options: EvidenceOptions, config: Config
) -> EvidenceOptions:
    """Where to look: as the caller says, else where this machine has looked then, else as the configuration says.

    What incident and plan say of that lies in the lake, and no host of theirs is asked.
    """
    if options.sinks:
        return options
    then = recall_evidence(incident.id)
    if then.sinks:
        return then
    sink = find_target_at(location, config).sink
    if sink is None:
        return options
    return replace(options, sinks=(sink,))
