"""A hundred thousand mutated files through each parser: no exception but ours, no hang, bounded memory.

Plain seeded accidents on real files, in Python's own random order: ten times as fast as a search that also makes small
what fails, which `tests/property/test_parsers_fuzz.py` does. `LASTGOOD_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import re
import tracemalloc
from collections.abc import Callable

import pytest
from parsers import PARSERS, TOKENS, seeds_of, survives

EXAMPLES = int(os.environ.get("LASTGOOD_FUZZ_EXAMPLES", "100000"))
SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
PARTS = 5
FILE_BYTES_MAX = 64 * 1024
MEMORY_BYTES = 32 * 1024 * 1024
"""What parsing one file of at most `FILE_BYTES_MAX` may take at its peak, its value included."""

NUMBER = re.compile(rb"-?\d+")
NUMBERS = (
    b"0",
    b"-1",
    b"-2",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1e400",
    b"1.5",
)
BIG_ENDIAN = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
KEY = re.compile(rb'"[^"\\]{1,40}":')
INVALID = (b"\xff", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\x80")


class Accidents:
    """What happens to files."""

    def __init__(self, seeds: list[bytes], chance: random.Random) -> None:
        self._seeds = seeds
        self._chance = chance
        self._kinds: tuple[Callable[[bytearray], bytearray], ...] = (
            *(self._flip, self._cut, self._drop, self._repeat, self._splice, self._put, self._noise),
            *(self._number, self._integer, self._key, self._nest, self._invalid, self._line, self._zero),
        )

    def next(self) -> bytes:
        """A file after one to six of them."""
        chance = self._chance
        raw = bytearray(chance.choice(self._seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4, 6))):
            raw = chance.choice(self._kinds)(raw)
        return bytes(raw[:FILE_BYTES_MAX])

    def _at(self, raw: bytearray) -> int:
        return self._chance.randrange(len(raw) + 1)

    def _part(self, raw: bytearray) -> slice:
        start = self._at(raw)
        return slice(start, start + self._chance.choice((1, 2, 4, 8, 40, 400)))

    def _flip(self, raw: bytearray) -> bytearray:
        for _ in range(self._chance.choice((1, 1, 2, 8))):
            if raw:
                raw[self._chance.randrange(len(raw))] ^= 1 << self._chance.randrange(8)
        return raw

    def _cut(self, raw: bytearray) -> bytearray:
        return raw[: self._at(raw)]

    def _drop(self, raw: bytearray) -> bytearray:
        del raw[self._part(raw)]
        return raw

    def _repeat(self, raw: bytearray) -> bytearray:
        part = self._part(raw)
        raw[part.start : part.start] = raw[part] * self._chance.choice((1, 2, 30))
        return raw

    def _splice(self, raw: bytearray) -> bytearray:
        other = self._chance.choice(self._seeds)
        return raw[: self._at(raw)] + other[self._chance.randrange(len(other) + 1) :]

    def _put(self, raw: bytearray) -> bytearray:
        raw[self._part(raw)] = self._chance.choice(TOKENS)
        return raw

    def _noise(self, raw: bytearray) -> bytearray:
        part = self._part(raw)
        raw[part] = self._chance.randbytes(len(raw[part]))
        return raw

    def _number(self, raw: bytearray) -> bytearray:
        """Another number in the place of one that is there."""
        found = list(NUMBER.finditer(raw))
        if found:
            at = self._chance.choice(found)
            digits = b"9" * self._chance.choice((19, 30, 400, 5000))
            raw[at.start() : at.end()] = self._chance.choice((*NUMBERS, digits))
        return raw

    def _integer(self, raw: bytearray) -> bytearray:
        """A length or count of a binary format."""
        at, width = self._at(raw), self._chance.choice((2, 4, 8))
        raw[at : at + width] = self._chance.choice(BIG_ENDIAN).to_bytes(8, "big")[-width:]
        return raw

    def _key(self, raw: bytearray) -> bytearray:
        """A key of a JSON object once more, or in the place of another."""
        found = list(KEY.finditer(raw))
        if found:
            one, other = self._chance.choice(found), self._chance.choice(found)
            kept = self._chance.choice((b"", b"1,", b"null,", b"{},", b"[],"))
            raw[other.start() : other.end()] = one[0] + kept + (other[0] if kept else b"")
        return raw

    def _nest(self, raw: bytearray) -> bytearray:
        at, depth = self._at(raw), self._chance.choice((1, 40, 900, 6000))
        opening, closing = self._chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"((", b"))")))
        raw[at:at] = opening * depth + self._chance.choice((b"", closing * depth))
        return raw

    def _invalid(self, raw: bytearray) -> bytearray:
        at = self._at(raw)
        raw[at:at] = self._chance.choice(INVALID)
        return raw

    def _line(self, raw: bytearray) -> bytearray:
        """Lines that are gone, doubled, in another order, or with other ends."""
        lines = raw.split(b"\n")
        at = self._chance.randrange(len(lines))
        match self._chance.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[self._chance.randrange(len(lines))])
            case 2:
                self._chance.shuffle(lines)
            case 3:
                return bytearray(self._chance.choice((b"\r\n", b"\r", b"\n\n", b"\0")).join(lines))
        return bytearray(b"\n").join(lines)

    def _zero(self, raw: bytearray) -> bytearray:
        """A hole, as a crash leaves it in a file whose size was already written."""
        part = self._part(raw)
        raw[part] = bytes(len(raw[part]))
        return raw


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", PARSERS)
def test_parser_survives_whatever_happened_to_a_file(name: str, part: int) -> None:
    accidents = Accidents(seeds_of(name), random.Random(f"{SEED} {name} {part}"))
    tracemalloc.start()
    try:
        for number in range(EXAMPLES // PARTS):
            raw = accidents.next()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            try:
                survives(name, raw)
            except Exception as error:
                raise AssertionError(f"{name}, seed {SEED}, part {part}, file {number}: {raw!r}") from error
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_BYTES, (name, SEED, part, number, raw)
    finally:
        tracemalloc.stop()
