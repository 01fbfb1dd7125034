"""Whatever happens to the bytes of a checkpoint, a parser gives a value or a Damage, and a value gives the bytes back.

Real files are cut, spliced, flipped and stuffed with what parsers stumble over. `LASTGOOD_FUZZ_EXAMPLES` says how many
times for each parser.
"""

from __future__ import annotations

import os
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.checkpoint.checksums import parse_hadoop_checksum, parse_spark_checksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import FileLogEntry, parse_sink_log_entry, parse_source_log_entry
from lastgood.checkpoint.initial import parse_initial_offset, parse_source_entry
from lastgood.checkpoint.layout import classify
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.operators import parse_operator_metadata, parse_state_schema
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.checkpoint.source_offsets import parse_source_offset
from lastgood.checkpoint.state_files import parse_lineage, parse_snapshot, parse_snapshot_metadata

EXAMPLES = int(os.environ.get("LASTGOOD_FUZZ_EXAMPLES", "200"))
CASES = Path(__file__).parents[1] / "corpus" / "cases"
MEMORY = 256 * 1024 * 1024


class Parser(NamedTuple):
    parse: Callable[[bytes], Any]
    seeds: str
    """Which real files to begin with."""


def parse_offset_line(raw: bytes) -> Any:
    return parse_source_offset(raw.decode("utf-8", "replace"))


def parse_path(raw: bytes) -> Any:
    return classify(raw.decode("utf-8", "surrogateescape"))


PARSERS = {
    "query": Parser(parse_query_metadata, "checkpoint/metadata"),
    "offsets": Parser(parse_offset_entry, "checkpoint/offsets/*"),
    "offset-line": Parser(parse_offset_line, "checkpoint/offsets/*"),
    "commits": Parser(parse_commit_entry, "checkpoint/commits/*"),
    "source-log": Parser(parse_source_log_entry, "checkpoint/sources/*/*"),
    "sink-log": Parser(parse_sink_log_entry, "spark_metadata/*"),
    "initial-offset": Parser(parse_initial_offset, "checkpoint/sources/0/0"),
    "source-entry": Parser(parse_source_entry, "checkpoint/sources/*/*"),
    "operator-metadata": Parser(parse_operator_metadata, "checkpoint/state/*/_metadata/**/*"),
    "state-schema": Parser(parse_state_schema, "checkpoint/state/**/*schema"),
    "state-schema-v3": Parser(parse_state_schema, "checkpoint/state/*/_stateSchema/*/*"),
    "snapshot": Parser(parse_snapshot, "checkpoint/state/*/*/*.zip"),
    "snapshot-metadata": Parser(parse_snapshot_metadata, "checkpoint/state/*/_metadata/metadata"),
    "lineage": Parser(parse_lineage, "checkpoint/state/*/*/*_*.changelog"),
    "hadoop-checksum": Parser(parse_hadoop_checksum, "checkpoint/**/.*.crc"),
    "spark-checksum": Parser(parse_spark_checksum, "checkpoint/state/*/*/[0-9]*.crc"),
    "path": Parser(parse_path, "checkpoint/metadata"),
}
MORE_SEEDS = {
    "offset-line": [
        b'{"m.b":{"0":14},"m.a":{"0":14,"1":14}}',
        b'{"sourceVersion":1,"reservoirId":"x","reservoirVersion":4,"index":-1,"isStartingVersion":false}',
        b'{"version":1,"snapshot_id":-1,"position":-1,"scan_all_files":false}',
        b'{"0":{"value":4,"runTimeMs":5}}',
        b'{"offset":30,"timestamp":1700000003000}',
        b"-1",
        b"-",
    ],
    "snapshot-metadata": [
        b'v1\n{"sstFiles":[{"localFileName":"8.sst","dfsSstFileName":"8-x.sst","sizeBytes":9}],"numKeys":1}',
    ],
    "path": [
        b"offsets/7",
        b"commits/.7.68ed4850-d346-4756-94d9-8f64625f261a.tmp",
        b"state/0/0/.8_68ed4850-d346-4756-94d9-8f64625f261a.changelog.crc.crc",
        b"state/0/_stateSchema/default/0_68ed4850-d346-4756-94d9-8f64625f261a",
        b"sources/orders/9.compact",
    ],
}
TOKENS = [
    *(b"", b"\0", b"\n", b"\r", b"\r\n", b" ", b"v1", b"v2", b"v3", b"v99", b"v-1"),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b":", b",", b'"value":', b'"0":', b'{"logOffset":5}'),
    *(b"-", b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b"9" * 30, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000),
    *(b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"),
    *(b"LZ4Block", b"PK\x03\x04", b"PK\x05\x06", b"crc\0", b".crc", b".tmp", b"/", b"\xd9\xa3"),
]


def seeds_of(name: str) -> list[bytes]:
    files = sorted(path for path in CASES.glob(f"*/{PARSERS[name].seeds}") if path.is_file())
    contents = {path.read_bytes() for path in files if path.stat().st_size < 20_000}
    return [*sorted(contents, key=lambda raw: (len(raw), raw))[:60], *MORE_SEEDS.get(name, [])]


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


def look_at(value: Any) -> None:
    """Ask a value for everything it can tell."""
    if isinstance(value, OffsetEntry):
        again = parse_offset_entry(value.to_bytes())
        assert again == value
        assert all(line.offset.to_text() is not None for line in value.sources)
        changed = value.with_source_line(value.sources[-1].source_id, "5")
        if value.metadata:
            assert value.metadata.control is None or value.metadata.control.operation is not None
            assert changed.with_watermark(7).with_conf({"a": "b"}).batch_watermark_ms == 7
            assert value.metadata.spark_versions is None or value.conf
        assert changed.to_bytes()
    elif isinstance(value, CommitEntry):
        assert value.with_watermark(7).next_batch_watermark_ms == 7
        assert value.state_unique_ids is None or value.version > 1
        assert value.sinks is not None
    elif isinstance(value, FileLogEntry):
        assert sum(1 for _ in value) <= value.raw.count(b"\n") + value.raw.count(b"\r")
    elif isinstance(value, QueryMetadata):
        assert value.query_id


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_survives_whatever_happened_to_a_file(name: str) -> None:
    parse, seeds = PARSERS[name].parse, seeds_of(name)
    assert seeds

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    @given(mutated(seeds))
    def survives(raw: bytes) -> None:
        value = parse(raw)
        if isinstance(value, Damage):
            assert len(value.found) <= 80
            assert str(value).isprintable()
        elif hasattr(value, "to_bytes") and name not in ("snapshot", "lineage"):
            assert value.to_bytes() == raw
            look_at(value)

    survives()


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
        if name in ("offset-line", "path"):
            continue  # their callers bound what they give them
        tracemalloc.start()
        try:
            parse(raw)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MEMORY, f"{name}: {peak / 1e6:.0f} MB"
