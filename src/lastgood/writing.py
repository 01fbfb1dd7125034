"""Writing to any filesystem: whole files, in place at once or not at all, as far as the filesystem can."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from lastgood.errors import NoSpaceError, StorageError
from lastgood.storage import (
    FsspecStorage,
    LocalStorage,
    Location,
    Storage,
    StorageDeniedError,
    answering,
    fsspec_path,
    open_storage,
)


class WritableStorage(Storage, Protocol):
    """A storage that can be written to. Safe to use from several threads at once.

    Every method raises StorageDeniedError where we may not write, NoSpaceError where there is no room, StorageError
    where the filesystem does not answer; all name the location.
    """

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place, with the folders above it; one that is there is replaced."""

    def create(self, file: Location, content: bytes) -> bool:
        """Put a new file in its place, with the folders above it; False if there is one already, which stays.

        Whole and at once: out of several who create the same file, one is told that it did. An error other than
        StorageDeniedError leaves open whether it was created: read it.
        """

    def remove(self, file: Location) -> None:
        """Remove a file; no error if there is none."""


def open_writable(location: Location, options: Mapping[str, Any] | None = None) -> WritableStorage:
    """Give access to the filesystem that `location` names, to write as well.

    Raises:
        ExtraMissingError, StorageError: as `open_storage`.
    """
    storage = open_storage(location, options)
    if isinstance(storage, LocalStorage):
        return LocalWriter(storage.mount)
    if isinstance(storage, FsspecStorage):
        return FsspecWriter(storage.filesystem)
    raise TypeError(type(storage))


class LocalWriter(LocalStorage):
    """Files of this machine. A file is written beside its place and renamed into it."""

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place; see `WritableStorage.write`."""
        with _writing(file), self._draft(file, content) as draft:
            draft.replace(self.mount + file.path)

    def create(self, file: Location, content: bytes) -> bool:
        """Put a new file in its place; see `WritableStorage.create`."""
        with _writing(file), self._draft(file, content) as draft:
            try:
                # Unlike a rename, a link never takes the place of another file.
                Path(self.mount + file.path).hardlink_to(draft)
            except FileExistsError:
                return False
            return True

    @contextlib.contextmanager
    def _draft(self, file: Location, content: bytes) -> Iterator[Path]:
        """The content on disk beside its place, for as long as it lies there."""
        place = Path(self.mount + file.path)
        draft = place.with_name(f".{place.name}.{uuid.uuid4()}.tmp")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, file: Location) -> None:
        """Remove a file; see `WritableStorage.remove`."""
        with _writing(file):
            Path(self.mount + file.path).unlink(missing_ok=True)


class FsspecWriter(FsspecStorage):
    """Anything that fsspec can open. An object store puts an object whole."""

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place; see `WritableStorage.write`."""
        path = fsspec_path(file)
        with _writing(file), answering(file):
            self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.filesystem.pipe_file(path, content)

    def create(self, file: Location, content: bytes) -> bool:
        """Put a new file in its place; see `WritableStorage.create`."""
        path = fsspec_path(file)
        with _writing(file), answering(file):
            self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            try:
                self.filesystem.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            return True

    def remove(self, file: Location) -> None:
        """Remove a file; see `WritableStorage.remove`."""
        with _writing(file), contextlib.suppress(FileNotFoundError), answering(file):
            self.filesystem.rm_file(fsspec_path(file))


@contextlib.contextmanager
def _writing(file: Location) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise StorageDeniedError("the storage does not let us write", subject=str(file)) from error
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        raise kind("the file cannot be written", subject=str(file), found=error.strerror) from error
