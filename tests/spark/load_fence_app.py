"""Writes the chunks of a file into PostgreSQL, each with its row of the fence table: FILE JOB DATABASE."""

import sys

import psycopg
from pyspark.sql import SparkSession

import lastgood.spark

if __name__ == "__main__":
    _, file, job, database = sys.argv
    spark = SparkSession.builder.getOrCreate()
    read = {"schema": "id BIGINT, name STRING", "chunk_size": 4_000, "checkpoint": job}
    with psycopg.connect(database) as connection:
        for chunk in lastgood.spark.chunks(file, name="to-orders", **read):
            query, _, number = chunk.key.partition("/")
            with connection.transaction():
                fence = "INSERT INTO stream_fence VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
                if connection.execute(fence, (query, int(number), chunk.count)).rowcount:
                    with connection.cursor().copy("COPY orders FROM STDIN") as rows:
                        for row in chunk.rows.collect():
                            rows.write_row(row)
