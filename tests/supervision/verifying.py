"""What `lastgood verify --data` says after a script, as a user would ask it, held against the script's own count."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from supervision.course import LASTGOOD, Course, Place

from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.demo.stage import TOPIC
from lastgood.planning.price import Guarantee

_SECONDS = 300
_KINDS = ("lost", "duplicated", "changed", "unknown")


def require_verified(course: Course) -> None:
    """See that the verb counts what the script has counted, and finds nothing beyond what was promised.

    Only of the topic that there is now anybody can ask Kafka: rows that were made from one that is no more, and whose
    offsets lie among the compared ones, are of no record for the verb.
    """
    course.stop()  # else it takes the processor that the verb's Spark needs
    code, found = _verify(course)
    compared = _compared(course, found)
    shown, now = course.shown(), course.topic_number
    wanted = {
        "lost": Counter(place for place in compared if place not in shown),
        "duplicated": Counter({place: shown[place] - 1 for place in compared if shown[place] > 1}),
        "changed": Counter(),
        "unknown": Counter(
            {place: times for place, times in shown.items() if place[0] != now and (now, *place[1:]) in compared}
        ),
    }
    assert found["source"]["records"] == len(compared), (found, course.told)
    for kind in _KINDS:
        _require_same(found[kind], wanted[kind], (kind, course.told))
    assert code == int(any(wanted.values())), (found, course.told)
    _require_promised(course.guarantees, found)


def _require_promised(guarantees: set[str], found: Mapping[str, Any]) -> None:
    """See that the verb finds nothing against the weakest guarantee that was printed."""
    if Guarantee.LOSSY.value not in guarantees:
        assert found["lost"]["total"] == 0, (guarantees, found)
    if guarantees <= {Guarantee.EXACTLY_ONCE.value}:
        assert found["exact"], (guarantees, found)


def _verify(course: Course) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of the command."""
    stage = course.stage
    command = [LASTGOOD, "verify", stage.checkpoint, "--data", "--kafka", stage.broker.bootstrap]
    command += ["--sink", f"delta:{stage.table}", "--key", "id", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exact"] == (done.returncode == 0)
    return done.returncode, found


def _compared(course: Course, found: Mapping[str, Any]) -> set[Place]:
    """The places that the verb says it has compared: all that the query has read, and Kafka still has."""
    stage = course.stage
    earliest, begun = stage.broker.earliest_offsets(TOPIC), _begun(course)
    ends = stage.committed()
    wanted = {
        str(partition): [[max(begun.get(partition, 0), earliest[partition]), end]]
        for partition, end in ends.items()
        if max(begun.get(partition, 0), earliest[partition]) < end
    }
    assert found["source"]["compared"] == {TOPIC: wanted}, course.told
    return set(_places(course.topic_number, wanted))


def _begun(course: Course) -> Mapping[int, int]:
    """Partition → first offset that the query of this checkpoint has read."""
    began = parse_initial_offset((course.stage.checkpoint / "sources/0/0").read_bytes())
    assert isinstance(began, InitialOffset)
    assert isinstance(began.offset, KafkaOffset)
    return began.offset.topics[TOPIC]


def _require_same(difference: Mapping[str, Any], wanted: Counter[Place], told: object) -> None:
    """See that it has the total, and where it names all ranges, the offsets."""
    assert difference["total"] == wanted.total(), (difference, told)
    for each in difference["partitions"]:
        if not each["ranges_left_out"]:
            here = {offset for _, partition, offset in wanted if partition == each["partition"]}
            named = {offset for _, _, offset in _places(0, {each["partition"]: each["ranges"]})}
            assert named == here, (difference, told)


def _places(topic: int, ranges: Mapping[Any, list[list[int]]]) -> Iterator[Place]:
    for partition, spans in ranges.items():
        yield from ((topic, int(partition), offset) for start, end in spans for offset in range(start, end))
