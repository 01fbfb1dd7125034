"""An application that loads a file, on a cluster: `load_cluster_app.py FILE TABLE CHUNK`."""

import sys

from pyspark.sql import SparkSession

import lastgood.spark

if __name__ == "__main__":
    _, file, table, chunk = sys.argv
    spark = SparkSession.builder.getOrCreate()
    asked = {"schema": "id BIGINT, name STRING, amount DOUBLE", "options": {"header": "true"}}
    lastgood.spark.load(file, f"delta:{table}", chunk_size=int(chunk), **asked)
