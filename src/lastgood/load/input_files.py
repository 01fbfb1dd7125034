"""The files of a load, looked at before anything is read: whether they are what they are said to be, and the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from lastgood.errors import UsageError
from lastgood.load.encoding import find_encoding
from lastgood.load.packing import PACKINGS, find_packing
from lastgood.load.quoting import IrregularError, are_multi_line, find_quoting
from lastgood.load.ranges import find_line_end
from lastgood.load.row_groups import list_begins, open_row_groups, require_known_calendar
from lastgood.load.specification import InputFile, LoadFormat
from lastgood.load.text import UTF_8, TextEncoding, find_marked
from lastgood.load.unpacking import Read, read_head
from lastgood.storage.reading import Location, Storage, read_part

COMPARED_BYTES = 64 * 1024
"""How much of the beginning and of the end of a file is compared."""
_COMPRESSED = {
    **{each.begin: each.name for each in PACKINGS},
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
}
_ALSO_WORDS = (b"PAR1", b"ORC")
"""With which a name in a header may begin; such a file ends so as well."""
_COMPRESSED_NAMES = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".zip")


def is_as_it_was(storage: Storage, location: Location, file: InputFile) -> bool:
    """Whether a file has the size and the time that it had when it was looked at.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    found = storage.stat(location)
    return found is not None and (found.size, found.modified_ms) == (file.size, file.modified_ms)


def look_at_file(storage: Storage, location: Location, form: LoadFormat, options: Mapping[str, str]) -> InputFile:
    """What a file is now.

    Args:
        storage: That of the file.
        location: The file.
        form: How it is said to be written.
        options: Those of Spark's reader.

    Raises:
        UsageError: there is none, or it is of another kind.
        StorageError: it cannot be read (subclasses).
    """
    found = storage.stat(location)
    if found is None or found.is_folder or found.size is None:
        raise UsageError(
            "there is no such file",
            subject=str(location),
            found="a folder" if found is not None else None,
            expected="a file",
        )
    raw_head = _read(storage, location, 0, COMPARED_BYTES)
    tail = _read(storage, location, max(0, found.size - COMPARED_BYTES), COMPARED_BYTES)
    looked = InputFile(
        location=str(location),
        size=found.size,
        modified_ms=found.modified_ms,
        head=_take_checksum(raw_head),
        tail=_take_checksum(tail),
        begins=0,
        is_ended=False,
    )
    if form is LoadFormat.PARQUET:
        return replace(looked, begins=_find_first_row_group(storage, location, found.size))
    packing = find_packing(location.name)
    is_packed = packing is not None and raw_head.startswith(packing.begin)
    read = read_head(storage, location, found.size) if is_packed else partial(_read, storage, location)
    head = read(0, COMPARED_BYTES)
    _require_text(location, head, tail[-4:], is_packed=is_packed)
    encoding = find_encoding(options, read, location)
    _require_encoding(location, head, form, encoding, size=None if is_packed else found.size)
    begins = len(encoding.mark) if head.startswith(encoding.mark) else 0
    if form is LoadFormat.CSV:
        begins = _find_first_record(read, begins, options, location, encoding)
    # A carriage return at the end may be half a line end.
    is_ended = tail.endswith(encoding.line_feed) and not is_packed
    return replace(looked, begins=begins, is_ended=is_ended, is_packed=is_packed)


def list_folder(storage: Storage, folder: Location) -> list[Location] | None:
    """The files of a folder, by their names; None if it is none. For Spark those with `_` or `.` before it are none.

    Raises:
        UsageError: there is no file in it, or another folder, of which Spark would make columns or nothing.
        StorageError: it cannot be read (subclasses).
    """
    found = storage.stat(folder)
    if found is None or not found.is_folder:
        return None
    names = storage.names(folder) or ()
    listed = sorted(each for each in names if not each.startswith(("_", ".")))
    inner = [each for each in listed if each.endswith("/")]
    if inner:
        raise UsageError(
            "a folder lies in the folder", subject=str(folder), found=inner[0], expected="files, directly in it"
        )
    if not listed:
        raise UsageError("there is no file in the folder", subject=str(folder), expected="one or several")
    return [folder / each for each in listed]


def is_continued(storage: Storage, before: InputFile, now: InputFile, location: Location) -> bool:
    """Whether a file has what it had before, and more behind it, as far as its head and its former end tell.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    if now.size <= before.size:
        return False
    compared = min(before.size, COMPARED_BYTES)
    head = _read(storage, location, 0, compared)
    tail = _read(storage, location, before.size - compared, compared)
    return _take_checksum(head) == before.head and _take_checksum(tail) == before.tail


def _read(storage: Storage, location: Location, begin: int, limit: int) -> bytes:
    """What is there of a range; nothing behind the end of a file, or if it is gone."""
    return read_part(storage, location, begin=begin, limit=limit) or b""


def _require_text(location: Location, head: bytes, end: bytes, *, is_packed: bool) -> None:
    """See that it is text, as far as its first and last bytes tell."""
    for begin, name in _COMPRESSED.items():
        if head.startswith(begin) and (begin not in _ALSO_WORDS or begin in end):
            raise UsageError(
                "a file is no plain text",
                subject=str(location),
                found=name,
                expected="text, plain, or of gzip or bzip2 in a file whose name ends in .gz or .bz2",
            )
    if location.name.lower().endswith(_COMPRESSED_NAMES) and not is_packed:
        found = f"a name that ends in {location.name[location.name.rfind('.') :]}, which Spark would decompress"
        raise UsageError("a file is no plain text", subject=str(location), found=found, expected="a name as of text")


def _require_encoding(
    location: Location, head: bytes, form: LoadFormat, encoding: TextEncoding, *, size: int | None
) -> None:
    """See that a file is written as it is said to be, as far as its first bytes and its size tell."""
    seen = find_marked(head)
    if encoding.unit == 1 and seen is not None and seen != UTF_8.codec.upper():
        expected = "text in UTF-8"
        if form is LoadFormat.CSV and seen.startswith("UTF-16"):
            expected = f"{expected}, or --option encoding={seen}"
        raise UsageError(
            "a file is not in this encoding",
            subject=str(location),
            found=f"the byte order mark of {seen}",
            expected=expected,
            next=f"iconv -f {seen} -t UTF-8 FILE, and the load of what it writes",
        )
    if size is not None and size % encoding.unit:
        raise UsageError(
            "a file ends in the midst of a character",
            subject=str(location),
            found=f"{size} bytes",
            expected=f"a multiple of {encoding.unit}",
        )


def _find_end_of_header(read: Read, begins: int, comment: str, encoding: TextEncoding) -> int:
    """Behind the first line that is neither blank nor a comment, as Spark takes it for the header."""
    at = begins
    while begun := read(at, COMPARED_BYTES):
        end = find_line_end(read, at, None, encoding)
        line = begun[: end - at].decode(encoding.codec, errors="replace")
        at = end
        is_comment = bool(comment) and line.startswith(comment)
        if take_trimmed(line) and not is_comment:
            break
    return at


def take_trimmed(text: str) -> str:
    """Without what Java's `trim` takes away: characters up to the blank, at both ends."""
    return text.strip("".join(map(chr, range(33))))


def _find_first_record(
    read: Read, begins: int, options: Mapping[str, str], location: Location, encoding: TextEncoding
) -> int:
    """Where the first record of CSV begins, behind a header if there is one."""
    has_header = options.get("header", "").lower() == "true"
    if not are_multi_line(options):
        return _find_end_of_header(read, begins, options.get("comment", ""), encoding) if has_header else begins
    records = find_quoting(options, read, location)
    try:
        return records.find_end_of_header(read, begins) if has_header else begins
    except IrregularError as error:
        raise UsageError("the header of a file is not understood", subject=str(location), found=str(error)) from error


def _find_first_row_group(storage: Storage, location: Location, size: int) -> int:
    """Where the first rows of a Parquet file begin; its end if it has none."""
    with open_row_groups(storage, location, size) as opened:
        require_known_calendar(opened, location)
        return min(list_begins(opened, location), default=size)


def _take_checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
