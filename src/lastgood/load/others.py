"""Whether a file was loaded into a table before, by another load: the same file in two lists would be there twice."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.load.kept import read_spec
from lastgood.load.specification import LoadDiffersError
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX


def locate_loads(table: Location) -> Location:
    """The folder in which the checkpoints of the loads into a table lie, where no other place is named."""
    return table.sibling(f"{WORK_SUFFIX}/loads")


def find_other_load(storage: Storage, table: Location, checkpoint: Location, files: Collection[str]) -> str | None:
    """A file that another load into a table has begun with, and that load, for a person; None if there is none.

    Only the loads are known whose checkpoints lie beside the table. Who names another place for one has asked for the
    files once more, and is not looked at either.

    Args:
        storage: From `open_storage(checkpoint)`.
        table: Where it lies.
        checkpoint: Of the load that asks.
        files: Locations of what it would read.

    Raises:
        LoadDiffersError: what was noted down of another load is not understood.
        StorageError: the storage does not answer (subclasses).
    """
    loads = locate_loads(table)
    if not files or loads / checkpoint.name != checkpoint:
        return None
    names = [name.rstrip("/").removesuffix(WORK_SUFFIX) for name in storage.names(loads) or ()]
    others = [loads / name for name in sorted(set(names) - {checkpoint.name})]
    with open_threads(storage) as pool:
        specs = list(pool.map(lambda other: read_spec(storage, other), others))
    wanted = set(files)
    for other, spec in zip(others, specs, strict=True):
        if spec is None:
            continue
        both = wanted & {each.location for each in spec.files}
        if both:
            return f"{min(both)}, by the load on {other}"
    return None


def make_other_load_error(found: str) -> LoadDiffersError:
    """The error for a file that another load has begun with."""
    return LoadDiffersError(
        "a file is loaded into this table by another load",
        found=found,
        expected="files of which no other load into the table has any: their records would be there twice",
        effect="nothing was read or written",
        next="the same command without it; or --checkpoint with a location of its own, to load it once more",
    )
