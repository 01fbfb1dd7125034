"""`plan`: from what is wanted to a saved plan; nothing is changed."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from lastgood import __version__
from lastgood.checkpoint.layout import METADATA
from lastgood.diagnose.restart import Outcome
from lastgood.errors import UsageError
from lastgood.operations.evidence import now_ms
from lastgood.operations.positions import Where, chosen_offsets
from lastgood.operations.surroundings import EvidenceOptions
from lastgood.operations.survey import Survey, survey
from lastgood.overlay import OverlayStorage
from lastgood.position import locate
from lastgood.recovery.draft import Draft, RepairRefusedError
from lastgood.recovery.engine import LOG_BYTES_MAX, listing_digest, log_folders
from lastgood.recovery.goals import Fresh, Goal, Replan, Reposition, Resume
from lastgood.recovery.plan import Plan, Promise
from lastgood.recovery.planner import draft
from lastgood.recovery.price import Waiver, needed
from lastgood.recovery.room import require_no_open
from lastgood.recovery.seal import seal_of
from lastgood.recovery.steps import FileStep, MoveStep, Step, digest, in_order
from lastgood.storage import Storage

GOALS = ("resume", "replan", "reposition", "fresh")
_RUNS = (Outcome.STARTS.value, Outcome.RESUMES.value, Outcome.RERUNS.value)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is wanted, and where to look."""

    goal: str = "resume"
    where: Where = field(default_factory=Where)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    accept: tuple[Waiver, ...] = ()
    spark: str | None = None
    """The version that will start; None: the newest that can read the logs."""
    fail_on_data_loss: bool = True
    """As the query's Kafka source has it."""


def make_plan(target: str, options: PlanOptions | None = None, *, config: Path | None = None) -> Plan:
    """Plan how a query is to run again; nothing is changed.

    Args:
        target: Location, or name in `lastgood.toml`.
        options: What is wanted.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        RepairRefusedError: it cannot be done in a way of which anything can be promised; it says why.
        RecoveryOpenError: another repair was begun here, and neither finished nor taken back.
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    options = options or PlanOptions()
    found = survey(
        target,
        evidence=options.evidence,
        spark=options.spark,
        fail_on_data_loss=options.fail_on_data_loss,
        config=config,
    )
    require_no_open(found.evidence.storage, found.location)
    goal = _goal(target, options, found, config)
    drafted = draft(found.known(), goal, found.spark)
    return _whole(found, goal, drafted, options)


def _goal(target: str, options: PlanOptions, found: Survey, config: Path | None) -> Goal:
    where = options.where
    if options.goal in ("resume", "replan"):
        if where.is_chosen or where.only or where.source:
            raise UsageError(f"{options.goal} chooses its own offsets", expected="--goal reposition or fresh")
        return Resume() if options.goal == "resume" else Replan()
    if options.goal == "fresh" and not where.is_chosen:
        return Fresh()
    offsets, chosen = chosen_offsets(target, options.where, found, config)
    return Reposition(offsets, chosen) if options.goal == "reposition" else Fresh(offsets, chosen)


def _whole(found: Survey, goal: Goal, drafted: Draft, options: PlanOptions) -> Plan:
    """A plan from a draft: what the files are that it touches, how they are sealed, and what Spark will do then."""
    storage, location = found.evidence.storage, found.location
    contents = _read_all(found, [*(edit.path for edit in drafted.edits), *drafted.guards, METADATA])
    edits = [edit for edit in drafted.edits if contents[edit.path] != edit.after]
    steps: tuple[Step, ...] = in_order(
        [
            *(FileStep(each.path, digest(contents[each.path]), each.after, each.why) for each in edits),
            *_measured(found, drafted.moves),
        ]
    )
    then = _then(storage, found, steps)
    promise = found.promise(then)
    _require_run(found, promise)
    position = locate(found.world.checkpoint, found.world.sinks)
    touched = {step.path for step in steps}
    guarded = {*drafted.guards, METADATA} - touched if steps else set()
    at_ms = now_ms()
    duplicates = any(source.duplicated or source.duplicated_files for source in drafted.sources)
    plan = Plan(
        recovery=_recovery_id(at_ms),
        goal=goal.name,
        options={**goal.to_json(), "fail_on_data_loss": options.fail_on_data_loss},
        checkpoint=str(location),
        query_id=found.evidence.query_id,
        guarantee=drafted.guarantee,
        rests_on=drafted.rests_on,
        needs=() if drafted.is_plain else needed(drafted.guarantee, options.accept, duplicates=duplicates),
        accepted=options.accept,
        position=position.to_json(),
        promise=promise,
        sources=drafted.sources,
        sinks=found.sinks,
        evidence=found.asked.words(),
        steps=steps,
        alternatives=drafted.alternatives,
        made_at_ms=at_ms,
        made_by=__version__,
    )
    if not steps:
        return plan
    folders = log_folders(storage, location)
    return replace(
        plan,
        seal=seal_of(position.planned, position.committed, _newest_plan(then, found)),
        listings={folder: listing_digest(storage, location / folder, folder) for folder in folders},
        guards={path: digest(contents[path]) for path in sorted(guarded)},
    )


def _measured(found: Survey, moves: Iterable[MoveStep]) -> Iterable[MoveStep]:
    """The same with the size of each file: a listing does not tell it of every one."""
    for step in moves:
        entry = found.evidence.storage.stat(found.location / step.path)
        yield step if entry is None or entry.size is None else replace(step, size=entry.size)


def _then(storage: Storage, found: Survey, steps: Iterable[Step]) -> Storage:
    """The storage as it will be."""
    return OverlayStorage(
        storage, found.location, {step.path: step.after if isinstance(step, FileStep) else None for step in steps}
    )


def _newest_plan(then: Storage, found: Survey) -> int | None:
    names = then.names(found.location / "offsets") or ()
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _require_run(found: Survey, promise: Promise) -> None:
    """See that Spark runs in the end, and that no sink drops what it writes next."""
    if promise.outcome not in _RUNS:
        raise RepairRefusedError(
            "no repair is known after which Spark would run",
            subject=str(found.location),
            found=promise.because,
            effect="nothing has been changed",
            next=found.world.command("diagnose", *found.asked.words()),
        )
    following = promise.batch if promise.outcome != Outcome.RERUNS.value else (promise.batch or 0) + 1
    for sink in found.world.sinks:
        if following is not None and sink.would_skip(following):
            raise RepairRefusedError(
                "the sink would drop the next batch without a word",
                subject=sink.location,
                found=f"it skips batches up to {sink.skips_up_to}, and the next new one is {following}",
                effect="nothing has been changed",
                next=found.world.command("diagnose", *found.asked.words()),
            )


def _read_all(found: Survey, paths: Iterable[str]) -> dict[str, bytes | None]:
    storage, wanted = found.evidence.storage, list(dict.fromkeys(paths))
    with ThreadPoolExecutor(storage.parallel) as pool:
        contents = pool.map(lambda path: storage.read(found.location / path, limit=LOG_BYTES_MAX), wanted)
        return dict(zip(wanted, contents, strict=True))


def _recovery_id(at_ms: int) -> str:
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{when}-{secrets.token_hex(2)}"
