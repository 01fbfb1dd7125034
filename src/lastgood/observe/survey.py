"""All that a repair goes by, looked at in one way: when it is planned, before it is done, and when it is verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lastgood.checkpoint.copies import select_standing
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.journal.endings import find_endings, select_as_left
from lastgood.journal.room import require_newest_signed
from lastgood.mirror.backups import list_backups, locate_backups
from lastgood.mirror.state_copies import find_newest_kept
from lastgood.observe.advice_facts import find_advice_facts
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.files_again import find_files_again
from lastgood.observe.observation import BATCHES, DiagnoseOptions, add_advice_facts, observe
from lastgood.observe.open_query import (
    MirrorUse,
    OpenQuery,
    gather,
    look_for_left_behind,
    read_clock_ms,
    require_checkpoint,
)
from lastgood.observe.recalled import add_memory, find_mirror_since
from lastgood.observe.sinks_back import find_fenceable
from lastgood.observe.surroundings import look_around
from lastgood.observe.unread_files import find_files_after
from lastgood.planning.left_out import describe_left_out
from lastgood.planning.plan import PlannedSink, Promise
from lastgood.planning.planner import count_batches_wanted
from lastgood.planning.price import Waiver
from lastgood.planning.standing import take_back_evidence
from lastgood.query.observation import Observation, RebuiltState, RepairFacts
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import parse_spark_version
from lastgood.query.sinks import NONE
from lastgood.query.windows import is_state_lost
from lastgood.redaction import hide_login
from lastgood.settings.target import Target
from lastgood.signing import KeyRing
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.files.facts import FileFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.steps.step import SinkEdit
from lastgood.storage.reading import Location, Storage

_BATCHES_MAX = 10_000
"""A sink that is further behind is of another query, or was restored from very long ago."""


def describe_sinks(query: OpenQuery) -> tuple[PlannedSink, ...]:
    """What its sinks show, as a plan keeps it."""
    return tuple(
        PlannedSink(
            index=index,
            kind=sink.kind,
            location=hide_login(sink.location),
            batch=sink.last_batch,
            known=sink.known,
            skips_up_to=sink.skips_up_to,
            identity=sink.identity,
            fence=find_fenceable(sink),
        )
        for index, sink in enumerate(query.seen.sinks)
    )


def take_sinks_back(query: OpenQuery, edits: Iterable[SinkEdit]) -> OpenQuery:
    """The same, once sinks have gone back."""
    sinks = tuple(take_back_evidence(sink, edits) for sink in query.seen.sinks)
    return replace(query, seen=replace(query.seen, sinks=sinks))


def add_wanted(query: OpenQuery, words: tuple[str, ...], accept: Iterable[Waiver]) -> OpenQuery:
    """The same; the commands that are printed want this again, and accept as much."""
    asked = replace(query.seen.asked, wanted=words, accepted=tuple(waiver.value for waiver in accept))
    return replace(query, seen=replace(query.seen, asked=asked))


def add_repair_facts(
    query: OpenQuery, *, reads_all_again: bool = False, rebuilt: RebuiltState | None = None
) -> OpenQuery:
    """The same, knowing as well what only a planner goes by.

    Args:
        query: As it was looked at.
        reads_all_again: Whether every file that its sources have read is looked up, and not only the newest, and these
            only where state is lost.
        rebuilt: State that was made anew beside the checkpoint.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    copies = query.seen.copies
    newest = max(copies, key=lambda copy: copy.seen_ms, default=None)
    mirrored_id = newest.query_id if newest else None
    ours = (copy for copy in copies if copy.query_id == mirrored_id)
    files = query.storage.walk(query.location / STATE) if query.checkpoint.is_stateful else None
    facts = RepairFacts(
        mirror={path: copy.content for path, copy in select_standing(ours).items()},
        mirrored_id=mirrored_id,
        is_state_kept=query.checkpoint.state is None and _is_state_kept(query, mirrored_id),
        state_files={f"{STATE}/{entry.name}": entry.size or 0 for entry in files or ()},
        checksums=frozenset(_list_checksums(query.storage, query.location)),
        files_read=_find_files_read(query, reads_all_again=reads_all_again),
        rebuilt=rebuilt,
    )
    return replace(query, seen=replace(query.seen, repair=facts))


def _is_state_kept(query: OpenQuery, query_id: str | None) -> bool:
    backups = list_backups(query.storage, locate_backups(query.location))
    return find_newest_kept(backups, lambda each: each.query_id == query_id) is not None


def observe_through(query: OpenQuery, storage: Storage) -> Observation:
    """What was seen, with the checkpoint as `storage` shows it.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    return replace(query.seen, checkpoint=read_checkpoint(storage, query.location, batches=BATCHES))


def make_promise(query: OpenQuery, storage: Storage) -> Promise:
    """What Spark would do with the checkpoint as `storage` shows it.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    restart = predict(observe_through(query, storage), query.spark)
    because = restart.because if restart.stop is None else f"{restart.error}: {restart.because}"
    return Promise(str(query.spark), restart.outcome.value, restart.batch, because)


def find_left_out(
    query: OpenQuery, storage: Storage, promise: Promise, told: Offsets | None = None
) -> tuple[str, ...] | None:
    """What the first batch would leave out without an error, of the checkpoint as `storage` shows it.

    Args:
        query: As it was looked at.
        storage: Shows it as the plan leaves it.
        promise: What Spark does then.
        told: Where the configuration of the application says that it starts; None: the checkpoint says it.

    Returns:
        One line for each partition; None if Kafka did not tell.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    if told is None and query.seen.fail_on_data_loss:
        return ()
    return describe_left_out(observe_through(query, storage), Outcome(promise.outcome), promise.batch or 0, told=told)


def survey(
    target: Target,
    *,
    evidence: EvidenceOptions,
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    with_mirror: bool = True,
    may_be_missing: bool = False,
) -> OpenQuery:
    """Look at a query and at what stands around it.

    Args:
        target: Which query.
        evidence: Sinks and Kafka.
        spark: The version that will start; None: the newest that can read the logs.
        fail_on_data_loss: The option of the Kafka source.
        with_mirror: Whether the mirror is read too.
        may_be_missing: Whether there need be no checkpoint yet.

    Raises:
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        PlanInvalidError: the plan of an earlier recovery, which tells what of the mirror counts, cannot be read.
        SignatureMissingError, SignatureWrongError: there is a key, and what such a recovery left was not signed.
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    found = gather(target, batches=BATCHES, mirror=MirrorUse.NEVER, may_be_missing=True, options=evidence)
    ring = target.keys()
    require_newest_signed(found.storage, found.location, ring)
    found = look_for_left_behind(found, ring)
    checkpoint = found.checkpoint
    if with_mirror or len(checkpoint.offsets.ids) < BATCHES or checkpoint.damage:
        found = found.with_mirror(find_mirror_since(checkpoint))
    found = add_memory(_restore_as_left(found, ring))
    if not (found.seen.copies or found.seen.left or may_be_missing):
        require_checkpoint(found.location, found.checkpoint, evidence, found.seen.memory)
    found = look_around(found, found.asked, now_ms=read_clock_ms(), headroom=True)
    if any(sink.known and (sink.last_batch or 0) < found.seen.copied_since for sink in found.seen.sinks):
        found = _restore_as_left(found.with_mirror(), ring)
    options = DiagnoseOptions(found.asked, spark, fail_on_data_loss)
    facts = find_advice_facts(found, spark=spark)
    found = replace(found, seen=add_advice_facts(observe(found, options), facts))
    wanted = count_batches_wanted(found.seen)
    if wanted > BATCHES:
        checkpoint = read_checkpoint(found.storage, found.location, batches=min(wanted, _BATCHES_MAX))
        found = replace(found, seen=replace(found.seen, checkpoint=checkpoint))
    found = _add_files(found)
    found = replace(found, seen=replace(found.seen, files_again=find_files_again(found)))
    return found if spark is None else replace(found, starts=parse_spark_version(spark))


def ask_planned_sinks(target: Target, *, evidence: EvidenceOptions) -> tuple[PlannedSink, ...]:
    """What `describe_sinks` of a survey would be now, where nothing else is asked.

    Raises:
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    ring = target.keys()
    found = look_for_left_behind(gather(target, batches=1, mirror=MirrorUse.NEVER, may_be_missing=True), ring)
    if found.query_id is None:
        found = _restore_as_left(found.with_mirror(), ring)
    return describe_sinks(look_around(found, evidence.of(found.target), now_ms=read_clock_ms(), kafka=False))


def _restore_as_left(found: OpenQuery, keys: KeyRing) -> OpenQuery:
    """The same, but for what earlier recoveries have taken out of the logs: the mirror still has that."""
    copies = found.seen.copies
    if not copies:
        return found
    endings = find_endings(found.storage, found.location, keys)
    if not endings:
        return found
    return replace(found, seen=replace(found.seen, copies=tuple(select_as_left(copies, endings))))


def _add_files(found: OpenQuery) -> OpenQuery:
    """The same, knowing what became of the files whose rows a sink shows no more, since they would be read anew."""
    marked = (sink for sink in found.seen.sinks if sink.traits.keeps_log or _is_streamed(sink))
    shown = [sink.last_batch for sink in marked if sink.known and sink.last_batch is not None]
    committed = found.checkpoint.last_committed
    if not shown or committed is None or min(shown) >= committed:
        return found
    return replace(found, seen=replace(found.seen, files=find_files_after(found, min(shown))))


def _is_streamed(sink: SinkEvidence) -> bool:
    """Whether Spark's own streaming sink writes a table, and no function, which need not mark a batch without rows."""
    told = {each.is_streaming for each in sink.batches}
    return True in told and False not in told


def _find_files_read(query: OpenQuery, *, reads_all_again: bool) -> Mapping[str, tuple[FileFacts, ...]]:
    """State that is made anew is made of them."""
    if not (reads_all_again or is_state_lost(query.checkpoint)):
        return {}
    return find_files_after(query, NONE, is_for_all=reads_all_again)


def _list_checksums(storage: Storage, location: Location) -> Iterator[str]:
    """Paths of every `.NAME.crc` beside the logs."""
    sources = [f"{SOURCES}/{name.rstrip('/')}" for name in storage.names(location / SOURCES) or () if name[-1] == "/"]
    for folder in (OFFSETS, COMMITS, *sources):
        for name in storage.names(location / folder) or ():
            if name.startswith(".") and name.endswith(".crc"):
                yield f"{folder}/{name}"
    for name in storage.names(location) or ():
        if name.startswith(".") and name.endswith(".crc"):
            yield name
