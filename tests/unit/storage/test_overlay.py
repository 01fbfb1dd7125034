from __future__ import annotations

from lastgood.storage.overlay import Brought, OverlayStorage
from lastgood.storage.reading import Entry, parse_location
from lastgood.testing.storage import MemoryWriter

HERE = parse_location("/lake/orders")


def overlay(**files: bytes | None) -> OverlayStorage:
    storage = MemoryWriter()
    for path in ("offsets/1", "offsets/2", "commits/1", "metadata"):
        storage.write(HERE / path, path.encode())
    return OverlayStorage(storage, HERE, {path.replace("__", "/"): content for path, content in files.items()})


def test_what_was_removed_is_not_there_and_what_was_written_is() -> None:
    shown = overlay(offsets__2=None, offsets__3=b"new", commits__1=b"other")
    assert set(shown.names(HERE / "offsets") or ()) == {"1", "3"}
    assert shown.read(HERE / "offsets/2", limit=9) is None
    assert shown.stat(HERE / "offsets/2") is None
    assert shown.read(HERE / "offsets/3", limit=2) == b"ne"
    assert shown.read(HERE / "commits/1", limit=9) == b"other"
    assert shown.read(HERE / "offsets/1", limit=99) == b"offsets/1"
    assert {entry.name for entry in shown.walk(HERE) or ()} == {"offsets/1", "offsets/3", "commits/1", "metadata"}


def test_folder_that_only_the_overlay_knows_is_a_folder() -> None:
    shown = overlay(sources__0__7=b"x")
    assert set(shown.names(HERE) or ()) == {"offsets/", "commits/", "metadata", "sources/"}
    assert list(shown.names(HERE / "sources") or ()) == ["0/"]
    assert list(shown.scan(HERE / "sources/0") or ()) == [Entry("7", is_folder=False, size=1, modified_ms=None)]
    assert shown.stat(HERE / "sources") == Entry("sources", is_folder=True, size=None, modified_ms=None)
    assert shown.names(HERE / "nothing") is None


def test_what_is_brought_is_shown_in_its_place_before_and_after() -> None:
    storage = MemoryWriter()
    made, place = HERE.sibling(".lastgood") / "rebuilt/1/9.delta", HERE / "state/0/0/9.delta"
    storage.write(made, b"made anew")
    storage.write(place, b"as it was")
    shown = OverlayStorage(
        storage, HERE, {}, {"state/0/0/9.delta": Brought(made, 9), "state/0/0/10.delta": Brought(made, 9)}
    )
    assert shown.read(place, limit=4) == b"made"
    assert list(shown.names(HERE / "state/0/0") or ()) == ["10.delta", "9.delta"]
    assert shown.stat(place) == Entry("9.delta", is_folder=False, size=9, modified_ms=None)
    storage.remove(place)
    storage.move(made, place)
    assert shown.read(place, limit=99) == b"made anew"
