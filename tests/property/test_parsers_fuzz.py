"""Whatever happens to the bytes of a file, a parser gives a value or a Damage, and a value gives the bytes back.

Real files are cut, spliced, flipped and stuffed with what parsers stumble over, and what fails is made small.
`LASTGOOD_FUZZ_EXAMPLES` says how many times for each parser; `tests/proof/test_fuzz.py` goes far beyond.
"""

from __future__ import annotations

import os
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parsers import PARSERS, TOKENS, seeds_of, survives

from lastgood.checkpoint.lines import ENTRY_BYTES_MAX

EXAMPLES = int(os.environ.get("LASTGOOD_FUZZ_EXAMPLES", "200"))
MEMORY = 256 * 1024 * 1024
BOUNDED = (
    *("offset-line", "path", "mirror", "delta-commit", "delta-checksum", "delta-checkpoint", "iceberg-metadata"),
    *("backup", "records", "driver", "properties", "jaas", "kafka-facts", "starting-offsets"),
)
"""Parsers whose callers bound what they give them, or that read what lastgood or its user wrote."""


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A real file after a few accidents."""
    raw = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        until = min(len(raw), at + draw(st.integers(0, 40)))
        accident = draw(st.sampled_from(("cut", "drop", "put", "flip", "repeat", "splice", "number")))
        if accident == "cut":
            del raw[at:]
        elif accident == "drop":
            del raw[at:until]
        elif accident == "put":
            raw[at:until] = draw(st.sampled_from(TOKENS))
        elif accident == "flip" and at < len(raw):
            raw[at] ^= 1 << draw(st.integers(0, 7))
        elif accident == "repeat":
            raw[at:at] = raw[at:until] * draw(st.integers(1, 50))
        elif accident == "splice":
            raw[at:] = draw(st.sampled_from(seeds))[at:]
        else:
            raw[at:until] = draw(st.binary(max_size=8))
    return bytes(raw)


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_survives_whatever_happened_to_a_file(name: str) -> None:
    seeds = seeds_of(name)
    assert seeds

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    @given(mutated(seeds))
    def parses(raw: bytes) -> None:
        survives(name, raw)

    parses()


def limit(raw: bytes) -> bytes:
    """As large as a parser looks into, to the byte."""
    return raw[:ENTRY_BYTES_MAX]


LARGE: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: bytes(50_000_000),
    "brackets": lambda: b"[" * 50_000_000,
    "lines": lambda: b"v1\n" + b"\n" * 50_000_000,
    "objects": lambda: b"v1\n[" + b"{}," * 16_000_000,
    "text": lambda: b"v1\n{}\n" + b"x" * 50_000_000,
    "noise": lambda: zlib.compress(bytes(range(256)) * 40_000, 0) * 5,
    "entries": lambda: b"v1" + b'\n{"path":"p","timestamp":1}' * 100_000,
    "archive": lambda: b"PK\x03\x04" + b"PK\x01\x02" * 12_000_000,
    "changelog": lambda: b"LZ4Block\x25\x40\x42\x0f\0\xff\xff\xff\1\0\0\0\0\x1fa\1\0" + b"\xff" * 50_000_000,
    "schema": lambda: b"\0\2v3\x7f\xff\xff\xff" + bytes(50_000_000),
    "checksum": lambda: b"crc\0\0\0\2\0" + bytes(50_000_000),
    "open string": lambda: limit(b'v1\n{"a":"' + b"x" * ENTRY_BYTES_MAX),
    "escapes": lambda: limit(b'v1\n{"a":"' + b'\\"' * ENTRY_BYTES_MAX),
    "wide object": lambda: limit(b'v1\n{}\n{"a":[' + b"{}," * ENTRY_BYTES_MAX),
    "topics": lambda: b"v1\n{}\n{" + b",".join(b'"%d":{"0":1}' % n for n in range(100_000)) + b"}",
}


@pytest.mark.parametrize("content", LARGE)
def test_garbage_costs_neither_hours_nor_gigabytes(content: str) -> None:
    raw = LARGE[content]()
    for name, (parse, _) in PARSERS.items():
        if name in BOUNDED:
            continue
        tracemalloc.start()
        try:
            parse(raw)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MEMORY, f"{name}: {peak / 1e6:.0f} MB"
