"""Writing to any filesystem: whole files, in place at once or not at all, as far as the filesystem can.

`create` is what leases and seals stand on. How exclusive it is, is the filesystem's own affair: `_WRITERS` names who
writes where, `creates_exclusively` of its kind where a suite has raced it, and `require_exclusive_create` asks the one
that is there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from lastgood.errors import NoSpaceError, Retry, StorageError, make_owner_command
from lastgood.redaction import redact_error
from lastgood.storage.drafts import make_draft_name
from lastgood.storage.local_tree import Place
from lastgood.storage.location import find_storage_kind
from lastgood.storage.reading import (
    Entry,
    FsspecStorage,
    LocalStorage,
    Location,
    Storage,
    StorageDeniedError,
    are_same,
    format_fsspec_path,
    open_storage,
    translate_errors,
)
from lastgood.storage.rights import FILE, Rights, choose_rights, is_private
from lastgood.storage.services import is_unreachable

_LINKS_REFUSED = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})
_FOLDERS_NOT_SETTLED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF})
"""What filesystems say that settle no folder, as some shares do: there nothing better can be had."""
_CHUNK_BYTES = 1024 * 1024
_MARK = "lastgood_made_by"
"""A name of metadata that Azure takes, too."""
_S3_MARK = "lastgood-made-by"
_S3_EXISTS = frozenset({"PreconditionFailed", "412"})
_S3_CONFLICT = frozenset({"ConditionalRequestConflict", "409"})
_S3_CONFLICTS_MAX = 5
_S3_UNSUPPORTED = frozenset({"NotImplemented", "501"})
_HDFS = ("hdfs", "webhdfs", "swebhdfs")
_CLOUDS = ("abfss", "gs")
LATE_WRITE_SECONDS = 5.0
"""More than a driver's write of a log entry to an object store takes from its look whether there is one."""
_VOLUMES = "/Volumes/"
_FUSE = ("fuse.", "macfuse", "osxfuse")  # not fuseblk, which is a disk of this machine


class ExclusiveCreateUnsupportedError(StorageError):
    """A storage cannot create a file only if there is none, so nothing is repaired there."""

    condition = "EXCLUSIVE_CREATE_UNSUPPORTED"
    exit_code = 15
    retry = Retry.NEVER


class MoveRefusedError(StorageError):
    """A file cannot get another name: it is not there, or something has that name."""

    condition = "MOVE_REFUSED"
    exit_code = 16
    retry = Retry.AFTER_CHANGE


class WritableStorage(Storage, Protocol):
    """A storage that can be written to. Safe to use from several threads at once.

    Every method raises StorageDeniedError where we may not write, NoSpaceError where there is no room, StorageError
    where the filesystem does not answer; all name the location. After a StorageError it may have been done or not.
    """

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place, with the folders above it; one that is there is replaced."""

    def create(self, file: Location, content: bytes) -> bool:
        """Put a file where there is none, with the folders above it; of several at once, one does.

        Returns:
            True if we made it; False if there is one, which stays as it is.
        """

    def move(self, source: Location, target: Location) -> None:
        """Give a file another name on the same storage; the folders above it are made.

        Killed in between, both names are left, each with the whole content.

        Raises:
            MoveRefusedError: there is no such file, or something has the new name; nothing was done.
        """

    def move_folder(self, source: Location, target: Location) -> None:
        """Give a folder another name on the same storage, with all that lies in it.

        On a disk at once; elsewhere file by file: killed in between, the same call goes on.

        Raises:
            MoveRefusedError: something has a name that is needed.
        """

    def copy(self, source: Location, target: Location) -> None:
        """Put a copy of a file, however large, where there is none on the same storage; the folders above it are made.

        Raises:
            MoveRefusedError: there is no such file, or something has the new name; nothing was done.
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
        return LocalWriter(storage.mount, root=storage.root)
    if isinstance(storage, FsspecStorage):
        return _WRITERS.get(_identify_kind(location), FsspecWriter)(storage.filesystem)
    if find_storage_kind(location.scheme).open is None:
        raise TypeError(type(storage))
    return cast("WritableStorage", storage)  # as its kind says


def may_create_exclusively(folder: Location) -> bool:
    """Whether a suite has seen that of several who create one file on this kind of storage only one does."""
    scheme = _identify_kind(folder)
    return find_storage_kind(scheme).creates_exclusively and not (scheme == "file" and folder.path.startswith(_VOLUMES))


def append(storage: WritableStorage, file: Location, content: bytes) -> bool:
    """Put bytes behind those of a file on a disk of this machine.

    They are not safe there when it returns, and after an error, or a kill, a part of them may stand there.

    Returns:
        False if nothing was done: there is no such file, it has another name as well, or the storage puts files whole.

    Raises:
        StorageError: as `WritableStorage`.
    """
    return isinstance(storage, LocalWriter) and storage.append(file, content)


def move_on(storage: WritableStorage, source: Location, target: Location) -> None:
    """Give a file another name, or end a move that was killed between its copy and its removal.

    Raises:
        MoveRefusedError: there is no such file, or something else has the new name; nothing was done.
        StorageError: as `WritableStorage`.
    """
    here, there = storage.stat(source), storage.stat(target)
    if here is None or there is None or here.size != there.size:
        storage.move(source, target)
    elif are_same(storage, source, target, here.size or 0):
        # Safe: what it holds was just seen at the target as well.
        storage.remove(source)
    else:
        storage.move(source, target)


def estimate_late_write_seconds(folder: Location) -> float:
    """How long after a `create` a driver may still put its own file there, since it had looked before that.

    Spark puts an entry of a log in place by a rename that finds nothing there. On HDFS that is one act, on a disk next
    to one; on an object store it is a look, and then a copy over whatever is there by then.
    """
    return 0.0 if find_storage_kind(_identify_kind(folder)).writes_at_once else LATE_WRITE_SECONDS


def require_exclusive_create(storage: WritableStorage, folder: Location) -> None:
    """See that of several who create one file in `folder` only one does; a file is put there and removed again.

    Raises:
        ExclusiveCreateUnsupportedError: no, or nobody has proven it for this kind of storage yet.
        StorageError: the folder cannot be written to.
    """
    if not may_create_exclusively(folder):
        raise _make_unsupported_error(folder, "a kind of storage on which no repair has been tested")
    probe = folder / make_draft_name("probe")
    try:
        made = [storage.create(probe, b"first"), storage.create(probe, b"second")]
        held = storage.read(probe, limit=16)
        if isinstance(storage, LocalWriter) and not storage.takes_links(probe) and storage.is_fuse(probe):
            raise _make_unsupported_error(folder, "a mounted store (FUSE) that takes no hard links")
    finally:
        # Safe: nobody else's, for its name was drawn at random.
        storage.remove(probe)
    if made != [True, False] or held != b"first":
        raise _make_unsupported_error(folder, "a storage that lets two create the same file")


class LocalWriter(LocalStorage):
    """Files of this machine. A file is written beside its place and renamed or linked into it."""

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place; see `WritableStorage.write`."""
        with _translate_write_errors(file), self._draft(file, [content]) as (draft, place):
            # Safe, as far as it is for us to say: the draft is whole, and safe on the disk. That what is there may go
            # is argued where it is written over.
            _rename(draft, place)

    def append(self, file: Location, content: bytes) -> bool:
        """Put bytes behind those of a file; see `append`."""
        with _translate_write_errors(file):
            try:
                # Without O_NONBLOCK a pipe that was put there would hang us until somebody reads from it.
                descriptor = self.tree.open(self.mount + file.path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            except FileNotFoundError:
                return False
            with os.fdopen(descriptor, "ab") as stream:
                if not _has_one_name(descriptor):
                    return False
                # Safe: nothing that stands there is written over, and the file has no other name, by which whoever
                # may write to this folder would have us write into a file elsewhere.
                stream.write(content)
        return True

    def create(self, file: Location, content: bytes) -> bool:
        """Put a file where there is none; see `WritableStorage.create`.

        Where there are no hard links, a reader may see it half, and one who is killed leaves half of it.
        """
        with _translate_write_errors(file), self._draft(file, [content]) as (draft, place):
            made = _link(draft, place)
            if made is not None:
                return made
            return _create_in_place(place, content, self._rights(file, place))

    def move(self, source: Location, target: Location) -> None:
        """Give a file another name; see `WritableStorage.move`."""
        _require_file(source, self.stat(source))
        with _translate_write_errors(target):
            old, new = self._place(source), self._place(target, make=True)
            try:
                made = _link(old, new)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                made = self._copy(source, target)  # a folder of it lies on another disk
            if made:
                # Safe: it has a second name by now, or a whole copy, safe on the disk.
                _unlink(old)
            elif made is None and not _is_taken(new):
                # Safe under the lease of a recovery: nothing was there when we looked a moment ago. Where there are no
                # links nothing better can be had, and `require_exclusive_create` refuses the mounted stores without.
                _rename(old, new)
            else:
                raise _make_in_the_way_error(target)

    def move_folder(self, source: Location, target: Location) -> None:
        """Give a folder another name; see `WritableStorage.move_folder`."""
        with _translate_write_errors(target):
            old, new = self._place(source), self._place(target, make=True)
            if _is_taken(new):
                raise _make_in_the_way_error(target)
            # Safe: nothing was there when we looked a moment ago, and no folder with anything in it is written over.
            _rename(old, new)

    def copy(self, source: Location, target: Location) -> None:
        """Put a copy where there is no file; see `WritableStorage.copy`."""
        _require_file(source, self.stat(source))
        with _translate_write_errors(target):
            if not self._copy(source, target):
                raise _make_in_the_way_error(target)

    def remove(self, file: Location) -> None:
        """Remove a file; see `WritableStorage.remove`."""
        with _translate_write_errors(file), contextlib.suppress(FileNotFoundError):
            # That it is safe is argued where it is asked for.
            _unlink(self._place(file))

    def takes_links(self, file: Location) -> bool:
        """Whether a file that is there can get a second name."""
        place = self._place(file)
        second = _find_beside(place, make_draft_name("probe"))
        with _translate_write_errors(file):
            made = _link(place, second)
            with contextlib.suppress(FileNotFoundError):
                # Safe: nobody else's, for its name was drawn at random.
                _unlink(second)
        return bool(made)

    def is_fuse(self, file: Location) -> bool:
        """Whether a file lies on what a program, not the system, shows as a filesystem."""
        import psutil  # noqa: PLC0415 - only a repair needs it

        real = f"{os.path.realpath(self.mount + file.path)}/"
        mounts = psutil.disk_partitions(all=True)
        above = [mount for mount in mounts if real.startswith(f"{mount.mountpoint.rstrip('/')}/")]
        if above:
            kind = max(above, key=lambda mount: len(mount.mountpoint)).fstype
        else:
            kind = ""
        return kind == "fuse" or kind.startswith(_FUSE)

    def _place(self, file: Location, *, make: bool = False) -> Place:
        return self.tree.place(self.mount + file.path, make=make)

    def _rights(self, file: Location, place: Place) -> Rights:
        return choose_rights(place.name, place.dir_fd, is_ours=is_private(self.mount + file.path))

    @contextlib.contextmanager
    def _draft(self, file: Location, pieces: Iterable[bytes]) -> Iterator[tuple[Place, Place]]:
        """A file that is safe on the disk, and its place beside it; gone in the end, if it got no other name."""
        place = self._place(file, make=True)
        draft = _find_beside(place, make_draft_name(file.name))
        try:
            rights = self._rights(file, place)
            with _open_place(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights) as stream:
                stream.writelines(pieces)
            yield draft, place
        finally:
            with contextlib.suppress(FileNotFoundError):
                # Safe: it is ours, and by now it has another name, or never gets one.
                _unlink(draft)

    def _copy(self, source: Location, target: Location) -> bool | None:
        with _open_place(self._place(source), os.O_RDONLY) as stream:
            pieces = iter(lambda: stream.read(_CHUNK_BYTES), b"")
            with self._draft(target, pieces) as (draft, place):
                made = _link(draft, place)
                if made is None and not _is_taken(place):
                    # Safe: as in `move`.
                    _rename(draft, place)
                    made = True
                return made


def _has_one_name(descriptor: int) -> bool:
    """Whether it is a plain file that stands nowhere else."""
    told = os.fstat(descriptor)
    return stat.S_ISREG(told.st_mode) and told.st_nlink == 1


def _find_beside(place: Place, name: str) -> Place:
    """Another file of the same folder."""
    return place._replace(name=name if place.folder is not None else str(Path(place.name).with_name(name)))


@contextlib.contextmanager
def _open_place(place: Place, flags: int, rights: Rights | None = None) -> Iterator[BinaryIO]:
    """A file that is open; one that is written is safe on the disk in the end, and has its rights."""
    descriptor = os.open(place.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE, dir_fd=place.dir_fd)
    with os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb") as stream:
        yield stream
        if rights is not None:
            stream.flush()
            rights.give(stream.fileno())
            os.fsync(stream.fileno())


def _rename(old: Place, new: Place) -> None:
    # What is at the new name goes: see who calls it.
    os.replace(old.name, new.name, src_dir_fd=old.dir_fd, dst_dir_fd=new.dir_fd)
    _keep_name(new)


def _keep_name(place: Place) -> None:
    """Have a name last, whatever happens to this machine: a step elsewhere may rest on it.

    Raises:
        OSError: the disk does not take it.
    """
    folder = os.open(
        "." if place.dir_fd is not None else str(Path(place.name).parent), os.O_RDONLY, dir_fd=place.dir_fd
    )
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _FOLDERS_NOT_SETTLED:
            raise
    finally:
        os.close(folder)


def _unlink(place: Place) -> None:
    # See who calls it.
    os.unlink(place.name, dir_fd=place.dir_fd)


def _is_taken(place: Place) -> bool:
    try:
        os.stat(place.name, dir_fd=place.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _link(old: Place, new: Place) -> bool | None:
    """Give a file a second name; False if it is taken, None if this filesystem has no hard links."""
    try:
        os.link(old.name, new.name, src_dir_fd=old.dir_fd, dst_dir_fd=new.dir_fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _LINKS_REFUSED:
            return None
        raise
    _keep_name(new)
    return True


def _create_in_place(place: Place, content: bytes, rights: Rights) -> bool:
    try:
        os.close(os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE, dir_fd=place.dir_fd))
    except FileExistsError:
        return False
    try:
        with _open_place(place, os.O_WRONLY, rights) as stream:
            stream.write(content)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            # Safe: it was created just above, where no file was, and it is half of one.
            _unlink(place)
        raise
    return True


class FsspecWriter(FsspecStorage):
    """Anything that fsspec can open. An object store puts an object whole."""

    def write(self, file: Location, content: bytes) -> None:
        """Put a file in its place; see `WritableStorage.write`."""
        path = format_fsspec_path(file)
        with _translate_write_errors(file), translate_errors(file):
            self._make_folder(path)
            self.filesystem.pipe_file(path, content)

    def create(self, file: Location, content: bytes) -> bool:
        """Put a file where there is none; see `WritableStorage.create`.

        Only as exclusive as this filesystem's own `mode="create"`: many ask first and then write.
        """
        path = format_fsspec_path(file)
        with _translate_write_errors(file), translate_errors(file):
            self._make_folder(path)
            try:
                self.filesystem.pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
        return True

    def move(self, source: Location, target: Location) -> None:
        """Give a file another name; see `WritableStorage.move`. It is copied, and the old one removed."""
        self.copy(source, target)
        # Safe: nothing was at the target before, and there it was just seen in its whole length.
        self.remove(source)

    def move_folder(self, source: Location, target: Location) -> None:
        """Give a folder another name; see `WritableStorage.move_folder`."""
        for entry in list(self.walk(source) or ()):
            move_on(self, source / entry.name, target / entry.name)

    def copy(self, source: Location, target: Location) -> None:
        """Put a copy where there is no file; see `WritableStorage.copy`."""
        before = self.stat(source)
        _require_file(source, before)
        if self.stat(target) is not None:
            raise _make_in_the_way_error(target)
        with _translate_write_errors(target), translate_errors(target):
            self._make_folder(format_fsspec_path(target))
            self.filesystem.cp_file(format_fsspec_path(source), format_fsspec_path(target))
        after = self.stat(target)
        if before is None or after is None or after.size != before.size:
            if after is None:
                found = "no such file"
            else:
                found = f"{after.size} bytes"
            expected = None
            if before is not None:
                expected = f"{before.size} bytes"
            raise StorageError(
                "a file was not copied whole",
                subject=str(target),
                found=found,
                expected=expected,
                effect=f"{source} is still there",
            )

    def remove(self, file: Location) -> None:
        """Remove a file; see `WritableStorage.remove`."""
        with _translate_write_errors(file), contextlib.suppress(FileNotFoundError), translate_errors(file):
            # That it is safe is argued where it is asked for.
            self.filesystem.rm_file(format_fsspec_path(file))

    def _make_folder(self, path: str) -> None:
        self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)


class HdfsWriter(FsspecWriter):
    """HDFS, whose rename takes no other file's place."""

    def move(self, source: Location, target: Location) -> None:
        """Give a file another name; see `WritableStorage.move`."""
        _require_file(source, self.stat(source))
        with _translate_write_errors(target), translate_errors(target):
            self._make_folder(format_fsspec_path(target))
            try:
                self.filesystem.mv(format_fsspec_path(source), format_fsspec_path(target))
            except FileExistsError as error:
                raise _make_in_the_way_error(target) from error


class MarkingWriter(FsspecWriter):
    """An object store that decides itself whether there is an object: of several who create one, one does.

    When an answer is lost, or a library asks a second time, only a mark tells whether it was us.
    """

    def create(self, file: Location, content: bytes) -> bool:
        """Put a file where there is none; see `WritableStorage.create`."""
        with _translate_write_errors(file), translate_errors(file):
            return self._put_if_none(file, content)

    def _put_if_none(self, file: Location, content: bytes) -> bool:
        path, mark = format_fsspec_path(file), uuid.uuid4().hex
        try:
            self._put_marked(path, content, mark)
        except Exception as error:
            if not self._is_there(file, error) and not is_unreachable(error):
                raise
            found = self._mark_of(path)
            if found is None and is_unreachable(error):
                raise
            return found == mark
        return True

    def _put_marked(self, path: str, content: bytes, mark: str) -> None:
        self.filesystem.pipe_file(path, content, mode="create", metadata={_MARK: mark})

    def _is_there(self, _: Location, error: Exception) -> bool:
        """Whether the service refused because there is an object."""
        return isinstance(error, FileExistsError)

    def _mark_of(self, path: str) -> str | None:
        """The mark of who made an object, empty if it has none; None if there is no object."""
        try:
            return str((self.filesystem.info(path).get("metadata") or {}).get(_MARK, ""))
        except FileNotFoundError:
            return None

    def _make_folder(self, path: str) -> None:
        """There are none, and fsspec would make a bucket where none is."""


class S3Writer(MarkingWriter):
    """S3, and what speaks like it: exclusive by `If-None-Match`, which the server decides."""

    def create(self, file: Location, content: bytes) -> bool:
        """Put a file where there is none; see `WritableStorage.create`."""
        with _translate_write_errors(file), translate_errors(file):
            for _ in range(_S3_CONFLICTS_MAX - 1):
                with contextlib.suppress(_ConflictError):
                    return self._put_if_none(file, content)
            return self._put_if_none(file, content)

    def _put_marked(self, path: str, content: bytes, mark: str) -> None:
        self.filesystem.pipe_file(path, content, mode="create", Metadata={_S3_MARK: mark})

    def _is_there(self, file: Location, error: Exception) -> bool:
        code = _find_s3_code(error)
        if code in _S3_UNSUPPORTED:
            raise _make_unsupported_error(file, "an S3 server that does not know If-None-Match") from error
        if code in _S3_CONFLICT:
            raise _ConflictError(code) from error
        return isinstance(error, FileExistsError) or code in _S3_EXISTS

    def _mark_of(self, path: str) -> str | None:
        try:
            return str(self.filesystem.metadata(path, refresh=True).get(_S3_MARK, ""))
        except FileNotFoundError:
            return None


class _ConflictError(OSError):
    """Two put the same object at the same instant, and S3 wants to be asked again."""


_WRITERS: Mapping[str, type[FsspecWriter]] = {
    "s3": S3Writer,
    **dict.fromkeys(_CLOUDS, MarkingWriter),
    **dict.fromkeys(_HDFS, HdfsWriter),
}


def _identify_kind(location: Location) -> str:
    return location.identity.partition(":")[0]


def _find_s3_code(error: Exception) -> str | None:
    """By what name S3 refused; None if it did not."""
    response = getattr(error.__cause__ or error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, Mapping) else None


def _require_file(source: Location, entry: Entry | None) -> None:
    if entry is None or entry.is_folder:
        found = "no such file" if entry is None else "a folder"
        raise MoveRefusedError("there is nothing to move", subject=str(source), found=found, expected="a file")


def _make_in_the_way_error(target: Location) -> MoveRefusedError:
    return MoveRefusedError("a file would be overwritten", subject=str(target), found="a file", expected="nothing")


def _make_unsupported_error(place: Location, found: str) -> ExclusiveCreateUnsupportedError:
    return ExclusiveCreateUnsupportedError(
        "no repair on this storage: nothing here keeps two repairs apart",
        subject=str(place),
        found=found,
        expected="local disk, HDFS, Azure, Google, or S3 with conditional writes (If-None-Match)",
        effect="nothing was changed",
    )


@contextlib.contextmanager
def _translate_write_errors(file: Location) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise StorageDeniedError(
            "the storage does not let us write", subject=str(file), next=make_owner_command(str(file))
        ) from error
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        found = error.strerror or redact_error(error) or None  # a service has its own words, and no number
        raise kind("the file cannot be written", subject=str(file), found=found) from error
