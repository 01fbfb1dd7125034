"""All that a diagnosis rests on: the `Observation` that is judged, from files and from what sinks and Kafka said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.asked import Asked, format_downtime
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.layout import OFFSETS
from lastgood.diagnosis.rules_kafka import find_batches_that_left_out
from lastgood.diagnosis.rules_sources import find_batches_that_went_back
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.observe.evidence import EvidenceOptions, make_asked
from lastgood.observe.open_query import OpenQuery, find_mirrored_only, read_clock_ms
from lastgood.observe.state_checksums import find_unsound_state
from lastgood.observe.unread_files import find_unread_files
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.edited_plans import find_unchecked_plans
from lastgood.query.observation import Observation, Seal
from lastgood.query.prediction.skipping import list_versions_loaded
from lastgood.query.sink_batches import find_held_batches
from lastgood.settings.target import Target, list_words_of_death
from lastgood.signing import SignatureMissingError, SignatureWrongError
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


def observe(query: OpenQuery, options: DiagnoseOptions) -> Observation:
    """All that a diagnosis rests on.

    Args:
        query: Its files were read, and its sinks and Kafka asked.
        options: By what it was asked.
    """
    seen = query.seen
    versions = list_versions_loaded(seen.checkpoint, seen.sinks)
    asked = make_asked_by(query.target, options)
    unchecked = find_unchecked_plans(seen.checkpoint)
    rewritten = _find_rewritten(query, unchecked)
    return replace(
        seen,
        asked=asked,
        now_ms=read_clock_ms(),
        fail_on_data_loss=options.fail_on_data_loss is not False,
        source_replays=options.evidence.of(query.target).source_replays,
        is_pattern=options.evidence.subscribe_pattern is not None,
        is_same_topic=options.evidence.topic_is_the_same,
        is_by_name=options.is_by_name and options.evidence.subscribe_pattern is None,
        is_local=query.location.scheme == "file",
        files=find_unread_files(query),
        unsound=find_unsound_state(query.storage, query.location, seen.checkpoint, versions),
        seal=_find_seal(query, asked),
        mirrored=find_mirrored_only(query),
        rewritten=rewritten,
        unchecked=unchecked - rewritten.keys(),
        links=query.links,
    )


def add_advice_facts(observed: Observation, facts: AdviceFacts) -> Observation:
    """The same with what was found around the checkpoint, and what a recorder saw of its query."""
    kinds = facts.subscriptions
    is_pattern = observed.is_pattern or ("subscribe_pattern" in kinds and not observed.is_by_name)
    return replace(
        observed,
        advice=facts,
        topic_ids=facts.topic_ids,
        is_pattern=is_pattern,
        is_by_name=not is_pattern and (observed.is_by_name or bool(kinds)),
    )


def make_asked_by(target: Target, options: DiagnoseOptions) -> Asked:
    """How a verb was called, for the commands that it prints."""
    fails = options.fail_on_data_loss is not False
    asked = make_asked(target, options.evidence, spark=options.spark, fail_on_data_loss=fails)
    return replace(asked, downtime=format_downtime(options.max_downtime_ms))


def _find_rewritten(query: OpenQuery, unchecked: frozenset[int]) -> Mapping[int, str]:
    """The batches that a recovery wrote anew, as far as anybody looks.

    That is at those that go back, leave out, lack a checksum, or are younger than a sink's.
    """
    odd = {*find_batches_that_went_back(query.checkpoint), *find_batches_that_left_out(query.checkpoint), *unchecked}
    for sink in query.seen.sinks:
        held = find_held_batches(query.checkpoint, sink)
        doubtful = {batch for batch, each in held.items() if each.origin.is_doubtful}
        odd |= doubtful | {batch - 1 for batch in doubtful}
    if not odd:
        return {}
    from lastgood.journal.room import RecoveryStage, RecoveryUnknownError, Room, list_recoveries
    from lastgood.planning.plan import PlanInvalidError

    found: dict[int, str] = {}
    storage = open_writable(query.location)
    for recovery in list_recoveries(storage, query.location):
        room = Room(query.location, recovery, storage)
        try:
            steps = room.plan().steps if room.stage() is RecoveryStage.CLOSED else ()
        except (PlanInvalidError, RecoveryUnknownError):  # then it is told as anybody's
            continue
        written = {step.path for step in steps}
        found |= {batch: recovery for batch in odd if f"offsets/{batch}" in written}
    return found


def _find_seal(query: OpenQuery, asked: Asked) -> Seal | None:
    """The repair that is open, if the newest plan looks like a seal: else nobody need look."""
    offsets = query.checkpoint.offsets
    newest = None if offsets.newest is None else offsets.entries.get(offsets.newest)
    if not isinstance(newest, Damage) or newest.kind is not DamageKind.EMPTY:
        return None
    from lastgood.journal.room import Room, find_open_recovery, locate_plan

    recovery = find_open_recovery(query.storage, query.location)
    if recovery is None:
        return None
    room = Room(query.location, recovery, open_writable(query.location))
    stage = room.stage()
    paths = _list_seal_paths(room, f"{OFFSETS}/{offsets.newest}")
    if not paths:
        return None
    words = list_words_of_death(str(query.location), query.target.config)
    finish = None
    if stage is None or not stage.is_back:
        finish = asked.make_apply_command(locate_plan(query.location, recovery), *words)
    error = _find_refusal(replace(room, keys=query.target.keys()))
    refused = None if error is None else f"{error.sentence} ({error.found})"
    sign = None if error is None else error.next
    return Seal(recovery, stage.value if stage else "", paths, finish, words, refused, sign)


def _list_seal_paths(room: Room, newest: str) -> tuple[str, ...]:
    """The files of a seal that stand; the newest plan, where nobody can tell which they are."""
    from lastgood.journal.room import RecoveryUnknownError
    from lastgood.journal.seal import is_in_place
    from lastgood.planning.plan import PlanInvalidError

    try:
        return tuple(path for path in room.seal() if is_in_place(room, path))
    except (PlanInvalidError, RecoveryUnknownError):  # `_find_refusal` says why
        return (newest,)


def _find_refusal(room: Room) -> LastgoodError | None:
    """Why an open repair is not carried out: the error of whoever tried to."""
    from lastgood.journal.room import RecoveryUnknownError
    from lastgood.planning.plan import PlanInvalidError

    try:
        room.stage()
        room.plan()
    except (SignatureMissingError, SignatureWrongError, PlanInvalidError, RecoveryUnknownError) as error:
        return error
    return None
