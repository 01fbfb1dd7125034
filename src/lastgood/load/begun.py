"""How far a load has come: what lies beside its checkpoint, and what its logs say."""

from __future__ import annotations

from collections.abc import Collection

from lastgood.checkpoint.layout import METADATA, OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.errors import format_command_line
from lastgood.frozen import dataclass
from lastgood.load.going_on import FilesRead, go_on, go_on_in_folder, go_on_in_table
from lastgood.load.input_files import is_continued
from lastgood.load.kept import read_counts, read_spec
from lastgood.load.position import LoadPosition, make_version_position, read_position
from lastgood.load.specification import InputFile, LoadDiffersError, LoadFormat, LoadSpec
from lastgood.load.undone import require_not_undone
from lastgood.storage.reading import Location, Storage, open_storage, parse_location

_PLAN_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Begun:
    """What is there of a load."""

    position: LoadPosition | None
    """Where it stands; None before the first chunk is committed."""
    chunks: tuple[int, ...]
    is_settled: bool
    """Whether every chunk that was planned is committed."""

    def count_bytes(self, spec: LoadSpec) -> int | None:
        """Bytes that are read and committed, of a table rows; None before the first chunk is."""
        if self.position is None:
            return None
        return spec.count_bytes_before(self.position.file, self.position.position)


def find_begun(
    storage: Storage,
    checkpoint: Location,
    asked: LoadSpec,
    *,
    follows_growth: bool,
    reprocessed: Collection[str] = (),
    evolves: bool = False,
) -> tuple[LoadSpec, Begun]:
    """The load as it has begun, if it has, and how far it has come; options as `go_on_in_folder` takes them."""
    require_not_undone(storage, checkpoint)
    before = read_spec(storage, checkpoint)
    is_there = storage.stat(checkpoint / METADATA) is not None
    if before is None:
        if is_there:
            raise LoadDiffersError(
                "the checkpoint is that of another query",
                subject=str(checkpoint),
                found="no load has begun on it",
                expected="the checkpoint of this load, or none",
                effect="nothing was read or written",
                next="--checkpoint with a location of its own",
            )
        return asked, Begun(None, (), is_settled=False)
    if not is_there and read_counts(storage, checkpoint, [0]):
        raise LoadDiffersError(
            "the checkpoint of the load is lost",
            subject=str(checkpoint),
            found=f"no {METADATA}, and chunks of it are in the table",
            expected="the checkpoint with which it began",
            effect="nothing was read or written",
            next=format_command_line("backup", "restore", checkpoint),
        )
    if asked.is_table:
        return go_on_in_table(before, asked, evolves=evolves), read_begun(storage, checkpoint)
    if asked.folder is not None and before.folder is not None:
        begun = read_begun(storage, checkpoint)
        read = _count_read(storage, checkpoint, before, begun)
        return go_on_in_folder(before, asked, read, reprocessed, evolves=evolves), begun
    continued = {
        now.location
        for known, now in zip(before.files, asked.files, strict=False)
        if known.location == now.location and _is_continued(asked, known, now)
    }
    spec = go_on(before, asked, continued=continued, follows_growth=follows_growth, evolves=evolves)
    return spec, read_begun(storage, checkpoint)


def _count_read(storage: Storage, checkpoint: Location, spec: LoadSpec, begun: Begun) -> FilesRead:
    """Which of the files of a folder were read, by the logs."""
    at = begun.position
    planned = read_planned(storage, checkpoint)
    whole = 0
    if at is not None:
        whole = at.file + (at.position >= spec.files[at.file].length)
    return FilesRead(whole=whole, planned=0 if planned is None else planned.file + 1)


def _is_continued(asked: LoadSpec, before: InputFile, now: InputFile) -> bool:
    if now.is_packed or asked.form is LoadFormat.PARQUET:
        return False
    location = parse_location(now.location)
    return is_continued(open_storage(location), before, now, location)


def read_begun(storage: Storage, checkpoint: Location) -> Begun:
    """How far its logs say that a load has come.

    Raises:
        LoadDiffersError: they are not those of a load.
        StorageError: they cannot be read (subclasses).
    """
    logs = read_checkpoint(storage, checkpoint)
    committed = tuple(sorted(logs.commits.ids))
    if not committed:
        return Begun(None, (), is_settled=False)
    position = read_end(storage, checkpoint, committed[-1])
    return Begun(position, committed, is_settled=logs.last_planned == committed[-1])


def read_planned(storage: Storage, checkpoint: Location) -> LoadPosition | None:
    """Where its newest plan ends; None if there is none.

    Raises:
        LoadDiffersError, StorageError: as `read_begun`.
    """
    newest = read_checkpoint(storage, checkpoint).last_planned
    return None if newest is None else read_end(storage, checkpoint, newest)


def read_end(storage: Storage, checkpoint: Location, batch: int) -> LoadPosition:
    """Where a batch ends.

    Raises:
        LoadDiffersError: its plan is not that of a load.
    """
    raw = storage.read(checkpoint / f"{OFFSETS}/{batch}", limit=_PLAN_BYTES_MAX)
    entry = None if raw is None else parse_offset_entry(raw)
    try:
        if isinstance(entry, OffsetEntry) and isinstance(entry.sources[0].offset, DeltaOffset):
            return make_version_position(entry.sources[0].offset)
        if isinstance(entry, OffsetEntry):
            return read_position(entry.sources[0].text)
    except ValueError:
        pass  # of another source: told below
    raise LoadDiffersError(
        "a plan of the load is not understood",
        subject=f"{checkpoint}: {OFFSETS}/{batch}",
        expected="a plan as a load writes it",
        effect="nothing was read or written",
        next=format_command_line("diagnose", checkpoint),
    )
