"""What a number in a name or in a file says costs nothing: only what is there does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hostile.attacker import Attacker, Told, call, signed
from hostile.bounded import READING, RESIDENT_KIB, Said, arguments, bounded
from hostile.test_trust_hosts import reading
from hypothesis import given
from hypothesis import strategies as st
from rotated import ALL, rotated

from lastgood.checkpoint.file_logs import derive_compact_interval
from lastgood.checkpoint.logs import BatchIds
from lastgood.delta_log.listing import list_delta_log
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput

HUGE = [10**9, 10**18 - 1]
CODES = {0, 1, 3, 20, 21, 38, 40, 57, 64}
PLAN = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795220516284,"conf":{%b}}\n%b'
VERBS = [["status"], ["diagnose"], ["verify"], ["offsets", "--stable-lag", "1"], ["plan"]]


def checkpoint(folder: Path, *, reads_files: bool = False) -> Path:
    query = CheckpointBuilder(folder / "chk", FileInput() if reads_files else None)
    query.run(8)
    query.plan()
    return folder / "chk"


def every_verb(folder: Path, verbs: list[list[str]] = VERBS) -> dict[str, Said]:
    said = {" ".join(verb): bounded(arguments(verb, folder / "chk"), folder) for verb in verbs}
    for verb, each in said.items():
        assert not each.is_bug, (verb, each.code, each.err)
        assert each.resident_kib < RESIDENT_KIB, (verb, each.resident_kib)
        assert each.code in CODES, (verb, each.code, each.err)
        assert len(each.out) < 1024 * 1024, (verb, len(each.out))
    return said


def met(things: Sequence[Any], verbs: Sequence[list[str]]) -> list[Any]:
    """Each thing and the verbs that it meets: two here, every one in the proof."""
    whole = rotated(things, verbs, ALL)
    return [*rotated(things, verbs, 2), *(pytest.param(*each, marks=pytest.mark.proof) for each in whole)]


@pytest.mark.parametrize("number", [2**63, 10**22])
def test_a_number_that_is_no_batch_for_spark_is_none_for_a_repair(tmp_path: Path, number: int) -> None:
    chk = checkpoint(tmp_path)
    for log in ("offsets", "commits"):
        (chk / log / str(number)).write_bytes(b"v1\n{}\n")
    for verb in (
        ("plan", chk, "--goal", "replan", "--accept", "duplicates", "-o", tmp_path / "plan.json"),
        ("apply", tmp_path / "plan.json", "--driver-is-dead"),
        ("undo", "last", "--checkpoint", chk, "--driver-is-dead"),
    ):
        said = call(*verb)
        assert said.code == 0, said
    assert not any((chk / "offsets" / str(each)).exists() for each in (number + 1, 9))


IN_NAMES = [(log, number) for log in ("offsets", "commits", "sources/0") for number in HUGE]


@pytest.mark.parametrize(("place", "verbs"), met(IN_NAMES, VERBS))
def test_a_number_in_a_name_costs_nothing(tmp_path: Path, place: tuple[str, int], verbs: list[list[str]]) -> None:
    log, number = place
    chk = checkpoint(tmp_path, reads_files=log == "sources/0")
    shutil.copy(chk / log / "0", chk / log / str(number))
    said = every_verb(tmp_path, verbs)
    assert "diagnose" not in said or str(number) in said["diagnose"].out


def test_the_verbs_that_only_show_pay_nothing_either(tmp_path: Path) -> None:
    chk = checkpoint(tmp_path)
    for log in ("offsets", "commits"):
        shutil.copy(chk / log / "3", chk / log / str(10**9))
    every_verb(tmp_path, [verb for verb in READING if verb not in VERBS])


@pytest.mark.parametrize("number", HUGE)
def test_a_compact_file_of_any_number_costs_nothing(tmp_path: Path, number: int) -> None:
    chk = checkpoint(tmp_path, reads_files=True)
    shutil.copy(chk / "sources/0/1", chk / f"sources/0/{number}.compact")
    every_verb(tmp_path, [["status"], ["diagnose"]])


@pytest.mark.parametrize(
    ("conf", "source"),
    [
        (b"", b'{"logOffset":999999999999}'),
        (b'"spark.sql.shuffle.partitions":"999999999"', b'{"logOffset":8}'),
        (b"", b'{"logOffset":%b}' % (b"9" * 5000)),
    ],
    ids=["log offset", "partitions", "digits"],
)
def test_a_number_in_a_plan_costs_nothing(tmp_path: Path, conf: bytes, source: bytes) -> None:
    chk = checkpoint(tmp_path, reads_files=True)
    (chk / "offsets/8").write_bytes(PLAN % (conf, source))
    (chk / "state/0/0").mkdir(parents=True)
    (chk / "state/0/0/1.delta").write_bytes(b"x")
    every_verb(tmp_path, [["status"], ["diagnose"], ["plan"]])


IN_STATE = ["{n}/0/1.delta", "0/{n}/1.delta", "0/0/{n}.delta", "0/0/{n}.zip", "0/0/{n}.snapshot"]


@pytest.mark.parametrize(
    ("place", "verbs"), met(IN_STATE, [["status"], ["diagnose"], ["inspect", "--state"], ["plan"]])
)
def test_a_number_in_the_state_costs_nothing(tmp_path: Path, place: str, verbs: list[list[str]]) -> None:
    chk = checkpoint(tmp_path)
    for version in range(1, 9):
        file = chk / f"state/0/0/{version}.delta"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    file = chk / "state" / place.format(n=10**12)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"LZ4Block\x25\xff\xff\xff\x7f\xff\xff\xff\x7f" + b"\0" * 64)
    every_verb(tmp_path, verbs)


def test_a_mark_of_any_height_costs_nothing(tmp_path: Path) -> None:
    """A file sink whose log goes on at a number out of all proportion."""
    chk = checkpoint(tmp_path)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in (0, 1, 10**18 - 1):
        (log / str(number)).write_bytes(b"v1\n")
    for verb in ("status", "diagnose", "plan"):
        said = bounded([verb, str(chk), "--sink", str(tmp_path / "sink"), "--format=json"], tmp_path)
        assert not said.is_bug, said.err
        assert said.resident_kib < RESIDENT_KIB
        assert said.code in CODES, said.err


def delta_table(folder: Path, name: str, app_version: int) -> Path:
    log = folder / "table/_delta_log"
    log.mkdir(parents=True)
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": []}},
        {"txn": {"appId": "0dcd0ea6-5866-4db8-bdb7-960f2e49c827", "version": app_version}},
    ]
    (log / name).write_text("\n".join(map(json.dumps, actions)))
    return folder / "table"


@pytest.mark.parametrize(("mark", "verbs"), met([10**9, 2**31 - 2, 2**63 - 1], [["status"], ["diagnose"], ["plan"]]))
def test_a_mark_in_a_table_of_any_height_costs_nothing(tmp_path: Path, mark: int, verbs: list[list[str]]) -> None:
    chk = checkpoint(tmp_path)
    table = delta_table(tmp_path, "00000000000000000000.json", mark)
    for (verb,) in verbs:
        said = bounded([verb, str(chk), "--sink", str(table), "--format=json"], tmp_path)
        assert not said.is_bug, said.err
        assert said.resident_kib < RESIDENT_KIB
        assert said.code in CODES, said.err


def test_the_parts_that_a_name_promises_are_not_counted_out() -> None:
    listing = list_delta_log(["00000000000000000007.checkpoint.0000000001.9999999999.parquet"])
    assert listing.checkpoints == ()
    whole = [f"00000000000000000007.checkpoint.{part:010d}.0000000003.parquet" for part in (1, 2, 3)]
    assert [each.version for each in list_delta_log(whole).checkpoints] == [7]


def _interval_of_spark(entries: int, default: int) -> int:
    """`CompactibleFileStreamLog.deriveCompactInterval`."""
    if entries <= default or default >= entries // 2:
        return entries
    return next((divisor for divisor in range(default, entries // 2 + 1) if entries % divisor == 0), entries)


@given(st.integers(0, 5000), st.integers(1, 40))
def test_the_interval_is_the_one_that_spark_derives(newest: int, default: int) -> None:
    assert derive_compact_interval([newest], default) == _interval_of_spark(newest + 1, default)


ids = st.lists(st.integers(0, 40), max_size=20)
spans = st.tuples(st.integers(0, 45), st.integers(0, 45)).map(lambda both: range(*both))


@given(ids, spans)
def test_a_set_of_batches_tells_what_of_a_range_it_has_and_lacks(known: list[int], numbers: range) -> None:
    batches = BatchIds.of(known)
    assert list(batches.within(numbers)) == [each for each in numbers if each in known]
    gaps = batches.missing(numbers)
    assert [each for gap in gaps for each in gap] == [each for each in numbers if each not in known]
    assert all(gaps)


@given(ids)
def test_a_range_may_be_as_wide_as_it_likes(known: list[int]) -> None:
    batches = BatchIds.of(known)
    assert sum(1 for _ in batches.within(range(2**62))) == len(batches)
    count: Callable[[range], int] = lambda gap: gap.stop - gap.start  # noqa: E731 - `len` has an end
    assert sum(map(count, batches.missing(range(2**63)))) == 2**63 - len(batches)


def places_of_numbers(told: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every number in an object of JSON."""
    if isinstance(told, int | float) and not isinstance(told, bool):
        yield path
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    for key, value in inner:
        yield from places_of_numbers(value, (*path, key))


def put(told: Any, path: tuple[Any, ...], value: int) -> None:
    """Put a number there."""
    for key in path[:-1]:
        told = told[key]
    told[path[-1]] = value


def test_a_number_that_no_float_holds_is_damage_wherever_it_is_noted_down(attacker: Attacker, plan: Told) -> None:
    """Four hundred digits are few enough for Python to read, and too many to reckon with."""
    chk = attacker.checkpoint
    assert call("backup", "create", chk).code == 0
    room = attacker.place(plan, "begun", "applying", listings={})
    kept = {name: plan[name] for name in ("recovery", "goal", "sources", "sinks", "steps", "made_at_ms")}
    attempt = {"at_ms": 1, "did": "stop", "because": "so", "seconds": 1.0, "plan": kept}
    incident = attacker.incident(attempts=[attempt], first_batch=7, first_batch_at_ms=1)
    tally = attacker.work / "attempts.json"
    tally.write_text(json.dumps({"format": 1, "planned": 7, "committed": 6, "failures": 2, "told_ms": 1}))
    backup = next((attacker.work / "backups").glob("*.json"))
    verbs = reading(attacker, room)
    for file in (incident, tally, backup, room / "plan.json", room / "begun.json", room / "applying.json"):
        before = file.read_bytes()
        for path in places_of_numbers(json.loads(before)):
            told = json.loads(before)
            put(told, path, 10**400)
            file.write_bytes(signed(told) if file.name == "plan.json" else json.dumps(told).encode())
            for verb in ("status", "report", "report incident", "backup"):
                said = call(*verbs[verb])
                assert said.code != 4, (file.name, path, verb, said.err)
        file.write_bytes(before)
