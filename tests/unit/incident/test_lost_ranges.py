from __future__ import annotations

from typing import Any

from lastgood.incident.lost_ranges import LostRange, find_lost_ranges
from lastgood.records.record import Progress, RecordedSource


def plan(lost: Any, *, bound: bool = False) -> dict[str, Any]:
    return {"sources": [{"index": 0, "kind": "kafka", "lost": lost, "bound": bound}]}


def look(at_ms: int, latest: Any) -> Progress:
    source = RecordedSource(description="KafkaV2", latest_offset=latest)
    return Progress(recorded_at_ms=at_ms + 5, trigger_at_ms=at_ms, batch_id=at_ms, sources=(source,))


def test_lost_records_are_named_by_topic_partition_and_offsets() -> None:
    found = list(find_lost_ranges(plan({"orders": {"0": [[10, 20], [30, 31]]}}, bound=True), ()))
    assert found == [LostRange("orders", 0, 10, 20, bound=True), LostRange("orders", 0, 30, 31, bound=True)]
    assert found[0].to_json() == {
        "topic": "orders",
        "partition": 0,
        "from": 10,
        "to": 20,
        "bound": True,
        "written_after_ms": None,
        "written_before_ms": None,
    }


def test_two_looks_at_the_end_of_the_partition_tell_when_they_were_written() -> None:
    seen = [look(at_ms, {"orders": {"0": latest}}) for at_ms, latest in ((100, 5), (200, 10), (300, 15), (400, 25))]
    (found,) = find_lost_ranges(plan({"orders": {"0": [[10, 20]]}}), [*seen, look(500, {"orders": {"0": 99}})])
    assert (found.after_ms, found.before_ms) == (200, 405)


def test_looks_at_something_else_tell_nothing() -> None:
    seen = [
        look(1, None),
        look(2, 7),
        look(3, {"orders": {"1": 0}}),
        look(4, {"others": {"0": 0}}),
        look(5, {"orders": 1}),
    ]
    (found,) = find_lost_ranges(plan({"orders": {"0": [[10, 20]]}}), seen)
    assert (found.after_ms, found.before_ms) == (None, None)


def test_files_are_no_ranges() -> None:
    assert list(find_lost_ranges(plan(["a.json"]), ())) == []
    assert list(find_lost_ranges({}, ())) == []
