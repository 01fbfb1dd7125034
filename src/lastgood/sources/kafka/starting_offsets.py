"""Where a recovery lets a query start to read Kafka: the file that says so, and what Spark is given of it. Pure.

    FOLDER/QUERY.json    {"query": "orders", "recovery": "20261120-0312-7f3a",
                          "starting_offsets": {"orders": {"0": 41, "1": -2}}}

The file that `--via app-config` writes says the same without the names (`start_files`). Offsets are those of Spark's
option `startingOffsets`: the first to read, or -2 for the earliest, -1 for the newest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.sources.kafka.ranges import Offsets
from lastgood.values import JsonValue, make_form

OFFSET_EARLIEST = -2
FOLDER_VARIABLE = "LASTGOOD_STARTING_OFFSETS"
"""Environment variable: the file that a recovery wants a query to start by, or a folder with a file for each query."""
KEY_VARIABLE = "LASTGOOD_START_KEY"
"""Environment variable: the key under which the offsets stand in that file; unset: they are all of it."""
_NAME = re.compile(r"[\w.-]+")


class StartingOffsetsError(UsageError):
    """The file of a recovery that says where a query starts cannot be meant so."""

    condition = "STARTING_OFFSETS_INVALID"


class SourcePartitionsGoneError(LastgoodError):
    """Partitions at which a query is to start are not there any more."""

    condition = "SOURCE_PARTITIONS_GONE"
    exit_code = 67
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class StartingOffsets(JsonValue):
    """Where a recovery lets a query start."""

    json = make_form("query recovery starting_offsets=offsets")
    """What the file holds."""

    query: str
    recovery: str | None
    """Id of the recovery that wants it; None: the file does not tell."""
    offsets: Offsets
    """Per topic and partition the first offset to read."""

    def option(self, partitions: Mapping[str, Collection[int]]) -> str:
        """The value of Spark's option `startingOffsets`.

        Spark insists that every partition is named; those that the recovery does not know are newer than it, and are
        read from their beginning.

        Args:
            partitions: Per topic of the subscription the partitions that it has now.

        Raises:
            SourcePartitionsGoneError: a partition is named that is not among them.
        """
        gone = [
            f"{topic}-{number}"
            for topic, numbers in self.offsets.items()
            for number in numbers
            if number not in partitions.get(topic, ())
        ]
        if gone:
            raise SourcePartitionsGoneError(
                "partitions at which the query is to start are gone",
                subject=self.query,
                found=f"no {', '.join(sorted(gone))}",
                expected=f"the partitions that {self._wanted_by} names",
                effect="the query is not started: what it has not read of them is lost, or they are of another topic",
            )
        complete = {
            topic: {number: self.offsets.get(topic, {}).get(number, OFFSET_EARLIEST) for number in sorted(numbers)}
            for topic, numbers in sorted(partitions.items())
        }
        return json.dumps(offsets_to_json(complete))

    @property
    def _wanted_by(self) -> str:
        if self.recovery is None:
            return "the file"
        return f"recovery {self.recovery}"


def name_file(query: str) -> str:
    """Name of the file for a query.

    Raises:
        UsageError: such a name can be no file's.
    """
    if _NAME.fullmatch(query) is None:
        raise UsageError(
            "the name of the query cannot be used", found=query or "(empty)", expected="letters, digits, _ . -"
        )
    return f"{query}.json"


def parse_starting_offsets(content: bytes, query: str, subject: str) -> StartingOffsets:
    """Read the file for a query.

    Args:
        content: Its bytes.
        query: Whose it must be.
        subject: What to call it in an error.

    Raises:
        StartingOffsetsError: it is of another query, or says something else than described above.
    """
    try:
        told = read_json(content)
        offsets = read_offsets(told["starting_offsets"])
        found = StartingOffsets(str(told["query"]), str(told["recovery"]), offsets)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StartingOffsetsError(
            "the file does not say where to start",
            subject=subject,
            found=f"{type(error).__name__}: {error}",
            expected='{"query": …, "recovery": …, "starting_offsets": {"topic": {"0": 41}}}',
        ) from error
    if found.query != query:
        raise StartingOffsetsError("the file is of another query", subject=subject, found=found.query, expected=query)
    return found


def read_offsets(told: Mapping[str, Mapping[str, object]]) -> Offsets:
    """Offsets in the shape of Spark's option `startingOffsets`.

    Raises:
        ValueError, TypeError, AttributeError: they have another shape.
    """
    return {
        topic: {int(each): _parse_offset(offset) for each, offset in numbers.items()} for topic, numbers in told.items()
    }


def _parse_offset(told: object) -> int:
    if not isinstance(told, int) or isinstance(told, bool) or told < OFFSET_EARLIEST:
        raise ValueError(f"no offset: {told!r}")
    return told


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The same shape as `read_offsets` takes."""
    return {topic: {str(number): offset for number, offset in numbers.items()} for topic, numbers in offsets.items()}
