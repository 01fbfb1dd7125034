"""A storage as it would be if some files were written, moved or removed; nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lastgood.storage.reading import Entry, Location, Storage


class Brought(NamedTuple):
    """A file that lies elsewhere on the same storage, until it is moved to its place."""

    source: Location
    size: int
    """Bytes."""


class OverlayStorage:
    """Another storage, some files of one folder of which are other ones."""

    def __init__(
        self,
        storage: Storage,
        folder: Location,
        files: Mapping[str, bytes | None],
        brought: Mapping[str, Brought] | None = None,
    ) -> None:
        """Show `storage`, but these files.

        Args:
            storage: What is below.
            folder: Where the paths of `files` begin.
            files: Path and content; None hides a file that is there.
            brought: Path, and where the file lies that takes its place; it may be there by now.
        """
        self._storage = storage
        self._folder = folder
        self._files: dict[str, bytes | Brought | None] = {str(folder / path): told for path, told in files.items()}
        self._files |= {str(folder / path): told for path, told in (brought or {}).items()}

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return self._storage.parallel

    def names(self, folder: Location) -> Iterator[str] | None:
        """Names of what lies directly in a folder; see `Storage.names`."""
        found = self._storage.names(folder)
        added = self._below(folder)
        if found is None and not added:
            return None
        shown = {"".join(name.partition("/")[:2]) for name in added}
        kept = (name for name in found or () if not self._is_covered(folder / name))
        return iter([*(name for name in kept if name not in shown), *sorted(shown)])

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """What lies directly in a folder; see `Storage.scan`."""
        found = self._storage.scan(folder, facts=facts)
        added = self._below(folder)
        if found is None and not added:
            return None
        kept = {entry.name: entry for entry in found or () if not self._is_covered(folder / entry.name)}
        for name, content in added.items():
            top, slash, _ = name.partition("/")
            if slash:
                kept[top] = Entry(top, is_folder=True, size=None, modified_ms=None)
            else:
                kept[top] = _make_file_entry(top, content)
        return iter(kept.values())

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """Every file below a folder; see `Storage.walk`."""
        found = self._storage.walk(folder)
        added = self._below(folder)
        if found is None and not added:
            return None
        kept = [entry for entry in found or () if not self._is_covered(folder / entry.name)]
        return iter([*kept, *(_make_file_entry(name, content) for name, content in added.items())])

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """The first `limit` bytes of a file; see `Storage.read`."""
        if self._is_covered(file):
            content = self._files[str(file)]
            if isinstance(content, Brought):
                there = self._storage.read(content.source, limit=limit)
                return self._storage.read(file, limit=limit) if there is None else there
            if content is None:
                return None
            return content[:limit]
        return self._storage.read(file, limit=limit)

    def stat(self, location: Location) -> Entry | None:
        """One file or folder; see `Storage.stat`."""
        if self._is_covered(location):
            content = self._files[str(location)]
            if content is None:
                return None
            return _make_file_entry(location.name, content)
        found = self._storage.stat(location)
        if found is None and self._below(location):
            return Entry(location.name, is_folder=True, size=None, modified_ms=None)
        return found

    def _is_covered(self, location: Location) -> bool:
        return str(location) in self._files

    def _below(self, folder: Location) -> dict[str, bytes | Brought]:
        """What was added below a folder, by its path from there."""
        prefix = f"{folder}/"
        return {
            path.removeprefix(prefix): content
            for path, content in self._files.items()
            if content is not None and path.startswith(prefix)
        }


def _make_file_entry(name: str, content: bytes | Brought) -> Entry:
    size = content.size if isinstance(content, Brought) else len(content)
    return Entry(name, is_folder=False, size=size, modified_ms=None)
