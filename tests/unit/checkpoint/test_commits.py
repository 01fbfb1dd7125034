from __future__ import annotations

import dataclasses

import pytest

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.damage import Damage, DamageKind

V2 = b'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a","b"],["c","d"]],"1":[["e"],[]]}}'
V3 = (
    b'v3\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]},"sinkMetadataMap":{"snk":{"sinkName":"snk",'
    b'"commitOffset":"-","providerName":"NoopTable$","apiVersion":"DSv2","isActive":true}}}'
)


def entry(raw: bytes) -> CommitEntry:
    parsed = parse_commit_entry(raw)
    assert isinstance(parsed, CommitEntry)
    assert parsed.to_bytes() == raw
    return parsed


def test_version_1_holds_the_next_watermark() -> None:
    parsed = entry(b'v1\n{"nextBatchWatermarkMs":1700000003000}')
    assert (parsed.version, parsed.next_batch_watermark_ms, parsed.state_unique_ids) == (1, 1700000003000, None)
    assert parsed.sinks == {}


@pytest.mark.parametrize(
    "raw", [b"v1", b"v1\n", b"v1\n{}", b'v1\n{"nextBatchWatermarkMs":null,"x":1}', b" v1 \r\n{ }\nmore"]
)
def test_whatever_spark_takes_for_watermark_0_is_that(raw: bytes) -> None:
    assert entry(raw).next_batch_watermark_ms == 0


def test_version_2_names_the_state_of_the_next_version() -> None:
    assert entry(V2).state_unique_ids == {0: (("a", "b"), ("c", "d")), 1: (("e",), ())}
    assert entry(b"v2\n{}").state_unique_ids is None
    assert entry(V2.replace(b"v2", b"v1")).state_unique_ids is None


def test_version_3_names_the_sinks() -> None:
    parsed = entry(V3)
    assert (parsed.version, list(parsed.sinks)) == (3, ["snk"])
    assert parsed.state_unique_ids == {0: (("a",),)}


@pytest.mark.parametrize("raw", [V2, V3, b'v1\n{"nextBatchWatermarkMs":5}'])
def test_an_entry_is_written_in_sparks_own_form(raw: bytes) -> None:
    assert dataclasses.replace(entry(raw), raw=None).to_bytes() == raw


def test_a_new_entry_is_what_spark_would_write() -> None:
    assert CommitEntry.of(1, next_batch_watermark_ms=5).to_bytes() == b'v1\n{"nextBatchWatermarkMs":5}'
    ids = {0: (("a", "b"), ("c", "d")), 1: (("e",), ())}
    assert CommitEntry.of(2, next_batch_watermark_ms=7, state_unique_ids=ids).to_bytes() == V2


def test_a_change_keeps_everything_else() -> None:
    changed = entry(V3).with_watermark(9).with_state_unique_ids({0: (("z",),)})
    assert changed.to_bytes() == V3.replace(b'Ms":0', b'Ms":9').replace(b'"a"', b'"z"')
    assert parse_commit_entry(changed.to_bytes()) == changed


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Damage(DamageKind.EMPTY)),
        (b"x", Damage(DamageKind.BAD_VERSION_LINE, "x", 1)),
        (b"v4\n{}", Damage(DamageKind.VERSION_TOO_NEW, "v4", 1)),
        (b"v1\n\n", Damage(DamageKind.BLANK_METADATA_LINE, line=2)),
        (b"v1\n{", Damage(DamageKind.TRUNCATED, "{", 2)),
        (b"v1\nx", Damage(DamageKind.NOT_JSON, "x", 2)),
        (b"v1\n[]", Damage(DamageKind.UNEXPECTED_JSON, "[]", 2)),
        (b'v1\n{"nextBatchWatermarkMs":"1"}', Damage(DamageKind.UNEXPECTED_JSON, '{"nextBatchWatermarkMs":"1"}', 2)),
        *(
            (
                f'v2\n{{"stateUniqueIds":{ids}}}'.encode(),
                Damage(DamageKind.UNEXPECTED_JSON, f'{{"stateUniqueIds":{ids}}}', 2),
            )
            for ids in ("[]", '{"x":[]}', '{"0":5}', '{"0":[5]}', '{"0":[[5]]}', '{"9999999999999999999":[]}')
        ),
    ],
)
def test_damage_is_told_apart(raw: bytes, expected: Damage) -> None:
    assert parse_commit_entry(raw) == expected
