"""The queue between callbacks and a sink, with sinks that hang, refuse and recover."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lastgood.spark.agent import writer
from lastgood.spark.agent.writer import Writer

DEADLINE_SECONDS = 20


class Kept:
    """Keeps what it gets; refuses while `refusals` last, hangs while `gate` is shut."""

    def __init__(self, refusals: int = 0, pause_seconds: float = 0.0) -> None:
        self.records: list[dict[str, Any]] = []
        self.writes = 0
        self.refusals = refusals
        self.pause_seconds = pause_seconds
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.is_closed = False

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        self.entered.set()
        self.gate.wait()
        self.writes += 1
        if self.refusals:
            self.refusals -= 1
            raise OSError("database is locked")
        self.records += records

    def close(self) -> None:
        self.is_closed = True

    @property
    def numbers(self) -> list[int]:
        return [record["n"] for record in self.records]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", (0.01,))


def put(queue: Writer, number: int, size: int = 1) -> None:
    queue.put(lambda: [{"n": number}], size)


def test_records_arrive_in_order_and_are_counted() -> None:
    sink = Kept()
    queue = Writer(sink)
    for number in range(250):
        put(queue, number)
    queue.close(DEADLINE_SECONDS)
    assert sink.numbers == list(range(250))
    assert (queue.recorded, queue.dropped, queue.trouble, sink.is_closed) == (250, 0, None, True)


def test_sink_that_refuses_gets_the_same_records_again() -> None:
    sink = Kept(refusals=3)
    queue = Writer(sink)
    put(queue, 1)
    assert queue.flush(DEADLINE_SECONDS)
    assert (sink.numbers, sink.writes) == ([1], 4)
    assert (queue.recorded, queue.dropped, queue.trouble) == (1, 0, "OSError: database is locked")


def test_sink_that_refuses_for_long_loses_what_it_refused_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 0.0)
    sink = Kept(refusals=1)
    queue = Writer(sink)
    put(queue, 1)
    assert queue.flush(DEADLINE_SECONDS)
    put(queue, 2)
    queue.close(DEADLINE_SECONDS)
    assert (sink.numbers, queue.recorded, queue.dropped) == ([2], 1, 1)


def test_where_too_many_wait_the_oldest_go_and_put_never_waits() -> None:
    sink = Kept()
    sink.gate.clear()
    queue = Writer(sink, queue_bytes_max=30)
    put(queue, 0, 10)
    assert sink.entered.wait(DEADLINE_SECONDS)
    for number in range(1, 11):
        put(queue, number, 10)
    assert queue.dropped == 7
    sink.gate.set()
    queue.close(DEADLINE_SECONDS)
    assert sink.numbers == [0, 8, 9, 10]


def test_record_larger_than_the_queue_is_still_written() -> None:
    sink = Kept()
    queue = Writer(sink, queue_bytes_max=10)
    put(queue, 1, 1000)
    queue.close(DEADLINE_SECONDS)
    assert sink.numbers == [1]


def test_close_gives_up_a_sink_that_hangs() -> None:
    sink = Kept()
    sink.gate.clear()
    queue = Writer(sink)
    put(queue, 1)
    assert sink.entered.wait(DEADLINE_SECONDS)
    queue.close(0.01)
    assert not queue.flush(0.01)
    assert (queue.recorded, sink.is_closed) == (0, False)
    sink.gate.set()


def test_sink_that_refuses_is_asked_once_more_at_the_end() -> None:
    sink = Kept(refusals=10**9)
    queue = Writer(sink)
    put(queue, 1)
    assert sink.entered.wait(DEADLINE_SECONDS)
    queue.close(DEADLINE_SECONDS)
    assert (queue.dropped, sink.is_closed) == (1, True)


def test_event_that_cannot_be_read_is_dropped_alone() -> None:
    sink = Kept()
    queue = Writer(sink)
    queue.put(lambda: [{}["no such field"]], 1)
    put(queue, 2)
    queue.close(DEADLINE_SECONDS)
    assert (sink.numbers, queue.dropped, queue.trouble) == ([2], 1, "KeyError: 'no such field'")


def test_records_are_collected_for_a_sink_that_wants_to_be_asked_seldom() -> None:
    sink = Kept(pause_seconds=3600)
    queue = Writer(sink)
    put(queue, 0)
    while not sink.records:
        time.sleep(0.01)
    for number in range(1, 6):
        put(queue, number)
    assert sink.numbers == [0]
    assert queue.flush(DEADLINE_SECONDS)
    assert sink.numbers == list(range(6))
    put(queue, 6)
    queue.close(DEADLINE_SECONDS)
    assert sink.numbers == list(range(7))


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from lastgood.spark.agent.writer import Writer
class Printed:
    pause_seconds = 0.0
    def write(self, records): print(records, flush=True)
    def close(self): print("closed", flush=True)
queue = Writer(Printed())
if os.fork() == 0:
    queue.put(lambda: [{"n": 1}], 1)
    queue.close(3600)
    os._exit(0)
os.wait()
queue.close(10)
"""


def test_fork_neither_writes_nor_waits() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(Path(writer.__file__).parents[3])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("closed\n", "")
