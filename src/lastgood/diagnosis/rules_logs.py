"""What is wrong with the logs of a checkpoint: offsets, commits, `metadata`, and the logs of its sources. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.logs import BatchLog, LogListing
from lastgood.checkpoint.offsets import SHUFFLE_PARTITIONS, OffsetEntry, SourceLine
from lastgood.checkpoint.source_offsets import TextOffset, VoidOffset
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.edited_plans import find_edited_ends
from lastgood.query.observation import Observation, make_removal_command
from lastgood.query.prediction.file_source import name_next
from lastgood.query.prediction.restart import Outcome, Restart
from lastgood.query.prediction.source_replay import list_unasked_sources
from lastgood.query.sink_batches import find_planned_anew

_IDS_SHOWN = 20
_DAY_MS = 24 * 60 * 60 * 1000

ORPHAN_BATCH = Condition(
    "ORPHAN_BATCH",
    Severity.WARNING,
    "a batch is planned and not committed",
    """\
Spark writes the plan of a batch (`offsets/N`) before it reads any data, and its commit (`commits/N`) after the sink is
done. Between the two the batch is running, or the query died in it: on disk both look the same.

The next start runs exactly that batch again: with its recorded range, its time and its pinned settings. New limits such
as `maxOffsetsPerTrigger` do not make it smaller. A sink that recognises a batch by its number (Delta, the file sink)
takes it once; any other gets its rows again.

If the query runs, all is well. If it is dead, start it: nothing is lost by that, where no `SINK_WOULD_SKIP` is told
beside it, and its sources still have what the batch reads, which a socket never has. If it dies of the batch at every
start, since it is too large for memory, disk or time, give it more, or drop the plan: `lastgood plan TARGET --goal
replan` says what that costs, and the batch is planned anew with today's limits.""",
)
COMMITS_AHEAD = Condition(
    "COMMITS_AHEAD",
    Severity.ERROR,
    "commits are ahead of offsets",
    """\
A batch is committed that the offset log does not know. Spark never leaves that behind; it comes from deleting files of
`offsets` by hand, or from a copy that was taken file by file while the query ran.

Spark takes the newest plan for one that is not finished: it sends that batch through the sink once more, and only then
fails, because its commit is there already (`CONCURRENT_STREAM_LOG_UPDATE`). It does so at every start, so a supervisor
that restarts the query writes the same rows again and again. Spark 4.2 and later refuse at once if no plan is left.

Do not start the query. Put the missing plans back; the mirror has them if one was kept.""",
)
UNCOMMITTED_BATCHES_SKIPPED = Condition(
    "UNCOMMITTED_BATCHES_SKIPPED",
    Severity.ERROR,
    "planned batches without a commit will be skipped",
    """\
Two or more of the newest plans have no commit. Spark runs only the newest of them again; those below it are treated as
done, with no more than a warning in the log.

If only their commits were lost, nothing is missing. If the batches themselves were never written, their rows are lost
without a message. Look at what the sink shows before the query is started.

`lastgood plan CHECKPOINT --goal replan` drops all of them and has their range read anew: exactly once where the sinks
are named and known to lack them.""",
)
OFFSET_LOG_GAP = Condition(
    "OFFSET_LOG_GAP",
    Severity.ERROR,
    "the plan before the newest one is missing",
    """\
Where a batch begins is written nowhere but in the plan before it. Spark reads the two newest plans at every start, and
fails if they do not follow each other (`batch N doesn't exist`, `Previous batch N not found in offset log`).

Put the missing plan back from the mirror or a backup. Deleting the newest plan makes the query start, but reads again
what was planned since.""",
)
LOG_HOLE = Condition(
    "LOG_HOLE",
    Severity.INFO,
    "a log has a hole below its newest entries",
    """\
An entry further down is missing. Spark reads only the newest two plans and the newest commit, so it does not notice.
The hole matters to whoever wants to go back to an older batch, and it shows that somebody or something removes files:
a lifecycle rule of the object store, a clean-up script, a hand.""",
)
OFFSET_LOG_DAMAGED = Condition(
    "OFFSET_LOG_DAMAGED",
    Severity.ERROR,
    "a plan cannot be read",
    """\
An entry of the offset log is empty, cut short or not what Spark writes. An empty file is what a full disk or a crash
leaves; it is also how a sealed checkpoint looks. Spark stops at the newest two plans if they are damaged; further down
it never looks.

The mirror, a backup or the records of the query hold the original. Deleting a damaged newest plan that is not committed
makes Spark plan it again, with another range perhaps.""",
)
COMMIT_LOG_DAMAGED = Condition(
    "COMMIT_LOG_DAMAGED",
    Severity.ERROR,
    "a commit cannot be read",
    """\
An entry of the commit log is empty, cut short or not what Spark writes. Spark reads the newest one at each start and
stops if it cannot; others it never reads.

A commit tells that the sink was done. If the sink shows the batch, the commit can be written anew; if it does not, the
batch has to run again.""",
)
LOG_VERSION_UNREADABLE = Condition(
    "LOG_VERSION_UNREADABLE",
    Severity.ERROR,
    "a log is of a version that this Spark does not read",
    """\
The first line of each entry names its version. A newer Spark may write one that an older does not read; Spark 4.0 and
4.1 even insist that commits have the very version that `spark.sql.streaming.stateStore.checkpointFormatVersion` asks
for. Start the query with the Spark, and with the setting, that wrote the log.""",
)
LOG_NAME_NOT_CANONICAL = Condition(
    "LOG_NAME_NOT_CANONICAL",
    Severity.WARNING,
    "a log holds a name that Spark lists and cannot open",
    """\
Spark takes every name that reads as a number for a batch, also `006` or `+6`, and then opens the file `6`. If such a
name is the newest, no start succeeds (`File …/6 does not exist`). It comes from copying or renaming by hand.""",
)
STALE_CHECKSUM_FILE = Condition(
    "STALE_CHECKSUM_FILE",
    Severity.WARNING,
    "a checksum file was left over",
    """\
On a local disk Hadoop keeps a `.N.crc` beside each file. Whoever deletes or edits a log by hand leaves it behind.

Reading is not disturbed. But when Spark writes the entry N anew, the old checksum file is in its way: the query stops
with `Multiple streaming queries are concurrently using …`, though there is no second query. Remove the `.crc`.""",
)
NAME_TAKEN = Condition(
    "NAME_TAKEN",
    Severity.ERROR,
    "a folder stands where the next entry of a log belongs",
    """\
Spark cannot write its next entry and takes the folder for the work of another query (`CONCURRENT_STREAM_LOG_UPDATE`).
Move the folder away.""",
)
QUERY_ID_LOST = Condition(
    "QUERY_ID_LOST",
    Severity.ERROR,
    "the query has lost its id",
    """\
The file `metadata` is gone or unreadable. It holds the id by which Delta and Iceberg recognise the batches of a query.

Spark 4.2 and later refuse to start (`STREAMING_CHECKPOINT_MISSING_METADATA_FILE`). Older ones make up a new id without
a word and go on: from then on the sink takes an old batch for a new one and writes its rows a second time.

The old id stands in the mirror, in the table's own log (`txn`, `queryId`) and in the driver's log.""",
)
PLAN_EDITED = Condition(
    "PLAN_EDITED",
    Severity.WARNING,
    "a plan is not as Spark wrote it, or nobody can tell",
    """\
The next batch begins where this one ends. If its end was moved by hand, what lies between was read by no batch, or is
read twice, and nothing fails.

The mirror saw it with another end and the same time: a plan that a driver makes anew has a time of its own. Or it lacks
the checksum (`.N.crc`) that Hadoop writes beside every file on a local disk, while the plans before and the commit have
theirs: Spark fails on a file that does not fit its checksum, so whoever edits one removes that. No recovery of lastgood
wrote this plan.

A mirror, or a backup that is older than the edit, tells what was planned. `plan --goal reposition` chooses where the
query goes on.""",
)
REPARTITION_UNFINISHED = Condition(
    "REPARTITION_UNFINISHED",
    Severity.ERROR,
    "a repartition of the state was not finished",
    """\
The newest plan changes the number of state partitions and is not committed. Spark 4.2 and later refuse to go on
(`STREAMING_UNFINISHED_REPARTITION_DETECTED`). Spark's own repartition leaves this behind when it refuses half way, for
example on the HDFS-backed state store. Run it again to its end, or remove the plan that it has written.""",
)
WATERMARK_IN_FUTURE = Condition(
    "WATERMARK_IN_FUTURE",
    Severity.WARNING,
    "the watermark is ahead of the clock",
    """\
Rows older than the watermark are dropped as late, and a watermark never goes back. One that is more than a day ahead of
the time at which the batch was planned comes from an event time in the future, or from a commit that was edited:
windows close at once, and every row on time is dropped until the clock has caught up.""",
)
PROGRESS_SPARSE = Condition(
    "PROGRESS_SPARSE",
    Severity.INFO,
    "the query writes its progress now and then",
    """\
Both logs hold the same few batches: asynchronous progress tracking. Holes that both have are normal there. After a
crash everything since the last entry runs again as one batch: at least once. Restarted without the option, the query
fails, since the batch before the newest was never written down. lastgood reads and predicts such a query and does not
repair it.""",
)
CONTINUOUS_MODE = Condition(
    "CONTINUOUS_MODE",
    Severity.INFO,
    "the query runs in continuous mode",
    """\
Its numbers are epochs, written after the fact, and its plans have no metadata. A start goes on after the newest commit
and removes later plans. lastgood reads and predicts such a query and does not repair it.""",
)
FOREIGN_FILES = Condition(
    "FOREIGN_FILES",
    Severity.INFO,
    "there are files that are none of Spark's logs",
    """\
Spark itself does not look at them. A source may: Delta keeps the schema of a table that it reads where
`schemaTrackingLocation` says, which is in the checkpoint. Else they show that somebody works in it by hand, or that two
share it.

There is one exception: Spark 4.1 and later begin at batch 0 only if `offsets`, `commits` and `state` are empty, and
count left-over `.tmp` files too (`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`). Move them away if the query is to begin
anew.""",
)
CONDITIONS = (
    COMMITS_AHEAD,
    UNCOMMITTED_BATCHES_SKIPPED,
    ORPHAN_BATCH,
    OFFSET_LOG_GAP,
    OFFSET_LOG_DAMAGED,
    COMMIT_LOG_DAMAGED,
    LOG_VERSION_UNREADABLE,
    LOG_NAME_NOT_CANONICAL,
    STALE_CHECKSUM_FILE,
    NAME_TAKEN,
    QUERY_ID_LOST,
    PLAN_EDITED,
    REPARTITION_UNFINISHED,
    WATERMARK_IN_FUTURE,
    LOG_HOLE,
    PROGRESS_SPARSE,
    CONTINUOUS_MODE,
    FOREIGN_FILES,
)


def find_logs(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about the logs, by what a start would make of them."""
    checkpoint = observed.checkpoint
    yield from _check_query_id(observed, restart)
    yield from _check_modes(observed)
    if checkpoint.mode is not Mode.CONTINUOUS:
        yield from _check_relation(observed, restart)
    if checkpoint.mode is Mode.MICRO_BATCH:
        yield from _check_holes(observed)
    yield from _check_offset_entries(observed, restart)
    yield from _check_edited(observed)
    yield from _check_newest_commits(observed, restart)
    yield from _check_names(observed)
    yield from _check_left_over(observed)
    yield from _check_watermark(observed)
    yield from _check_not_empty(observed, restart)
    if checkpoint.foreign:
        shown = [name for name in checkpoint.foreign if name != ".metadata.crc"]
        if shown:
            yield Finding(
                FOREIGN_FILES,
                ", ".join(shown[:3]),
                "Spark itself does not look at them; a source may.",
                {"names": shown[:_IDS_SHOWN]},
            )


def _check_not_empty(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """What keeps Spark 4.1 and later from beginning at batch 0, where there is neither plan nor commit."""
    listings = dict(_collect_listings(observed.checkpoint))
    logs = {folder: listing for folder, listing in listings.items() if listing.newest_listed is None}
    folder = restart.stop.subject if restart.stop else ""
    if restart.error == "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" and folder in logs:
        names = [f"{folder}/{name}" for name in (*logs[folder].foreign, *logs[folder].temporary)]
        effect = f"Spark {restart.spark} refuses to begin at batch 0 while {folder} is not empty."
        evidence = {"names": names[:_IDS_SHOWN]}
        yield Finding(FOREIGN_FILES, names[0], effect, evidence, observed.command("verify"), Severity.ERROR)


def _check_query_id(observed: Observation, restart: Restart) -> Iterator[Finding]:
    found = observed.checkpoint.query
    has_batches = observed.checkpoint.last_planned is not None or observed.checkpoint.last_committed is not None
    if isinstance(found, Damage):
        effect = "The query cannot start: its first step is to read this file."
    elif found is None and has_batches:
        if restart.error == "STREAMING_CHECKPOINT_MISSING_METADATA_FILE":
            effect = f"Spark {restart.spark} refuses to start."
        else:
            effect = (
                f"Spark {restart.spark} makes up a new id: a Delta or Iceberg sink will not recognise what it has, and"
                " takes the rows of a batch that runs again twice."
            )
    else:
        return
    evidence = {"metadata": str(found) if found else "not there"}
    yield Finding(QUERY_ID_LOST, "metadata", effect, evidence, observed.command("plan"))


def _check_modes(observed: Observation) -> Iterator[Finding]:
    mode = observed.checkpoint.mode
    if mode is Mode.ASYNC_PROGRESS:
        effect = "After a crash, what was read since the newest entry runs again as one batch."
        ids = list(observed.checkpoint.commits.ids.last(_IDS_SHOWN))
        yield Finding(PROGRESS_SPARSE, "offsets, commits", effect, {"batches": [*ids]})
    elif mode is Mode.CONTINUOUS:
        yield Finding(CONTINUOUS_MODE, "offsets", "A start goes on after the newest committed epoch.")


def _check_relation(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """How plans and commits stand to each other."""
    checkpoint = observed.checkpoint
    planned, committed = checkpoint.offsets.listing.newest_listed, checkpoint.commits.listing.newest_listed
    if committed is not None and (planned is None or committed > planned):
        missing = range(0 if planned is None else planned + 1, committed + 1)
        again = restart.outcome is Outcome.FAILS_AFTER_SINK
        if again:
            effect = f"Every start sends batch {restart.batch} through the sink again and then fails."
        elif restart.outcome is Outcome.FAILS:
            effect = "The query cannot start."
        else:
            effect = "Batches will run a second time."
        evidence = {"last_planned": planned, "last_committed": committed, "missing": _take_some(missing)}
        yield Finding(COMMITS_AHEAD, f"commits/{committed}", effect, evidence, observed.command("plan"))
        return
    if planned is None or committed == planned:
        return
    below = range(0 if committed is None else committed + 1, planned)
    if checkpoint.is_done_below_newest:
        skipped = []
    else:
        skipped = list(checkpoint.offsets.ids.within(below))
    evidence = {"last_planned": planned, "last_committed": committed}
    subject = f"offsets/{planned}"
    if skipped:
        passed = f"Batch {skipped[0]} is"
        if len(skipped) > 1:
            passed = f"Batches {_format_span(skipped)} are"
        effect = f"Only batch {planned} runs again. {passed} treated as done, whatever the sink has."
        command = observed.command("inspect", "--batch", str(skipped[0]))
        found = {**evidence, "skipped": _take_some(skipped)}
        yield Finding(UNCOMMITTED_BATCHES_SKIPPED, f"commits/{skipped[0]}", effect, found, command)
    if restart.outcome is Outcome.RERUNS:
        anew = observed.command("plan", "--goal", "replan")
        effect = (
            f"If the query is running, that is the batch it is at. A start runs batch {planned} again with its recorded"
            f" range; {_describe_cost_of_rerun(observed)}. If it fails at every start since it is too large,"
            f" `{anew}` has it planned anew with today's limits."
        )
        command = observed.command("inspect", "--batch", str(planned))
    else:
        effect = f"Batch {planned} is not finished, and a start cannot finish it as things stand."
        command = observed.command("plan")
    yield Finding(ORPHAN_BATCH, subject, effect, evidence, command)


def _describe_cost_of_rerun(observed: Observation) -> str:
    """What is lost where the newest batch runs again, as far as anybody knows."""
    anew = [find_planned_anew(observed.checkpoint, sink) for sink in observed.sinks]
    if any(anew):
        return "what comes of that is told of the sink"
    unasked = list_unasked_sources(observed)
    gone = [each.title for each in unasked if each.is_lost_with_driver]
    if gone:
        return f"what {' and '.join(gone)} had brought for it is gone"
    is_vouched_for = all(each.is_vouched_for for each in unasked)
    is_told = bool(observed.sinks) and all(sink.known for sink in observed.sinks)
    provided = []
    if not (observed.fail_on_data_loss and is_vouched_for):
        provided.append("its sources still have what it reads")
    if not is_told:
        provided.append("no sink has another batch of that number")
    if not provided:
        return "nothing is lost by that"
    return f"nothing is lost by that if {' and '.join(provided)}"


def _check_holes(observed: Observation) -> Iterator[Finding]:
    offsets, commits = observed.checkpoint.offsets, observed.checkpoint.commits
    newest = offsets.newest
    if newest and newest - 1 not in offsets.ids and newest == offsets.listing.newest_listed:
        effect = "The query cannot start: where its newest batch begins is not known."
        found = {"last_planned": newest, "missing": newest - 1}
        yield Finding(OFFSET_LOG_GAP, f"offsets/{newest - 1}", effect, found, observed.command("plan"))
    for log in (offsets, commits):
        top = log.newest or 0
        if log is offsets:
            top -= 1
        missing = [batch_id for gap in log.ids.gaps for batch_id in gap[:_IDS_SHOWN] if batch_id < top]
        if log is commits and offsets.newest is not None:
            missing = [batch_id for batch_id in missing if batch_id < offsets.newest]
        if missing:
            effect = "A start does not notice; going back to these batches is not possible."
            yield Finding(LOG_HOLE, f"{log.folder}/{missing[0]}", effect, {"missing": _take_some(missing)})


def _check_offset_entries(observed: Observation, restart: Restart) -> Iterator[Finding]:
    log = observed.checkpoint.offsets
    newest = log.newest
    read = {newest, None if newest is None else log.ids.before(newest)}
    for batch_id, entry in sorted(log.entries.items(), reverse=True):
        subject = f"offsets/{batch_id}"
        is_blamed = restart.stop is not None and restart.stop.subject == subject
        is_blank = isinstance(entry, Damage) and entry.kind is DamageKind.BLANK_METADATA_LINE
        # Of the plan before the newest one Spark needs no metadata, except to look for a repartition.
        if is_blank and batch_id != newest:
            stops = is_blamed
        else:
            stops = batch_id in read
        effect = "The query cannot start." if stops else "A start does not read it; going back to this batch is lost."
        command = observed.command("plan")
        if isinstance(entry, Damage):
            level = Severity.ERROR if stops else Severity.INFO
            evidence = {"damage": entry.kind.value, "found": entry.found, "line": entry.line}
            condition = LOG_VERSION_UNREADABLE if entry.kind is DamageKind.VERSION_TOO_NEW else OFFSET_LOG_DAMAGED
            yield Finding(condition, subject, effect, evidence, command, level)
        elif is_blamed and restart.stop and "log version" in restart.stop.error:
            evidence = {"version": entry.version, "spark": str(restart.spark)}
            yield Finding(LOG_VERSION_UNREADABLE, subject, effect, evidence, observed.command("diagnose"))
        elif stops and (wrong := [line for line in entry.sources if _is_no_offset(line, log)]):
            evidence = {"damage": DamageKind.NOT_JSON.value, "found": wrong[0].text, "source": wrong[0].source_id}
            yield Finding(OFFSET_LOG_DAMAGED, subject, effect, evidence, command)
        elif is_blamed and restart.batch is None and SHUFFLE_PARTITIONS not in entry.conf:
            evidence = {"damage": DamageKind.UNEXPECTED_JSON.value, "missing": SHUFFLE_PARTITIONS}
            yield Finding(OFFSET_LOG_DAMAGED, subject, effect, evidence, command)
    newest_entry = log.newest_entry
    if restart.error == "STREAMING_UNFINISHED_REPARTITION_DETECTED" and isinstance(newest_entry, OffsetEntry):
        command = observed.command("inspect", "--batch", str(newest))
        yield Finding(REPARTITION_UNFINISHED, f"offsets/{newest}", "The query cannot start.", {}, command)


def _check_edited(observed: Observation) -> Iterator[Finding]:
    edited = {each.batch_id: each.is_known for each in find_edited_ends(observed)}
    for batch_id, is_known in edited.items():
        effect = f"The next batch begins where batch {batch_id} ends, which is not where it ended."
        if not is_known:
            effect = f"The next batch begins where batch {batch_id} ends, which may not be where it ended."
        command = observed.command("inspect", "--batch", str(batch_id))
        evidence = {"batch": batch_id, "told_by": "mirror" if is_known else "checksum"}
        yield Finding(PLAN_EDITED, f"offsets/{batch_id}", effect, evidence, command)


def _is_no_offset(line: SourceLine, log: BatchLog[OffsetEntry]) -> bool:
    """Whether a line is text, where the same source has offsets that can be read in other plans."""
    if not isinstance(line.offset, TextOffset):
        return False
    plans = (entry for entry in log.entries.values() if isinstance(entry, OffsetEntry))
    others = (plan.source(line.source_id) for plan in plans)
    return any(other and not isinstance(other.offset, TextOffset | VoidOffset) for other in others)


def _check_newest_commits(observed: Observation, restart: Restart) -> Iterator[Finding]:
    log = observed.checkpoint.commits
    for batch_id, entry in sorted(log.entries.items(), reverse=True):
        subject = f"commits/{batch_id}"
        is_newest = batch_id == log.newest
        if isinstance(entry, Damage):
            level = Severity.ERROR if is_newest else Severity.INFO
            effect = "The query cannot start." if is_newest else "A start does not read it."
            evidence = {"damage": entry.kind.value, "found": entry.found, "line": entry.line}
            condition = LOG_VERSION_UNREADABLE if entry.kind is DamageKind.VERSION_TOO_NEW else COMMIT_LOG_DAMAGED
            command = observed.command("inspect", "--batch", str(batch_id))
            yield Finding(condition, subject, effect, evidence, command, level)
        elif restart.stop and restart.stop.subject == subject and restart.batch is None:
            evidence = {"version": entry.version, "spark": str(restart.spark)}
            effect = "The query cannot start with this Spark."
            yield Finding(LOG_VERSION_UNREADABLE, subject, effect, evidence, observed.command("diagnose"))


def _check_names(observed: Observation) -> Iterator[Finding]:
    checkpoint = observed.checkpoint
    for folder, listing in _collect_listings(checkpoint):
        for name, batch_id in listing.noncanonical.items():
            is_newest = batch_id == listing.newest_listed and batch_id not in listing.ids
            level = Severity.ERROR if is_newest else Severity.WARNING
            if is_newest:
                effect = f"The query cannot start: Spark takes it for the newest entry and opens {folder}/{batch_id}."
            else:
                effect = "Nothing as long as it is not the newest entry."
            subject, command = f"{folder}/{name}", observed.command("verify")
            yield Finding(LOG_NAME_NOT_CANONICAL, subject, effect, {"batch": batch_id}, command, level)


def _check_left_over(observed: Observation) -> Iterator[Finding]:
    checkpoint = observed.checkpoint
    blocked = "The query stops when it writes this entry, as if a second query were running."
    if ".metadata.crc" in checkpoint.foreign and observed.is_local:
        yield _make_stale(observed, ".metadata.crc", blocked, Severity.ERROR)
    for folder, listing in _collect_listings(checkpoint):
        due = _list_next_names(checkpoint, folder)
        for name in due:
            if f"{name}/" in listing.foreign:
                effect = "The query stops when it writes this entry."
                yield Finding(NAME_TAKEN, f"{folder}/{name}", effect, {}, observed.command("verify"))
        stale = [name for name in listing.stale_checksums if observed.is_local]
        blocking = [name for name in stale if name[1:-4] in due]
        for name in blocking:
            yield _make_stale(observed, f"{folder}/{name}", blocked, Severity.ERROR)
        others = [name for name in stale if name not in blocking]
        if others:
            effect = "Nothing yet; the query stops when it writes that entry."
            yield _make_stale(observed, f"{folder}/{others[0]}", effect, names=others[:_IDS_SHOWN])
    for log in (checkpoint.offsets, checkpoint.commits):
        for batch_id in log.checksum_damage:
            effect = (
                f"{log.folder}/{batch_id} was changed after Spark wrote it. Spark does not notice and goes by what it"
                " says now; tools that check it (`hadoop fs -cat`) fail."
            )
            yield _make_stale(observed, f"{log.folder}/.{batch_id}.crc", effect, fits=False)


def _make_stale(
    observed: Observation, name: str, effect: str, level: Severity | None = None, **evidence: object
) -> Finding:
    return Finding(STALE_CHECKSUM_FILE, name, effect, evidence, make_removal_command(observed.location, name), level)


def _list_next_names(checkpoint: Checkpoint, folder: str) -> list[str]:
    """Names of the entries that the next start writes into a log."""
    planned, committed = checkpoint.last_planned, checkpoint.last_committed
    if planned is None:
        following = 0
    else:
        following = planned + 1
    if folder == checkpoint.offsets.folder:
        return [str(following)]
    if folder == checkpoint.commits.folder:
        is_orphan = planned is not None and (committed is None or committed < planned)
        if is_orphan:
            return [str(planned), str(following)]
        return [str(following)]
    return [name_next(log) for log in checkpoint.sources if log.folder == folder]


def _check_watermark(observed: Observation) -> Iterator[Finding]:
    entry = observed.checkpoint.newest_offsets
    commit = observed.checkpoint.commits.newest_entry
    if entry is None or entry.metadata is None:
        return
    planned_ms = entry.metadata.batch_timestamp_ms
    watermark = entry.batch_watermark_ms
    if isinstance(commit, CommitEntry):
        watermark = max(watermark, commit.next_batch_watermark_ms)
    if planned_ms and watermark > planned_ms + _DAY_MS:
        effect = "Rows on time are dropped as late until the clock has caught up with the watermark."
        found = {"watermark_ms": watermark, "planned_ms": planned_ms}
        yield Finding(WATERMARK_IN_FUTURE, "watermark", effect, found, observed.command("inspect"))


def _collect_listings(checkpoint: Checkpoint) -> list[tuple[str, LogListing]]:
    logs: list[BatchLog[OffsetEntry] | BatchLog[CommitEntry]] = [checkpoint.offsets, checkpoint.commits]
    return [(log.folder, log.listing) for log in (*logs, *checkpoint.sources)]


def _take_some(ids: range | list[int]) -> list[int]:
    return list(ids[:_IDS_SHOWN])


def _format_span(ids: list[int]) -> str:
    if len(ids) == 1:
        return str(ids[0])
    return f"{ids[0]} to {ids[-1]}"
