"""Code against what its checkpoint keeps: what fits, what Spark refuses, and what it would take for its own."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from reading import CASES

from lastgood.lab.spark import SPARK_VERSIONS
from lastgood.spark.agent.fit import FAILS, RENAMED, REUSED, compare
from lastgood.spark.kept_code import locate_note, note_code, read_kept
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

WINDOW = {
    "type": "struct",
    "fields": [{"name": name, "type": "timestamp", "nullable": True, "metadata": {}} for name in ("start", "end")],
}
KEPT: dict[str, Any] = {
    "sources": [{"topics": ["clicks", "orders"]}, {"files": ["file:///lake/in/2026/a.json"]}],
    "operators": [
        {
            "id": 0,
            "name": "stateStoreSave",
            "keys": [["window", WINDOW], ["k", "integer"], ["j", "integer"]],
            "values": [["sum", "long"], ["count", "long"]],
        }
    ],
    "noted": None,
}
WINDOW_NAMES = ("length_us", "slide_us", "begin_us")
CODE: dict[str, Any] = {
    "format": 1,
    "spark": SPARK_VERSIONS[-1],
    "mode": "Append",
    "sources": [
        {"kind": "kafka", "name": "kafka", "options": {"subscribe": "orders, clicks"}},
        {"kind": "json", "name": "FileSource[/lake/in]", "options": {"path": "/lake/in"}},
    ],
    "operators": [{**KEPT["operators"][0], "computes": ["sum(v)", "count(1)"]}],
    "windows": [{"length_us": 600_000_000, "slide_us": 600_000_000, "begin_us": 0}],
}


def change(value: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    changed = copy.deepcopy(value)
    inner: Any = changed
    for each in path[:-1]:
        inner = inner[each]
    inner[path[-1]] = to
    return changed


def outcomes(kept: dict[str, Any], code: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["subject"], each["outcome"]) for each in compare(kept, code)]


def test_what_is_as_it_was_fits() -> None:
    assert compare(KEPT, CODE) == []
    assert compare({**KEPT, "noted": CODE}, CODE) == []
    assert compare({"sources": [], "operators": [], "noted": None}, CODE) == []


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        (("operators", 0, "keys"), [["window", WINDOW], ["j", "integer"], ["k", "integer"]], [("state/0", REUSED)]),
        (("operators", 0, "keys"), [["window", WINDOW], ["k", "integer"], ["new", "integer"]], [("state/0", RENAMED)]),
        (("operators", 0, "keys"), [["window", WINDOW], ["k", "integer"]], [("state/0", FAILS)]),
        (("operators", 0, "keys"), [["window", "long"], ["k", "integer"], ["j", "integer"]], [("state/0", FAILS)]),
        (("operators", 0, "keys"), None, []),
        (("operators", 0, "values"), [["max", "long"], ["count", "long"]], [("state/0", REUSED)]),
        (("operators", 0, "values"), [["sum", "double"], ["count", "long"]], [("state/0", FAILS)]),
        (("operators", 0, "values"), None, []),
        (("operators", 0, "name"), "dedupe", [("state/0", FAILS)]),
        (("operators", 0, "name"), None, []),
        (("operators",), [], [("state", FAILS)]),
        (("sources", 0, "options"), {"subscribe": "others"}, [("sources/0", FAILS)]),
        (("sources", 0, "options"), {"subscribe": "others", "failOnDataLoss": "false"}, [("sources/0", RENAMED)]),
        (("sources", 0, "options"), {"subscribepattern": "ord.*"}, []),
        (("sources", 0, "options"), {"subscribePattern": "(?i)x.*"}, [("sources/0", FAILS)]),
        (("sources", 0, "options"), {"subscribePattern": "[[:no Python:]"}, []),
        (("sources", 0, "options"), {"assign": '{"orders":[0]}'}, []),
        (("sources", 0, "options"), {"assign": '{"others":[0]}'}, [("sources/0", FAILS)]),
        (("sources", 0), CODE["sources"][1], [("sources/0", FAILS)]),
        (("sources", 1, "options", "path"), "file:///lake/in/*/", []),
        (("sources", 1, "options", "path"), "/lake/other", [("sources/1", RENAMED)]),
        (("sources", 1, "options", "path"), "/lake/i", [("sources/1", RENAMED)]),
        (("sources", 1, "options", "path"), "in", []),
        (("sources", 1, "options", "path"), "/lake/i*/2026", []),
        (("sources", 1, "options", "path"), "/lake/in/2026/a.json", []),
        (("sources", 1, "options", "path"), "s3a://bucket//lake/i%6e/*.json", []),
        (("sources", 1), CODE["sources"][0], [("sources/1", FAILS)]),
        (("sources",), CODE["sources"][:1], [("sources", FAILS)]),
        (("sources",), CODE["sources"][::-1], [("sources/0", FAILS), ("sources/1", FAILS)]),
    ],
)
def test_what_was_changed_is_told(path: tuple[str | int, ...], to: Any, expected: list[tuple[str, str]]) -> None:
    assert outcomes(KEPT, change(CODE, *path, to=to)) == expected


@pytest.mark.parametrize(
    ("path", "to", "expected"),
    [
        (("windows", 0, "length_us"), 1_200_000_000, [("windows", REUSED)]),
        (("windows", 0, "slide_us"), 300_000_000, [("windows", REUSED)]),
        (("windows",), [], [("windows", REUSED)]),
        (("operators", 0, "computes"), ["sum(w)", "count(1)"], [("state/0", RENAMED)]),
        (("operators",), [], [("state", FAILS)]),
    ],
)
def test_what_only_the_code_that_ran_before_tells(
    path: tuple[str | int, ...], to: Any, expected: list[tuple[str, str]]
) -> None:
    code = change(CODE, *path, to=to)
    assert outcomes({**KEPT, "noted": CODE}, code) == expected
    if expected != [("state", FAILS)]:
        assert outcomes(KEPT, code) == []


@pytest.mark.parametrize(
    ("kept", "one", "other"),
    [
        (
            [{"files": ["file:/a/1.json"]}, {"files": ["file:/b/1.json"]}],
            {"kind": "json", "options": {"path": "/a"}},
            {"kind": "json", "options": {"path": "/b"}},
        ),
        (
            [{"topics": ["a"]}, {"topics": ["b"]}],
            {"kind": "kafka", "options": {"subscribe": "a", "failOnDataLoss": "false"}},
            {"kind": "kafka", "options": {"subscribePattern": "b.*", "failOnDataLoss": "false"}},
        ),
    ],
)
def test_sources_that_have_changed_places_are_told_from_one_that_has_moved(kept: Any, one: Any, other: Any) -> None:
    kept = {**KEPT, "sources": kept, "operators": []}
    code = {**CODE, "operators": [], "windows": []}
    assert outcomes(kept, {**code, "sources": [one, other]}) == []
    assert outcomes(kept, {**code, "sources": [other, one]}) == [("sources/0", REUSED), ("sources/1", REUSED)]


def test_gap_of_a_session_is_compared_where_one_spark_has_told_both() -> None:
    before = {**CODE, "windows": [{"gap": "90 seconds"}]}
    now = {**CODE, "windows": [{"gap": "1 minutes 30 seconds"}]}
    assert outcomes({**KEPT, "noted": before}, now) == [("windows", REUSED)]
    assert outcomes({**KEPT, "noted": before}, {**now, "spark": "3.5.9"}) == []


def test_key_that_an_old_format_keeps_in_the_value_as_well_is_none_of_its_values() -> None:
    operator = KEPT["operators"][0]
    assert compare(change(KEPT, "operators", 0, "values", to=[*operator["keys"], *operator["values"]]), CODE) == []


@pytest.mark.parametrize(
    "kind", [{"type": "struct", "fields": 3}, {"type": "struct", "fields": [3]}, {"type": {}}, 3, None, []]
)
def test_type_that_is_none_of_spark_s_is_another_type(kind: Any) -> None:
    """Whoever writes to the lake can write any schema."""
    kept = change(KEPT, "operators", 0, "values", to=[["sum", kind], ["count", "long"]])
    assert outcomes(kept, CODE) == [("state/0", FAILS)]


def test_session_s_own_part_of_the_key_is_none_of_the_code_s() -> None:
    kept = change(KEPT, "operators", 0, "keys", to=[*KEPT["operators"][0]["keys"], ["sessionStartTime", "timestamp"]])
    assert compare(kept, CODE) == []


@pytest.mark.parametrize("case", ["3.5-agg-hdfs-healthy", "4.2-agg-nokey-rocksdb-ckptv2", "3.5-join-hdfs"])
def test_what_a_checkpoint_keeps_is_read_and_goes_with_itself(case: str, tmp_path: Path) -> None:
    shutil.copytree(CASES / case / "checkpoint", tmp_path / "chk")
    location = parse_location(str(tmp_path / "chk"))
    storage = open_writable(location)
    kept = read_kept(storage, location)
    assert kept["operators"]
    assert kept["sources"]
    operators = [{**each, "computes": []} for each in kept["operators"]]
    code = {**CODE, "operators": operators, "sources": [{"kind": "json", "options": {}} for _ in kept["sources"]]}
    assert compare(kept, code) == []
    note_code(storage, location, code, now_ms=9_000_000_000_000, version="1.4")
    assert read_kept(storage, location)["noted"] == code


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2}',
        b"\xff",
        lambda told: {**told, "query_id": "another"},
        lambda told: {**told, "at_ms": "long ago"},
        lambda told: {**told, "code": {**told["code"], "windows": [{"length_us": "x"}]}},
        lambda told: {**told, "code": {**told["code"], "operators": [{"values": 3}]}},
        lambda told: {**told, "code": {**told["code"], "operators": [{"values": [["a"]], "computes": []}]}},
        lambda told: {**told, "code": {**told["code"], "windows": [dict.fromkeys(WINDOW_NAMES, 10**400)]}},
        lambda told: {**told, "code": None},
    ],
)
def test_note_that_is_none_of_ours_tells_nothing(damage: Any, tmp_path: Path) -> None:
    shutil.copytree(CASES / "3.5-agg-hdfs-healthy/checkpoint", tmp_path / "chk")
    location = parse_location(str(tmp_path / "chk"))
    storage = open_writable(location)
    note_code(storage, location, CODE, now_ms=9_000_000_000_000)
    note = Path(locate_note(location).path)
    note.write_bytes(
        damage if isinstance(damage, bytes) else json.dumps(damage(json.loads(note.read_bytes()))).encode()
    )
    assert read_kept(storage, location)["noted"] is None
