"""Whether a run of a query goes on in the Java of this process: as its scheduler knows, and no web page."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any


def is_running(java_query: Any) -> bool:
    """Whether a run goes on: one that was told to stop counts as ended for Spark before its thread has.

    Args:
        java_query: Of `streams().get()`, say.
    """
    thread = java_query.streamingQuery().queryExecutionThread()
    return bool(java_query.isActive() or thread.isAlive())


def has_active_tasks(java_query: Any, query_id: str) -> bool:
    """Whether a task or a job of a query still runs somewhere, though its thread has ended.

    The scheduler itself is asked: what Spark's web page shows comes later, and knows jobs by a group that a function of
    `foreachBatch` may change.
    """
    context = java_query.sparkSession().sparkContext()
    tasks = (each.taskSet().properties() for each in context.taskScheduler().taskIdToTaskSetManager().values())
    jobs = (each.properties() for each in _list_all(context.dagScheduler().activeJobs()))
    return any(_is_of(properties, query_id) for properties in itertools.chain(tasks, jobs))


def _list_all(scala: Any) -> Iterator[Any]:
    found = scala.iterator()
    while found.hasNext():
        yield found.next()


def _is_of(properties: Any, query_id: str) -> bool:
    return properties is not None and properties.getProperty("sql.streaming.queryId") == query_id
