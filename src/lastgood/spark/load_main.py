"""Loads files or a table into a table: a PySpark script that `supervise.load_driver` starts and follows.

    spark-submit load_main.py QUESTION TOLD

QUESTION is a file with a JSON object: `spec` (a `LoadSpec`), `checkpoint`, `chunk` (bytes, of a table rows), `sink` (a
`LoadSink`) and `evolves`; with `own` (an `OwnRows`) nothing is loaded, but compared. What it tells are lines of the
file TOLD, each a JSON object: `{"began": …}`, `{"chunk": …}`, `{"compared": …}`, `{"error": …}`. The schema that Spark
has found out stands in the load's own file from then on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lastgood.errors import LastgoodError
from lastgood.notes import read_json
from lastgood.spark.load_job import LoadRefusedError, explain_failure
from lastgood.spark.load_session import choose_job


def main() -> int:
    """Read the question, answer."""
    question = read_json(Path(sys.argv[1]).read_text())
    with Path(sys.argv[2]).open("a") as told:

        def tell(message: dict[str, Any]) -> None:
            told.write(f"{json.dumps(message)}\n")
            told.flush()

        try:
            choose_job(SparkSession.builder.getOrCreate(), question, tell).run()
        except LoadRefusedError as refused:
            tell({"error": refused.answer})
            return 1
        except (LastgoodError, PySparkException, Py4JError) as error:
            tell({"error": explain_failure(error)})
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
