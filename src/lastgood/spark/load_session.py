"""A load in a session that is there already, such as that of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lastgood.errors import LastgoodError, UsageError
from lastgood.spark.agent.sessions import is_connect

if TYPE_CHECKING:
    from lastgood.spark.load_chunks import Chunk
    from lastgood.spark.load_job import Job


def run_in_session(
    session: Any, question: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]
) -> Mapping[str, str] | None:
    """What `load_main` does, here.

    Args:
        session: A classic session of Spark.
        question: As `load_main` reads it.
        tell: As what it tells.

    Returns:
        None if everything is loaded, else the error, as the job tells it.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a client of Spark Connect has no py4j
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from lastgood.spark.load_job import LoadRefusedError, explain_failure  # noqa: PLC0415

    try:
        choose_job(session, question, tell).run()
    except LoadRefusedError as refused:
        return refused.answer
    except (PySparkException, Py4JError) as error:
        return explain_failure(error)
    return None


def choose_job(session: Any, question: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> Job:
    """The job that a question asks for.

    Args:
        session: A classic session of Spark.
        question: As `load_main` describes it.
        tell: Is told what it tells.
    """
    from lastgood.spark.load_apart import ApartJob  # noqa: PLC0415
    from lastgood.spark.load_direct import DirectJob  # noqa: PLC0415
    from lastgood.spark.load_job import Job  # noqa: PLC0415
    from lastgood.spark.load_table import TableJob  # noqa: PLC0415
    from lastgood.spark.load_versions import VersionsJob  # noqa: PLC0415

    spec = question["spec"]
    if spec["starting_version"] is not None:
        return VersionsJob(session, question, tell)
    if spec["quarantine"] is not None:
        return ApartJob(session, question, tell)
    if spec["order_by"] is not None:
        return TableJob(session, question, tell)
    if question["sink"]["format"] == "delta":
        return DirectJob(session, question, tell)
    return Job(session, question, tell)


def give_chunks(
    session: Any,
    question: Mapping[str, Any],
    name: str,
    fail: Callable[[Mapping[str, str]], LastgoodError],
    frame: Any = None,
) -> Generator[Chunk, None, None]:
    """The chunks of a job that nobody is done with yet.

    Args:
        session: A classic session of Spark.
        question: As `load_main` reads it.
        name: Of the job.
        fail: Makes the error of what `load_main` tells as one.
        frame: The DataFrame that is read; None: what the question names.

    Raises:
        LastgoodError: what `fail` makes.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from lastgood.spark.load_chunks import choose_chunk_job  # noqa: PLC0415
    from lastgood.spark.load_job import LoadRefusedError, explain_failure  # noqa: PLC0415

    try:
        yield from choose_chunk_job(session, question, name, frame).give_chunks()
    except LoadRefusedError as refused:
        raise fail(refused.answer) from refused
    except (PySparkException, Py4JError) as error:
        raise fail(explain_failure(error)) from error


def is_of_release(version: str, releases: Sequence[str]) -> bool:
    """Whether a version of Spark such as `4.2.0` is of one of these releases, such as `4.2`."""
    beginnings = tuple(f"{each}." for each in releases)
    return version.startswith(beginnings)


def require_session(session: Any, versions: Sequence[str]) -> Any:
    """The session that is meant, of which a load is possible.

    Args:
        session: One; None: the active one.
        versions: Of which its own has to be one, such as `4.2`.

    Raises:
        UsageError: there is none, it is one of Spark Connect, or another Spark.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded only by whoever asks for it

    found = SparkSession.getActiveSession() if session is None else session
    if found is None:
        raise UsageError("there is no Spark session", expected="an active one, or spark=SESSION")
    if is_connect(found):
        raise UsageError(
            "a load needs a classic session", found="one of Spark Connect", next="lastgood load, as a command"
        )
    if not is_of_release(found.version, versions):
        expected = f"Spark {' or '.join(versions)}"
        raise UsageError("a load needs another Spark", found=f"Spark {found.version}", expected=expected)
    return found
