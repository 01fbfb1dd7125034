"""Copies of checkpoint files as lines of JSON: the same bytes come out that went in. Pure."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import sys
import zlib
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import LogFile, QueryMetadataFile, classify
from lastgood.checkpoint.lines import is_time_ms
from lastgood.errors import Retry, StorageError
from lastgood.mirror.plain_lines import LINE_BYTES_MIN, PlainCopy, PlainLines, list_fields
from lastgood.notes import VALUES_MAX, read_json

_CHUNK_BYTES = 64 * 1024
_PIECE_BYTES = 1024 * 1024
_UNPACKED_BYTES_FREE = 64 * 1024 * 1024
_UNPACKED_TIMES_MAX = 200
"""Lines of idle batches, which differ in a time only, take a hundredth when they are packed."""
_UNPACKED_HELD_BYTES = 8 * 1024 * 1024
"""What unpacks to no more is held from when it was counted, and not unpacked once more."""
LINE_BYTES_MAX = 256 * 1024 * 1024
"""The line of one copy is not longer."""
_BLOCK_BYTES = 64 * 1024
_BLOCK_COPIES = 512
_BLOCKS_OPEN = 8
"""How many blocks of copies are held as they are: plans and commits of the same batches stand in different ones."""
_BATCH_LINE = re.compile(rb'\{"path":"(?:offsets|commits)/(\d{1,18})"')
"""How `encode_copies` begins the line of a batch."""
_LINE_BEGINNING = re.compile(
    rb'\{"path":"[^"\\]{0,4096}+","query":(?:null|"[^"\\]{0,256}+"),"seen_ms":\d{1,19}'
    rb'(?:,"modified_ms":\d{1,19})?,"(?:text|base64)":'
)
_TEXT_AND_END = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"\}\s{0,2}')
_PLAIN_ENTRY = re.compile("(?:offsets|commits)/(?:0|[1-9][0-9]{0,17})")
"""Nearly all files of which copies are kept."""
_NO_NAMES = frozenset(("", ".", ".."))
_NO_PATH = re.compile("[\0\ud800-\udfff]")
_MEMBER_BEGINNING = b"\x1f\x8b\x08"


class CopiesTooLargeError(StorageError):
    """A file of the mirror or of a backup unpacks to more than logs can, or logs are longer than can be backed up."""

    condition = "COPIES_TOO_LARGE"
    exit_code = 36
    retry = Retry.AFTER_CHANGE


def encode_copies(copies: Iterable[Copy]) -> bytes:
    """One line of JSON for each copy."""
    return b"".join(encode_lines(copies))


def encode_lines(copies: Iterable[Copy]) -> Iterator[bytes]:
    """The same, line by line: not all of them are held."""
    return map(_encode_line, copies)


def decode_copies(raw: bytes) -> Iterator[Copy]:
    """The copies in `raw`, in their order; a torn last line, and lines that are none of ours, are left out."""
    return decode_lines(io.BytesIO(raw))


def decode_lines(lines: Iterable[bytes]) -> Iterator[Copy]:
    """The copies in these lines; see `decode_copies`."""
    for line in lines:
        copy = _parse_copy(line)
        if copy is not None:
            yield copy


def decode_pieces(pieces: Iterable[bytes]) -> Iterator[Copy]:
    """The copies in these pieces, each of whole lines; see `decode_copies`, which takes several times as long."""
    plain = PlainLines()
    for piece in pieces:
        for found in plain.parse(piece):
            copy = _parse_copy(found) if isinstance(found, bytes) else found
            if copy is not None:
                yield copy


def drop_batches_before(lines: Iterable[bytes], since: int) -> Iterator[bytes]:
    """The lines but those of plans and commits of older batches, which are not even parsed."""
    for line in lines:
        found = _BATCH_LINE.match(line)
        if found is None or int(found[1]) >= since:
            yield line


def compress(content: bytes | Iterable[bytes]) -> bytes:
    """One gzip member, the same for the same bytes, in however many pieces; members can be put behind each other."""
    pieces = (content,) if isinstance(content, bytes) else content
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])


def decompress(raw: bytes, subject: str = "copies") -> bytes:
    """The content of all members; of a torn one what comes before the tear, as a line of its own.

    Raises:
        CopiesTooLargeError: it would take far more room than it does, as no logs do; `subject` names the file.
    """
    return b"".join(_limit_pieces(_decompress_pieces(raw), len(raw), subject))


def decompress_lines(raw: bytes, subject: str = "copies") -> Iterator[bytes]:
    """The lines of `decompress` that are long enough for a copy, of which only a few are held at a time.

    Raises:
        CopiesTooLargeError: as `decompress`, or a line is longer than that of any file.
    """
    for piece in decompress_whole_lines(raw, subject):
        yield from (line for line in piece.split(b"\n") if len(line) >= LINE_BYTES_MIN)


def decompress_whole_lines(raw: bytes, subject: str = "copies") -> Iterator[bytes]:
    """The same lines in pieces of about a megabyte, each of whole lines, the short ones among them.

    Raises:
        CopiesTooLargeError: as `decompress_lines`.
    """
    # Counted before anything is parsed: to unpack takes a moment, to read a million lines half a minute.
    held: list[bytes] = []
    size = 0
    for piece in _limit_pieces(_decompress_pieces(raw), len(raw), subject):
        size += len(piece)
        if size <= _UNPACKED_HELD_BYTES:
            held.append(piece)
    if size <= _UNPACKED_HELD_BYTES:
        return cut_at_lines(held, subject)
    held.clear()
    return cut_at_lines(_decompress_pieces(raw), subject)


def cut_into_pieces(raw: bytes) -> Iterator[bytes]:
    """What was never packed, in pieces of about a megabyte, each of whole lines."""
    return cut_at_lines((raw[at : at + _PIECE_BYTES] for at in range(0, len(raw), _PIECE_BYTES)), "copies")


def cut_at_lines(pieces: Iterable[bytes], subject: str) -> Iterator[bytes]:
    """The same bytes, cut behind ends of lines.

    Raises:
        CopiesTooLargeError: a line is longer than that of any file.
    """
    rest: list[bytes] = []
    size = 0
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        first = piece.find(b"\n") if end else len(piece)
        if size + first > LINE_BYTES_MAX:
            raise make_too_large_error(subject, f"a line of more than {LINE_BYTES_MAX:,} bytes")
        if end:
            yield b"".join([*rest, piece[:end]])
            rest, size = [], 0
        rest.append(piece[end:])
        size += len(piece) - end
    yield b"".join(rest)


def _limit_pieces(pieces: Iterable[bytes], packed_bytes: int, subject: str) -> Iterator[bytes]:
    most = max(_UNPACKED_BYTES_FREE, packed_bytes * _UNPACKED_TIMES_MAX)
    left = most
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise make_too_large_error(subject, f"{packed_bytes:,} bytes that unpack to more than {most:,}")
        yield piece


def make_too_large_error(subject: str, found: str) -> CopiesTooLargeError:
    """The error for a file of copies that no lastgood has written."""
    return CopiesTooLargeError(
        "a file of copies is larger, or unpacks to more, than copies of logs can",
        subject=subject,
        found=found,
        expected="a file as lastgood wrote it",
        effect="nothing of it is read any further",
        next=f"see who wrote {subject}, and move it away: what is left is read without it",
    )


def _decompress_pieces(raw: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(raw):
        end = yield from _decompress_member(raw, start)
        if end is None:
            yield b"\n"
            end = raw.find(_MEMBER_BEGINNING, start + 1)
        start = len(raw) if end < 0 else end


def _decompress_member(raw: bytes, start: int) -> Generator[bytes, None, int | None]:
    """Where the member that begins at `start` ends; None if it is torn."""
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    view = memoryview(raw)
    for position in range(start, len(raw), _CHUNK_BYTES):
        chunk: bytes | memoryview = view[position : position + _CHUNK_BYTES]
        while chunk and not member.eof:
            try:
                yield member.decompress(chunk, _PIECE_BYTES)
            except zlib.error:
                return None
            chunk = member.unconsumed_tail
        if member.eof:
            return min(position + _CHUNK_BYTES, len(raw)) - len(member.unused_data)
    return None


def pack_copies(copies: Iterable[Copy]) -> Iterator[Copy]:
    """The same copies, whose contents take a tenth of their size until they are asked for.

    Those that are neighbours here are best asked for in a row.
    """
    lately: deque[tuple[_Block, bytes]] = deque(maxlen=_BLOCKS_OPEN)
    held = iter(copies)
    while block := list(itertools.islice(_take_up_to(held, _BLOCK_BYTES), _BLOCK_COPIES)):
        yield from _pack_block(block, lately)


def _pack_block(block: list[Copy], lately: deque[tuple[_Block, bytes]]) -> Iterator[Copy]:
    texts = [_find_text(copy) for copy in block if not is_small(copy)]
    if not texts:
        yield from block
        return
    packed, numbers = _Block(texts, lately), itertools.count()
    for copy in block:
        if is_small(copy):
            yield copy
        else:
            yield _pack(copy, packed, next(numbers))


def _pack(copy: Copy, block: _Block, at: int) -> Copy:
    fields = copy.query_id, copy.path, copy.seen_ms, copy.modified_ms
    if isinstance(copy, PlainCopy):
        return _PackedPlainCopy(*fields, shared=copy.words[1], block=block, at=at)
    return _PackedCopy(*fields, block, at)


def _find_text(copy: Copy) -> bytes:
    """What is packed of a copy."""
    return copy.words[0] if isinstance(copy, PlainCopy) else copy.content


def is_small(copy: Copy) -> bool:
    """Whether it is held in few bytes as it is."""
    return isinstance(copy, PlainCopy) and copy.is_short


def _take_up_to(copies: Iterator[Copy], size: int) -> Iterator[Copy]:
    """The next copies, until those that are to be packed have so many bytes."""
    for copy in copies:
        yield copy
        if not is_small(copy):
            size -= copy.size
        if size <= 0:
            return


class _Block:
    """The contents of several copies in one piece, compressed."""

    __slots__ = ("_ends", "_lately", "_raw")

    def __init__(self, contents: list[bytes], lately: deque[tuple[_Block, bytes]]) -> None:
        self._raw = zlib.compress(b"".join(contents), 1)
        self._ends = array("Q", itertools.accumulate(map(len, contents)))
        self._lately = lately

    def content(self, at: int) -> bytes:
        whole = next((whole for block, whole in list(self._lately) if block is self), None)
        if whole is None:
            whole = zlib.decompress(self._raw)
            self._lately.append((self, whole))
        return whole[self._ends[at - 1] if at else 0 : self._ends[at]]


class _PackedCopy(Copy):
    """A copy whose content stands in a block."""

    __slots__ = ("_at", "_held")
    _at: int
    _held: bytes | _Block

    def __init__(
        self,
        query_id: str | None,
        path: str,
        seen_ms: int,
        modified_ms: int | None,
        content: bytes | _Block,
        at: int = 0,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "query_id", query_id)
        set_field(self, "path", path)
        set_field(self, "seen_ms", seen_ms)
        set_field(self, "modified_ms", modified_ms)
        set_field(self, "_held", content)
        set_field(self, "_at", at)

    @property
    def content(self) -> bytes:
        return self._held if isinstance(self._held, bytes) else self._held.content(self._at)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copy) and list_fields(self) == list_fields(other)

    def __hash__(self) -> int:
        return hash(list_fields(self))


class _PackedPlainCopy(PlainCopy):
    """A plain copy whose text stands in a block."""

    __slots__ = ("_at", "_block")
    _at: int
    _block: _Block | None

    def __init__(  # noqa: PLR0913 - the fields of a copy, and where its text stands
        self,
        query_id: str | None,
        path: str,
        seen_ms: int,
        modified_ms: int | None,
        content: bytes = b"",
        shared: bytes | None = None,
        *,
        block: _Block | None = None,
        at: int = 0,
    ) -> None:
        super().__init__(query_id, path, seen_ms, modified_ms, content, shared)
        object.__setattr__(self, "_block", block)
        object.__setattr__(self, "_at", at)

    @property
    def words(self) -> tuple[bytes, bytes | None]:
        if self._block is None:
            return super().words
        return self._block.content(self._at), self._shared


def _encode_line(copy: Copy) -> bytes:
    fields: dict[str, object] = {"path": copy.path, "query": copy.query_id, "seen_ms": copy.seen_ms}
    if copy.modified_ms is not None:
        fields["modified_ms"] = copy.modified_ms
    text = _decode_text(copy.content)
    if text is None:
        fields["base64"] = base64.b64encode(copy.content).decode()
    else:
        fields["text"] = text
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _decode_text(content: bytes) -> str | None:
    """The content as text; None if it is none, or NUL bytes would make it longer than base64 does.

    JSON takes six bytes for a NUL. Spark begins the first entry of a Kafka source with one; a file that is full of them
    is no log.
    """
    if content.count(0) * 15 > len(content):
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _parse_copy(line: bytes) -> Copy | None:
    try:
        fields = read_json(line, values_max=None if _is_flat(line) else VALUES_MAX)
        content = fields["text"].encode() if "text" in fields else base64.b64decode(fields["base64"], validate=True)
        query_id = fields["query"]
        copy = Copy(
            sys.intern(query_id) if isinstance(query_id, str) else query_id,
            fields["path"],
            fields["seen_ms"],
            fields.get("modified_ms"),
            content,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return copy if _is_ours(copy) else None


def _is_flat(line: bytes) -> bool:
    """Whether it is of the form that we write: the content of a file as its last text, which may hold any signs."""
    head = _LINE_BEGINNING.match(line)
    return head is not None and _TEXT_AND_END.fullmatch(line, head.end()) is not None


def _is_ours(copy: Copy) -> bool:
    """Whether the fields are what we write: a path that leads out of the checkpoint must never be restored."""
    path: Any = copy.path
    query_id: Any = copy.query_id
    return (
        is_time_ms(copy.seen_ms)
        and (copy.modified_ms is None or is_time_ms(copy.modified_ms))
        and isinstance(path, str)
        and (query_id is None or isinstance(query_id, str))
        and is_copied(path)
    )


def is_copied(path: str) -> bool:
    """Whether a file at `path`, below a checkpoint, is one of which a copy is kept, and found again.

    A name that is no text becomes no bytes again, and one that leads out of the checkpoint must never be restored.
    """
    if _PLAIN_ENTRY.fullmatch(path) is not None:
        return True
    if not isinstance(classify(path), QueryMetadataFile | LogFile):
        return False
    return _NO_NAMES.isdisjoint(path.split("/")) and _NO_PATH.search(path) is None
