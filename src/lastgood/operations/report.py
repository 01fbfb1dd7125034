"""`report`: an incident, or a recovery that was made by hand: all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lastgood.asked import Asked
from lastgood.errors import StorageError, UsageError
from lastgood.incident.closing import CarriedOut, close_incident, list_carried_out
from lastgood.incident.lost_ranges import LostRange, find_lost_ranges
from lastgood.incident.report import IncidentReport
from lastgood.journal.incident import Attempt, Incident, IncidentDamagedError, shorten_plan
from lastgood.journal.incidents import list_incidents, read_incident
from lastgood.journal.room import LAST, RecoveryStage, RecoveryUnknownError, find_recovery, list_recoveries
from lastgood.journal.signed_files import find_worst, read_file_of_incident
from lastgood.observe.advice_facts import RECORDS_FOLDER
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.recorded import read_newest_records
from lastgood.planning.plan import Plan
from lastgood.records.record import Progress
from lastgood.recovery.whereabouts import recall_whereabouts
from lastgood.settings.config import Config
from lastgood.settings.keys import find_keys
from lastgood.settings.target import Target
from lastgood.storage.reading import Location, Storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import open_writable

_SECOND = len("20261121-160058")
_NEIGHBOURS = 5
_NOTHING_ASKED = EvidenceOptions()


def report(
    recovery: str,
    *,
    target: Target | None = None,
    options: EvidenceOptions = _NOTHING_ASKED,
    config: Config | None = None,
) -> IncidentReport:
    """All that is known of an incident or of a recovery; nothing is changed.

    Where nobody has looked yet whether the first new batch kept the promise, that is done now.

    Args:
        recovery: Id of an incident or of a recovery, or `last`.
        target: Of which query; None: where this machine remembers it to have been, else the
            checkpoints of the configuration.
        options: Sinks that are asked whether they show the batch; else those at which this machine has looked
            then, else those of the configuration.
        config: What was set on this machine, as this command has read it; None: `lastgood.toml` here.

    Raises:
        RecoveryUnknownError: there is no such incident, nor such a recovery.
        IncidentDamagedError: the file of the incident is none.
        UsageError: nobody knows which checkpoint is meant; an option is not understood (subclasses).
        StorageError: the storage does not answer (subclasses).
    """
    if target is None:
        config = config or Config()
    else:
        config = target.config
    target = _find_place(recovery, options, config) if target is None else target
    location = target.location
    storage = open_writable(location)
    incident = _find_incident(storage, location, recovery)
    is_by_hand = not isinstance(incident, Incident)
    ids = incident.recoveries if isinstance(incident, Incident) else (incident,)
    keys = find_keys(config)
    found = list_carried_out(storage, location, ids, config, keys)
    if not isinstance(incident, Incident):
        if not found:
            raise RecoveryUnknownError(
                f"recovery {incident} was planned, and nothing of it was done", subject=str(location)
            )
        incident = _make_by_hand(found[0], str(location))
    incident = replace(incident, checkpoint=str(location))  # what its file names lies in the lake, and is pasted
    incident = close_incident(incident, found, storage, target=target, options=options)
    signature = (
        find_worst(read_file_of_incident(storage, location, incident.id, keys)) if keys and not is_by_hand else None
    )
    return IncidentReport(incident, found, tuple(_find_lost(incident, storage, location)), is_by_hand, signature)


def _find_incident(storage: Storage, location: Location, wanted: str) -> Incident | str:
    """The incident that is meant; the id of a recovery that belongs to none."""
    incidents, known = list_incidents(storage, location), list_recoveries(storage, location)
    if wanted == LAST and (incidents or known):
        newest = find_recovery(storage, location, LAST) if known else None
        if not incidents:
            return newest or ""
        last = read_incident(storage, location, incidents[-1])
        is_later = newest is not None and newest[:_SECOND] > last.id[:_SECOND] and newest not in last.recoveries
        if newest is not None and is_later:
            return newest
        return last
    if wanted in incidents:
        return read_incident(storage, location, wanted)
    if wanted in known:
        return _find_holding(storage, location, wanted, incidents) or wanted
    raise RecoveryUnknownError(
        f"there is no incident or recovery {wanted}" if wanted != LAST else "there was no incident, and no recovery",
        subject=str(location.sibling(WORK_SUFFIX)),
        found=", ".join(sorted({*incidents[-5:], *known[-5:]})) or "neither incidents nor recoveries",
    )


def _find_holding(storage: Storage, location: Location, recovery: str, incidents: list[str]) -> Incident | None:
    """The incident of a recovery: one of those that were open when it was planned."""
    before = [each for each in incidents if each[:_SECOND] <= recovery[:_SECOND]]
    for each in reversed(before[-_NEIGHBOURS:]):
        try:
            incident = read_incident(storage, location, each)
        except IncidentDamagedError:
            continue  # it was not asked for: the recovery itself tells what was done
        if recovery in incident.recoveries:
            return incident
    return None


def _make_by_hand(done: CarriedOut, checkpoint: str) -> Incident:
    """A recovery that nobody wrote an incident about, told as one."""
    begun_ms = next((at_ms for _, at_ms in done.stages if at_ms is not None), 0)
    made_ms, because, kept, position = begun_ms, "its file cannot be read", None, {}
    if done.plan is not None:
        made_ms, because, kept = done.plan.made_at_ms, _describe_aim(done.plan), shorten_plan(done.plan)
        position = {name: done.plan.position.get(name) for name in ("planned", "committed")}
    ends = [at_ms for stage, at_ms in done.stages if stage is RecoveryStage.CLOSED and at_ms is not None]
    attempt = Attempt(
        at_ms=made_ms,
        did="repair",
        because=because,
        seconds=(ends[0] - begun_ms) / 1000 if ends else 0.0,
        recovery=done.recovery,
        plan=kept,
        proof=done.proof,
    )
    return Incident(
        id=done.recovery,
        checkpoint=checkpoint,
        failed_at_ms=made_ms,
        position=position,
        attempts=(attempt,),
    )


def _describe_aim(plan: Plan) -> str:
    chosen = plan.options.get("chosen")
    where = f" ({chosen})" if isinstance(chosen, str) else ""
    return f"{plan.goal}{where}, {plan.guarantee.value.replace('_', ' ')}"


def _find_lost(incident: Incident, storage: Storage, location: Location) -> Iterator[LostRange]:
    """What the plan that counts has lost, with its times if records are left that tell."""
    plan = incident.plan
    if plan is None or not any(find_lost_ranges(plan, ())):
        return
    folder = location.sibling(WORK_SUFFIX) / RECORDS_FOLDER
    try:
        names = [name for name in storage.names(folder) or () if not name.endswith("/")]
        records = read_newest_records(storage, folder, names) if names else []
    except StorageError:  # the ranges are known; only when they were written is not
        records = []
    yield from find_lost_ranges(plan, [each for each in records if isinstance(each, Progress)])


def _find_place(recovery: str, options: EvidenceOptions, config: Config) -> Target:
    """The query that is meant, where nobody has named it."""
    remembered = None if recovery == LAST else recall_whereabouts(recovery)
    if remembered is not None:
        return Target(str(remembered), config=config)
    configured = _list_configured(config)
    if recovery == LAST:
        if len(configured) == 1:
            return Target(str(configured[0]), config=config)
        raise UsageError(
            "the last incident of which checkpoint?",
            found=", ".join(map(str, configured)) or None,
            expected="--checkpoint TARGET: a location, or the name of a pipeline",
            next=Asked(str(configured[0]) if configured else "TARGET", options.words()).command("report", LAST),
        )
    for location in configured:
        storage = open_writable(location)
        if recovery in (*list_incidents(storage, location), *list_recoveries(storage, location)):
            return Target(str(location), config=config)
    if "/" in recovery:  # no id has one: where it was has been named instead
        last = Asked(recovery, options.words()).command("report", LAST)
        raise UsageError("this is no id of an incident", found=recovery, expected="an id, or last", next=last)
    raise RecoveryUnknownError(
        f"this machine does not remember {recovery}, nor does a checkpoint of its configuration",
        expected="--checkpoint TARGET",
        next=Asked("TARGET", options.words()).command("report", recovery),
    )


def _list_configured(config: Config) -> list[Location]:
    pipelines = config.pipelines().values() if config.is_there else ()
    return [parse_location(query.checkpoint) for pipeline in pipelines for query in pipeline.queries]
