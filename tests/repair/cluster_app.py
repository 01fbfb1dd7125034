"""An application that knows nothing of lastgood: files to Parquet files, for ever. cluster_app.py FOLDER"""

import sys

from pyspark.sql import SparkSession


def main(folder: str) -> None:
    """Run until somebody ends it."""
    spark = SparkSession.builder.appName("orders").getOrCreate()
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/input")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(processingTime="1 second").start(f"{folder}/sink").awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
