"""A file of a storage, for libraries that read files which can be sought in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from lastgood.storage.reading import Location, Storage, read_part

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class SeekableFile(io.RawIOBase):
    """A file of which so many bytes are known to be there."""

    def __init__(self, storage: Storage, location: Location, size: int) -> None:
        super().__init__()
        self._storage, self._location, self._size = storage, location, size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = begins[whence] + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read as much as there is room for, or as there is."""
        view = memoryview(buffer).cast("B")
        limit = min(len(view), self._size - self._at)
        content = b""
        if limit > 0:
            content = read_part(self._storage, self._location, begin=self._at, limit=limit) or b""
        view[: len(content)] = content
        self._at += len(content)
        return len(content)
