"""What was noted of a load is moved aside, and its folder of Parquet too: on an object store file by file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lastgood.ids import make_id
from lastgood.load.kept import COUNTS, SPEC, locate_kept
from lastgood.load.undone import Undoing, keep_undoing, put_aside, read_undoing
from lastgood.sinks.files.kind import NOTE
from lastgood.sinks.files.owning import put_aside as put_folder_aside
from lastgood.sinks.files.owning import reserve
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import MoveRefusedError
from lastgood.testing.storage import MemoryWriter

CHECKPOINT = parse_location("s3a://lake/t.lastgood/loads/x")
TABLE = parse_location("s3a://lake/t")
UNDOING = Undoing(make_id(7), 7, "q")
FILES = {"metadata": b"{}", "offsets/0": b"v1", "offsets/1": b"v1\n1", "commits/0": b"v1"}


class KilledError(BaseException):
    """Stands for a kill."""


class DyingWriter(MemoryWriter):
    """Dies before one of its copies and removals."""

    def __init__(self, storage: MemoryWriter, steps: int) -> None:
        super().__init__()
        self.filesystem = storage.filesystem
        self.steps_left = steps

    @property
    def parallel(self) -> int:
        """One after another: a kill leaves the rest as it is."""
        return 1

    def copy(self, source: Location, target: Location) -> None:
        self._go_on()
        super().copy(source, target)

    def remove(self, file: Location) -> None:
        self._go_on()
        super().remove(file)

    def _go_on(self) -> None:
        if not self.steps_left:
            raise KilledError
        self.steps_left -= 1


def make_load() -> MemoryWriter:
    """An object store with a load that is being taken back."""
    storage = MemoryWriter()
    for path, content in FILES.items():
        storage.write(CHECKPOINT / path, content)
        storage.write(TABLE / path, content)
    assert reserve(storage, TABLE, CHECKPOINT, 1) is None
    work = locate_kept(CHECKPOINT)
    storage.write(work / SPEC, b"{}")
    storage.write(work / COUNTS / "0", b'{"rows": 7, "corrupt": 0}')
    keep_undoing(storage, CHECKPOINT, UNDOING)
    return storage


def list_below(storage: MemoryWriter, folder: Location) -> dict[str, bytes | None]:
    return {each.name: storage.read(folder / each.name, limit=1000) for each in storage.walk(folder) or ()}


def move_load(storage: MemoryWriter) -> Location:
    return put_aside(storage, CHECKPOINT, UNDOING)


def move_folder(storage: MemoryWriter) -> Location:
    kept = put_folder_aside(storage, TABLE, str(CHECKPOINT), UNDOING.id)
    assert kept is not None
    return parse_location(kept)


@pytest.mark.parametrize(("move", "is_load"), [(move_load, True), (move_folder, False)])
def test_killed_at_any_step_the_same_call_goes_on_and_all_is_there(
    move: Callable[[MemoryWriter], Location], is_load: bool
) -> None:
    whole = make_load()
    wanted = list_below(whole, move(whole))
    assert wanted.keys() >= ({f"checkpoint/{name}" for name in FILES} if is_load else FILES.keys())
    for steps in range(2 * len(wanted)):
        storage = make_load()
        with pytest.raises(KilledError):
            move(DyingWriter(storage, steps))
        if is_load:
            assert read_undoing(storage, CHECKPOINT) == UNDOING  # until then nothing is loaded there
        assert list_below(storage, move(storage)) == wanted
        assert list_below(storage, CHECKPOINT if is_load else TABLE).keys() <= {NOTE}


def test_what_was_changed_meanwhile_is_not_removed() -> None:
    storage = make_load()
    with pytest.raises(KilledError):
        move_folder(DyingWriter(storage, 1))
    (copied,) = list_below(storage, TABLE.sibling(".lastgood/undone"))
    name = copied.removeprefix(f"{UNDOING.id}/table/")
    storage.write(TABLE / name, b"x" * len(FILES[name]))
    with pytest.raises(MoveRefusedError, match="would be overwritten"):
        move_folder(storage)
    assert storage.read(TABLE / name, limit=100) == b"x" * len(FILES[name])
