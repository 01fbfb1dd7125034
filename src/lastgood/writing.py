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
        place = Path(self.mount + file.path)
        draft = place.with_name(f".{place.name}.{uuid.uuid4()}.tmp")
        with _writing(file):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with draft.open("xb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                draft.replace(place)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise

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
