"""The file of an application's configuration that says where it starts to read Kafka. Pure.

Three forms: the JSON of Spark's option `startingOffsets` alone; a line of a Java properties file; a line of
`spark-defaults.conf`. Of the latter two everything else in the file stays as it is. All that is written here is read
here too: by `read_kafka`, and where it has to be known whether the file still says so.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.sources.kafka.java_properties import parse_properties
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.starting_offsets import (
    StartingOffsets,
    StartingOffsetsError,
    parse_starting_offsets,
    read_offsets,
)
from lastgood.values import JsonValue

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Larger files are no configuration of an application."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes for the name of one."""
_ESCAPED = re.compile(r"[\\:=# !\t]")
_COMMENTS = (b"#", b"!")
_WORDS = ("", "earliest", "latest")
"""What `startingOffsets` may be beside JSON."""
_OF_A_QUERY = {"query", "recovery", "starting_offsets"}
"""What the file of one query in a folder of such files holds."""


class StartForm(enum.Enum):
    """How the application wants to be told."""

    JSON = "json"
    """The file holds the JSON of `startingOffsets` and nothing else."""
    PROPERTIES = "properties"
    """`KEY=JSON`, a line of a Java properties file."""
    SPARK_DEFAULTS = "spark-defaults"
    """`KEY JSON`, a line of `spark-defaults.conf`."""


@dataclass(frozen=True, slots=True)
class StartFile(JsonValue):
    """A file that tells an application where to start."""

    location: str
    form: StartForm = StartForm.JSON
    key: str | None = None
    """Of the line; None for `StartForm.JSON`."""

    def __post_init__(self) -> None:
        """See that a form with keys has one that fits, and one without has none.

        Raises:
            UsageError: it has not.
        """
        if (self.form is StartForm.JSON) != (self.key is None):
            expected = "no key, since the JSON is all of the file" if self.key else "the key under which it stands"
            form = f"--start-form {self.form.value}"
            raise UsageError("the key does not fit the form", subject=form, expected=expected)
        is_spark = self.form is StartForm.SPARK_DEFAULTS
        if self.key is not None and (not self.key.strip() or (is_spark and not self.key.startswith("spark."))):
            sentence = "Spark would leave out such a key" if is_spark else "the key is empty"
            expected = "a key that begins with spark." if is_spark else "a key"
            raise UsageError(
                sentence,
                subject=f"--start-key {self.key}",
                expected=expected,
            )

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line."""
        key = () if self.key is None else ("--start-key", self.key)
        return ("--start-file", self.location, "--start-form", self.form.value, *key)

    def says(self, content: bytes | None, offsets: Offsets) -> bool:
        """Whether the file holds these offsets and no others.

        Args:
            content: What it holds; None if there is no such file.
            offsets: As `content` takes them.
        """
        if content is None:
            return False
        try:
            found = parse_start(content, "", self.location, key=self.key)
        except UsageError:
            return False
        return isinstance(found, StartingOffsets) and found.offsets == offsets

    def is_all_that_changes(self, before: bytes | None, after: bytes) -> bool:
        """Whether one content of the file differs from another by nothing but where the application starts.

        Args:
            before: What it held; None if there was no such file.
            after: What it holds then.
        """
        try:
            found = parse_start(after, "", self.location, key=self.key)
            if before is not None:
                parse_start(before, "", self.location, key=self.key)  # or something else would be lost
            if not isinstance(found, StartingOffsets) or not all(map(_TOPIC.fullmatch, found.offsets)):
                return False
            return self.content(before, found.offsets) == after
        except UsageError:
            return False

    def content(self, before: bytes | None, offsets: Offsets) -> bytes:
        """What the file holds once it says where to start.

        Args:
            before: What it holds now; None if there is none.
            offsets: Per topic and partition the first to read.

        Raises:
            StartingOffsetsError: it holds something else than offsets, and would hold nothing else than offsets then.
            PropertiesError: what it holds is no properties file.
        """
        value = format_starting_offsets(offsets)
        if self.key is None:
            _require_offsets(before, self.location)
            return value.encode() + b"\n"
        kept = b"".join(entry for entry in _split_entries(before or b"") if self.key not in parse_properties(entry))
        if kept and not kept.endswith((b"\n", b"\r")):
            kept += b"\n"
        separator = " " if self.form is StartForm.SPARK_DEFAULTS else "="
        line = _ESCAPED.sub(r"\\\g<0>", self.key) + separator + value.replace("\\", "\\\\")
        return kept + line.encode("iso-8859-1", "backslashreplace") + b"\n"


def format_starting_offsets(offsets: Offsets) -> str:
    """The JSON of Spark's option `startingOffsets`."""
    told = {topic: {str(each): parts[each] for each in sorted(parts)} for topic, parts in sorted(offsets.items())}
    return json.dumps(told, separators=(",", ":"))


def parse_start(content: bytes, query: str, subject: str, *, key: str | None = None) -> StartingOffsets | str | None:
    """What a file says of where a query starts, whatever its form.

    Args:
        content: Its bytes.
        query: Whose start is asked for; a file may be of one query alone, and says so.
        subject: What to call it in an error.
        key: Under which it stands, of a properties file or `spark-defaults.conf`, which Spark reads as one; None: the
            offsets are all of the file.

    Returns:
        The offsets; or `earliest` or `latest`; None if it says nothing.

    Raises:
        StartingOffsetsError: it says something else, or is of another query.
        PropertiesError: it is no properties file.
    """
    if key is None:
        return parse_start_value(content.decode("utf-8", "replace"), query, subject)
    value = parse_properties(content).get(key)
    if value is None:
        return None
    return parse_start_value(value, query, f"{key} in {subject}")


def parse_start_value(value: str, query: str, subject: str) -> StartingOffsets | str | None:
    """The same of the value alone; see `parse_start`.

    Raises:
        StartingOffsetsError: it says something else, or is of another query.
    """
    word = value.strip()
    if word in _WORDS:
        return word or None
    try:
        told = read_json(word)
        if isinstance(told, dict) and told.keys() == _OF_A_QUERY:
            return parse_starting_offsets(word.encode(), query, subject)
        return StartingOffsets(query, None, read_offsets(told))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StartingOffsetsError(
            "it does not say where to start",
            subject=subject,
            found=f"{type(error).__name__}: {error}",
            expected='startingOffsets, such as {"topic": {"0": 41}}, or earliest, or latest',
        ) from error


def _require_offsets(before: bytes | None, location: str) -> None:
    if before is None or before.strip().decode("utf-8", "replace") in _WORDS:
        return
    try:
        read_offsets(read_json(before))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StartingOffsetsError(
            "the file holds something else than startingOffsets",
            subject=f"--start-file {location}",
            found=f"{before[:60]!r}",
            expected="no such file, or one that holds the JSON of startingOffsets; or --start-form properties",
        ) from error


def _split_entries(raw: bytes) -> Iterator[bytes]:
    """The lines of a properties file as they stand; those that a backslash joins are one."""
    entry = b""
    for found in _LINE.finditer(raw):
        line = found[0]
        if not line:
            continue
        is_comment = not entry and line.lstrip(b" \t\f").startswith(_COMMENTS)
        entry += line
        text = line.rstrip(b"\r\n")
        is_joined = (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
        if is_comment or not is_joined:
            yield entry
            entry = b""
    if entry:
        yield entry
