"""The file of a bundle: a zip whose every part is known beforehand, read as if it were the storage of the checkpoint.

manifest.json        who made it, and the SHA-256 of every other part
listing.json         every file and folder of the checkpoint: names, sizes, times
NAME.json            values that were saved beside it
checkpoint/…         contents of files of the checkpoint
lastgood/…           contents of files of its work folder

Nothing is ever unpacked to a disk, and no more than one part is in memory at a time.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

from lastgood.bundle.tree import CHECKPOINT, WORK, BundleTree, NotInBundleError
from lastgood.errors import LastgoodError, Retry, StorageError, UsageError
from lastgood.notes import count_values, read_json
from lastgood.storage.reading import PARALLEL_LOCAL, Entry, Location

FORMAT = 1
MANIFEST, LISTING = "manifest.json", "listing.json"
PART_BYTES_MAX = 64 * 1024 * 1024
JSON_BYTES_MAX = 32 * 1024 * 1024
"""What is read from JSON takes many times as much memory."""
JSON_VALUES_MAX = 3_000_000
"""Of one part, none of which takes less than three bytes there and eighty in memory."""
PARTS_MAX = 250_000
_FILE_BYTES_MAX = 1024 * 1024 * 1024
_ALL_BYTES_MAX = 4 * 1024 * 1024 * 1024
_DIRECTORY_BYTES_MAX = 24 * 1024 * 1024
_PART = re.compile(rf"\w{{1,255}}+\.json|(?:{CHECKPOINT}|{WORK})(?:/[^/\\\0]++)++")
_TAIL_BYTES = 65_535 + 22
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_BEFORE_ANY_YEAR = (1980, 1, 1, 0, 0, 0)


class BundleInvalidError(LastgoodError):
    """A file is no bundle of lastgood, or not a whole one."""

    condition = "BUNDLE_INVALID"
    exit_code = 30
    retry = Retry.AFTER_CHANGE


def is_part(name: str) -> bool:
    """Whether a part may have this name: it stays what it is on every system, and below where it is put."""
    return _PART.fullmatch(name) is not None and not {".", ".."}.intersection(name.split("/"))


class BundleWriter:
    """Writes a bundle part by part, within a `with` block."""

    def __init__(self, stream: IO[bytes], facts: Mapping[str, Any]) -> None:
        """Write to `stream`; `facts` stand in the manifest."""
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED)
        self._facts = facts
        self._parts: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a part; one that is too large for a bundle is left out."""
        if len(content) <= PART_BYTES_MAX:
            self._write(name, content)
            self._parts[name] = hashlib.sha256(content).hexdigest()

    def add_json(self, name: str, value: Any) -> None:
        """Add a part that is JSON.

        Raises:
            StorageError: there is more of it than fits into a bundle.
        """
        content = json.dumps(value, separators=(",", ":")).encode()
        values = count_values(content)
        if len(content) > JSON_BYTES_MAX or values > JSON_VALUES_MAX:
            raise StorageError(
                "the checkpoint has too many files for a bundle",
                subject=name,
                found=f"{len(content):,} bytes with {values:,} values",
                expected=f"{JSON_BYTES_MAX:,} bytes with {JSON_VALUES_MAX:,} values at most",
            )
        self.add(name, content)

    def finish(self) -> int:
        """Write the manifest; how many parts there are."""
        manifest = {"format": FORMAT, **self._facts, "parts": self._parts}
        self._write(MANIFEST, json.dumps(manifest, indent=0).encode())
        return len(self._parts)

    def __enter__(self) -> Self:
        """Write until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write the end of the file; without `finish` it is no whole bundle."""
        self._archive.close()

    def _write(self, name: str, content: bytes) -> None:
        entry = zipfile.ZipInfo(name, _BEFORE_ANY_YEAR)
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._archive.writestr(entry, content)


class BundleArchive:
    """A bundle that was checked as a whole; its parts are checked when they are read. Safe to use from threads."""

    def __init__(self, path: Path) -> None:
        """Open `path`.

        Raises:
            UsageError: there is no such file, or it cannot be read.
            BundleInvalidError: it is no bundle, or holds what no bundle does.
        """
        self._path = path
        self._lock = threading.Lock()
        try:
            self._stream = path.open("rb")
        except OSError as error:
            raise UsageError("the bundle cannot be read", subject=str(path), found=error.strerror) from error
        try:
            self._check_ends()
            self._archive = zipfile.ZipFile(self._stream)
            self._entries = self._checked_entries()
            self.manifest = self._read_manifest()
        except (zipfile.BadZipFile, struct.error, EOFError, ValueError, NotImplementedError, OSError) as error:
            self.close()
            raise self._invalid("it is no whole zip file", str(error)) from error
        except BaseException:  # also Ctrl-C: nobody holds it yet who could close it
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def read(self, name: str, limit: int = PART_BYTES_MAX) -> bytes:
        """The first `limit` bytes of a part, which is what the manifest says.

        Raises:
            BundleInvalidError: it is damaged.
        """
        with self._lock:  # so that there is one part in memory, whoever made them how large
            content = self._unpacked(name)
            if hashlib.sha256(content).hexdigest() != self.manifest["parts"][name]:
                raise self._invalid("a part of it was changed", name)
            return content[:limit]

    def read_json(self, name: str) -> Any:
        """A part that is JSON.

        Raises:
            BundleInvalidError: it is not there, or damaged.
        """
        if name not in self._entries or self._entries[name].file_size > JSON_BYTES_MAX:
            raise self._invalid("a part of it is missing, or too large", name)
        content = self.read(name)
        self._require_few_values(name, content)
        try:
            return read_json(content)
        except ValueError as error:
            raise self._invalid("a part of it is no JSON", name) from error

    def invalid(self, error: Exception) -> BundleInvalidError:
        """The error for a part whose values are not what they should be."""
        return self._invalid("its values are not understood", str(error)[:200])

    def _check_ends(self) -> None:
        """The directory of a zip is read whole: it must not be larger than that of any bundle."""
        size = self._stream.seek(0, 2)
        if size > _FILE_BYTES_MAX:
            raise self._invalid("it is too large for a bundle", f"{size:,} bytes")
        begin = max(0, size - _TAIL_BYTES - _LOCATOR_64.size)
        self._stream.seek(begin)
        tail = self._stream.read()
        at = tail.rfind(b"PK\5\6")
        if at < 0 or not self._starts_as_zip():
            raise self._invalid("it is no zip file", f"{size:,} bytes")
        count, directory = _END.unpack_from(tail, at)[4:6]
        locator = tail[max(0, at - _LOCATOR_64.size) : at]
        if locator.startswith(b"PK\6\7") and len(locator) == _LOCATOR_64.size:
            self._stream.seek(_LOCATOR_64.unpack(locator)[2])
            record = _END_64.unpack(self._stream.read(_END_64.size))
            count, directory = record[7], record[8]
        self._stream.seek(0)
        if count > PARTS_MAX or directory > _DIRECTORY_BYTES_MAX:
            raise self._invalid("it has too many parts for a bundle", f"{count:,} parts")

    def _starts_as_zip(self) -> bool:
        self._stream.seek(0)
        return self._stream.read(4) == b"PK\3\4"

    def _checked_entries(self) -> dict[str, zipfile.ZipInfo]:
        entries: dict[str, zipfile.ZipInfo] = {}
        unpacked = 0
        for entry in self._archive.infolist():
            unpacked += entry.file_size
            name = entry.orig_filename
            if not is_part(name) or name in entries:
                raise self._invalid("it holds what no bundle does", repr(name[:200]))
            if entry.file_size > PART_BYTES_MAX or unpacked > _ALL_BYTES_MAX:
                raise self._invalid("it would unpack to more than any bundle", f"{name}: {entry.file_size:,} bytes")
            if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
                raise self._invalid("it is packed as no bundle is", repr(name[:200]))
            entries[name] = entry
        if len(entries) > PARTS_MAX:
            raise self._invalid("it has too many parts for a bundle", f"{len(entries):,} parts")
        return entries

    def _read_manifest(self) -> Mapping[str, Any]:
        if MANIFEST not in self._entries or self._entries[MANIFEST].file_size > JSON_BYTES_MAX:
            raise self._invalid("it has no manifest", f"{len(self._entries)} parts")
        content = self._unpacked(MANIFEST)
        self._require_few_values(MANIFEST, content)
        try:
            manifest = read_json(content)
        except ValueError as error:
            raise self._invalid("its manifest is no JSON", MANIFEST) from error
        parts = None
        if isinstance(manifest, dict):
            parts = manifest.get("parts")
        if not isinstance(manifest, dict) or not isinstance(parts, dict) or manifest.get("format") != FORMAT:
            told = None
            if isinstance(manifest, dict):
                told = manifest.get("format")
            raise self._invalid(
                "it was made by another version of lastgood", f"format {told!r:.20}", f"format {FORMAT}"
            )
        if parts.keys() != self._entries.keys() - {MANIFEST} or not all(
            isinstance(each, str) for each in parts.values()
        ):
            raise self._invalid("its parts are not those of its manifest", f"{len(self._entries)} parts")
        return manifest

    def _require_few_values(self, name: str, content: bytes) -> None:
        values = count_values(content)
        if values > JSON_VALUES_MAX:
            raise self._invalid(
                "a part of it has too many values", f"{name}: {values:,} values", f"{JSON_VALUES_MAX:,} at most"
            )

    def _unpacked(self, name: str) -> bytes:
        try:
            return self._archive.read(self._entries[name])
        except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, OSError) as error:
            raise self._invalid("a part of it is damaged", name) from error

    def _invalid(
        self, sentence: str, found: str, expected: str = "a file that `diagnose --save` wrote"
    ) -> BundleInvalidError:
        return BundleInvalidError(
            f"this is no whole bundle: {sentence}", subject=str(self._path), found=found, expected=expected
        )


class BundleStorage:
    """A checkpoint and its work folder out of a bundle, as `Storage`; whatever else is asked for is not in it."""

    def __init__(self, archive: BundleArchive, tree: BundleTree, *, parallel: int = PARALLEL_LOCAL) -> None:
        """Show the files of `tree`, with their contents in `archive`.

        Args:
            archive: Where the contents are.
            tree: What there is.
            parallel: As of the storage that was saved: readers of a checkpoint look at more where that costs little.
        """
        self._archive = archive
        self._tree = tree
        self._parallel = parallel

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return self._parallel

    def names(self, folder: Location) -> Iterator[str] | None:
        """Names of what lies directly in a folder; see `Storage.names`."""
        found = self._tree.folder(folder)
        if found is None:
            return None
        return (each.listed_name for each in found)

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """What lies directly in a folder; see `Storage.scan`."""
        found = self._tree.folder(folder)
        if found is None:
            return None
        if facts:
            return iter(found)
        return (each._replace(size=None, modified_ms=None) for each in found)

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """Every file below a folder; see `Storage.walk`."""
        if self._tree.folder(folder) is None:
            return None
        return self._below(folder, "")

    def _below(self, folder: Location, prefix: str) -> Iterator[Entry]:
        for entry in self._tree.folder(folder) or ():
            if entry.is_folder:
                yield from self._below(folder / entry.name, f"{prefix}{entry.name}/")
            else:
                yield entry._replace(name=prefix + entry.name)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """The first `limit` bytes of a file; see `Storage.read`.

        Raises:
            NotInBundleError: the file was there, and its content was not saved.
            BundleInvalidError: the bundle is damaged.
        """
        entry = self._tree.entry(file)
        if entry is None or entry.is_folder:
            return None
        part = self._tree.path(file)
        if part not in self._archive:
            raise NotInBundleError(
                "the content of this file is not in the bundle", subject=str(file), expected="names and logs only"
            )
        return self._archive.read(part, limit)

    def stat(self, location: Location) -> Entry | None:
        """One file or folder; see `Storage.stat`."""
        return self._tree.entry(location)
