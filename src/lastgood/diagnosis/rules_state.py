"""What is wrong with the state of a query. Pure.

Every condition that tells of state which cannot be loaded begins with `STATE_`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.state import Obstacle, State
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.prediction.skipping import find_version_loaded
from lastgood.query.prediction.spark_version import SPARK_4_1
from lastgood.query.prediction.state_load import (
    describe_loading,
    find_ended,
    find_operator,
    is_about_format,
    is_about_single_partition,
    is_about_skipping,
)
from lastgood.query.prediction.state_partitions import find_repinned, find_uncounted
from lastgood.query.prediction.unsound import Unsound
from lastgood.query.replays import can_rebuild
from lastgood.query.stale_snapshots import find_stale_snapshots
from lastgood.query.windows import can_make_anew

_SHOWN = 20

STATE_FILE_MISSING = Condition(
    "STATE_FILE_MISSING",
    Severity.ERROR,
    "a file of the state is missing",
    """\
Batch N loads version N of every state store of every partition: the newest snapshot at or below it, and the changes of
each version after that. One of these files is not there.

The batch is planned before its tasks find that out, so each failed start leaves an orphan behind. Spark 4.1 and later
can go past a broken snapshot to an older one, if all changes since are still there.

State lives nowhere else. It comes back from a copy of the checkpoint, or it is made anew. Where the query is one
aggregation, `lastgood plan CHECKPOINT --goal recompute` does that from the sources. For any other query `lastgood
rebuild CHECKPOINT -- COMMAND` lets its own batches run again, without its sink.""",
)
STATE_PARTITION_MISSING = Condition(
    "STATE_PARTITION_MISSING",
    Severity.ERROR,
    "the state of a whole partition is missing",
    """\
An operator has as many partitions as it was started with; the folder of one of them is gone or empty. All keys that
hash there have lost their state, and every start fails in the tasks of that partition.""",
)
STATE_FOLDER_MISSING = Condition(
    "STATE_FOLDER_MISSING",
    Severity.ERROR,
    "the state of the query is gone",
    """\
The query keeps state, and its folder `state` is empty or not there. Spark 4.2 and later say so at the first batch
(`STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY`); older ones fail in their tasks. Either way the batch is planned
first, and left behind as an orphan. Where only a watermark tells of state, which a query without state may have as
well, this is no error.""",
)
STATE_FILE_DAMAGED = Condition(
    "STATE_FILE_DAMAGED",
    Severity.ERROR,
    "a file of the state cannot be read",
    """\
A snapshot or the changes of a version are empty, cut short, or do not fit the files that they name. Spark notices when
a task loads the version, after the batch was planned.""",
)
STATE_PARTS_MISSING = Condition(
    "STATE_PARTS_MISSING",
    Severity.ERROR,
    "a RocksDB snapshot lacks files that it is made of",
    """\
A RocksDB snapshot (`V.zip`) names the SST files that belong to it, which several snapshots share. One of them is
missing or of another size. Spark 4.1 and later go back to an older snapshot and apply the changes since, if changelog
checkpointing is on and all of them are there.""",
)
STATE_FORMAT_CHANGED = Condition(
    "STATE_FORMAT_CHANGED",
    Severity.ERROR,
    "plan or commit do not fit the way the state is kept",
    """\
The newest plan pins how state is laid out, and in state checkpoint format v2 the newest commit names its files. One of
them was edited, copied from elsewhere or written by hand, and Spark cannot bring state and logs together.""",
)
STATE_NEVER_MADE = Condition(
    "STATE_NEVER_MADE",
    Severity.ERROR,
    "a batch that the sink has cannot be committed",
    """\
A batch died after the sink had it and before it was committed, and the state is kept in checkpoint format v2. There a
commit names the files of the state that its batch has made. Delta and Spark's file sink skip a batch that they have
without running it, so it makes none, and Spark stops: `CheckpointInfo length: 0`. So does every start (Spark 4.0
writes `ChekpointInfo`).

The batch has to be taken back from the sink, rows and mark, so that it is run again; `lastgood plan` does that where
nobody else's rows are touched and the source still has what the batch read.""",
)
STALE_STATE_SNAPSHOT = Condition(
    "STALE_STATE_SNAPSHOT",
    Severity.ERROR,
    "a snapshot of the state is of a time that the logs have given up",
    """\
The logs were taken back to an older batch, and the state was not: there are snapshots of versions that have yet to be
made. When the query comes to such a version it writes its changes anew, and the old snapshot stays. A later start loads
that snapshot, from the time that was abandoned, and applies the new changes to it. Nothing fails; totals are wrong.
So it is where somebody dropped a plan after its batch had made its state, and the next driver planned the number anew:
a snapshot that is older than the plan is of another one.

Before the query is started, every state file above the version that the logs stand for has to be set aside. RocksDB
without changelog checkpointing and state checkpoint format v2 are not affected.""",
)
STATE_PARTITIONS_CHANGED = Condition(
    "STATE_PARTITIONS_CHANGED",
    Severity.ERROR,
    "the newest plan pins another number of partitions than the state has",
    """\
State is spread over as many partitions as `spark.sql.shuffle.partitions` said when the query was first started. Every
plan pins that number, and Spark goes by the newest one, whatever the session says. Somebody has changed it there.

With more, tasks look for partitions that never were, and every start fails. With fewer, nothing fails: the partitions
beyond are not loaded any more, keys are looked for where they never were, and totals begin anew. Write the old number
back before the query is started. Spark 4.2 and later can repartition state, while the query is down.""",
)
STATE_PARTITIONS_UNKNOWN = Condition(
    "STATE_PARTITIONS_UNKNOWN",
    Severity.WARNING,
    "nothing tells how many partitions the state is to have",
    """\
An operator that spreads its rows by a key has as many partitions as the plans pin; a global limit and an aggregation
without keys have one, whatever the plans say. Which of the two it is tell the operator's metadata (Spark 4.0 and later)
and the schema beside the state (Spark 3.1 and later), and how many it has the conf that plans pin (Spark 2.2 and
later). They are not there, so partitions that may have been lost cannot be told from partitions that never were.

What there is can be loaded. If there were more, the first batch fails in its tasks, and nothing is written.""",
)
STATE_PARTITIONS_NOT_NAMED = Condition(
    "STATE_PARTITIONS_NOT_NAMED",
    Severity.ERROR,
    "this Spark cannot commit a batch of this query",
    """\
A global limit and an aggregation without keys keep all state in one partition, whatever `spark.sql.shuffle.partitions`
says. In state checkpoint format v2 a commit names the files of each partition, and Spark 4.0 wants as many names as
that conf says: `ChekpointInfo length: 1, numPartitions: N`. It ends after the sink has had the batch, at every start.

Spark 4.1 and later write the commit.""",
)
STATE_LEFT_OVER = Condition(
    "STATE_LEFT_OVER",
    Severity.ERROR,
    "there is state, and no batch that made it",
    """\
The logs are empty or gone and the state is still there. Spark 4.1 and later refuse to begin at batch 0
(`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`). Older ones begin, and may load what is left of the old state later.""",
)
STATE_OPERATOR_ENDED = Condition(
    "STATE_OPERATOR_ENDED",
    Severity.WARNING,
    "an operator has made no state for several batches",
    """\
Each batch makes a version of the state of each operator. One operator has none after a while, and others have. Either
the code was changed and has this operator no more: Spark 3 leaves its state where it is, and does not say so. Then
nothing is the matter, and the folder is of no use. Or these files are lost, and the next batch fails in its tasks.
Nothing in a checkpoint of Spark 3 tells one from the other; Spark 4 notes down its operators, and does not begin where
one of them is not in the code.""",
)
STATE_VERSIONS_AHEAD = Condition(
    "STATE_VERSIONS_AHEAD",
    Severity.INFO,
    "there are state files of versions that have yet to be made",
    """\
A batch that was begun and not finished leaves them, or logs that were taken back. Changes without a snapshot are
overwritten when the version is made, so they do no harm.""",
)
CONDITIONS = (
    STATE_FILE_MISSING,
    STATE_PARTITION_MISSING,
    STATE_FOLDER_MISSING,
    STATE_FILE_DAMAGED,
    STATE_PARTS_MISSING,
    STATE_FORMAT_CHANGED,
    STATE_NEVER_MADE,
    STATE_PARTITIONS_CHANGED,
    STATE_PARTITIONS_UNKNOWN,
    STATE_PARTITIONS_NOT_NAMED,
    STATE_LEFT_OVER,
    STALE_STATE_SNAPSHOT,
    STATE_OPERATOR_ENDED,
    STATE_VERSIONS_AHEAD,
)


def find_state(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about the state, by the version that the next batch loads."""
    checkpoint = observed.checkpoint
    state = checkpoint.state
    if not observed.is_stateful:
        yield from _check_doubt(observed)
        return
    planned, committed = checkpoint.last_planned, checkpoint.last_committed
    if planned is None:
        if state is not None and state.operators:
            effect = f"Spark {restart.spark} " + (
                "refuses to begin at batch 0." if restart.spark >= SPARK_4_1 else "begins at batch 0 over old state."
            )
            yield Finding(STATE_LEFT_OVER, "state", effect, {}, observed.command("status"))
        return
    if state is None or not state.operators:
        effect = "No batch can run: what the query remembered is lost."
        command = make_way_back(observed) or observed.command("plan", "--goal", "recompute")
        yield Finding(STATE_FOLDER_MISSING, "state", effect, {"last_committed": committed}, command)
        return
    batch = find_version_loaded(checkpoint, observed.sinks) or 0
    stop = restart.stop
    if stop and is_about_skipping(stop):
        effect = f"Batch {restart.batch} goes to the sink at every start, which skips it, and is never committed."
        yield Finding(STATE_NEVER_MADE, stop.subject, effect, {"because": stop.because}, observed.command("plan"))
    elif batch > 0:
        yield from _check_obstacles(observed, state, batch, restart)
        yield from _check_uncounted(observed, state)
    if stop and is_about_single_partition(stop):
        effect = "Each batch goes to the sink and is never committed: every start sends it again."
        yield Finding(STATE_PARTITIONS_NOT_NAMED, stop.subject, effect, {"because": stop.because})
    if stop and is_about_format(stop):
        command = observed.command("inspect", "--batch", stop.subject.rpartition("/")[2])
        yield Finding(STATE_FORMAT_CHANGED, stop.subject, "No batch can run.", {"because": stop.because}, command)
    yield from _check_partitions(observed, planned)
    yield from _check_unsound(observed, batch, restart)
    yield from _check_ahead(observed, state, max(planned, committed or 0) + 1)


def make_recompute_command(observed: Observation) -> str | None:
    """The command that plans to make the state anew; None where nothing tells that this can be done."""
    if can_make_anew(observed):
        return observed.command("plan", "--goal", "recompute")
    return None


def make_way_back(observed: Observation) -> str | None:
    """The command that makes lost state anew: from the sources alone, else by the batches of the application."""
    command = make_recompute_command(observed)
    if command is None and can_rebuild(observed):
        command = observed.asked.about(observed.location).make_rebuild_command()
    return command


def _check_doubt(observed: Observation) -> Iterator[Finding]:
    because = observed.state_in_doubt
    if because is not None:
        effect = "If the query keeps state, it is lost, and no batch can run. If it keeps none, nothing is the matter."
        command = observed.command("plan", "--goal", "recompute")
        yield Finding(STATE_FOLDER_MISSING, "state", effect, {"because": because}, command, Severity.INFO)


def _check_partitions(observed: Observation, planned: int) -> Iterator[Finding]:
    for each in find_repinned(observed.checkpoint):
        if each.pinned > each.kept:
            effect = (
                f"No batch can run: Spark looks for {each.pinned} partitions of the state, and there are {each.kept}."
            )
        else:
            effect = (
                f"Nothing fails, and totals are wrong: of {each.kept} partitions of the state {each.pinned} are loaded,"
                " and keys are looked for where they never were."
            )
        evidence = {"operator": each.operator, "pinned": each.pinned, "partitions": each.kept}
        command = observed.command("inspect", "--batch", str(planned))
        yield Finding(STATE_PARTITIONS_CHANGED, f"offsets/{planned}", effect, evidence, command)


def _check_uncounted(observed: Observation, state: State) -> Iterator[Finding]:
    for operator in (each for each in state.operators if each.operator in find_uncounted(observed.checkpoint)):
        seen = sorted({store.partition for store in operator.stores})
        effect = "If it has lost any beside these, the first batch fails in its tasks; nothing in the checkpoint tells."
        evidence = {"operator": operator.operator, "partitions": seen[:_SHOWN], "pinned": state.pins.newest}
        yield Finding(
            STATE_PARTITIONS_UNKNOWN,
            f"state/{operator.operator}",
            effect,
            evidence,
            observed.command("inspect", "--state"),
        )


def _check_unsound(observed: Observation, batch: int, restart: Restart) -> Iterator[Finding]:
    """Files that are not what was written: what stops this Spark, what it goes past, what it may not notice."""
    stop = restart.stop or restart.next_stop
    is_stopped = stop is not None and stop.subject in observed.unsound
    effects = {
        "stops": f"Batch {batch} cannot run, at no start: what it loads is not what was written.",
        "passed": "Spark goes past it to an older snapshot, as long as that and all changes since are there.",
        "unnoticed": "It was changed since it was written: Spark may fail at it, or read other values, without a word.",
    }

    def kind_of(file: Unsound) -> str:
        if not file.stops(restart.spark):
            return "unnoticed"
        return "stops" if is_stopped else "passed"

    for kind, effect in effects.items():
        found = {name: each for name, each in observed.unsound.items() if kind == kind_of(each)}
        if found:
            name, first = next(iter(found.items()))
            evidence = {"files": list(found)[:_SHOWN], "damage": str(first.damage)}
            level = None if kind == "stops" else Severity.WARNING
            yield Finding(STATE_FILE_DAMAGED, name, effect, evidence, observed.command("inspect", "--state"), level)


def _check_obstacles(observed: Observation, state: State, batch: int, restart: Restart) -> Iterator[Finding]:
    ended = find_ended(state, batch, restart.spark)
    yield from _check_ended(observed, ended, batch)
    found = state.obstacles_to(batch, describe_loading(restart.spark))
    obstacles = [each for each in found if find_operator(each.name) not in ended]
    effect = (
        f"Batch {batch} cannot run, at no start: it loads version {batch} of the state. "
        "Every failed start leaves its plan behind."
    )
    lost = _find_lost_partitions(state, obstacles)
    command = make_way_back(observed) or observed.command("inspect", "--state")
    for folder in lost:
        yield Finding(STATE_PARTITION_MISSING, folder, effect, {"version": batch}, command)
    rest = [obstacle for obstacle in obstacles if obstacle.name.rpartition("/")[0] not in lost]
    for condition in (STATE_FILE_MISSING, STATE_PARTS_MISSING, STATE_FILE_DAMAGED):
        alike = [obstacle for obstacle in rest if _choose_condition(obstacle.damage) is condition]
        if alike:
            evidence = {
                "version": batch,
                "files": [obstacle.name for obstacle in alike[:_SHOWN]],
                "stores": len(alike),
                "damage": str(alike[0].damage) if alike[0].damage else None,
            }
            yield Finding(condition, alike[0].name, f"{effect}{_explain_version(alike[0])}", evidence, command)


def _check_ended(observed: Observation, ended: Mapping[int, int], batch: int) -> Iterator[Finding]:
    for operator, last in ended.items():
        effect = (
            f"If the code has operator {operator} no more, nothing is the matter. If it has, batch {batch} cannot run:"
            f" what came after version {last} is lost."
        )
        evidence = {"operator": operator, "newest_version": last, "version": batch}
        command = observed.command("inspect", "--state")
        yield Finding(STATE_OPERATOR_ENDED, f"state/{operator}", effect, evidence, command)


def _explain_version(obstacle: Obstacle) -> str:
    if obstacle.damage is None or obstacle.damage.kind is not DamageKind.OTHER_VERSION:
        return ""
    return (
        " The file is whole: where the first state that its driver meets is in checkpoint format v2, Spark 4.0 writes "
        "snapshots in a version that no later Spark reads."
    )


def _choose_condition(damage: Damage | None) -> Condition:
    if damage is None:
        return STATE_FILE_MISSING
    return STATE_PARTS_MISSING if damage.kind is DamageKind.MISSING_PART else STATE_FILE_DAMAGED


def _find_lost_partitions(state: State, obstacles: Sequence[Obstacle]) -> list[str]:
    """Folders of stores that hold no version at all, although others of their operator do."""
    held = {store.folder for operator in state.operators for store in operator.stores if store.files}
    folders = dict.fromkeys(obstacle.name.rpartition("/")[0] for obstacle in obstacles)
    return [folder for folder in folders if folder not in held]


def _check_ahead(observed: Observation, state: State, newest: int) -> Iterator[Finding]:
    """State files above the version that the newest planned batch makes, and snapshots that are of an older plan."""
    found = find_stale_snapshots(observed.checkpoint)
    stale = [each.path for each in found if each.batch is None]
    if stale:
        effect = (
            "Totals will be wrong without a message: a later start loads this snapshot, which is of a time that the"
            " logs do not know, and goes on from there."
        )
        evidence = {"newest_version": newest, "files": stale[:_SHOWN], "count": len(stale)}
        yield Finding(STALE_STATE_SNAPSHOT, stale[0], effect, evidence, observed.command("inspect", "--state"))
    else:
        yield from _check_harmless(state, newest)
    older = [each for each in found if each.batch is not None]
    if older:
        effect = (
            "Totals will be wrong without a message, or are already: a start that loads this snapshot goes on from a"
            f" plan that was dropped, since it is older than that of batch {older[0].batch}."
        )
        evidence = {"batch": older[0].batch, "files": [each.path for each in older[:_SHOWN]], "count": len(older)}
        yield Finding(STALE_STATE_SNAPSHOT, older[0].path, effect, evidence, observed.command("inspect", "--state"))


def _check_harmless(state: State, newest: int) -> Iterator[Finding]:
    """Files of versions that have yet to be made, and that are overwritten then."""
    harmless = [
        f"{store.folder}/{file.name}"
        for operator in state.operators
        for store in operator.stores
        for file in store.files
        if file.version > newest and file.unique_id is None
    ]
    if harmless:
        effect = "They are overwritten when their version is made."
        evidence = {"newest_version": newest, "files": harmless[:_SHOWN], "count": len(harmless)}
        yield Finding(STATE_VERSIONS_AHEAD, harmless[0], effect, evidence)
