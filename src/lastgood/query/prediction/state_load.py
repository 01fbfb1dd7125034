"""What Spark says when it cannot load its state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.operators import OperatorMetadata
from lastgood.checkpoint.partitions import Spread
from lastgood.checkpoint.state import (
    Loading,
    Loads,
    Obstacle,
    State,
    StateFormat,
    StateOperator,
    StateStore,
    UniqueIds,
    find_unique_ids,
)
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.query.prediction.spark_version import SPARK_4_0, SPARK_4_1, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.query.prediction.state_partitions import find_repinned, find_uncounted
from lastgood.query.prediction.unsound import Unsound

_FORMAT_KEYS = {
    "stateStoreSave": "spark.sql.streaming.aggregation.stateFormatVersion",
    "symmetricHashJoin": "spark.sql.streaming.join.stateFormatVersion",
}
_OTHER_SCHEMA = "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"
_OTHER_SCHEMA_3_5 = "org.apache.spark.sql.execution.streaming.state."
"""One task finds another schema, another rows that do not fit it."""
_NO_IDS = "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED"
_NO_IDS_ROCKSDB = "None.get"
_MADE, _MADE_4_0 = "CheckpointInfo length: ", "ChekpointInfo length: "
"""How many partitions have told an id, where the commit cannot be written; 4.0 has it with a letter less."""
NOT_RUN = "STATE_STORE_COMMIT_VALIDATION_FAILED"
"""What a function meets that does not run the batch that it is given."""
_NO_DELTA, _NO_FILE = "Error reading delta file", "Error reading streaming state file of"


def is_about_format(stop: Stop) -> bool:
    """Whether a plan or a commit stops Spark because it does not fit the way the state is laid out."""
    is_told = stop.error in (_OTHER_SCHEMA, _OTHER_SCHEMA_3_5, _NO_IDS, _NO_IDS_ROCKSDB)
    return is_told and stop.stage is not StartStage.START and stop.subject.startswith(("offsets/", "commits/"))


def is_about_skipping(stop: Stop) -> bool:
    """Whether a batch stops Spark because a sink skips it, and the commit cannot name the state that it makes."""
    return stop.error in (f"{_MADE}0", f"{_MADE_4_0}0")


def is_about_single_partition(stop: Stop) -> bool:
    """Whether Spark 4.0 stops because it wants ids of more partitions than an operator has."""
    return stop.error == f"{_MADE_4_0}1"


def find_nothing_to_name(
    checkpoint: Checkpoint, committed: int | None, batch: int, spark: SparkVersion = SPARK_4_3
) -> Stop | None:
    """What ends a query at a batch that is not run; None if its commit names no files of the state.

    Args:
        checkpoint: With its state, if there is any left.
        committed: The newest commit.
        batch: The one that a sink skips.
        spark: Its version.
    """
    if not _is_state_named(checkpoint, committed):
        return None
    because = "it is to name the state that the batch makes, and a sink that has the batch does not run it"
    return Stop(StartStage.COMMIT, f"{_choose_made(spark)}0", f"commits/{batch}", because)


def find_too_few_to_name(checkpoint: Checkpoint, committed: int | None, batch: int, spark: SparkVersion) -> Stop | None:
    """What ends a query at a batch that has run, where an operator has one partition and the plan pins more.

    Spark 4.0 counts the ids of each operator against the pinned number; later ones know of the single partition.

    Args:
        checkpoint: With its state, if there is any left.
        committed: The newest commit.
        batch: The one that has run.
        spark: Its version.
    """
    state = checkpoint.state
    if (
        state is None
        or spark >= SPARK_4_1
        or state.pins.newest in (None, 1)
        or not _is_state_named(checkpoint, committed)
    ):
        return None
    single = next((each for each in state.operators if each.stores and state.spread(each) is Spread.SINGLE), None)
    if single is None:
        return None
    because = f"operator {single.operator} has one partition, and this Spark wants the ids of {state.pins.newest}"
    return Stop(StartStage.COMMIT, f"{_choose_made(spark)}1", f"commits/{batch}", because)


def _choose_made(spark: SparkVersion) -> str:
    return _MADE if spark >= SPARK_4_1 else _MADE_4_0


def _is_state_named(checkpoint: Checkpoint, committed: int | None) -> bool:
    """Whether commits name the files of the state: state checkpoint format v2."""
    entry = None
    if committed is not None:
        entry = checkpoint.commits.entries.get(committed)
    has_ids = isinstance(entry, CommitEntry) and bool(entry.state_unique_ids)
    return has_ids or StateFormat.ROCKSDB_V2 in {store.format for store in _list_stores(checkpoint)}


def stop_without_folder(spark: SparkVersion) -> None:
    """The folder `state` of a query that keeps state is gone or empty.

    Raises:
        StoppedError: always.
    """
    because = "the state of the query is gone"
    if spark >= SPARK_4_2:
        error = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
        raise StoppedError(Stop(StartStage.PLANNED, error, "state", because))
    raise StoppedError(Stop(StartStage.TASK, "Error reading", "state", because))


def require_same_format(checkpoint: Checkpoint, newest: int, spark: SparkVersion) -> None:
    """A plan whose pinned confs are lost makes Spark lay out its state in the legacy way.

    Raises:
        StoppedError: the state is laid out in another way.
    """
    entry = checkpoint.offsets.entries.get(newest)
    if not isinstance(entry, OffsetEntry) or checkpoint.state is None:
        return
    for key in {_find_format_key(operator) for operator in checkpoint.state.operators}:
        written = None
        if key:
            written = _find_pinned(checkpoint, key)
        if key and key not in entry.conf and written not in (None, "1"):
            if spark < SPARK_4_0:
                stage, error = (StartStage.TASK, _OTHER_SCHEMA_3_5)
            else:
                stage, error = (StartStage.PLANNED, _OTHER_SCHEMA)
            because = f"it does not pin {key}, and Spark takes 1 where the state has {written}"
            raise StoppedError(Stop(stage, error, f"offsets/{newest}", because))


def _find_format_key(operator: StateOperator) -> str | None:
    """The conf that pins how an operator lays out its rows; None if there is none."""
    if isinstance(operator.metadata, OperatorMetadata):
        return _FORMAT_KEYS.get(operator.metadata.operator_name)
    is_join = any(store.name.startswith(("left-", "right-")) for store in operator.stores)
    return _FORMAT_KEYS["symmetricHashJoin" if is_join else "stateStoreSave"]


def _find_pinned(checkpoint: Checkpoint, key: str) -> str | None:
    entries = checkpoint.offsets.entries.values()
    return next((e.conf[key] for e in entries if isinstance(e, OffsetEntry) and key in e.conf), None)


def load_state(
    checkpoint: Checkpoint, version: int, committed: int | None, spark: SparkVersion, unsound: Mapping[str, Unsound]
) -> list[str]:
    """A batch loads `version` of the state.

    Args:
        checkpoint: With its state.
        version: The number of the batch that runs.
        committed: The newest commit, whose ids Spark goes by in state checkpoint format v2.
        spark: Its version.
        unsound: Files that are not what was written, by path.

    Returns:
        What nobody knows of it: files that this Spark reads or fails at, partitions that may be lost; one line each.

    Raises:
        StoppedError: it cannot.
    """
    state = checkpoint.state
    if state is None:
        return []
    _require_operators(state, spark)
    _require_ids(checkpoint, version, committed, spark)
    ended = find_ended(state, version, spark)
    stops = [*_find_obstacles(state, version, spark), *_find_not_there(checkpoint)]
    stops = [stop for stop in stops if find_operator(stop.subject) not in ended]
    stopped = {stop.subject.rpartition("/")[0] for stop in stops}
    doubts = [
        f"state/{operator}: nothing tells how many partitions it is to have" for operator in find_uncounted(checkpoint)
    ]
    doubts += [
        f"whether the code still has operator {operator}, whose state ends at version {last}; if so, it fails"
        for operator, last in ended.items()
    ]
    for store in state.loaded_stores:
        if store.folder in stopped or store.operator in ended:
            continue
        for name, wrong in _find_changed(store, find_unique_ids(store, state.commits), version, spark, unsound):
            if wrong.stops(spark):
                because = f"it cannot be read: {wrong.damage}"
                stops.append(Stop(StartStage.TASK, _quote_unsound_error(wrong, store, spark), name, because))
                break
            doubts.append(f"{name}: it was changed since it was written; whether it can be read is not known")
    if stops:
        raise StoppedError(_choose_first_to_fail(stops, spark))
    return doubts


def find_ended(state: State, version: int, spark: SparkVersion) -> dict[int, int]:
    """See `State.find_ended`; none where this Spark would stop whatever the code is."""
    return state.find_ended(version) if spark < SPARK_4_0 else {}


def find_operator(path: str) -> int | None:
    """Whose state a path below the checkpoint is; None for another one."""
    folder, _, rest = path.partition("/")
    number = rest.partition("/")[0]
    return int(number) if folder == "state" and number.isdecimal() else None


def _choose_first_to_fail(stops: Sequence[Stop], spark: SparkVersion) -> Stop:
    """Tasks race, and the first to fail is told: where they differ only what they have in common is sure."""
    if len({stop.error for stop in stops}) == 1:
        return stops[0]
    return replace(stops[0], error="CANNOT_LOAD_STATE_STORE" if spark >= SPARK_4_0 else "Error")


def _require_ids(checkpoint: Checkpoint, version: int, committed: int | None, spark: SparkVersion) -> None:
    """What a commit says of the files of a state fits how they are named."""
    formats = {store.format for store in _list_stores(checkpoint)}
    is_hdfs = StateFormat.HDFS_BACKED in formats
    if StateFormat.ROCKSDB_V2 not in formats and _is_asking_for_ids(checkpoint, committed, spark, is_hdfs=is_hdfs):
        error = _NO_IDS if is_hdfs else _NO_IDS_ROCKSDB
        because = "it is of a version that names the files of a state in checkpoint format v2"
        raise StoppedError(Stop(StartStage.TASK, error, f"commits/{committed}", because))
    if StateFormat.ROCKSDB_V2 in formats and committed != version - 1:
        because = f"commits/{committed} names the state after another batch than {version - 1}"
        raise StoppedError(Stop(StartStage.TASK, "CANNOT_LOAD_STATE_STORE", "state", because))


def _require_operators(state: State, spark: SparkVersion) -> None:
    """Since 4.0 the operators that have a folder are held against those of the query, before any task runs."""
    lost = next((operator.operator for operator in state.operators if not operator.is_there), None)
    if lost is not None and spark >= SPARK_4_0:
        error = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
        raise StoppedError(Stop(StartStage.PLANNED, error, f"state/{lost}", "it is not there"))


def describe_loading(spark: SparkVersion) -> Loading:
    """How a version of Spark loads a state store."""
    metadata_version = None  # a JVM of 4.0 goes by the format of the first store that it meets
    if spark >= SPARK_4_1:
        metadata_version = 1
    return Loading(auto_repair=spark >= SPARK_4_2, metadata_version=metadata_version)


def _find_obstacles(state: State, version: int, spark: SparkVersion) -> Iterator[Stop]:
    """One for each store of which files are not there, or end too early."""
    stores = state.loaded_stores
    by_folder = {store.folder: store for store in stores}
    for obstacle in state.obstacles_to(version, describe_loading(spark)):
        store = by_folder.get(obstacle.name.rpartition("/")[0])
        error = _quote_error(obstacle, store, _find_format(store, stores, state), spark)
        if obstacle.damage is None:
            because = "it is not there"
        else:
            because = f"it cannot be read: {obstacle.damage}"
        yield Stop(StartStage.TASK, error, obstacle.name, because)


def _find_not_there(checkpoint: Checkpoint) -> Iterator[Stop]:
    """One for each operator of which the newest plan pins more partitions than its state has."""
    formats = {store.format for store in _list_stores(checkpoint)}
    for each in find_repinned(checkpoint):
        if each.pinned > each.kept:
            because = f"the plan pins {each.pinned} partitions, and the state has {each.kept}"
            error = _NO_DELTA if StateFormat.HDFS_BACKED in formats else _NO_FILE
            if StateFormat.ROCKSDB_V2 in formats:
                error = f"ArrayIndexOutOfBoundsException: Index {each.kept} out of bounds for length {each.kept}"
            yield Stop(StartStage.TASK, error, f"state/{each.operator}/{each.kept}", because)


def _find_changed(
    store: StateStore, ids: UniqueIds, version: int, spark: SparkVersion, unsound: Mapping[str, Unsound]
) -> Iterator[tuple[str, Unsound]]:
    """Of the files that a load reads those that are not what was written, unless Spark goes past them."""
    loads = Loads(store, ids, loading=describe_loading(spark))
    for file in loads.path(version):
        name = f"{store.folder}/{file.name}"
        wrong = unsound.get(name)
        if wrong is None:
            continue
        is_passed = loads.may_repair and file.kind.is_snapshot and wrong.stops(spark)
        if not (is_passed and _can_load_without(store, ids, version, unsound, spark)):
            yield name, wrong


def _list_stores(checkpoint: Checkpoint) -> list[StateStore]:
    state = checkpoint.state
    if state is None:
        return []
    return state.loaded_stores


def _quote_unsound_error(wrong: Unsound, store: StateStore, spark: SparkVersion) -> str:
    """What Spark says of a file that does not fit a checksum: Hadoop's, its own, or the one within the file."""
    is_within = not wrong.is_snapshot and not (wrong.by_spark and spark >= SPARK_4_1)
    if is_within and (store.format is StateFormat.HDFS_BACKED or spark < SPARK_4_0):
        return "Stream is corrupted"
    return "Checksum error" if spark < SPARK_4_0 else "CANNOT_LOAD_STATE_STORE"


def _can_load_without(
    store: StateStore, ids: UniqueIds, version: int, unsound: Mapping[str, Unsound], spark: SparkVersion
) -> bool:
    """Whether a version can be loaded from what is older than the snapshots that are not what was written."""
    named = ((file, unsound.get(f"{store.folder}/{file.name}")) for file in store.files if file.kind.is_snapshot)
    broken = {file: wrong.damage for file, wrong in named if wrong}
    without = replace(store, snapshots={**store.snapshots, **broken})
    return version in Loads(without, ids, loading=describe_loading(spark)).loadable()


def _find_format(store: StateStore | None, stores: Sequence[StateStore], state: State) -> StateFormat | None:
    """The format of a store; one without any file is of that of the others, else of the provider that is pinned."""
    if store is None:
        candidates = stores
    else:
        candidates = (store, *stores)
    known = next((kind for each in candidates if (kind := each.format)), None)
    if known is not None:
        return known
    return StateFormat.HDFS_BACKED if state.pins.is_hdfs_backed else None


def _quote_error(obstacle: Obstacle, store: StateStore | None, kind: StateFormat | None, spark: SparkVersion) -> str:
    """What Spark says of one store."""
    damage = obstacle.damage
    name = obstacle.name.rpartition("/")[2]
    if damage is not None:
        is_checked = name.endswith(".zip") and store is not None and name in store.checksummed
        return _quote_damage_error(damage, kind, spark, is_zip=name.endswith(".zip"), is_checked=is_checked)
    if name.endswith(".zip"):  # only in state checkpoint format v2 is a snapshot looked for by name
        return "AUTO_SNAPSHOT_REPAIR_FAILED" if spark >= SPARK_4_2 else "CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT"
    return _NO_DELTA if kind is StateFormat.HDFS_BACKED else _NO_FILE


def _quote_damage_error(
    damage: Damage, kind: StateFormat | None, spark: SparkVersion, *, is_zip: bool, is_checked: bool
) -> str:
    if damage.kind is DamageKind.MISSING_PART:
        return "FileNotFoundException"
    if spark >= SPARK_4_0 and kind is not StateFormat.HDFS_BACKED:
        return "CANNOT_LOAD_STATE_STORE"
    if is_zip and damage.kind is DamageKind.EMPTY:
        return "NoSuchFileException"
    return "Checksum error" if is_checked else "EOFException"


def _is_asking_for_ids(checkpoint: Checkpoint, committed: int | None, spark: SparkVersion, *, is_hdfs: bool) -> bool:
    """Whether the newest commit makes Spark load the state by ids, and the stores have nothing to go by.

    Since 4.3 its version alone makes it so. The HDFS-backed store refuses any id, in every version.
    """
    entry = None
    if committed is not None:
        entry = checkpoint.commits.entries.get(committed)
    if not isinstance(entry, CommitEntry) or entry.version == 1:
        return False
    has_ids = bool(entry.state_unique_ids)
    return (is_hdfs and has_ids) or (spark >= SPARK_4_3 and (is_hdfs or not has_ids))
