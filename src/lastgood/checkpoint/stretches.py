"""Finds the stretches of a long log in which nothing is out of the ordinary, by several processes at once.

Run as a program it reads a part of them: `python -m lastgood.checkpoint.stretches CHECKPOINT`, told by lines.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.reader import Batch, read_batches
from lastgood.checkpoint.source_offsets import JsonOffset, KafkaOffset, SourceOffset, TextOffset, VoidOffset
from lastgood.checkpoint.source_order import OffsetStep, compare_offsets
from lastgood.storage.reading import LocalStorage, Location

BATCHES_MIN = 10_000
"""Of fewer batches one process has read all before others have started."""
STRETCH_BATCHES = 1000
_PROCESSES_MAX = 4


def find_plain_stretches(location: Location, ids: BatchIds) -> Iterator[range]:
    """Stretches of neighbouring batches that are planned and committed, whole, and of which each goes on from the last.

    It goes on if it has the same sources, none of which went back, and of Kafka the same partitions. What is not told
    of here may be as plain: whoever asks looks at it. Nothing is raised: what cannot be read is not plain.

    Args:
        location: The checkpoint, on this machine.
        ids: The batches that are to be looked at.
    """
    parts = (run[at : at + STRETCH_BATCHES] for run in ids.runs for at in range(0, len(run), STRETCH_BATCHES))
    stretches = [part for part in parts if len(part) > 2]
    count = min(os.cpu_count() or 1, _PROCESSES_MAX)
    is_long = sum(map(len, stretches)) >= BATCHES_MIN
    if not is_long or count < 2 or location.scheme != "file" or not sys.executable:
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as started:  # no process to be had: nothing is found
        readers = [started.enter_context(_start_reader(location, stretches[at::count])) for at in range(count)]
        answers = (process.stdout or () for process in readers)
        for each, line in zip(stretches, _take_in_turn(answers), strict=False):
            if line == _format_line(each, is_plain=True):
                yield each


def _take_in_turn(answers: Iterable[Iterable[str]]) -> Iterator[str]:
    """One line of each, then the next of each; empty where one has no more."""
    return itertools.chain.from_iterable(itertools.zip_longest(*answers, fillvalue=""))


@contextlib.contextmanager
def _start_reader(location: Location, stretches: Sequence[range]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", __name__, location.path]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]  # by name
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.writelines(f"{each.start} {each.stop}\n" for each in stretches)
            yield process
        finally:
            # Safe: it reads, and writes nothing.
            process.kill()


def _format_line(stretch: range, *, is_plain: bool) -> str:
    return f"{stretch.start} {stretch.stop} {'plain' if is_plain else 'look'}\n"


def is_plain(batches: Iterable[Batch]) -> bool:
    """Whether these batches are whole, and each goes on from the one before it; reads them all in any case."""
    found, before = True, None
    for batch in batches:
        plan = batch.offsets if isinstance(batch.commit, CommitEntry) else None
        if not isinstance(plan, OffsetEntry) or plan.metadata is None:
            found = False
        elif found:
            found = before is None or _is_going_on(before, plan)
            before = plan
    return found


def _is_going_on(before: OffsetEntry, plan: OffsetEntry) -> bool:
    if len(before.sources) != len(plan.sources):
        return False
    for line in plan.sources:
        earlier = before.source(line.source_id)
        start, end = earlier.offset if earlier else None, line.offset
        if type(start) is not type(end):
            return False
        if isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset):
            if not _is_onward(start, end):
                return False
        elif start is None or not _is_comparable(start, end):
            return False
    return True


def _is_comparable(start: SourceOffset, end: SourceOffset) -> bool:
    """Whether the ends of a stretch tell what its batches would: it goes onward, or has no order at all."""
    return compare_offsets(start, end) is OffsetStep.ONWARD or isinstance(end, JsonOffset | TextOffset | VoidOffset)


def _is_onward(start: KafkaOffset, end: KafkaOffset) -> bool:
    if start.topics.keys() != end.topics.keys():
        return False
    for topic, partitions in start.topics.items():
        ends = end.topics[topic]
        if partitions.keys() != ends.keys():
            return False
        if any(not 0 <= offset <= ends[part] for part, offset in partitions.items()):  # below 0 is no position
            return False
    return True


def main() -> None:
    """Answer for the stretches that are asked for, in their order."""
    location = Location("file", "", sys.argv[1])
    stretches = [range(*map(int, line.split())) for line in sys.stdin]
    batches = read_batches(LocalStorage(root=location), location, itertools.chain.from_iterable(stretches))
    for each in stretches:
        sys.stdout.write(_format_line(each, is_plain=is_plain(itertools.islice(batches, len(each)))))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
