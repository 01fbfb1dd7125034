"""An application whose queries die, one after the other, each of something else; what each raised is printed.

failures_app.py FOLDER [BOOTSTRAP]
"""

import json
import os
import sys
import traceback
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

DATA = "k STRING, v STRING"


class Cases:
    """Each method makes its checkpoint, damages something, and starts the query that dies of it."""

    def __init__(self, spark, folder, bootstrap=None):
        self.spark, self.folder, self.bootstrap = spark, Path(folder), bootstrap

    def add_file(self, name, number, *rows):
        data = self.folder / "in" / name
        data.mkdir(parents=True, exist_ok=True)
        file = data / f"f{number:03}.json"
        file.write_text("".join(json.dumps({"k": key, "v": value}) + "\n" for key, value in rows))
        os.utime(file, (1_790_000_000 + number, 1_790_000_000 + number))

    def rows(self, name, files=2):
        for number in range(files):
            self.add_file(name, number, ("a", str(number)), ("b", str(number)))
        return self.again(name)

    def again(self, name):
        return self.spark.readStream.schema(DATA).option("maxFilesPerTrigger", 1).json(f"{self.folder}/in/{name}")

    def checkpoint(self, name):
        return self.folder / "chk" / name

    def run(self, frame, name, write=None, mode="append"):
        writer = frame.writeStream.queryName(name).outputMode(mode).trigger(availableNow=True)
        writer = writer.format("noop") if write is None else writer.foreachBatch(write)
        writer.start(checkpointLocation=str(self.checkpoint(name))).awaitTermination()

    def udf(self):
        def parse(value):
            return int(value) + 1

        rows = self.rows("udf", 1)
        self.add_file("udf", 1, ("a", "not a number"))
        self.run(rows.select(sf.udf(parse, "int")("v")), "udf")

    def foreach_batch(self):
        def write(frame, batch_id):
            for row in frame.collect():
                if row.v == "1":
                    raise ValueError(f"cannot parse record {row.k}")

        self.run(self.rows("foreach_batch"), "foreach_batch", write)

    def cast(self):
        rows = self.rows("cast", 1)
        self.add_file("cast", 1, ("a", "not a number"))
        self.spark.conf.set("spark.sql.ansi.enabled", "true")
        self.run(rows.select(sf.col("v").cast("int")), "cast")

    def another_driver(self):
        def write(frame, batch_id):
            if batch_id == 1:  # the other one, quicker than we are, commits the batch
                commits = self.checkpoint("another_driver") / "commits"
                (commits / "1").write_bytes((commits / "0").read_bytes())

        self.run(self.rows("another_driver"), "another_driver", write)

    def stale_crc(self):
        self.run(self.rows("stale_crc"), "stale_crc")
        for log in ("commits", "offsets"):
            (self.checkpoint("stale_crc") / log / "1").unlink()
        (self.checkpoint("stale_crc") / "commits" / ".1.crc").unlink()
        self.run(self.again("stale_crc"), "stale_crc")

    def empty_offsets(self):
        self.run(self.rows("empty_offsets"), "empty_offsets")
        (self.checkpoint("empty_offsets") / "offsets" / "1").write_bytes(b"")
        self.run(self.again("empty_offsets"), "empty_offsets")

    def cut_offsets(self):
        self.run(self.rows("cut_offsets"), "cut_offsets")
        offsets = self.checkpoint("cut_offsets") / "offsets" / "1"
        offsets.write_bytes(offsets.read_bytes()[:-6])
        self.run(self.again("cut_offsets"), "cut_offsets")

    def offsets_gone(self):
        self.run(self.rows("offsets_gone"), "offsets_gone")
        (self.checkpoint("offsets_gone") / "offsets" / "0").unlink()
        self.run(self.again("offsets_gone"), "offsets_gone")

    def metadata_garbage(self):
        self.run(self.rows("metadata_garbage"), "metadata_garbage")
        (self.checkpoint("metadata_garbage") / "metadata").write_text("not json")
        self.run(self.again("metadata_garbage"), "metadata_garbage")

    def counts(self, name):
        return self.again(name).groupBy("k").count()

    def make_state(self, name):
        self.rows(name)
        self.run(self.counts(name), name, mode="complete")
        self.add_file(name, 2, ("a", "2"))

    def lose_state(self, name):
        for partition in ("0", "1"):
            (self.checkpoint(name) / "state" / "0" / partition / "2.delta").unlink()

    def state_gone(self):
        self.make_state("state_gone")
        self.lose_state("state_gone")
        self.run(self.counts("state_gone"), "state_gone", mode="complete")

    def state_gone_in_foreach_batch(self):
        name = "state_gone_in_foreach_batch"
        self.make_state(name)
        self.lose_state(name)
        self.run(self.counts(name), name, lambda frame, batch_id: frame.collect(), mode="complete")

    def other_key(self):
        self.make_state("other_key")
        self.run(self.again("other_key").groupBy(sf.length("k")).count(), "other_key", mode="complete")

    def two_sources(self):
        self.run(self.rows("two_sources"), "two_sources")
        self.run(self.again("two_sources").union(self.rows("second")), "two_sources")

    def topic(self, name, records, partitions=1):
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if name not in admin.list_topics().topics:
            for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
                future.result()
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            producer.produce(name, str(number).encode(), partition=number % partitions)
        producer.flush()
        return admin

    def kafka(self, topic):
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def expire(self, name):
        from confluent_kafka import TopicPartition

        admin = self.topic(name, 10)
        for future in admin.delete_records([TopicPartition(name, 0, 15)]).values():
            future.result()

    def expired_in_foreach_batch(self):
        name = "expired_in_foreach_batch"

        def write(frame, batch_id):
            frame.collect()

        self.topic(name, 10)
        self.run(self.kafka(name), name, write)
        self.expire(name)
        self.run(self.kafka(name), name, write)

    def to_delta(self, frame, name):
        writer = frame.writeStream.format("delta").queryName(name).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint(name)))
        writer.start(f"{self.folder}/table/{name}").awaitTermination()

    def expired_to_delta(self):
        name = "expired_to_delta"
        self.topic(name, 10)
        self.to_delta(self.kafka(name), name)
        self.expire(name)
        self.to_delta(self.kafka(name), name)

    def poison_to_delta(self):
        name = "poison_to_delta"
        self.topic(name, 10)
        fails = sf.when(sf.col("offset") == 7, sf.raise_error(sf.lit("no such record"))).otherwise(sf.col("value"))
        self.to_delta(self.kafka(name).select(fails.alias("value")), name)

    def recreated(self):
        name = "recreated"
        admin = self.topic(name, 10)
        self.run(self.kafka(name), name)
        for future in admin.delete_topics([name]).values():
            future.result()
        while name in admin.list_topics().topics:
            pass
        self.topic(name, 5)
        self.run(self.kafka(name), name)

    def partitions_gone(self):
        name = "partitions_gone"
        admin = self.topic(name, 10, partitions=2)
        self.run(self.kafka(name), name)
        for future in admin.delete_topics([name]).values():
            future.result()
        while name in admin.list_topics().topics:
            pass
        self.topic(name, 20)
        self.run(self.kafka(name), name)

    def topic_gone(self):
        self.run(self.kafka("no-such-topic"), "topic_gone")


def main(folder, bootstrap, names):
    spark = SparkSession.builder.getOrCreate()
    cases = Cases(spark, folder, bootstrap)
    for name in names[:-1]:
        try:
            getattr(cases, name)()
        except Exception:  # noqa: BLE001 - which one is Spark's choice
            traceback.print_exc()
            note_down(folder)
        else:
            print(f"{name} has not failed", file=sys.stderr)
    try:
        getattr(cases, names[-1])()
    except Exception:
        note_down(folder)
        raise


def note_down(folder):
    """Keep what Python tells in a file of its own: in the driver's log, Java runs into it."""
    with Path(folder, "python.log").open("a") as alone:
        traceback.print_exc(file=alone)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
