"""Finds the stretches of a mirror in which nothing is out of the ordinary, without parsing each of its batches. Pure.

Two plans whose texts are the same but for numbers hold the same but for these numbers: so the first plan of a stretch
is parsed, and of each other one the numbers are compared. As in `checkpoint.stretches`, what is not told of here may be
as plain: whoever asks looks at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import le
from typing import Final, NamedTuple, TypeAlias

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset
from lastgood.mirror.plain_lines import PlainCopy

Batch: TypeAlias = tuple[Copy | None, Copy | None]
_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_QUOTE = rb'\\"'
_PARTITION = _QUOTE + rb"(?:0|[1-9][0-9]{0,8})" + _QUOTE + b":" + _NUMBER
_TOPIC = _QUOTE + rb"[A-Za-z0-9._-]+" + _QUOTE + rb":\{" + _PARTITION + b"(?:," + _PARTITION + rb")*\}"
_KAFKA = rb"\{" + _TOPIC + b"(?:," + _TOPIC + rb")*\}"
_FILE = rb"\{" + _QUOTE + b"logOffset" + _QUOTE + b":" + _NUMBER + rb"\}"
_SOURCE = b"(?:" + _KAFKA + b"|" + _FILE + b")"
_PLAN: Final = re.compile(
    rb'v1\\n\{\\"batchWatermarkMs\\":%b,\\"batchTimestampMs\\":%b\0%b(?:\\n%b)*' % (_NUMBER, _NUMBER, _SOURCE, _SOURCE)
)
"""The plan of a query that reads Kafka or files, with its confs as the shared text: each number behind a colon is the
watermark, the time, or where the batch ends in a source."""
_NUMBERS: Final = re.compile(b"(?<=:)" + b"(" + _NUMBER + b")" + rb"(?=[,}\0])")
_TIMES_AGAIN: Final = re.compile(rb'"batch(?:Watermark|Timestamp)Ms"')


class _Plan(NamedTuple):
    """A plan, taken apart."""

    texts: Sequence[bytes]
    """What stands between the numbers."""
    shared: bytes | None
    time: int
    ends: Sequence[int]
    """Of the sources, in the order in which they stand."""


def _is_going_on(before: _Plan, plan: _Plan) -> bool:
    """Whether it has the same sources, none of which goes back, and another time."""
    if before.texts != plan.texts or before.shared != plan.shared:
        return False
    if before.time == plan.time:  # it may fill an emptied state; see `query.refills`
        return False
    return all(map(le, before.ends, plan.ends))


def find_plain_runs(batches: Mapping[int, Batch], ids: Iterable[int]) -> Iterator[range]:
    """Runs of neighbouring batches that are planned and committed, whole, and of which each goes on from the last.

    It goes on as in `checkpoint.stretches`, and is planned at another time.

    Args:
        batches: The copies that count of each batch: of its plan, and of its commit.
        ids: The batches that are to be looked at, ascending.
    """
    commits, plans = _Commits(), _Plans()
    first, end, before = 0, 0, None
    for batch_id in ids:
        plan, commit = batches[batch_id]
        found = plans.take_apart(plan) if commits.is_whole(commit) else None
        is_going_on = batch_id == end and before is not None and found is not None and _is_going_on(before, found)
        if not is_going_on:
            yield range(first, end)
            first = batch_id
        before, end = found, batch_id + 1
    yield range(first, end)


class _Commits:
    """Tells whether commits are whole; of those of one text one is parsed."""

    def __init__(self) -> None:
        self._known: dict[object, bool] = {}

    def is_whole(self, commit: Copy | None) -> bool:
        if not isinstance(commit, PlainCopy) or not commit.is_short:
            return False
        known = self._known.get(commit.words)
        if known is None:
            known = self._known[commit.words] = isinstance(parse_commit_entry(commit.content), CommitEntry)
        return known


class _Plans:
    """Takes plans apart; of those of one form, which mostly follow each other, one is parsed."""

    def __init__(self) -> None:
        self._form: tuple[list[bytes], bytes | None] | None = None
        self._is_plain = False

    def take_apart(self, copy: Copy | None) -> _Plan | None:
        """The parts of a plan; None if it is not plain."""
        if not isinstance(copy, PlainCopy):
            return None
        held, shared = copy.words
        parts = _NUMBERS.split(held)
        form = parts[::2], shared
        if form != self._form:
            self._form, self._is_plain = form, _is_as_it_looks(copy)
        if not self._is_plain:
            return None
        _, time, *ends = map(int, parts[1::2])  # the watermark comes first
        return _Plan(*form, time, ends)


def _is_as_it_looks(copy: PlainCopy) -> bool:
    """Whether all of a plan is what its numbers are taken for, and what is shared as well: so is any of its form."""
    held, shared = copy.words
    if _PLAN.fullmatch(held) is None or _TIMES_AGAIN.search(shared or b""):  # of two times JSON takes the later one
        return False
    entry = parse_offset_entry(copy.content)
    if not isinstance(entry, OffsetEntry) or entry.metadata is None or entry.metadata.control is not None:
        return False
    return all(isinstance(line.offset, KafkaOffset | FileOffset) for line in entry.sources)
