"""Names, sizes and times of the files of a checkpoint and of its work folder, as they were listed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lastgood.errors import Retry, StorageError
from lastgood.storage.reading import Entry, Location
from lastgood.values import ShapeError

CHECKPOINT, WORK = "checkpoint", "lastgood"
"""The names that a checkpoint and its work folder have in a bundle."""


_PATH_MAX = 12 * 1024
"""Characters: no storage takes a name of more than a thousand."""


class NotInBundleError(StorageError):
    """A bundle does not hold what is asked of it: it was made without it."""

    condition = "NOT_IN_BUNDLE"
    exit_code = 19
    retry = Retry.NEVER


class BundleTree:
    """What lies where. Paths in it are those of the parts of a bundle: `checkpoint/offsets/7`."""

    def __init__(self, roots: Mapping[str, Location]) -> None:
        """Hold files below `roots`, none yet: where `CHECKPOINT` is, and `WORK` if there is a place for it."""
        self._roots = roots
        self._folders: dict[str, dict[str, Entry]] = {"": {}}

    def add_folder(self, path: str) -> None:
        """Add a folder and those above it."""
        if path and path not in self._folders:
            above, _, name = path.rpartition("/")
            self.add_folder(above)
            self._folders[above][name] = Entry(name, is_folder=True, size=None, modified_ms=None)
            self._folders[path] = {}

    def add_file(self, path: str, size: int | None, modified_ms: int | None) -> None:
        """Add a file and the folders above it."""
        above, _, name = path.rpartition("/")
        self.add_folder(above)
        self._folders[above][name] = Entry(name, is_folder=False, size=size, modified_ms=modified_ms)

    @property
    def files(self) -> Iterable[tuple[str, Entry]]:
        """Path and facts of every file."""
        for folder, entries in self._folders.items():
            for entry in entries.values():
                if not entry.is_folder:
                    yield f"{folder}/{entry.name}", entry

    def path(self, place: Location) -> str:
        """The path of a file or folder.

        Raises:
            NotInBundleError: it lies neither in the checkpoint nor in its work folder.
        """
        for top, root in self._roots.items():
            if place == root or f"{place}/".startswith(f"{str(root).rstrip('/')}/"):
                return top + str(place)[len(str(root).rstrip("/")) :]
        known = " or ".join(map(str, self._roots.values()))
        raise NotInBundleError(
            "the bundle knows nothing of this place", subject=str(place), expected=f"a file in {known}"
        )

    def folder(self, place: Location) -> list[Entry] | None:
        """What lies in a folder; None if there is none.

        Raises:
            NotInBundleError: see `path`.
        """
        found = self._folders.get(self.path(place))
        if found is None:
            return None
        return list(found.values())

    def entry(self, place: Location) -> Entry | None:
        """A file or folder; None if there is none.

        Raises:
            NotInBundleError: see `path`.
        """
        above, _, name = self.path(place).rpartition("/")
        return self._folders.get(above, {}).get(name)

    def to_json(self) -> dict[str, Any]:
        """The part `listing.json`."""
        return {
            "folders": [path for path in self._folders if path],
            "files": [[path, entry.size, entry.modified_ms] for path, entry in self.files],
        }


def tree_from_json(roots: Mapping[str, Location], told: Any) -> BundleTree:
    """Read what `Tree.to_json` wrote.

    Raises:
        ShapeError: it is something else.
    """
    if isinstance(told, dict):
        folders, files = (told.get("folders"), told.get("files"))
    else:
        folders, files = (None, None)
    if not isinstance(folders, list) or not isinstance(files, list):
        raise ShapeError(told, "listing with folders and files")
    tree = BundleTree(roots)
    for path in folders:
        tree.add_folder(_parse_path(path))
    for row in files:
        if not isinstance(row, list) or len(row) != 3 or not all(_is_number(each) for each in row[1:]):
            raise ShapeError(row, "file")
        tree.add_file(_parse_path(row[0]), *row[1:])
    return tree


def _parse_path(told: Any) -> str:
    if isinstance(told, str):
        parts = told.split("/")
    else:
        parts = [""]
    if parts[0] not in (CHECKPOINT, WORK) or not all(parts) or len(parts) > 12 or len(told) > _PATH_MAX:
        raise ShapeError(told, "path in a bundle")
    return "/".join(parts)


def _is_number(told: Any) -> bool:
    return told is None or (isinstance(told, int) and not isinstance(told, bool))
