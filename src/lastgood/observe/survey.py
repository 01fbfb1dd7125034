"""All that a repair goes by, looked at in one way: when it is planned, before it is done, and when it is verified."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES, STATE
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import newest_reading
from lastgood.journal.endings import as_left, endings_of
from lastgood.journal.room import require_newest_signed
from lastgood.mirror.copies import standing
from lastgood.observe.advice_facts import advice_facts
from lastgood.observe.evidence import GatheredQuery, MirrorUse, gather, known_left, now_ms, require_checkpoint
from lastgood.observe.files_again import files_again
from lastgood.observe.observation import BATCHES, DiagnoseOptions, advised, world_of
from lastgood.observe.recalled import with_memory
from lastgood.observe.sinks_back import fence_of
from lastgood.observe.surroundings import EvidenceOptions, look_around
from lastgood.observe.unread_files import files_after
from lastgood.planning.left_out import left_out
from lastgood.planning.plan import PlannedSink, Promise
from lastgood.planning.planner import batches_wanted
from lastgood.planning.price import Waiver
from lastgood.planning.repairs.lost import RETAINED
from lastgood.planning.standing import taken_back
from lastgood.query.observation import Observation, RepairFacts
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SparkVersion, parse_spark_version
from lastgood.redaction import without_login
from lastgood.settings.keys import Keys
from lastgood.settings.target import Target
from lastgood.signing import KeyRing
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.ranges import Offsets
from lastgood.steps.step import SinkEdit
from lastgood.storage.reading import Location, Storage

_BATCHES_MAX = 10_000
"""A sink that is further behind is of another query, or was restored from very long ago."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A query, and what stands around it, at one moment."""

    evidence: GatheredQuery
    world: Observation
    asked: EvidenceOptions
    """Where it was looked, with what the configuration knows."""
    spark: SparkVersion

    @property
    def location(self) -> Location:
        """The checkpoint."""
        return self.evidence.location

    @property
    def sinks(self) -> tuple[PlannedSink, ...]:
        """What the sinks show."""
        return _planned(self.world.sinks)

    def after(self, edits: Iterable[SinkEdit]) -> Survey:
        """The same, once sinks have gone back."""
        sinks = tuple(taken_back(sink, edits) for sink in self.world.sinks)
        return replace(self, world=replace(self.world, sinks=sinks))

    def wanting(self, words: tuple[str, ...], accept: Iterable[Waiver]) -> Survey:
        """The same; the commands that are printed want this again, and accept as much."""
        asked = replace(self.world.asked, wanted=words, accepted=tuple(waiver.value for waiver in accept))
        return replace(self, world=replace(self.world, asked=asked))

    def with_repair_facts(self) -> Survey:
        """The same, knowing as well what only a planner goes by.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        evidence = self.evidence
        newest = max(evidence.mirror, key=lambda copy: copy.seen_ms, default=None)
        mirrored_id = newest.query_id if newest else None
        ours = (copy for copy in evidence.mirror if copy.query_id == mirrored_id)
        files = evidence.storage.walk(self.location / STATE) if self.world.checkpoint.is_stateful else None
        facts = RepairFacts(
            mirror={path: copy.content for path, copy in standing(ours).items()},
            mirrored_id=mirrored_id,
            state_files={f"{STATE}/{entry.name}": entry.size or 0 for entry in files or ()},
            checksums=frozenset(_checksums(evidence.storage, self.location)),
        )
        return replace(self, world=replace(self.world, repair=facts))

    def shown_by(self, storage: Storage) -> Observation:
        """The world with the checkpoint as `storage` shows it.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        return replace(self.world, checkpoint=read_checkpoint(storage, self.location, batches=BATCHES))

    def promise(self, storage: Storage) -> Promise:
        """What Spark would do with the checkpoint as `storage` shows it.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        restart = predict(self.shown_by(storage), self.spark)
        because = restart.because if restart.stop is None else f"{restart.error}: {restart.because}"
        return Promise(str(self.spark), restart.outcome.value, restart.batch, because)

    def left_out(self, storage: Storage, promise: Promise, told: Offsets | None = None) -> tuple[str, ...] | None:
        """What the first batch would leave out without an error, of the checkpoint as `storage` shows it.

        Args:
            storage: Shows it as the plan leaves it.
            promise: What Spark does then.
            told: Where the configuration of the application says that it starts; None: the checkpoint says it.

        Returns:
            One line for each partition; None if Kafka did not tell.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        if told is None and self.world.fail_on_data_loss:
            return ()
        return left_out(self.shown_by(storage), Outcome(promise.outcome), promise.batch or 0, told=told)


def survey(
    target: Target,
    *,
    evidence: EvidenceOptions,
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    with_mirror: bool = True,
    may_be_missing: bool = False,
    keys: Keys | None = None,
) -> Survey:
    """Look at a query and at what stands around it.

    Args:
        target: Which query.
        evidence: Sinks and Kafka.
        spark: The version that will start; None: the newest that can read the logs.
        fail_on_data_loss: The option of the Kafka source.
        with_mirror: Whether the mirror is read too.
        may_be_missing: Whether there need be no checkpoint yet.
        keys: Those of a caller that has read them; None: those of this machine.

    Raises:
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        PlanInvalidError: the plan of an earlier recovery, which tells what of the mirror counts, cannot be read.
        SignatureMissingError, SignatureWrongError: there is a key, and what such a recovery left was not signed.
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    said = evidence.words()
    found = gather(target, batches=BATCHES, mirror=MirrorUse.NEVER, may_be_missing=True, said=said)
    keys = keys or Keys(target.config)
    ring = keys()
    require_newest_signed(found.storage, found.location, ring)
    found = known_left(found, ring)
    checkpoint = found.checkpoint
    if with_mirror or len(checkpoint.offsets.ids) < BATCHES or checkpoint.damage:
        found = found.with_mirror(_mirror_since(checkpoint))
    found = with_memory(_as_left(found, ring))
    if not (found.mirror or found.left or may_be_missing):
        require_checkpoint(found.location, found.checkpoint, said, found.memory)
    asked = evidence.of(found.target)
    around = look_around(found, asked, now_ms=now_ms(), headroom=True)
    if any(sink.known and (sink.last_batch or 0) < found.mirror_since for sink in around.sinks):
        found = _as_left(found.with_mirror(), ring)
    options = DiagnoseOptions(asked, spark, fail_on_data_loss)
    facts = advice_facts(found, spark=spark)
    world = advised(world_of(found, around, options, keys), facts)
    wanted = batches_wanted(world)
    if wanted > BATCHES:
        checkpoint = read_checkpoint(found.storage, found.location, batches=min(wanted, _BATCHES_MAX))
        found, world = replace(found, checkpoint=checkpoint), replace(world, checkpoint=checkpoint)
    world = replace(_with_files(found, world), files_again=files_again(found))
    return Survey(found, world, asked, newest_reading(world) if spark is None else parse_spark_version(spark))


def shown_by_sinks(target: Target, *, evidence: EvidenceOptions, keys: Keys | None = None) -> tuple[PlannedSink, ...]:
    """What `survey(…).sinks` would be now, where nothing else is asked.

    Raises:
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    ring = (keys or Keys(target.config))()
    found = known_left(gather(target, batches=1, mirror=MirrorUse.NEVER, may_be_missing=True), ring)
    if found.query_id is None:
        found = _as_left(found.with_mirror(), ring)
    return _planned(look_around(found, evidence.of(found.target), now_ms=now_ms(), kafka=False).sinks)


def _planned(sinks: Iterable[SinkEvidence]) -> tuple[PlannedSink, ...]:
    return tuple(
        PlannedSink(
            index=index,
            kind=sink.kind,
            location=without_login(sink.location),
            batch=sink.last_batch,
            known=sink.known,
            skips_up_to=sink.skips_up_to,
            identity=sink.identity,
            fence=fence_of(sink),
        )
        for index, sink in enumerate(sinks)
    )


def _mirror_since(checkpoint: Checkpoint) -> int:
    """From which batch on the mirror can be needed: what the logs list, and as much again; 0 where one is lost.

    No start may wait until months of batches are read of which it needs none.
    """
    oldest = checkpoint.offsets.ids.oldest, checkpoint.commits.ids.oldest
    return 0 if None in oldest else max(0, min(each for each in oldest if each is not None) - RETAINED)


def _as_left(found: GatheredQuery, keys: KeyRing) -> GatheredQuery:
    """The same, but for what earlier recoveries have taken out of the logs: the mirror still has that."""
    if not found.mirror:
        return found
    endings = endings_of(found.storage, found.location, keys)
    return replace(found, mirror=tuple(as_left(found.mirror, endings))) if endings else found


def _with_files(found: GatheredQuery, world: Observation) -> Observation:
    """The same, knowing what became of the files whose rows a sink shows no more, since they would be read anew."""
    marked = (sink for sink in world.sinks if sink.traits.keeps_log or _is_streamed(sink))
    shown = [sink.last_batch for sink in marked if sink.known and sink.last_batch is not None]
    committed = world.checkpoint.last_committed
    if not shown or committed is None or min(shown) >= committed:
        return world
    return replace(world, files=files_after(found, min(shown)))


def _is_streamed(sink: SinkEvidence) -> bool:
    """Whether Spark's own streaming sink writes a table, and no function, which need not mark a batch without rows."""
    told = {each.is_streaming for each in sink.batches}
    return True in told and False not in told


def _checksums(storage: Storage, location: Location) -> Iterator[str]:
    """Paths of every `.NAME.crc` beside the logs."""
    sources = [f"{SOURCES}/{name.rstrip('/')}" for name in storage.names(location / SOURCES) or () if name[-1] == "/"]
    for folder in (OFFSETS, COMMITS, *sources):
        for name in storage.names(location / folder) or ():
            if name.startswith(".") and name.endswith(".crc"):
                yield f"{folder}/{name}"
    for name in storage.names(location) or ():
        if name.startswith(".") and name.endswith(".crc"):
            yield name
