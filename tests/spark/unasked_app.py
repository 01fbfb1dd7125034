"""Queries on sources that cannot be asked; the second batch of each fails in its sink, and it is started once more.

unasked_app.py FOLDER

FOLDER/NAME-left is the checkpoint as the failure left it, FOLDER/NAME.json what each start brought, batch by batch.
"""

import json
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

ROWS_PER_BATCH, MS_PER_BATCH = 10, 1000
PATIENCE_SECONDS = 60


class Server:
    """Sends numbered rows to whoever is connected, each row once."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.clients, self.sent = [], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            self.clients.append(self.listener.accept()[0])

    def send(self, count):
        for _ in range(count):
            self.sent += 1
            self.clients[-1].sendall(f"row {self.sent}\n".encode())


class Query:
    """One query, and what its batches brought."""

    def __init__(self, folder, name, frame):
        self.checkpoint, self.left, self.out = folder / name, folder / f"{name}-left", folder / f"{name}.json"
        self.frame, self.starts = frame, []

    def start(self, failing=None):
        brought = {}

        def write(batch, number):
            brought[number] = [str(row) for row in batch.orderBy("value").collect()]
            if number == failing:
                raise RuntimeError("the sink is full")

        self.starts.append(brought)
        writer = self.frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(processingTime="1 second").start(), brought

    def wait(self, brought, *numbers):
        until = time.monotonic() + PATIENCE_SECONDS
        while not set(numbers) <= brought.keys() and time.monotonic() < until:
            time.sleep(0.1)

    def end(self, query):
        until = time.monotonic() + PATIENCE_SECONDS
        while query.isActive and query.exception() is None and time.monotonic() < until:
            time.sleep(0.1)
        query.stop()

    def keep(self):
        shutil.copytree(self.checkpoint, self.left)

    def tell(self):
        self.out.write_text(json.dumps(self.starts))


class Queue(DataSource):
    """Hands out numbered rows, each once; its offsets are a place and a time, as those of `rate-micro-batch`."""

    @classmethod
    def name(cls):
        return "queue"

    def schema(self):
        return "value string"

    def simpleStreamReader(self, schema):  # noqa: N802 - Spark's names
        return QueueReader()


class QueueReader(SimpleDataSourceStreamReader):
    """Reads a queue."""

    def initialOffset(self):  # noqa: N802
        return {"offset": 0, "timestamp": 0}

    def read(self, start):
        first, end = start["offset"], start["offset"] + ROWS_PER_BATCH
        rows = iter([(f"row {number}",) for number in range(first, end)])
        return rows, {"offset": end, "timestamp": start["timestamp"] + MS_PER_BATCH}

    def readBetweenOffsets(self, start, end):  # noqa: N802
        return iter([])


def of_socket(spark, folder):
    server = Server()
    frame = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", server.port).load()
    one = Query(folder, "socket", frame)
    query, brought = one.start(failing=2)
    one.wait(brought, 0)
    server.send(3)
    one.wait(brought, 1)
    server.send(2)
    one.end(query)
    one.keep()
    query, brought = one.start()
    one.wait(brought, 2)
    one.end(query)  # it fails by itself
    one.tell()


def of_rate(spark, folder):
    one = Query(folder, "rate", spark.readStream.format("rate").option("rowsPerSecond", 3).load())
    query, _ = one.start(failing=1)
    one.end(query)
    one.keep()
    query, brought = one.start()
    one.wait(brought, 1)
    query.stop()
    one.tell()


def of_places(spark, folder, name, options):
    """Of a source whose offsets are a place and a time."""
    one = Query(folder, name, spark.readStream.format(name).options(**options).load())
    query, _ = one.start(failing=1)
    one.end(query)
    one.keep()
    query, brought = one.start()
    one.wait(brought, 2)  # then the one before is committed
    query.stop()
    one.tell()


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    of_socket(session, Path(sys.argv[1]))
    of_rate(session, Path(sys.argv[1]))
    session.dataSource.register(Queue)
    of_places(session, Path(sys.argv[1]), "queue", {})
    of_places(session, Path(sys.argv[1]), "rate-micro-batch", {"rowsPerBatch": ROWS_PER_BATCH})
    session.stop()
