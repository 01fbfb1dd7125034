"""The mirror: the bytes of every file of a query's logs, kept beside the checkpoint as they appear.

Spark purges its logs after a hundred batches, and a lost checkpoint takes them along; the mirror keeps them. It holds
`metadata`, `offsets`, `commits` and `sources`, never state.

    CHECKPOINT.lastgood/mirror/parts/TIME-WRITER.jsonl      what one look found; on a disk, what many have found
    CHECKPOINT.lastgood/mirror/DAY-WRITER.jsonl.gz          parts of a day, put together

Files and lines are only ever added, so a reader needs no lock and a writer that dies leaves nothing wrong: at worst a
part stands in its day's file as well, and is read as the one copy that it is, or its last line is torn, and left out.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, find_followed_batch, parse_batch
from lastgood.checkpoint.lines import is_time_ms
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.errors import StorageError
from lastgood.mirror.copies import (
    CopiesTooLargeError,
    compress,
    cut_into_pieces,
    decode_pieces,
    decompress_whole_lines,
    drop_batches_before,
    encode_copies,
    is_copied,
    is_small,
    make_too_large_error,
)
from lastgood.mirror.plain_lines import PlainCopy
from lastgood.storage.kept_listings import KeptListings, follow_numbers
from lastgood.storage.own_disks import find_own_disk
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Entry, Location, Storage, find_allocated_bytes
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, append

LOOKS_MAX = 200
"""Looks of one writer that found something, before what they found is put together."""
_THOROUGH_SECONDS = 10.0
"""After so long every file is asked for its time: one that is written over in its place, and not the newest of its log,
is seen by that alone."""
_NEWEST = 2
"""Batches of a log that may be planned, or committed, again: each look asks for their times."""
FILE_BYTES_MAX = 256 * 1024 * 1024
"""Larger files are not log files of a query."""
_FILES_AHEAD = 16
_AHEAD_BYTES_MAX = 8 * 1024 * 1024
"""A longer file is read when it is its turn: its length costs nothing to whoever has made it."""
_HOLES_TIMES_MAX = 1000
"""A disk that packs what it holds makes it a few hundred times smaller at most."""
_TAILS_BYTES_MAX = 1024 * 1024
_TAILS_MAX = 256
_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Of log files that are copied together, but for one that is longer."""
SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
"""Of all log files together, which are held until the backup is made."""
_DAY = len("2026-11-21")


def locate_mirror(checkpoint: Location) -> Location:
    """Where the mirror of a checkpoint is by default."""
    return checkpoint.sibling(WORK_SUFFIX) / "mirror"


class MirrorWriter:
    """Copies what is new in a query's logs; one thread at a time calls it.

    A log file appears whole (Spark renames it into place, or puts it as one object) and may come back under the same
    name with other content: a batch that was planned again. Both are kept, in their order.
    """

    def __init__(  # noqa: PLR0913 - all but the checkpoint by name
        self,
        checkpoint: Location,
        *,
        storage: Storage,
        folder: Location,
        target: WritableStorage,
        writer: str,
        now_ms: Callable[[], int],
        copied: Callable[[Sequence[Copy]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Mirror `checkpoint` into `folder`.

        Args:
            checkpoint: What is mirrored.
            storage: Its filesystem.
            folder: The mirror, such as `locate_mirror(checkpoint)`.
            target: The filesystem of the mirror.
            writer: A name that no other writer of this mirror has.
            now_ms: The clock, milliseconds since 1970.
            copied: Gets what each look has copied, once it is in the mirror.
            clock: Seconds, by which files are asked for their times now and then.
        """
        self._checkpoint = checkpoint
        self._storage = storage
        self._folder = folder
        self._target = target
        self._writer = writer
        self._now_ms = now_ms
        self._copied = copied
        self._clock = clock
        # A share remembers for a while what was not there, and a store that is mounted as a disk may append nothing.
        self._is_on_own_disk = find_own_disk(checkpoint) is not None
        self._appends = find_own_disk(folder) is not None
        self._next_thorough = 0.0
        self._followed: dict[Location, tuple[_Listing, int | None]] = {}
        """Files of a log, and its newest batch, as last seen."""
        self._query_id: str | None = None
        self._known: dict[str, _Facts] | None = None
        self._kept: KeptListings[_Listing] = KeptListings(storage)
        self._mirrored: list[_Listing] = []
        self._parts: list[Location] = []
        self._last_part: Location | None = None
        self._found: list[bytes] = []
        """What each look has found that is in the parts."""

    def look(self, *, anew: bool = False) -> int:
        """Copy what is new or changed since the last look; return how many files that were.

        Args:
            anew: List every folder, also one that seems not to have changed, and ask every file for its time.

        Raises:
            StorageError: checkpoint or mirror cannot be read or written; what was not copied is copied next time.
        """
        if self._known is None:
            self._known = self._already_mirrored()
        if anew:
            self._forget_times()
        listings = self._list_logs()
        if listings == self._mirrored:
            return 0
        before = self._query_id
        query_id = self._see_metadata()
        if before not in (None, query_id):
            listings = self._list_logs()  # what was known of the files of the other is none of these
        found = dict(itertools.chain.from_iterable(listings))
        count = 0
        wanted = {path: facts for path, facts in found.items() if self._known.get(path) != facts}
        for number, group in enumerate(_group(wanted)):
            copies = self._copy(group)
            if copies and self._see_metadata() != query_id:
                return count  # the checkpoint was replaced meanwhile: nobody can tell whose files these were
            if copies:
                self._put(copies, number)
            self._known |= {copy.path: found[copy.path] for copy in copies}
            count += len(copies)
        self._known = {path: facts for path, facts in self._known.items() if path in found}
        if count == len(wanted):
            self._mirrored = listings
        else:  # a file that was being written in its place changes no folder
            self._forget_times()
        return count

    def snapshot(self) -> list[Copy]:
        """A copy of every log file as it stands now, beside what is mirrored.

        Raises:
            CopiesTooLargeError: they are longer than can be held.
            StorageError: the checkpoint cannot be read.
        """
        self._see_metadata()
        self._forget_times()
        found = dict(itertools.chain.from_iterable(self._list_logs()))
        size = sum(facts.size or 0 for facts in found.values())
        if size > SNAPSHOT_BYTES_MAX:
            raise _make_too_long_error(self._checkpoint, found, size)
        return self._copy(found)

    def settle(self) -> None:
        """Put the parts of this writer together; call it once more at the end.

        Raises:
            StorageError: the mirror cannot be written; its parts stay.
        """
        if not self._parts:
            return
        packed = compress(self._found)
        file = self._file_with_room(len(packed))
        before = self._target.read(file, limit=FILE_BYTES_MAX) or b""
        self._target.write(file, before + packed)
        while self._parts:
            # Safe: what it holds was just put, whole, into this writer's file of the day.
            self._target.remove(self._parts[-1])
            self._parts.pop()
        self._last_part = None
        self._found.clear()

    def _file_with_room(self, size: int) -> Location:
        """This writer's newest file of the day, or the next one where that would grow beyond what is read of a file."""
        day = datetime.fromtimestamp(self._now_ms() / 1000, UTC).date().isoformat()
        first = self._folder / f"{day}-{self._writer}.jsonl.gz"
        others = (self._folder / f"{day}-{self._writer}-{number}.jsonl.gz" for number in itertools.count(1))
        return next(file for file in itertools.chain([first], others) if self._has_room(file, size))

    def _has_room(self, file: Location, size: int) -> bool:
        there = self._target.stat(file)
        return there is None or (there.size or 0) + size <= FILE_BYTES_MAX

    def _put(self, copies: Sequence[Copy], number: int) -> None:
        """Put copies behind the last ones, or, where nothing can be put behind, into a part of their own."""
        raw = encode_copies(copies)
        if not self._append(raw):
            self._write_part(f"{copies[0].seen_ms:013d}-{self._writer}{f'-{number}' if number else ''}.jsonl", raw)
        self._found.append(raw)
        if self._copied is not None:
            self._copied(copies)
        if len(self._found) >= LOOKS_MAX or sum(map(len, self._found)) >= _AT_ONCE_BYTES:
            self.settle()

    def _append(self, raw: bytes) -> bool:
        part = self._last_part
        if part is None or not self._appends or sum(map(len, self._found)) + len(raw) > _AT_ONCE_BYTES:
            return False
        try:
            return append(self._target, part, raw)
        except StorageError:
            # Behind a line that may be torn nothing is put; and the part stays: Spark may purge what its whole lines
            # tell before a look has copied it again.
            self._last_part = None
            self._parts.remove(part)
            raise

    def _write_part(self, name: str, raw: bytes) -> None:
        part = self._folder / "parts" / name
        self._target.write(part, raw)
        self._parts.append(part)
        self._last_part = part

    def _see_metadata(self) -> str | None:
        """The id of the query whose files are there now."""
        raw = self._storage.read(self._checkpoint / METADATA, limit=FILE_BYTES_MAX)
        parsed = None
        if raw is not None:
            parsed = parse_query_metadata(raw)
        if isinstance(parsed, QueryMetadata) and parsed.query_id != self._query_id:
            if self._query_id is not None:
                self._known = {}  # another query: its batches begin anew under the same names
                self._forget_times()
            self._query_id = parsed.query_id
        return self._query_id

    def _forget_times(self) -> None:
        """List every folder, and ask every file for its time, at the next look."""
        self._kept.forget()
        self._next_thorough = 0.0

    def _list_logs(self) -> list[_Listing]:
        """Every file of the query's logs, folder by folder; a folder that has not changed is the same object."""
        metadata = self._storage.stat(self._checkpoint / METADATA)
        first: _Listing = ()
        if metadata is not None:
            first = ((METADATA, _Facts.of(metadata)),)
        is_thorough = self._clock() >= self._next_thorough or not self._is_on_own_disk
        if is_thorough:
            self._kept.forget()
        list_log = self._list if is_thorough else self._follow
        # Commits first: what is committed in this look has its plan in it as well.
        logs = [self._kept.get(self._checkpoint / each, list_log) for each in (COMMITS, OFFSETS)]
        sources = [self._kept.get(self._checkpoint / each, self._list) for each in self._list_sources()]
        listings = [first, *logs, *sources]
        if is_thorough:
            self._next_thorough = self._clock() + _THOROUGH_SECONDS
        return listings

    def _list_sources(self) -> list[str]:
        found = self._kept.get(self._checkpoint / SOURCES, self._list_folders)
        return [path for path, _ in found]

    def _list_folders(self, sources: Location) -> _Listing:
        folders = filter(_is_folder, self._storage.scan(sources, facts=False) or ())
        return tuple((f"{SOURCES}/{each.name}", _NO_FACTS) for each in folders)

    def _list(self, folder: Location) -> _Listing:
        """The files of a log, each asked for its time."""
        below = self._find_below(folder)
        entries = filter(_may_be_of_log, self._storage.scan(folder) or ())
        files = {f"{below}/{each.name}": each for each in entries}
        listing = tuple((path, _Facts.of(files[path])) for path in filter(is_copied, files))
        self._followed[folder] = listing, find_followed_batch(each.name for each in files.values())
        return listing

    def _follow(self, folder: Location) -> _Listing:
        """The same, by what stands behind the newest batch that was there, and what became of that one."""
        listing, newest = self._followed.get(folder, ((), None))
        if newest is None:
            return self._list(folder)
        below = self._find_below(folder)
        following = dict(follow_numbers(self._storage, folder, max(0, newest + 1 - _NEWEST)))
        if max(following, default=newest) == newest:  # none has come: another thing has happened there
            return self._list(folder)
        found = {f"{below}/{batch}": _Facts.of(there) for batch, there in following.items()}
        listing = tuple((dict(listing) | found).items())
        self._followed[folder] = listing, max(following)
        return listing

    def _find_below(self, folder: Location) -> str:
        return folder.path[len(self._checkpoint.path) :].strip("/")

    def _copy(self, wanted: Mapping[str, _Facts]) -> list[Copy]:
        seen_ms = self._now_ms()
        with open_threads(self._storage, min(len(wanted), self._storage.parallel) or 1) as pool:
            contents = list(pool.map(self._read, wanted))
        return [
            Copy(self._query_id, path, seen_ms, facts.modified_ms, content)
            for (path, facts), content in zip(wanted.items(), contents, strict=True)
            # Purged between listing and reading, or written: the next look sees it as it is by then.
            if content is not None and facts.size in (None, len(content))
        ]

    def _read(self, path: str) -> bytes | None:
        return self._storage.read(self._checkpoint / path, limit=FILE_BYTES_MAX)

    def _already_mirrored(self) -> dict[str, _Facts]:
        """What the parts and the newest two days hold of the batches in the logs: enough to copy little twice."""
        paths = [path for path, _ in itertools.chain.from_iterable(self._list_logs())]
        batches = [parse_batch(path, log) for path in paths for log in (OFFSETS, COMMITS)]
        since = min((each for each in batches if each is not None), default=0)
        newest: dict[str | None, dict[str, tuple[int, _Facts]]] = {}
        seen_ms = -1
        for copy in read_mirror(self._target, self._folder, days=2, since=since):
            if copy.seen_ms >= seen_ms:
                seen_ms, self._query_id = copy.seen_ms, copy.query_id
            of_query = newest.setdefault(copy.query_id, {})
            if copy.seen_ms >= of_query.get(copy.path, (-1, None))[0]:
                of_query[copy.path] = copy.seen_ms, _Facts(copy.size, copy.modified_ms)
        return {path: facts for path, (_, facts) in newest.get(self._query_id, {}).items()}


class _Facts(NamedTuple):
    """What a listing tells of a file: the same as long as nobody writes it."""

    size: int | None
    modified_ms: int | None

    @classmethod
    def of(cls, entry: Entry) -> _Facts:
        # Whoever may write a file may give it any time, and a copy with one before 1970 would be none of ours.
        return cls(entry.size, entry.modified_ms if is_time_ms(entry.modified_ms) else None)


_NO_FACTS = _Facts(None, None)
_Listing: TypeAlias = tuple[tuple[str, _Facts], ...]
"""Path and facts of each file of a folder."""


def _is_folder(entry: Entry) -> bool:
    return entry.is_folder


def _may_be_of_log(entry: Entry) -> bool:
    return not (entry.is_folder or entry.name.startswith("."))  # half of the names are checksums


def _group(wanted: Mapping[str, _Facts]) -> Iterator[dict[str, _Facts]]:
    """The same in their order, in groups that can be held."""
    group: dict[str, _Facts] = {}
    size = 0
    for path, facts in wanted.items():
        if group and size + (facts.size or 0) > _AT_ONCE_BYTES:
            yield group
            group, size = {}, 0
        group[path] = facts
        size += facts.size or 0
    if group:
        yield group


def _make_too_long_error(checkpoint: Location, found: Mapping[str, _Facts], size: int) -> CopiesTooLargeError:
    longest = max(found, key=lambda path: found[path].size or 0)
    return CopiesTooLargeError(
        "the logs of the query are longer than can be backed up",
        subject=str(checkpoint),
        found=f"{size:,} bytes; {found[longest].size or 0:,} of them in {longest}",
        expected=f"{SNAPSHOT_BYTES_MAX:,} bytes at most",
        effect="no backup was made",
        next=f"see what {longest} holds, and whether Spark has written it",
    )


def read_mirror(
    storage: Storage, folder: Location, *, days: int | None = None, since: int = 0, from_ms: int | None = None
) -> Iterator[Copy]:
    """Every copy in a mirror once, file by file; of two versions the newer one is that with the later `seen_ms`.

    Args:
        storage: The filesystem of the mirror.
        folder: The mirror; one that is not there is empty.
        days: Read only the newest days' files, beside the parts.
        since: Leave out plans and commits of older batches than this: months of them take seconds.
        from_ms: Leave out the files of days that were over at this time, but for the newest of them.

    Raises:
        StorageError: the mirror cannot be read.
    """
    seen = _Seen()
    for name, raw in _read_mirror_files(storage, folder, days, from_ms):
        if not name.endswith(".gz"):
            pieces = _drop_before(since, cut_into_pieces(raw))
        elif since:
            pieces = _TAILS.unpack(raw, since, str(folder / name))
        else:
            pieces = decompress_whole_lines(raw, str(folder / name))
        yield from filter(seen.add, decode_pieces(pieces))


def _drop_before(since: int, pieces: Iterable[bytes]) -> Iterable[bytes]:
    if not since:
        return pieces
    return (b"\n".join(drop_batches_before(piece.split(b"\n"), since)) for piece in pieces)


class _Tails:
    """Unpacks what stands of the newest batches in packed files, and keeps it where it is little.

    A recovery reads the mirror each time it looks whether all is as it was planned: before, in between, and at the end.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, int], bytes] = {}
        """By the digest of the whole file, and the first batch."""
        self._bytes_left = _TAILS_BYTES_MAX

    def unpack(self, raw: bytes, since: int, subject: str) -> Iterator[bytes]:
        key = blake2b(raw).digest(), since
        kept = self._kept.get(key)
        if kept is not None:
            yield kept
            return
        held: list[bytes] = []
        size = 0
        for piece in _drop_before(since, decompress_whole_lines(raw, subject)):
            yield piece
            size += len(piece)
            if size <= _TAILS_BYTES_MAX:
                held.append(piece)
        if size <= _TAILS_BYTES_MAX:
            self._keep(key, b"".join(held))

    def _keep(self, key: tuple[bytes, int], tail: bytes) -> None:
        if len(self._kept) >= _TAILS_MAX or len(tail) > self._bytes_left:
            self._kept, self._bytes_left = {}, _TAILS_BYTES_MAX
        self._kept[key] = tail
        self._bytes_left -= len(tail)


_TAILS: Final = _Tails()


class _Seen:
    """Tells copies that were met before, whoever wrote them, from those that are new."""

    def __init__(self) -> None:
        self._first: dict[str | None, dict[str, Copy | bytes]] = {}
        """Query id and path → the first copy of that file, if it is small, else its digest: mostly there is one."""
        self._digests: set[bytes] = set()
        """Of all copies of files of which there are several."""

    def add(self, copy: Copy) -> bool:
        """Whether a copy is new."""
        paths = self._first.get(copy.query_id)
        if paths is None:
            paths = self._first[copy.query_id] = {}
        first = paths.get(copy.path)
        if first is None:
            paths[copy.path] = copy if is_small(copy) else _compute_digest(copy)
            return True
        if isinstance(first, PlainCopy) and first.is_same_as(copy):
            return False
        if isinstance(first, Copy):
            first = paths[copy.path] = _compute_digest(first)
        self._digests.add(first)
        digest = _compute_digest(copy)
        is_new = digest not in self._digests
        self._digests.add(digest)
        return is_new


def _compute_digest(copy: Copy) -> bytes:
    """Of all that tells one version of a file from another: not when it was seen."""
    what = f"{copy.query_id} {copy.modified_ms} {copy.path}\n".encode(errors="replace")
    return blake2b(what + copy.content, digest_size=12).digest()


def _read_mirror_files(
    storage: Storage, folder: Location, days: int | None, from_ms: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file, of which a few are read ahead.

    A writer puts parts into a file of the day, and removes them then. So the parts are looked at first.
    """
    with open_threads(storage, _FILES_AHEAD) as pool:
        parts, merged = _read_parts(storage, folder, pool)
        if days is not None:
            newest = sorted({name[:_DAY] for name in merged})[-days:]
            merged = [name for name in merged if name[:_DAY] in newest]
        if from_ms is not None:
            days_of = {name: name[:_DAY] for name in merged}
            over = {day for day in days_of.values() if _is_over(day, from_ms)} - {max(days_of.values(), default="")}
            merged = [name for name, day in days_of.items() if day not in over]
        waiting: deque[tuple[str, Future[bytes | None]]] = deque()
        for name in merged:
            waiting.append((name, _begin_reading(storage, folder / name, pool)))
            if len(waiting) == _FILES_AHEAD:
                yield _read_day(storage, folder, *waiting.popleft())
        for name, begun in waiting:
            yield _read_day(storage, folder, name, begun)
        yield from parts


def _read_parts(storage: Storage, folder: Location, pool: Executor) -> tuple[list[tuple[str, bytes]], list[str]]:
    """The parts, and the names of the files of the days, in which all is that was in a part before."""
    merged, has_parts = _list_days(storage, folder)
    if not has_parts:  # by the same listing
        return [], merged
    while True:
        names = [f"parts/{name}" for name in _list_names(storage, folder / "parts", ".jsonl")]
        begun = [(name, _begin_reading(storage, folder / name, pool)) for name in names]
        merged, _ = _list_days(storage, folder)
        parts = []
        for name, content in begun:
            read = _read_whole(storage, folder, name, content)
            if read is not None:
                parts.append((name, read))
        if len(parts) == len(begun):
            return parts, merged
        # One was put into a file of its day meanwhile, which need not have been there when they were listed.


def _list_days(storage: Storage, folder: Location) -> tuple[list[str], bool]:
    """The names of the files of the days, and whether there is a folder of parts."""
    entries = list(storage.scan(folder, facts=False) or ())
    merged = sorted(entry.name for entry in entries if entry.name.endswith(".gz"))
    return merged, any(entry.is_folder for entry in entries)


def _begin_reading(storage: Storage, file: Location, pool: Executor) -> Future[bytes | None]:
    return pool.submit(storage.read, file, limit=_AHEAD_BYTES_MAX + 1)


def _read_day(storage: Storage, folder: Location, name: str, begun: Future[bytes | None]) -> tuple[str, bytes]:
    return name, _read_whole(storage, folder, name, begun) or b""


def _is_over(day: str, at_ms: int) -> bool:
    """Whether a day was over at a time; of a name that is none nobody can tell."""
    try:
        begins = datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        return False
    return int((begins + timedelta(days=1)).timestamp()) * 1000 <= at_ms


def _read_whole(storage: Storage, folder: Location, name: str, begun: Future[bytes | None]) -> bytes | None:
    """The content of a file that was read ahead, of a long one only its beginning; None if it is gone."""
    content = begun.result()
    if content is not None and len(content) > _AHEAD_BYTES_MAX:
        require_there(storage, folder / name)
        content = storage.read(folder / name, limit=FILE_BYTES_MAX)
    return content


def require_there(storage: Storage, file: Location) -> None:
    """See that a long file of copies is one that lastgood may have written, before it is read.

    Raises:
        CopiesTooLargeError: it is longer than any, or nearly all of it is a hole, which takes time and no room.
        StorageError: the storage does not answer (subclasses).
    """
    entry = storage.stat(file)
    size = 0 if entry is None else entry.size or 0
    if size > FILE_BYTES_MAX:
        raise make_too_large_error(str(file), f"{size:,} bytes")
    there = find_allocated_bytes(storage, file)
    if there is not None and size > _AHEAD_BYTES_MAX + there * _HOLES_TIMES_MAX:
        raise make_too_large_error(str(file), f"{size:,} bytes, of which {there:,} are there")


def _list_names(storage: Storage, folder: Location, ending: str) -> list[str]:
    return sorted(entry.name for entry in storage.scan(folder, facts=False) or () if entry.name.endswith(ending))
