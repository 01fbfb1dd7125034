"""`plan`: from what is wanted to a saved plan; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from lastgood import __version__
from lastgood.checkpoint.layout import METADATA, OFFSETS, find_newest_batch
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.ids import make_id
from lastgood.journal.left_behind import MARKS
from lastgood.journal.room import RecoveryStage, RecoveryUnknownError, Room, list_recoveries, require_no_open
from lastgood.journal.seal import list_seal_files
from lastgood.observe.evidence import EvidenceOptions, list_start_words
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.observe.positions import StartChoice, choose_offsets
from lastgood.observe.rereading import WindowChoice, choose_rereading
from lastgood.observe.seeds import choose_seed, list_other_seeds, make_seed
from lastgood.observe.sinks_back import make_sink_steps
from lastgood.observe.survey import (
    add_repair_facts,
    add_wanted,
    describe_sinks,
    find_left_out,
    make_promise,
    observe_through,
    survey,
    take_sinks_back,
)
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Begins, Goal
from lastgood.planning.goals.kinds import GOAL_KINDS, is_begun_anew
from lastgood.planning.goals.values import FreshGoal
from lastgood.planning.leaving import collect_marks, list_untold_sinks
from lastgood.planning.pinned_confs import list_conf_words
from lastgood.planning.plan import ASKED, Plan, PlanInvalidError, Promise
from lastgood.planning.planner import draft, list_alternatives, rank_alternatives
from lastgood.planning.price import Guarantee, Waiver, list_waivers_needed
from lastgood.planning.standing import see_as
from lastgood.planning.steps import BringStep, FileStep, MoveStep, StateStep, compute_digest, sort_steps
from lastgood.query.observation import LeftBehind, Observation, RebuiltState, make_views
from lastgood.query.position import locate
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.source_replay import list_taken_for_kafka, list_taken_for_rate, list_taken_for_tables
from lastgood.query.sinks import SinkView
from lastgood.recovery.engine import compute_listing_digest, list_log_folders
from lastgood.recovery.event_times import find_open_starts
from lastgood.recovery.prover import Prover, Tell
from lastgood.recovery.start_file import make_start_steps
from lastgood.recovery.topic_notes import collect_topic_ids
from lastgood.settings.target import Target
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile
from lastgood.sources.kafka.starting_offsets import offsets_to_json
from lastgood.steps.shown import show_after
from lastgood.steps.step import Step
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage, open_storage, parse_location
from lastgood.storage.writing import open_writable

StepT = TypeVar("StepT", MoveStep, StateStep | BringStep)

_RUNS = (Outcome.STARTS.value, Outcome.RESUMES.value, Outcome.RERUNS.value)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is wanted, and where to look."""

    goal: str = "resume"
    where: StartChoice = field(default_factory=StartChoice)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    accept: tuple[Waiver, ...] = ()
    spark: str | None = None
    """The version that will start; None: the newest that can read the logs."""
    fail_on_data_loss: bool = True
    """As the query's Kafka source has it."""
    prove: bool = False
    """Whether real Spark is to show on a copy of the logs what it does then."""
    via: StartFile | None = None
    """`fresh`: the file that tells the application where to start; None: the checkpoint tells it."""
    windows: WindowChoice = field(default_factory=WindowChoice)
    """`recompute`: what a person says of the windows of the query."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """`recompute`: how the state is to be kept from then on, as `make_conf` gives it."""
    takes_any_number: bool = False
    """With `via`: whether no sink goes by the numbers of batches, also of those that nobody can ask."""
    named: StartFile | None = None
    """The same file, whatever is wanted, as the caller's own policy names it; None: as `lastgood.toml` does."""

    def words(self) -> tuple[str, ...]:
        """All of it as words of a command line, without what is accepted."""
        return (*self.goal_words(), *self.start_words(), *self.evidence.words())

    def start_words(self) -> tuple[str, ...]:
        """What was said of the Spark that will start."""
        return list_start_words(self.spark, fail_on_data_loss=self.fail_on_data_loss)

    def goal_words(self) -> tuple[str, ...]:
        """The goal, and where to start."""
        words: list[str] = []
        if self.goal != "resume":
            words += ("--goal", self.goal)
        if self.via is not None:
            words += ("--via", "app-config", *self.via.words())
        words += self.where.words()
        words += (*self.windows.words(), *list_conf_words(self.conf))
        if self.takes_any_number:
            words.append("--takes-any-number")
        return tuple(words)


def make_plan(
    target: Target,
    options: PlanOptions | None = None,
    *,
    rebuilt: RebuiltState | None = None,
    tell: Tell = lambda _: None,
) -> Plan:
    """Plan how a query is to run again; nothing is changed.

    Args:
        target: Which query.
        options: What is wanted.
        rebuilt: State that was made anew beside the checkpoint, and takes the place of what is there.
        tell: Is told, in a few words, what takes time.

    Raises:
        PlanDisprovedError: Spark does something else than the plan promises.
        ExtraMissingError, JavaMissingError: so, if it is to be proven.
        RepairRefusedError: it cannot be done in a way of which anything can be promised; it says why.
        RecoveryOpenError: another repair was begun here, and neither finished nor taken back.
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        UsageError: an option is not understood (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    options = options or PlanOptions()
    prover = Prover.here() if options.prove else None
    found = survey(
        target,
        evidence=options.evidence,
        spark=options.spark,
        fail_on_data_loss=options.fail_on_data_loss,
        may_be_missing=is_begun_anew(options.goal),
    )
    found = add_wanted(found, options.goal_words(), options.accept)
    require_no_open(found.storage, found.location, found.seen.asked, target.config)
    found = _add_start_file(found, options.via or options.named or target.policy.via)
    is_emptied = GOAL_KINDS[options.goal].begins is Begins.WITHOUT_STATE
    found = add_repair_facts(found, reads_all_again=is_emptied, rebuilt=rebuilt)

    def scan(event_time: str, since_ms: int) -> Mapping[str, str]:
        return find_open_starts(found, event_time, since_ms, options.evidence.of(target), tell)

    goal = _choose_goal(options, found, scan)
    drafted = _add_seeds(draft(found.seen, goal, found.spark), goal, found)
    plan = _complete_plan(found, goal, drafted, options)
    return plan if prover is None else prover.prove(plan, found, tell)


def _add_start_file(found: OpenQuery, named: StartFile | None) -> OpenQuery:
    """The same, knowing whether the application is still told where to begin on a checkpoint that was left behind.

    What lies beside the checkpoint never says which file is opened: only one that is named here is.

    Raises:
        StorageError: the file cannot be read (subclasses).
    """
    left = found.seen.left
    if left is None or named is None or (named.form, named.key) != (left.file.form, left.file.key):
        return found
    file = parse_location(named.location)
    if file.identity != parse_location(left.file.location).identity:
        return found
    content = open_storage(file).read(file, limit=LOG_BYTES_MAX)
    says = left.file.says(content, _merge_starts(left))
    return replace(found, seen=replace(found.seen, left=replace(left, says=says)))


def _choose_goal(options: PlanOptions, found: OpenQuery, scan: Callable[[str, int], Mapping[str, str]]) -> Goal:
    where, kind = options.where, GOAL_KINDS[options.goal]
    if options.via is not None and kind.begins is not Begins.ANEW:
        raise UsageError(f"{options.goal} goes on with the checkpoint", subject="--via", expected="--goal fresh")
    if where.is_of_sink and kind.begins is not Begins.ANEW:
        raise UsageError(f"{options.goal} does not start where a sink says", expected="--goal fresh")
    of_state = (*options.windows.words(), *list_conf_words(options.conf))
    if of_state and kind.begins is not Begins.WITHOUT_STATE:
        raise UsageError(f"{options.goal} keeps the state", subject=of_state[0], expected="--goal recompute")
    if kind.begins in (Begins.BY_ITSELF, Begins.WITHOUT_STATE):
        if where.is_chosen or where.only or where.source:
            raise UsageError(f"{options.goal} chooses its own offsets", expected="--goal reposition or fresh")
        if kind.begins is Begins.WITHOUT_STATE:
            rereading = choose_rereading(options.windows, found, scan=scan)
            windows = options.windows
            return replace(rereading, conf=options.conf, max_replay=windows.max_replay, output_mode=windows.output_mode)
        return kind.make()
    if kind.begins is Begins.WHERE_CHOSEN:
        return kind.make(*choose_offsets(where, found))
    if options.via is not None:
        left, asked = found.seen.left, (*options.goal_words(), *options.start_words())
        if left is not None and left.says and (not where.is_chosen or asked == left.asked):
            # The same once more, before a batch was planned: it is done already, and no log is left to do it by.
            goal = FreshGoal(left.starts, f"recovery {left.recovery} said")
        else:
            goal = make_seed(found, where if where.is_chosen else StartChoice(at_sink=True))
        file = str(parse_location(options.via.location))  # whoever reads the plan may stand in another folder
        via = replace(options.via, location=file)
        return replace(goal, via=via, takes_any_number=options.takes_any_number)
    return make_seed(found, where) if where.is_chosen else choose_seed(found)


def _add_seeds(drafted: Draft, goal: Goal, found: OpenQuery) -> Draft:
    """The draft of `fresh` with the other seeds that there are, if it is not exact anyway."""
    if not isinstance(goal, FreshGoal) or drafted.guarantee is Guarantee.EXACTLY_ONCE:
        return drafted
    others = list_alternatives(found.seen, list_other_seeds(found, goal), found.spark)
    return replace(drafted, alternatives=rank_alternatives((*others, *drafted.alternatives)))


def _complete_plan(found: OpenQuery, goal: Goal, drafted: Draft, options: PlanOptions) -> Plan:
    """A plan from a draft: what the files are that it touches, how they are sealed, and what Spark will do then."""
    storage, location = found.storage, found.location
    contents = _read_all(found, [*(edit.path for edit in drafted.edits), *drafted.guards, METADATA])
    edits = [edit for edit in drafted.edits if contents[edit.path] != edit.after]
    for each in edits:
        _require_held(location / each.path, contents[each.path], each.after)
    steps: tuple[Step, ...] = sort_steps(
        [
            *(FileStep(each.path, compute_digest(contents[each.path]), each.after, each.why) for each in edits),
            *_measure_moves(found, drafted.moves),
            *_measure_moves(found, drafted.renewed),
            *make_sink_steps(drafted.sinks),
            *([] if drafted.start is None else make_start_steps(drafted.start, location)),
        ]
    )
    then = show_after(storage, location, steps)
    promise = make_promise(take_sinks_back(found, drafted.sinks), then)
    _require_run(found, promise, replace(observe_through(found, then), sinks=_predict_sinks(found, drafted)))
    if not steps:
        _require_served(found, then, promise)
    position = locate(found.seen.checkpoint, found.seen.sinks)
    touched = {step.path for step in steps}
    guarded = {*drafted.guards, METADATA} - touched if steps else set()
    at_ms = read_clock_ms()
    plan = Plan(
        recovery=make_id(at_ms),
        goal=goal.name,
        options={
            **goal.to_json(),
            **_reckon_start(found, drafted, options, then, promise),
            **collect_topic_ids(found.seen),
            ASKED: [*options.goal_words(), *options.start_words()],
            **_describe_left_behind(found, drafted),
        },
        checkpoint=str(location),
        query_id=found.query_id,
        guarantee=drafted.guarantee,
        rests_on=(*drafted.rests_on, *_list_taken_for_granted(found), *_list_still_to_come(found)),
        needs=list_needs(drafted, options.accept),
        accepted=options.accept,
        position=position.to_json(),
        promise=promise,
        sources=drafted.sources,
        sinks=describe_sinks(found),
        evidence=found.asked.words(),
        steps=steps,
        alternatives=drafted.alternatives,
        made_at_ms=at_ms,
        made_by=__version__,
    )
    if not steps:
        return plan
    folders = list_log_folders(storage, location)
    return replace(
        plan,
        seal=list_seal_files(position.planned, position.committed, _find_newest_planned(then, found)),
        listings={folder: compute_listing_digest(storage, location / folder, folder) for folder in folders},
        guards={path: compute_digest(contents[path]) for path in sorted(guarded)},
    )


def _list_taken_for_granted(found: OpenQuery) -> list[str]:
    """What a promise rests on of sources that nobody was asked about, though they could be; one line each."""
    seen = found.seen
    rate = [f"the assumption that {each}" for each in list_taken_for_rate(seen)]
    return [*list_taken_for_kafka(seen, found.initial), *list_taken_for_tables(seen), *rate]


def _reckon_start(
    found: OpenQuery, drafted: Draft, options: PlanOptions, then: Storage, promise: Promise
) -> dict[str, Any]:
    """How the query is started, and what it will not find then without a word."""
    told = starts_at = left_out = None
    if drafted.start is not None:
        told, starts_at = drafted.start.offsets, offsets_to_json(drafted.start.offsets)
    elif options.fail_on_data_loss:
        return {"fail_on_data_loss": True}
    missing = find_left_out(take_sinks_back(found, drafted.sinks), then, promise, told)
    if missing is not None:
        left_out = list(missing)
    return {"fail_on_data_loss": options.fail_on_data_loss, "left_out": left_out, "starts_at": starts_at}


def _list_still_to_come(found: OpenQuery) -> tuple[str, ...]:
    """What the newest recovery costs, where its first batch is not committed yet: this plan does not count it."""
    storage, committed = open_writable(found.location), found.seen.checkpoint.last_committed
    done = list_recoveries(storage, found.location)
    if not done:
        return ()
    room = Room(found.location, done[-1], storage)
    try:
        before = room.plan() if room.stage() is RecoveryStage.CLOSED else None
    except (PlanInvalidError, RecoveryUnknownError):  # then there is nothing that it is known to cost
        return ()
    if before is None or before.guarantee is Guarantee.EXACTLY_ONCE or before.promise.batch is None:
        return ()
    if committed is not None and committed >= before.promise.batch:
        return ()
    return (f"recovery {done[-1]}, which is {before.guarantee.value}: what it costs is not counted here",)


def _describe_left_behind(found: OpenQuery, drafted: Draft) -> dict[str, Any]:
    """What tells later whether a query has begun on the checkpoint that is left behind; or where it begins on one."""
    left = found.seen.left
    if drafted.start is not None:
        return {MARKS: collect_marks(found.seen.sinks, found.query_id)}
    if left is None or drafted.edits:
        return {}
    offsets = {source_id: offsets_to_json(each) for source_id, each in left.starts.items()}
    has_begun = None if list_untold_sinks(found.seen) or not found.seen.sinks else False
    return {
        "left_by": left.recovery,
        "has_begun": has_begun,
        "offsets": offsets,
        "starts_at": offsets_to_json(_merge_starts(left)),
    }


def list_needs(drafted: Draft, accepted: tuple[Waiver, ...]) -> tuple[Waiver, ...]:
    """What a person still has to accept; not that Spark's own restart may write a batch twice, as it always may."""
    duplicates = any(source.writes_twice for source in drafted.sources)
    wanted = list_waivers_needed(drafted.guarantee, accepted, duplicates=duplicates)
    return tuple(each for each in wanted if each is Waiver.LOSS) if drafted.is_plain else wanted


def _measure_moves(found: OpenQuery, moves: Iterable[StepT]) -> Iterable[StepT]:
    """The same with the size of each file that is set aside: a listing does not tell it of every one."""
    for step in moves:
        entry = found.storage.stat(found.location / step.path)
        yield step if entry is None or entry.size is None else replace(step, size=entry.size)


def _find_newest_planned(then: Storage, found: OpenQuery) -> int | None:
    return find_newest_batch(then.names(found.location / OFFSETS) or ())


def _predict_sinks(found: OpenQuery, drafted: Draft) -> tuple[SinkEvidence, ...]:
    """What the sinks show of the query as it will be: under another id they may know nothing of it."""
    observed = take_sinks_back(found, drafted.sinks).seen
    query = next((each for each in drafted.edits if each.path == METADATA), None)
    if query is None:
        return observed.sinks
    renamed = None if query.after is None else parse_query_metadata(query.after)
    query_id = renamed.query_id if isinstance(renamed, QueryMetadata) else ""
    return see_as(observed, query_id, asked_as=found.query_id).sinks


def _require_run(found: OpenQuery, promise: Promise, then: Observation) -> None:
    """See that Spark runs in the end, and that no sink drops what it writes next; `then` is as the plan leaves it."""
    if promise.outcome not in _RUNS:
        raise RepairRefusedError(
            "no repair is known after which Spark would run",
            subject=str(found.location),
            found=promise.because,
            effect="nothing has been changed",
            next=found.seen.command("diagnose"),
        )
    for view in make_views(then):
        if view.next_new in view.would_drop:  # what it does with a batch that runs again, the word of the plan says
            raise _refuse_to_be_dropped(found, view)


def _refuse_to_be_dropped(found: OpenQuery, view: SinkView) -> RepairRefusedError:
    sink, name = view.sink, view.sink.presumed_app_id or next(iter(view.possible_names), None)
    told = f"it skips batches up to {view.marked}, and the next new one is {view.next_new}"
    if name is not None:
        return RepairRefusedError(
            "the sink may drop the next batch without a word",
            subject=sink.location,
            found=f"{told}, if the query writes there as {name}",
            expected="--txn-app-id NAME, under which the query writes",
            effect="nothing has been changed",
            next=found.seen.make_plan_command("--txn-app-id", name),
        )
    would = "would" if sink.skips_known else "may"
    return RepairRefusedError(
        f"the sink {would} drop the next batch without a word",
        subject=sink.location,
        found=told,
        effect="nothing has been changed",
        next=found.seen.command("diagnose"),
    )


def _require_served(found: OpenQuery, then: Storage, promise: Promise) -> None:
    """See that Kafka still has what the application is told to read on a checkpoint that was left behind for it."""
    left = found.seen.left
    if left is None:
        return
    missing = find_left_out(found, then, promise, _merge_starts(left))
    if missing:
        raise RepairRefusedError(
            "records have expired since the checkpoint was left behind, where the application is told to begin",
            subject=left.file.location,
            found=", ".join(missing),
            expected=f"all that recovery {left.recovery} let it read",
            effect="the start would fail, or leave them out without a word",
            next=found.seen.make_undo_command(left),
        )


def _merge_starts(left: LeftBehind) -> Offsets:
    return {topic: parts for each in left.starts.values() for topic, parts in each.items()}


def _require_held(file: Location, *contents: bytes | None) -> None:
    """See that a file can be held whole, as it is and as it is to be: of a longer one a part would be kept for all."""
    longest = max(len(content or b"") for content in contents)
    if longest >= LOG_BYTES_MAX:
        raise RepairRefusedError(
            "a file of the logs is too long to be put in its place, or set aside",
            subject=str(file),
            found=f"{LOG_BYTES_MAX:,} bytes or more",
            expected="less",
            effect="nothing has been changed",
        )


def _read_all(found: OpenQuery, paths: Iterable[str]) -> dict[str, bytes | None]:
    storage, wanted = found.storage, list(dict.fromkeys(paths))
    with open_threads(storage) as pool:
        contents = pool.map(lambda path: storage.read(found.location / path, limit=LOG_BYTES_MAX), wanted)
        return dict(zip(wanted, contents, strict=True))
