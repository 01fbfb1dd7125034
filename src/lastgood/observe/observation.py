"""All that a diagnosis rests on, from what was gathered and asked: the `Observation` that is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.asked import Asked, downtime
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.layout import OFFSETS
from lastgood.diagnosis.rules_sources import batches_that_went_back
from lastgood.errors import LastgoodError
from lastgood.observe.evidence import GatheredQuery, mirrored_only, now_ms
from lastgood.observe.state_checksums import unsound_state
from lastgood.observe.surroundings import EvidenceOptions, Surroundings, asked_of
from lastgood.observe.unread_files import unread_files
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.observation import Observation, Seal
from lastgood.query.prediction.skipping import versions_loaded
from lastgood.query.sink_batches import held_batches
from lastgood.settings.keys import Keys
from lastgood.settings.target import Target, word_of_death
from lastgood.signing import SignatureMissingError, SignatureWrongError
from lastgood.sinks.evidence import SinkEvidence
from lastgood.storage.writing import open_writable

if TYPE_CHECKING:
    from lastgood.journal.room import Room

BATCHES = 20
"""How many of the newest batches are read."""


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """What to diagnose with."""

    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    spark: str | None = None
    """Version to predict for; None: the newest that can read the logs."""
    fail_on_data_loss: bool | None = None
    """As the Kafka source of the query has it; None: as the log tells, else true."""
    log: str | None = None
    """A driver's log, a traceback or an agent's records; `-` is standard input."""
    max_downtime_ms: int | None = None
    """How long the query may be down without losing anything."""
    save: Path | None = None
    """File to write a bundle to."""
    show_data: bool = False
    """Whether failures of the log may quote rows of the data."""
    is_by_name: bool = False
    """Whether it is known that the query names its topics: else a pattern may be subscribed though none is given."""


def world_of(
    evidence: GatheredQuery, surroundings: Surroundings, options: DiagnoseOptions, keys: Keys | None = None
) -> Observation:
    """All that a diagnosis rests on.

    Args:
        evidence: The checkpoint.
        surroundings: What stands around it.
        options: By what it was asked.
        keys: Those of a caller that has read them; None: those of this machine, if a repair is open.
    """
    versions = versions_loaded(evidence.checkpoint, surroundings.sinks)
    asked = asked_by(evidence.target, options)
    return Observation(
        evidence.checkpoint,
        location=str(evidence.location),
        asked=asked,
        now_ms=now_ms(),
        sinks=surroundings.sinks,
        kafka=surroundings.kafka,
        fail_on_data_loss=options.fail_on_data_loss is not False,
        source_replays=options.evidence.of(evidence.target).source_replays,
        is_pattern=options.evidence.subscribe_pattern is not None,
        is_same_topic=options.evidence.topic_is_the_same,
        is_by_name=options.is_by_name and options.evidence.subscribe_pattern is None,
        is_local=evidence.location.scheme == "file",
        files=unread_files(evidence),
        unsound=unsound_state(evidence.storage, evidence.location, evidence.checkpoint, versions),
        seal=_seal(evidence, asked, keys),
        mirrored=mirrored_only(evidence),
        left=evidence.left,
        memory=evidence.memory,
        rewritten=_rewritten(evidence, surroundings.sinks),
        links=evidence.links,
    )


def advised(world: Observation, facts: AdviceFacts) -> Observation:
    """The same with what was found around the checkpoint, and what a recorder saw of its query."""
    kinds = facts.subscriptions
    is_pattern = world.is_pattern or ("subscribe_pattern" in kinds and not world.is_by_name)
    return replace(
        world,
        advice=facts,
        topic_ids=facts.topic_ids,
        is_pattern=is_pattern,
        is_by_name=not is_pattern and (world.is_by_name or bool(kinds)),
    )


def asked_by(target: Target, options: DiagnoseOptions) -> Asked:
    """How a verb was called, for the commands that it prints."""
    fails = options.fail_on_data_loss is not False
    asked = asked_of(target, options.evidence, spark=options.spark, fail_on_data_loss=fails)
    return replace(asked, downtime=downtime(options.max_downtime_ms))


def _rewritten(evidence: GatheredQuery, sinks: Iterable[SinkEvidence]) -> Mapping[int, str]:
    """The batches that a recovery wrote anew, of those that go back or are younger than a sink's: else nobody looks."""
    odd = {*batches_that_went_back(evidence.checkpoint)}
    for sink in sinks:
        held = held_batches(evidence.checkpoint, sink)
        doubtful = {batch for batch, each in held.items() if each.origin.is_doubtful}
        odd |= doubtful | {batch - 1 for batch in doubtful}
    if not odd:
        return {}
    from lastgood.journal.room import RecoveryStage, RecoveryUnknownError, Room, recoveries
    from lastgood.planning.plan import PlanInvalidError

    found: dict[int, str] = {}
    storage = open_writable(evidence.location)
    for recovery in recoveries(storage, evidence.location):
        room = Room(evidence.location, recovery, storage)
        try:
            steps = room.plan().steps if room.stage() is RecoveryStage.CLOSED else ()
        except (PlanInvalidError, RecoveryUnknownError):  # then it is told as anybody's
            continue
        written = {step.path for step in steps}
        found |= {batch: recovery for batch in odd if f"offsets/{batch}" in written}
    return found


def _seal(evidence: GatheredQuery, asked: Asked, keys: Keys | None) -> Seal | None:
    """The repair that is open, if the newest plan looks like a seal: else nobody need look."""
    offsets = evidence.checkpoint.offsets
    newest = None if offsets.newest is None else offsets.entries.get(offsets.newest)
    if not isinstance(newest, Damage) or newest.kind is not DamageKind.EMPTY:
        return None
    from lastgood.journal.room import Room, open_recovery, plan_kept

    recovery = open_recovery(evidence.storage, evidence.location)
    if recovery is None:
        return None
    room = Room(evidence.location, recovery, open_writable(evidence.location))
    stage = room.stage()
    paths = _paths(room, f"{OFFSETS}/{offsets.newest}")
    if not paths:
        return None
    if keys is None:
        keys = Keys(evidence.target.config)
    words = word_of_death(str(evidence.location), evidence.target.config)
    finish = None
    if stage is None or not stage.is_back:
        finish = asked.finishing(plan_kept(evidence.location, recovery), *words)
    error = _refusal(replace(room, keys=keys()))
    refused = None if error is None else f"{error.sentence} ({error.found})"
    sign = None if error is None else error.next
    return Seal(recovery, stage.value if stage else "", paths, finish, words, refused, sign)


def _paths(room: Room, newest: str) -> tuple[str, ...]:
    """The files of a seal that stand; the newest plan, where nobody can tell which they are."""
    from lastgood.journal.room import RecoveryUnknownError
    from lastgood.journal.seal import stands
    from lastgood.planning.plan import PlanInvalidError

    try:
        return tuple(path for path in room.seal() if stands(room, path))
    except (PlanInvalidError, RecoveryUnknownError):  # `_refusal` says why
        return (newest,)


def _refusal(room: Room) -> LastgoodError | None:
    """Why an open repair is not carried out: the error of whoever tried to."""
    from lastgood.journal.room import RecoveryUnknownError
    from lastgood.planning.plan import PlanInvalidError

    try:
        room.stage()
        room.plan()
    except (SignatureMissingError, SignatureWrongError, PlanInvalidError, RecoveryUnknownError) as error:
        return error
    return None
