"""`inspect --state`: how much state a query keeps, how it grows, how evenly it lies, and what of it can be loaded."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.checkpoint.operators import OperatorMetadata
from lastgood.frozen import dataclass
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.settings.target import Target
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class StoreSize(JsonValue):
    """How much one state store keeps."""

    operator: int
    operator_name: str | None
    partition: int
    store: str
    format: str | None
    versions: tuple[int, int] | None
    """Oldest and newest version that has a file."""
    files: int
    size: int
    """Bytes of all its files."""
    newest_change: int | None
    """Bytes that the newest version alone added."""


@dataclass(frozen=True, slots=True)
class StateSizes(JsonValue):
    """The state of a query, store by store."""

    json = make_form("*query size skew=skews loadable=_loadable stores")
    """What `inspect --state --format json` prints; sizes in bytes."""

    query: OpenQuery
    stores: tuple[StoreSize, ...]
    loadable: tuple[range, ...] = ()
    """Batches after which every store can be loaded, of the newest that were read; oldest first."""

    @property
    def _loadable(self) -> list[list[int]]:
        return [[each[0], each[-1]] for each in self.loadable]

    @property
    def skews(self) -> dict[int, float | None]:
        """Of each operator the largest partition in multiples of the mean; None if it has less than two."""
        sizes: dict[int, dict[int, int]] = {}
        for store in self.stores:
            of_operator = sizes.setdefault(store.operator, {})
            of_operator[store.partition] = of_operator.get(store.partition, 0) + store.size
        return {operator: _compute_skew(sizes[operator].values()) for operator in sorted(sizes)}

    @property
    def size(self) -> int:
        """Of all stores together, in bytes."""
        return sum(store.size for store in self.stores)


def _compute_skew(sizes: Collection[int]) -> float | None:
    total = sum(sizes)
    return max(sizes) * len(sizes) / total if len(sizes) > 1 and total else None


def inspect_state(target: Target) -> StateSizes:
    """How much state a query keeps, and where.

    Raises:
        CheckpointMissingError: there is no checkpoint.
        StorageError: the storage does not answer (subclasses).
    """
    query = gather(target, batches=BATCHES)
    state = query.checkpoint.state
    found = []
    for operator in state.operators if state else ():
        name = operator.metadata.operator_name if isinstance(operator.metadata, OperatorMetadata) else None
        for store in sorted(operator.stores, key=lambda each: (each.partition, each.name)):
            versions = store.versions
            newest, kind, span, changed = versions.newest, None, None, None
            if store.format is not None:
                kind = store.format.value
            if versions.oldest is not None and newest is not None:
                span = (versions.oldest, newest)
            changes = [file.size or 0 for file in store.files if file.version == newest and not file.kind.is_snapshot]
            if changes:
                changed = sum(changes)
            found.append(
                StoreSize(
                    operator.operator,
                    name,
                    store.partition,
                    store.name,
                    kind,
                    span,
                    len(store.files) + len(store.immutables),
                    sum(file.size or 0 for file in store.files) + sum(size or 0 for size in store.immutables.values()),
                    changed,
                )
            )
    if state is None:
        return StateSizes(query, tuple(found))
    # Batch N makes version N + 1, and version 0, which needs no file, is none of those that are told to be loadable.
    loadable = tuple(range(run.start - 1, run.stop - 1) for run in state.loadable.runs)
    return StateSizes(query, tuple(found), loadable)
