"""All that was seen of a query: its checkpoint, copies of it, and what stands around it. Values only. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from lastgood.asked import Asked
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.state import State
from lastgood.frozen import dataclass
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.history import BatchRecord
from lastgood.query.prediction.unsound import Unsound
from lastgood.query.sinks import SinkView, make_sink_views
from lastgood.sinks.evidence import COMPLETE, SinkEvidence, make_unknown_evidence
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.files.facts import FileFacts, WrittenAgain
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile
from lastgood.visible import join_words


@dataclass(frozen=True, slots=True)
class Seal:
    """A repair of lastgood that is open, and keeps every driver away."""

    recovery: str
    stage: str
    """How far it has come."""
    paths: tuple[str, ...]
    """The empty files of the seal that stand."""
    finish: str | None = None
    """The command that finishes it; None where somebody has begun to take it back."""
    undo_words: tuple[str, ...] = ()
    """What a person has to say to take it back."""
    refused: str | None = None
    """Why it is neither finished nor taken back: it is not signed, not of this place, or damaged; None: nothing is in
    the way."""
    sign: str | None = None
    """What a person may do then."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A recovery that left the checkpoint behind on purpose; the application is told elsewhere where it begins."""

    recovery: str
    at_ms: int
    """When it was done, milliseconds since 1970."""
    file: StartFile
    """Which file tells the application. So the recovery's own plan says, which lies in the lake: nobody opens the file
    for that."""
    starts: Mapping[str, Offsets]
    """What the file was given, by the id of the source."""
    query_id: str | None
    """The query that was left behind; None if nobody knew its id."""
    word: str
    """The guarantee that was given."""
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Per sink that goes by query ids the names that it knew then, each with its last batch."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics then, as far as Kafka told them."""
    asked: tuple[str, ...] = ()
    """The words by which it was asked for."""
    says: bool | None = None
    """Whether the file still says so; None: whoever asks has not named that file, so it was not looked at."""
    undo_words: tuple[str, ...] = ()
    """What a person has to say to take it back."""


@dataclass(frozen=True, slots=True)
class LedgerMemory:
    """What a ledger remembers of the query whose checkpoint holds no batch."""

    place: str
    """The ledger, to show."""
    query_id: str | None = None
    oldest: int | None = None
    """The oldest batch that it knows; None if it did not tell."""
    newest: int | None = None
    offsets_after: int | None = None
    """The newest batch of which it knows where it ended in Kafka, committed if any is; None: it knows of none."""
    unknown: str | None = None
    """Why it did not tell; None if it did."""


@dataclass(frozen=True, slots=True)
class MirroredPlan:
    """A plan as the mirror has it."""

    planned_ms: int | None
    """When it was made, as it says; milliseconds since 1970."""
    ends: Mapping[str, str]
    """Where the batch ends, by source, as the plan has it."""


@dataclass(frozen=True, slots=True)
class CommittedElsewhere:
    """The newest batch of this very query that somebody beside its logs knows to be committed."""

    holder: str
    """Who knows of it, for a person."""
    batch_id: int | None = None
    """None: it did not tell."""
    unknown: str | None = None
    """Why it did not tell; None if it did."""


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """State that was made anew beside the checkpoint, or would be."""

    state: State
    """As the checkpoint has it then."""
    folder: str = ""
    """Where it lies, below what lies beside the checkpoint."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Path below the checkpoint, and size, of every file that is to be brought."""
    gone: frozenset[str] = frozenset()
    """Files of the state that would be in its way."""
    commits: Mapping[str, bytes] = field(default_factory=dict)
    """Commits that name its versions, by their path; empty where commits name none."""
    rests_on: tuple[str, ...] = ()
    """One line each."""
    against: tuple[str, ...] = ()
    """Why it need not be what the state was; one line each."""


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """What only a repair has to know of the files of a query."""

    mirror: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the logs as they stood last, by their path; empty without a mirror."""
    mirrored_id: str | None = None
    """The query id that the mirror knows."""
    is_state_kept: bool = False
    """Whether the state is gone, and a backup has kept what the query of the mirror had of it."""
    state_files: Mapping[str, int] = field(default_factory=dict)
    """Path and size of every file below `state`, of a stateful query."""
    checksums: frozenset[str] = frozenset()
    """Paths of every `.NAME.crc` in the logs."""
    files_read: Mapping[str, tuple[FileFacts, ...]] = field(default_factory=dict)
    """Per file source: what has become of the files that it has read, where its state is to be made anew; of many the
    newest."""
    rebuilt: RebuiltState | None = None
    """State that takes the place of what is there; None: it stays."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen and asked so far; each field says what it is where nobody has looked.

    What can look further (storage, ledger, target) is the other value, `OpenQuery` of `lastgood.observe.open_query`.
    `lastgood.observe.observation.observe` makes an observation whole, before anybody judges.
    """

    checkpoint: Checkpoint
    copies: tuple[Copy, ...] = ()
    """What the mirror holds, of former queries as well; empty without a mirror, and where it was not needed."""
    copied_since: int = 0
    """Plans and commits of older batches than this were not read from the mirror."""
    recalled: tuple[BatchRecord, ...] = ()
    """What a ledger told, because neither checkpoint nor mirror has it."""
    location: str = "."
    """Of the checkpoint, as a person types it."""
    asked: Asked = field(default_factory=Asked)
    """How the verb was called that looks at it; the commands that it prints carry the same."""
    now_ms: int = 0
    sinks: tuple[SinkEvidence, ...] = ()
    """Empty: none was asked."""
    kafka: KafkaFacts | None = None
    """None: not asked."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids that the topics had while the query read them, where somebody recorded them."""
    fail_on_data_loss: bool = True
    """The option of the Kafka source, which no file records."""
    source_replays: bool = False
    """Whether a person says that sources which cannot be asked serve their ranges again."""
    is_pattern: bool = False
    """Whether it is known that Kafka topics are subscribed by a pattern, which no file of a checkpoint records."""
    is_same_topic: bool = False
    """Whether a person says that the topics are those that the query has read (`--topic-is-the-same`)."""
    is_by_name: bool = False
    """Whether it is known that they are subscribed or assigned by their names."""
    is_local: bool = True
    """Whether the checkpoint lies on a local disk, where Hadoop keeps a `.crc` beside each file."""
    files: Mapping[str, tuple[FileFacts, ...]] = field(default_factory=dict)
    """Per file source: the files of the newest plan."""
    files_again: Mapping[str, WrittenAgain] = field(default_factory=dict)
    """Per file source: the files of done batches that were written again, where they were looked at."""
    tables: Mapping[str, DeltaFacts] = field(default_factory=dict)
    """Per Delta source: what its table still serves."""
    seal: Seal | None = None
    """None: no repair is open."""
    mirrored: BatchIds | None = None
    """Where both logs are lost: the batches of which the mirror holds plans; None where that is not so."""
    left: LeftBehind | None = None
    """None: it was not left behind, or the query has planned a batch since."""
    memory: LedgerMemory | None = None
    """What the ledger remembers, where neither checkpoint nor mirror holds a batch; None: nothing, or nobody asked."""
    committed_elsewhere: tuple[CommittedElsewhere, ...] = ()
    """What mirror and ledger know to be committed beyond the newest plan of the logs, and no recovery took back."""
    mirrored_plans: Mapping[int, MirroredPlan] = field(default_factory=dict)
    """The plans from which a start goes on, as the mirror saw them last, or a recovery wrote them since; by batch."""
    rewritten: Mapping[int, str] = field(default_factory=dict)
    """Batches that go back because a recovery of lastgood wrote their plan anew, with its id."""
    unchecked: frozenset[int] = frozenset()
    """Batches whose plans lacked the checksum that Spark gave them when they were read, and that no recovery wrote."""
    unsound: Mapping[str, Unsound] = field(default_factory=dict)
    """Files of the state that the next batch loads and that are not what was written, by their path."""
    advice: AdviceFacts = field(default_factory=AdviceFacts)
    """Where the checkpoint lies, and how its query was seen to run."""
    repair: RepairFacts = field(default_factory=RepairFacts)
    """What a planner goes by as well; empty where nothing is planned."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Links in the checkpoint and in its work folder, none of which was followed; path and text."""

    @property
    def folder(self) -> str:
        """The checkpoint as its files are named on this machine."""
        return self.checkpoint.location

    @property
    def is_stateful(self) -> bool:
        """Whether the query keeps state, by its files, by what was recorded of it, or by how it plans and writes."""
        is_told = self.checkpoint.is_stateful or self.advice.is_stateful
        return is_told or _has_run_without_data(self.checkpoint) or _is_written_whole(self.sinks)

    @property
    def state_in_doubt(self) -> str | None:
        """Why the query may have kept state of which nothing is left; None where it is known whether it keeps any."""
        newest = self.checkpoint.newest_offsets
        is_told = self.is_stateful or bool(self.advice.batches)  # a recorded batch tells its operators
        if is_told or newest is None or newest.batch_watermark_ms <= 0:
            return None
        return f"its newest plan has the watermark {newest.batch_watermark_ms}, and there is no folder state"

    def make_report_command(self, recovery: str) -> str:
        """The command that shows what a recovery did."""
        return self.command("report", recovery)

    def make_undo_command(self, left: LeftBehind) -> str:
        """The command that takes back how the checkpoint was left behind."""
        return self.asked.about(self.location).make_undo_command(left.recovery, left.file.location, *left.undo_words)

    def command(self, verb: str, *options: str) -> str:
        """A command about this checkpoint that can be pasted, with all that was asked; see `Asked.command`."""
        return self.asked.about(self.location).command(verb, *options)

    def make_plan_command(self, *options: str) -> str:
        """The command that plans what was asked for, with more said."""
        return self.asked.about(self.location).make_plan_command(*options)

    def make_checkpoint_command(self) -> str:
        """See `Asked.make_checkpoint_command`."""
        return self.asked.about(self.location).make_checkpoint_command()


def make_views(observed: Observation) -> list[SinkView]:
    """Every sink that was asked, held against the logs.

    The logs of a repair that is half done are neither what they were nor what they will be, and empty files of its seal
    stand in them as a plan and a commit: no sink can be held against those.
    """
    sinks = observed.sinks
    if observed.seal is not None:
        because = f"recovery {observed.seal.recovery} is half done, and the logs are neither as before nor as after it"
        sinks = tuple(make_unknown_evidence(each.kind, each.location, each.dedupe_key, because) for each in sinks)
    return make_sink_views(observed.checkpoint, sinks, is_stateful=observed.is_stateful, rewritten=observed.rewritten)


def _has_run_without_data(checkpoint: Checkpoint) -> bool:
    """Whether a batch only moved the watermark: Spark plans such batches for a stateful query alone."""
    plans = {n: entry for n, entry in checkpoint.offsets.entries.items() if isinstance(entry, OffsetEntry)}
    pairs = ((plans[n - 1], plan) for n, plan in plans.items() if n - 1 in plans)
    return any(
        before.sources == plan.sources and before.batch_watermark_ms < plan.batch_watermark_ms for before, plan in pairs
    )


def _is_written_whole(sinks: Iterable[SinkEvidence]) -> bool:
    """Whether a batch was written in output mode complete, which Spark knows for aggregations alone."""
    modes = {batch.output_mode for each in sinks for batch in each.batches}
    return COMPLETE in {mode.lower() for mode in modes if mode is not None}


def make_removal_command(location: str, name: str) -> str:
    """The command that removes a file on a local disk; `name` is its path below `location`."""
    return join_words(["rm", f"{location.removeprefix('file://').rstrip('/')}/{name}"])
