"""What of a load lies beside its checkpoint: what it is, and how many rows each chunk had."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from lastgood.frozen import dataclass
from lastgood.load.specification import LoadDiffersError, LoadSpec
from lastgood.notes import read_json
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue, ShapeError

_T = TypeVar("_T")
SPEC: Final = "load.json"
COUNTS: Final = "load"
"""Names beside the checkpoint."""
_SPEC_BYTES_MAX = 64 * 1024 * 1024
_COUNT_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class ChunkCount(JsonValue):
    """What one chunk had."""

    rows: int
    """Records, also those that are not what the schema says."""
    corrupt: int
    """Of these, how many are not."""
    parsed: int | None = None
    """Of how many Spark had to make rows, since its tasks could not; None: nobody has counted them, it may be all."""


def keep_spec(storage: WritableStorage, checkpoint: Location, spec: LoadSpec) -> None:
    """Note down which load it is; before its first chunk.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    # Safe: whoever holds the checkpoint has read what is there, and goes on with that load.
    storage.write(locate_kept(checkpoint) / SPEC, json.dumps(spec.to_json(), indent=1).encode())


def read_spec(storage: Storage, checkpoint: Location) -> LoadSpec | None:
    """Which load has begun on a checkpoint; None if none has.

    Raises:
        LoadDiffersError: what is noted down is not that.
        StorageError: it cannot be read (subclasses).
    """
    return read_note(
        storage,
        locate_kept(checkpoint) / SPEC,
        LoadSpec.from_json,
        limit=_SPEC_BYTES_MAX,
        expected="what the load wrote when it began",
        next="--checkpoint with a location of its own, to load the files anew",
    )


def read_note(
    storage: Storage,
    file: Location,
    parse: Callable[[object], _T],
    *,
    limit: int,
    expected: str,
    next: str | None = None,  # noqa: A002
) -> _T | None:
    """What a note of a load says; None if there is none.

    Args:
        storage: That of the note.
        file: The note.
        parse: Makes a value of its JSON.
        limit: How many bytes it has at most.
        expected: What it should be.
        next: What is to be done where it is not.

    Raises:
        LoadDiffersError: it is something else.
        StorageError: it cannot be read (subclasses).
    """
    raw = storage.read(file, limit=limit)
    if raw is None:
        return None
    try:
        return parse(read_json(raw))
    except (ShapeError, ValueError) as error:
        raise LoadDiffersError(
            "what was noted down of the load is not understood",
            subject=str(file),
            found=str(error),
            expected=expected,
            effect="nothing was read or written",
            next=next,
        ) from error


def keep_count(storage: WritableStorage, checkpoint: Location, batch: int, count: ChunkCount) -> None:
    """Note down what a chunk had, which is committed.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    # Safe: what a chunk had is the same whoever counts it.
    storage.write(locate_kept(checkpoint) / f"{COUNTS}/{batch}", json.dumps(count.to_json()).encode())


def read_counts(storage: Storage, checkpoint: Location, batches: Collection[int]) -> dict[int, ChunkCount]:
    """What chunks had, as far as it was noted down.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    folder = locate_kept(checkpoint) / COUNTS
    with open_threads(storage, storage.parallel) as pool:
        contents = list(pool.map(lambda batch: storage.read(folder / str(batch), limit=_COUNT_BYTES_MAX), batches))
    found = {}
    for batch, raw in zip(batches, contents, strict=True):
        try:
            found[batch] = ChunkCount.from_json(read_json(raw or b""))
        except (ShapeError, ValueError):
            continue  # half written, or none: it is counted once more
    return found


def locate_kept(checkpoint: Location) -> Location:
    """The folder in which it lies."""
    return checkpoint.sibling(WORK_SUFFIX)
