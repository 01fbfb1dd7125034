"""State stores: which versions can be loaded, from the names of their files and what commits say. Pure.

Batch N makes version N+1; version 0 is empty and needs no file. A load begins at the newest snapshot and applies
the changes of each version after it. In state checkpoint format v2 every version has an id, which a commit names.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

from lastgood.checkpoint.commits import StateUniqueIds
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.operators import STORE_DEFAULT, OperatorMetadata, StateSchema
from lastgood.checkpoint.partitions import Partitions, Pins, Spread, derive_partitions, derive_stores, find_spread
from lastgood.checkpoint.state_files import LineageItem, SnapshotMetadata, StateFile, StateFileKind
from lastgood.frozen import dataclass

_OPERATORS_MAX = 1_000
"""A plan has fewer."""
_VERSIONS_LACKING = 2
"""One may lack because a driver has died: the batch is committed, and its files are gone with a disk."""
_REPAIR_VERSIONS_MAX = 500
"""`spark.sql.streaming.stateStore.autoSnapshotRepair.maxChangeFileReplay`, as Spark sets it."""

UniqueIds: TypeAlias = Mapping[int, frozenset[str]]
"""Per version of one store: the ids that commits name for it (those of the other stores beside it do no harm)."""


class StateFormat(enum.Enum):
    """How a store keeps its versions."""

    HDFS_BACKED = "hdfs_backed"
    ROCKSDB = "rocksdb"
    ROCKSDB_CHANGELOG = "rocksdb_changelog"
    ROCKSDB_V2 = "rocksdb_v2"
    """State checkpoint format v2: names with ids."""


class Obstacle(NamedTuple):
    """The first file that keeps a version from being loaded."""

    name: str
    """Below the folder of the store; below the checkpoint in `State.obstacles`."""
    damage: Damage | None
    """None: it is not there."""


class _Node(NamedTuple):
    version: int
    unique_id: str | None


def _make_node(file: StateFile) -> _Node:
    return _Node(file.version, file.unique_id)


@dataclass(frozen=True, slots=True)
class StateStore:
    """One state store of one partition."""

    operator: int
    partition: int
    name: str
    files: tuple[StateFile, ...] = ()
    """Every file with a version in its name, ascending."""
    immutables: Mapping[str, int | None] = field(default_factory=dict)
    """SST and log files of RocksDB, and their sizes."""
    snapshots: Mapping[StateFile, SnapshotMetadata | Damage] = field(default_factory=dict)
    """Those `.zip` that were looked into."""
    lineages: Mapping[StateFile, tuple[LineageItem, ...] | Damage] = field(default_factory=dict)
    """Those changelogs of format v2 that were looked into."""
    broken: Mapping[StateFile, Damage] = field(default_factory=dict)
    """Those files of changes, and HDFS-backed snapshots, that were looked into and end too early."""
    checksummed: frozenset[str] = frozenset()
    """Names of files that have a `.NAME.crc` of Hadoop beside them."""
    written_ms: Mapping[StateFile, int] = field(default_factory=dict, compare=False)
    """When the files of those versions were written that have a snapshot which stays; milliseconds since 1970."""

    @property
    def folder(self) -> str:
        """Its path below the checkpoint."""
        if self.name == STORE_DEFAULT:
            store = ""
        else:
            store = f"/{self.name}"
        return f"state/{self.operator}/{self.partition}{store}"

    @property
    def format(self) -> StateFormat | None:
        """How it keeps its newest version; None while it has none."""
        if not self.files:
            return None
        last = self.files[-1].version
        newest = list(itertools.takewhile(lambda file: file.version == last, reversed(self.files)))
        if any(file.unique_id for file in newest):
            return StateFormat.ROCKSDB_V2
        if newest[0].kind in (StateFileKind.DELTA, StateFileKind.SNAPSHOT):
            return StateFormat.HDFS_BACKED
        changes = any(file.kind is StateFileKind.CHANGELOG for file in self.files)
        return StateFormat.ROCKSDB_CHANGELOG if changes else StateFormat.ROCKSDB

    @property
    def versions(self) -> BatchIds:
        """Versions that have any file, loadable or not."""
        return BatchIds.of({file.version for file in self.files})


def _find_oldest_for_repair(version: int) -> int:
    """The version that the lineages must lead back to before Spark repairs."""
    return max(1, version - _REPAIR_VERSIONS_MAX)


def _is_lineage_of(version: int, lineage: tuple[LineageItem, ...]) -> bool:
    """Whether it names each version, from one on, up to the one before; version 1 builds on none."""
    first = version - len(lineage)
    is_whole = [item.version for item in lineage] == list(range(first, version))
    return is_whole and (first >= 1 if lineage else version == 1)


def list_snapshots_that_stay(store: StateStore) -> list[StateFile]:
    """The snapshots that nobody writes over when their version is made again, ascending."""
    return [file for file in store.files if file.is_snapshot_that_stays]


class Loading(NamedTuple):
    """How a version of Spark loads a state store."""

    auto_repair: bool = False
    """Past a snapshot that it cannot read, to an older one, if it keeps changes."""
    metadata_version: int | None = None
    """Which version of the metadata of a RocksDB snapshot it reads; None: any."""


ANY_LOADING = Loading()
LOADINGS = (ANY_LOADING, Loading(auto_repair=True), Loading(auto_repair=True, metadata_version=1))
"""What tells together which files any Spark may read."""


class Loads:
    """What it takes to load the versions of one store."""

    def __init__(
        self,
        store: StateStore,
        unique_ids: UniqueIds | None = None,
        *,
        hdfs_backed: bool | None = None,
        loading: Loading = ANY_LOADING,
    ) -> None:
        """Judge `store`.

        Args:
            store: The store, with what was looked into.
            unique_ids: Per version the ids that commits name (version N+1 in commit N); format v2 only.
            hdfs_backed: Which provider loads it; None: the one that wrote its newest file.
            loading: How the Spark that loads it does so.
        """
        self._store = store
        self._loading = loading
        self.may_repair = loading.auto_repair and store.format is not StateFormat.ROCKSDB
        """Whether it goes past a snapshot that it cannot read: only a store that keeps changes has what to apply."""
        if hdfs_backed is None:
            hdfs_backed = store.format is StateFormat.HDFS_BACKED
        self._change_kind = StateFileKind.DELTA if hdfs_backed else StateFileKind.CHANGELOG
        snapshot_kind = StateFileKind.SNAPSHOT if hdfs_backed else StateFileKind.ZIP
        self._changes = {_make_node(file): file for file in store.files if file.kind is self._change_kind}
        self._snapshots = {_make_node(file): file for file in store.files if file.kind is snapshot_kind}
        self._named = {version: [_Node(version, one) for one in ids] for version, ids in (unique_ids or {}).items()}
        self._has_ids = any(file.unique_id for file in store.files)
        self._before: dict[_Node, _Node] = {}
        self._lineages: dict[_Node, list[_Node]] = {}
        self._follow_lineages()

    def _follow_lineages(self) -> None:
        for file, lineage in sorted(self._store.lineages.items(), key=lambda item: item[0].version, reverse=True):
            if isinstance(lineage, Damage) or not _is_lineage_of(file.version, lineage):
                continue
            node = _make_node(file)
            builds_on = [_Node(*item) for item in lineage]
            self._lineages[node] = builds_on
            self._before.update((after, before) for before, after in itertools.pairwise([*builds_on, node]))
            if node in self._named.get(file.version, ()):
                for each in builds_on:  # what a version in force builds on was in force
                    self._named[each.version] = [each]

    def _in_force(self, version: int) -> _Node:
        """The version as it counts: with the id that a commit names, or without one where names have none."""
        named = self._named.get(version)
        if named is None:
            plain = _Node(version, None)
            is_plain = not self._has_ids or plain in self._changes or plain in self._snapshots
            if is_plain:
                return plain
            return _Node(version, "*")
        present = [node for node in named if node in self._changes or node in self._snapshots]
        if present:
            return present[0]
        if len(named) == 1:
            return named[0]
        return _Node(version, "*")

    def _one_before(self, node: _Node) -> _Node | None:
        """What the changes of `node` apply to; None if that is not known."""
        if node.unique_id is None or node.version == 1:
            return _Node(node.version - 1, None)
        known = self._before.get(node)
        return known or (self._in_force(node.version - 1) if node.version - 1 in self._named else None)

    def path(self, version: int) -> list[StateFile]:
        """The files that a load of `version` reads, oldest first, up to the first that is not there (it has no size).

        It begins with a snapshot, or with version 1, or where the trail of ids is lost.
        """
        return self._list_files(self._in_force(version))

    def _list_files(self, node: _Node) -> list[StateFile]:
        known = self._list_known(node)
        if known is not None:
            return self._list_files_of(known)
        files: list[StateFile] = []
        at: _Node | None = node
        while at is not None and at.unique_id is not None and at.version > 0:  # ids lead back one by one
            snapshot = self._usable(at)
            if snapshot:
                return [snapshot, *reversed(files)]
            files.append(self._change(at))
            at = self._one_before(at)
        return [*(self._plain_path(at.version) if at else ()), *reversed(files)]

    def _list_known(self, node: _Node) -> list[_Node] | None:
        """The versions that Spark knows to lead to `node`, oldest first; None if its lineage was not read.

        A snapshot needs no other. Changes name what they build on, back to the snapshot that was the newest then, and
        to an older one Spark goes back only to repair, and only while each lineage leads on to another.
        """
        if node.unique_id is None:
            return None
        if node in self._snapshots:
            known = [node]
        elif node in self._lineages:
            known = [*self._lineages[node], node]
        else:
            return None
        if not self.may_repair or self._find_beginning(known) is not None:
            return known
        repaired = self._list_for_repair(node)
        if repaired is None or not self._can_repair(known, repaired):
            return known
        return repaired

    def _can_repair(self, known: list[_Node], repaired: list[_Node]) -> bool:
        """Without a snapshot that it knew of, Spark tried to begin before version 1, and does not try that again."""
        is_known = any(node in self._snapshots for node in known)
        return is_known or any(self._usable(node) for node in repaired)

    def _list_for_repair(self, node: _Node) -> list[_Node] | None:
        """All versions that lead to `node` and that a repair may begin at; None if the lineages do not lead there."""
        oldest = _find_oldest_for_repair(node.version)
        chain = [node]
        while chain[0].version > oldest:
            builds_on = self._lineages.get(chain[0])
            if not builds_on:
                return None
            chain = [*builds_on, *chain]
        return [each for each in chain if each.version >= oldest]

    def _find_beginning(self, chain: list[_Node]) -> int | None:
        """Where in a chain of versions a load begins: at its newest snapshot, else before version 1."""
        for number in reversed(range(len(chain))):
            if self._usable(chain[number]):
                return number
        return 0 if chain[0].version == 1 else None

    def _list_files_of(self, chain: list[_Node]) -> list[StateFile]:
        begin = self._find_beginning(chain)
        if begin is not None:
            first = self._usable(chain[begin]) or self._change(chain[begin])
        else:
            begin, first = self._find_failing_snapshot(chain)
        return [first, *(self._change(node) for node in chain[begin + 1 :])]

    def _find_failing_snapshot(self, chain: list[_Node]) -> tuple[int, StateFile]:
        """Where a load that cannot begin tries to: at a snapshot that is broken, or at one that is not there."""
        kept = [node for node in chain if node in self._snapshots]
        if kept:
            return chain.index(kept[-1]), self._snapshots[kept[-1]]
        oldest = chain[0]
        return 0, StateFile(oldest.version, StateFileKind.ZIP, oldest.unique_id)

    def find_lineage_to_read(self, version: int, *, to_the_oldest: bool) -> StateFile | None:
        """The changelog, of those not read yet, that tells more of what `version` builds on; format v2 only.

        Args:
            version: Which to load.
            to_the_oldest: Also what only a repair asks for, though nothing is known to be broken.
        """
        node = self._in_force(version)
        if node.unique_id is None:
            return None
        if not to_the_oldest:
            known = self._list_known(node)
            if known is not None and self._find_beginning(known) is not None:
                return None
        while self._lineages.get(node):
            node = self._lineages[node][0]
        change = self._changes.get(node)
        if change in self._store.lineages or node.version <= _find_oldest_for_repair(version):
            return None
        return change

    def _plain_path(self, version: int) -> Iterator[StateFile]:
        snapshots = sorted(
            node.version for node in self._snapshots if node.unique_id is None and node.version <= version
        )
        usable = (self._usable(_Node(number, None)) for number in reversed(snapshots))
        first = next((snapshot for snapshot in usable if snapshot), None)
        if first:
            yield first
        for number in range(first.version + 1 if first else 1, version + 1):
            change = self._change(_Node(number, None))
            yield change
            if not self._is_there(change):
                return

    def _usable(self, node: _Node) -> StateFile | None:
        """The snapshot that a load of this version takes; Spark before 4.2 takes a broken one too."""
        snapshot = self._snapshots.get(node)
        return None if snapshot is None or (self.may_repair and self._broken(snapshot)) else snapshot

    def _change(self, node: _Node) -> StateFile:
        return self._changes.get(node, StateFile(node.version, self._change_kind, node.unique_id))

    def obstacle(self, version: int) -> Obstacle | None:
        """What keeps `version` from being loaded, the first that Spark would meet; None if nothing does."""
        return self._find_obstacle(self._in_force(version))

    def _find_obstacle(self, node: _Node) -> Obstacle | None:
        path = self._list_files(node)
        if path and path[-1].unique_id and not self._is_there(path[-1]):
            return Obstacle(path[-1].name, None)  # without it Spark does not know the others
        for file in path:
            if not self._is_there(file):
                return Obstacle(file.name, None)
            damage = self._broken(file)
            if damage:
                return Obstacle(file.name, damage)
        if path and path[0].version > 1 and not path[0].kind.is_snapshot:
            return Obstacle(StateFile(path[0].version - 1, self._change_kind, "*").name, None)
        return None

    def loadable(self) -> BatchIds:
        """The versions, from 1 on, that can be loaded as far as it was looked."""
        good: set[_Node] = set()
        for node in sorted({*self._changes, *self._snapshots}, key=lambda node: node.version):
            if self._can_load(node, good):  # what it builds on has been judged before it
                good.add(node)
        return BatchIds.of({node.version for node in good if node == self._in_force(node.version)})

    def _can_load(self, node: _Node, good: Collection[_Node]) -> bool:
        if node in self._lineages:
            return self._find_obstacle(node) is None
        snapshot, change = self._snapshots.get(node), self._changes.get(node)
        if snapshot:
            if self._broken(snapshot) is None:
                return True
            if not self.may_repair:
                return False
        before = self._one_before(node)
        if change is None or before is None or self._broken(change):
            return False
        return before.version == 0 or before in good

    def _is_there(self, file: StateFile) -> bool:
        return _make_node(file) in (self._snapshots if file.kind.is_snapshot else self._changes)

    def _broken(self, file: StateFile) -> Damage | None:
        if file.size == 0:
            return Damage(DamageKind.EMPTY)
        metadata = self._store.snapshots.get(file)
        if metadata is None:
            return self._store.broken.get(file)
        if isinstance(metadata, Damage):
            return None if metadata.kind is DamageKind.TOO_LARGE else metadata
        if self._loading.metadata_version not in (None, metadata.version):
            return make_damage(DamageKind.OTHER_VERSION, f"v{metadata.version}")
        for name, size in metadata.files.items():
            found = self._store.immutables.get(name, -1)
            if found is not None and found != size:
                return make_damage(DamageKind.MISSING_PART, f"{name}, {'not there' if found < 0 else f'{found} bytes'}")
        return None


@dataclass(frozen=True, slots=True)
class StateOperator:
    """One stateful operator."""

    operator: int
    metadata: OperatorMetadata | Damage | None
    """The newest; None before Spark 4.0, or if it is gone."""
    metadata_path: str | None
    """Where that lies below the checkpoint."""
    stores: tuple[StateStore, ...]
    """Of every partition that is there."""
    schema: StateSchema | None = None
    """Of its first store in partition 0; not read where the name tells how its rows are spread."""
    is_there: bool = True
    """Whether it has a folder; if not, operators after it or commits tell that there has been one."""

    @property
    def name(self) -> str | None:
        """Such as `stateStoreSave`; None if there is no metadata."""
        return self.metadata.operator_name if isinstance(self.metadata, OperatorMetadata) else None

    @property
    def is_kept(self) -> bool:
        """Whether any of its stores has a version."""
        return any(store.files for store in self.stores)

    @property
    def _newest(self) -> set[int]:
        """The newest version of each of its stores that has any."""
        return {store.versions.newest or 0 for store in self.stores if store.files}

    @property
    def end(self) -> int | None:
        """The newest version of all its stores; None where they end at several, or have none."""
        newest = self._newest
        return newest.pop() if len(newest) == 1 else None

    def has_whole(self, version: int) -> bool:
        """Whether each of its stores has come to a version."""
        newest = self._newest
        return bool(newest) and min(newest) >= version

    @property
    def is_hdfs_backed(self) -> bool:
        """Whether its newest version is kept by the HDFS-backed provider; older ones may be of another time."""
        newest = max(self.stores, key=lambda store: store.versions.newest or 0, default=None)
        return newest is not None and newest.format is StateFormat.HDFS_BACKED

    def spread(self, ids: int | None = None) -> Spread:
        """Which distribution it asks for; see `find_spread`."""
        return find_spread(self.name, self.schema, {store.partition for store in self.stores}, ids)

    def partitions(self, pins: Pins, ids: int | None = None) -> Partitions:
        """The partitions that Spark will load.

        Args:
            pins: What the offset log says.
            ids: See `find_spread`.
        """
        seen: dict[int, int] = {}
        for store in self.stores:
            newest = store.versions.newest or 0
            seen[store.partition] = min(newest, seen.get(store.partition, newest))
        return derive_partitions(self.spread(ids), self.metadata, seen, pins)

    def expected(self, pins: Pins, ids: int | None = None) -> list[tuple[int, str]]:
        """Every partition and store that Spark will load, as far as is known; see `partitions`."""
        held = {store.name for store in self.stores if store.files or store.immutables}
        names = sorted(derive_stores(self.metadata, held))
        count = self.partitions(pins, ids).count
        return [(partition, name) for partition in range(count) for name in names]


@dataclass(frozen=True, slots=True)
class State:
    """The folder `state`."""

    operators: tuple[StateOperator, ...]
    loadable: BatchIds
    """Versions that every store of every partition can load."""
    obstacles: tuple[Obstacle, ...]
    """One for each store that cannot load the version that a restart needs."""
    commits: Mapping[int, StateUniqueIds | None] = field(default_factory=dict, repr=False)
    """What it was judged by: `state_unique_ids` of the commits that were read, by batch."""
    pins: Pins = field(default_factory=Pins)
    """What it was judged by: `spark.sql.shuffle.partitions` of the offset log."""
    planned_ms: Mapping[int, int] = field(default_factory=dict)
    """When those batches were planned whose changes were made again after a snapshot; milliseconds since 1970."""

    def obstacles_to(self, version: int, loading: Loading = ANY_LOADING) -> tuple[Obstacle, ...]:
        """One for each store that cannot load `version`, as far as it was looked; see `judge_state`."""
        return judge_state(
            self.operators,
            self.commits,
            restart_version=version,
            pins=self.pins,
            loading=loading,
        ).obstacles

    def spread(self, operator: StateOperator) -> Spread:
        """Which distribution one of the operators asks for."""
        return operator.spread(count_partitions_named(operator.operator, self.commits))

    def partitions(self, operator: StateOperator) -> Partitions:
        """The partitions that Spark will load of one of the operators."""
        return operator.partitions(self.pins, count_partitions_named(operator.operator, self.commits))

    def list_loaded(self, operator: StateOperator) -> list[StateStore]:
        """The stores of one of the operators that Spark will load.

        Where the state was spread over more partitions once, those beyond keep what they had, and nobody loads them.
        """
        partitions = self.partitions(operator)
        if not partitions.is_known:
            return list(operator.stores)
        return [each for each in operator.stores if each.partition < partitions.count]

    @property
    def loaded_stores(self) -> list[StateStore]:
        """The stores of all operators that Spark will load."""
        found: list[StateStore] = []
        for operator in self.operators:
            found += self.list_loaded(operator)
        return found

    def find_ended(self, version: int) -> dict[int, int]:
        """The operators that made no version any more while others went on, with their newest one.

        The code may have them no more: Spark before 4.0 leaves their state as it is, and says nothing. Or what they
        made since is lost. Later ones note down which operators there are, and stop where one is missing.

        Args:
            version: That the next batch loads.
        """
        if not any(operator.has_whole(version) for operator in self.operators):
            return {}
        found = {}
        for operator in self.operators:
            last = operator.end
            if operator.metadata is None and last is not None and version - last >= _VERSIONS_LACKING:
                found[operator.operator] = last
        return found

    @property
    def last_loadable_batch(self) -> int | None:
        """V: the newest batch after which all state can be loaded; None if there is none."""
        newest = self.loadable.newest
        if newest is None:
            return None
        return newest - 1


def judge_state(
    operators: Iterable[StateOperator],
    commits: Mapping[int, StateUniqueIds | None],
    *,
    restart_version: int | None,
    pins: Pins,
    loading: Loading = ANY_LOADING,
) -> State:
    """Tell which versions all stores can load, and what stands in the way of the one that a restart needs.

    Args:
        operators: What is there.
        commits: `state_unique_ids` of the commits that were read, by batch.
        restart_version: C+1, or None if no batch is committed.
        pins: See `StateOperator.partitions`.
        loading: See `Loads`.
    """
    operators = _fill_in_operators(operators, commits)
    kept = [operator for operator in operators if operator.is_kept]
    # One of which no file is left is kept as the others are, else as the plan says.
    if kept:
        are_hdfs_backed = any(operator.is_hdfs_backed for operator in kept)
    else:
        are_hdfs_backed = bool(pins.is_hdfs_backed)
    common: set[int] | None = None
    obstacles = []
    for operator in operators:
        stores = {(store.partition, store.name): store for store in operator.stores}
        is_hdfs_backed = operator.is_hdfs_backed if operator.is_kept else are_hdfs_backed
        for partition, name in operator.expected(pins, count_partitions_named(operator.operator, commits)):
            store = stores.get((partition, name), StateStore(operator.operator, partition, name))
            loads = Loads(
                store,
                find_unique_ids(store, commits),
                hdfs_backed=is_hdfs_backed if not store.files else None,
                loading=loading,
            )
            loadable = loads.loadable()
            if common is None:
                common = set(loadable)
            else:
                common = common.intersection(loadable)
            if restart_version in loadable:
                obstacle = None
            else:
                obstacle = loads.obstacle(restart_version or 0)
            if obstacle:
                obstacles.append(obstacle._replace(name=f"{store.folder}/{obstacle.name}"))
    return State(operators, BatchIds.of(common or ()), tuple(obstacles), commits, pins)


def _fill_in_operators(
    operators: Iterable[StateOperator], commits: Mapping[int, StateUniqueIds | None]
) -> tuple[StateOperator, ...]:
    """The operators, with those of which nothing is left: Spark counts from 0 on, and format v2 names each."""
    there = {operator.operator: operator for operator in operators}
    named = None
    if commits:
        named = commits[max(commits)]
    highest = max((*there, *(named or ())), default=-1)
    if not there or highest >= _OPERATORS_MAX:  # the whole folder is gone, or its name is no operator's number
        return tuple(there.values())
    return tuple(
        there.get(number, StateOperator(number, None, None, (), is_there=False)) for number in range(highest + 1)
    )


def count_partitions_named(operator: int, commits: Mapping[int, StateUniqueIds | None]) -> int | None:
    """How many partitions of an operator the newest commit that was read names; None if it names none."""
    newest = None
    if commits:
        newest = commits[max(commits)]
    return len((newest or {}).get(operator, ())) or None


def find_unique_ids(store: StateStore, commits: Mapping[int, StateUniqueIds | None]) -> dict[int, frozenset[str]]:
    """The ids that commits name for the partition of `store`, by version."""
    named = {}
    for batch_id, ids in commits.items():
        partitions = (ids or {}).get(store.operator, ())
        if store.partition < len(partitions):
            named[batch_id + 1] = frozenset(partitions[store.partition])
    return named
