"""What a load is: which files go into which table, read how. Pure."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.load.position import POSITION_MAX
from lastgood.values import JsonValue


class LoadFormat(enum.Enum):
    """How the files are written, each record a line but in Parquet; or what is read by an ordered column."""

    CSV = "csv"
    JSONL = "jsonl"
    TEXT = "text"
    PARQUET = "parquet"
    DELTA = "delta"
    JDBC = "jdbc"
    FRAME = "dataframe"
    """What a program hands over."""


class ParseMode(enum.Enum):
    """What becomes of a record that is not what the schema says: the modes of Spark's own readers."""

    PERMISSIVE = "permissive"
    DROPMALFORMED = "dropmalformed"
    FAILFAST = "failfast"


class Arrival(enum.Enum):
    """How a file of a folder came, held against those that are read before it."""

    IN_ORDER = "in_order"
    LATE = "late"
    """When files of later names had been read."""
    AGAIN = "again"
    """It had been read, and was written again since."""


FILE_FORMS = (LoadFormat.CSV, LoadFormat.JSONL, LoadFormat.TEXT, LoadFormat.PARQUET)
TABLE_FORMS = (LoadFormat.DELTA, LoadFormat.PARQUET, LoadFormat.JDBC)
"""What is read by an ordered column."""
_SHARED = (
    "columnNameOfCorruptRecord dateFormat enableDateTimeParsingFallback locale timestampFormat timestampNTZFormat"
    " timeZone"
)
_CSV = (
    "charset charToEscapeQuoteEscaping comment delimiter emptyValue encoding escape header ignoreLeadingWhiteSpace"
    " ignoreTrailingWhiteSpace maxCharsPerColumn maxColumns multiLine nanValue negativeInf nullValue positiveInf"
    " preferDate quote sep unescapedQuoteHandling"
)
_JSONL = (
    "allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros"
    " allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames dropFieldIfAllNull prefersDecimal"
    " primitivesAsString"
)
OPTIONS: Mapping[LoadFormat, frozenset[str]] = MappingProxyType(
    {
        LoadFormat.CSV: frozenset(f"{_SHARED} {_CSV}".split()),
        LoadFormat.JSONL: frozenset(f"{_SHARED} {_JSONL}".split()),
        LoadFormat.TEXT: frozenset(),
        LoadFormat.PARQUET: frozenset(),
        LoadFormat.DELTA: frozenset(),
        LoadFormat.JDBC: frozenset({"dbtable", "driver", "fetchsize", "queryTimeout", "user"}),
        LoadFormat.FRAME: frozenset(),
    }
)
"""Options of Spark's readers that are known to give the same rows range by range as for whole files."""
_ENDINGS = {
    ".csv": LoadFormat.CSV,
    ".jsonl": LoadFormat.JSONL,
    ".ndjson": LoadFormat.JSONL,
    ".txt": LoadFormat.TEXT,
    ".parquet": LoadFormat.PARQUET,
}
GZIP_ENDING, BZIP2_ENDING = ".gz", ".bz2"
PASSWORD_VARIABLE = "LASTGOOD_JDBC_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable with the password of a database; it stands in no file."""
PROGRAM = "program"
"""Stands before the name of a job, where a table has its kind: its program takes the chunks itself."""
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]+")


class LoadDiffersError(LastgoodError):
    """A load that has begun is not the one that is asked for now."""

    condition = "LOAD_DIFFERS"
    exit_code = 91
    retry = Retry.AFTER_CHANGE


class InputChangedError(LastgoodError):
    """A file of which a load has read a part is not what it was."""

    condition = "INPUT_CHANGED"
    exit_code = 92
    retry = Retry.AFTER_CHANGE


class LoadNotComparableError(LastgoodError):
    """Rows of a load cannot be compared with its files."""

    condition = "LOAD_NOT_COMPARABLE"
    exit_code = 94
    retry = Retry.AFTER_CHANGE

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(
            "what a load has written cannot be compared with its files",
            found=found,
            expected=expected,
            effect="nothing was compared",
        )


class TableTakenError(LastgoodError):
    """The table of a load is that of another query as well, which it cannot be."""

    condition = "TABLE_TAKEN"
    exit_code = 96
    retry = Retry.AFTER_CHANGE


class LoadUndoRefusedError(LastgoodError):
    """A load cannot be taken back."""

    condition = "LOAD_UNDO_REFUSED"
    exit_code = 95
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class InputFile(JsonValue):
    """A file or a table, as it was when it was looked at."""

    location: str
    size: int
    """Bytes; of a table the rows up to its last bound, or its versions."""
    modified_ms: int | None
    """Milliseconds since 1970; None where the storage does not tell."""
    head: str
    """SHA-256 of its first bytes; of a table its id, empty where it has none."""
    tail: str
    """SHA-256 of its last bytes; of a table its version, empty where it has none."""
    begins: int
    """Where its first record begins: behind a byte order mark and a header; of Parquet its first row group."""
    is_ended: bool
    """Whether its last record is ended by a line end, as far as that can be seen."""
    is_packed: bool = False
    """Whether it is packed: then positions are those of what is packed in it."""
    unpacked: int | None = None
    """Bytes of that; None before it was unpacked."""

    @property
    def length(self) -> int:
        """The position of its end; 0 where it is not known yet."""
        return (self.unpacked or 0) if self.is_packed else self.size

    def list_changes(self, now: InputFile) -> Iterator[str]:
        """What is not as it was, in a few words each; one that has only grown has its `head`."""
        if now.size != self.size:
            yield f"{now.size} bytes, {self.size} when it was read"
        if now.head != self.head:
            yield "its beginning is another"
        if now.size == self.size and now.tail != self.tail:
            yield "its end is another"
        if now.size == self.size and now.modified_ms != self.modified_ms:
            yield "it was written since"


@dataclass(frozen=True, slots=True)
class Bound(JsonValue):
    """Where a chunk of a table ends."""

    position: int
    """Rows up to it, as they were counted when it was found."""
    upto: str
    """The last value of the ordered column that the chunk has; all rows that have it are in that chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec(JsonValue):
    """A load, as it lies beside its checkpoint from its first start on."""

    table: str
    """The sink: `delta:LOCATION`, `file:LOCATION`, or `program:NAME` of a job."""
    form: LoadFormat
    schema: str | None
    """DDL of the columns, as it was said; None: as Spark finds them."""
    columns: str | None = None
    """The columns as Spark writes a schema in JSON; None before the first start."""
    infers: bool
    """Whether Spark was asked to find out the types of columns."""
    options: Mapping[str, str]
    """Those of Spark's reader."""
    mode: ParseMode
    files: tuple[InputFile, ...]
    """In the order in which they are read."""
    folder: str | None = None
    """Where all of them lie; None: they were named one by one."""
    columns_at_first: int | None = None
    """With how many of its columns it began; None: with all."""
    order_by: str | None = None
    """The column by which a table is read; None: files are read, or versions."""
    starting_version: int | None = None
    """The version of a Delta table from which on its versions are read; None: files are read, or by a column."""
    bounds: tuple[Bound, ...] = ()
    """Of a table, where its chunks end, as far as that was found."""
    quarantine: str | None = None
    """`delta:LOCATION`, where records go that are not what the schema says, and not into the table; None: as the mode
    says."""
    chunk: int | None = None
    """What it reads at a time, where it may go on on another machine: then all cut it alike; None: as it goes on."""
    may_have_grown: bool = False
    """Whether a table may have rows behind the last bound."""

    @property
    def is_read_by_spark(self) -> bool:
        """Whether Spark opens what is read: to find the columns of files, or as a table of files."""
        if self.is_table:
            return self.form not in (LoadFormat.JDBC, LoadFormat.FRAME)
        return self.schema is None and self.form in (LoadFormat.CSV, LoadFormat.JSONL)

    @property
    def size(self) -> int:
        """Bytes of all files, unpacked; of a table rows, or versions that are asked for."""
        return sum(each.length for each in self.files) - (self.starting_version or 0)

    @property
    def drops_corrupt(self) -> bool:
        """Whether the table gets no row of a record that is not what the schema says."""
        return self.mode is ParseMode.DROPMALFORMED or self.quarantine is not None

    @property
    def is_table(self) -> bool:
        """Whether a table is read, which stands in `files` as the only one."""
        return self.unit != "bytes"

    @property
    def unit(self) -> str:
        """In which it is measured."""
        if self.starting_version is not None:
            return "versions"
        return "bytes" if self.order_by is None else "rows"

    def list_inputs(self) -> list[str]:
        """What was named to be loaded."""
        if self.folder is not None:
            return [self.folder]
        return [each.location for each in self.files]

    def list_arrivals(self) -> list[Arrival]:
        """How each of its files came; those that were named one by one come in order."""
        if self.folder is None:
            return [Arrival.IN_ORDER] * len(self.files)
        found: list[Arrival] = []
        seen: set[str] = set()
        last = ""
        for each in self.files:
            arrival = Arrival.LATE if each.location < last else Arrival.IN_ORDER
            found.append(Arrival.AGAIN if each.location in seen else arrival)
            seen.add(each.location)
            last = max(last, each.location)
        return found

    def count_bytes_before(self, file: int, position: int) -> int:
        """Bytes before a position of a file, over all files; of a table rows, or versions that were asked for."""
        return sum(each.length for each in self.files[:file]) + max(0, position - (self.starting_version or 0))

    def has(self, file: int, position: int) -> bool:
        """Whether there is such a position; of a table any may come to be, since it grows."""
        is_one = 0 <= file < len(self.files) and 0 <= position < POSITION_MAX
        return is_one and (self.is_table or position <= self.files[file].length)

    @property
    def end(self) -> tuple[int, int]:
        """The file and the position where everything is read."""
        return len(self.files) - 1, self.files[-1].length


def choose_form(locations: Sequence[str], told: str | None) -> LoadFormat:
    """How the files are written: as it is said, else by the ends of their names.

    Raises:
        UsageError: it is not said, and the names do not tell one; or nobody knows what is said.
    """
    known = {form.value: form for form in FILE_FORMS}
    if told in known:
        return known[told]
    if told is not None:
        raise UsageError("how the files are written is not known", found=told, expected=", ".join(known))
    names = [location.lower().removesuffix(GZIP_ENDING).removesuffix(BZIP2_ENDING) for location in locations]
    endings = {name[name.rfind(".") :] for name in names}
    forms = {_ENDINGS.get(each) for each in endings}
    form = next(iter(forms))
    if len(forms) != 1 or form is None:
        raise UsageError(
            "how the files are written is not known by their names",
            found=", ".join(sorted(endings)),
            expected=", ".join(_ENDINGS),
            next="--as csv|jsonl|text|parquet added to the same command",
        )
    return form


def require_known_options(form: LoadFormat, options: Mapping[str, str]) -> dict[str, str]:
    """The options by the names that Spark gives them.

    Raises:
        UsageError: one is not known to give the same rows range by range, or two are the same.
    """
    names = {name.lower(): name for name in OPTIONS[form]}
    found: dict[str, str] = {}
    for name, value in options.items():
        known = names.get(name.lower())
        if known is None:
            raise UsageError(
                f"a load of {form.value} knows no such option",
                found=name,
                expected=", ".join(sorted(OPTIONS[form])) or "none",
            )
        if known in found:
            raise UsageError("an option is given twice", found=name, expected=f"{known} once")
        found[known] = value
    return found


def name_load(locations: Sequence[str], table: str) -> str:
    """By which name the load of these files into this table is found again: the same files, the same name."""
    told = hashlib.sha256(json.dumps([table, *locations]).encode()).hexdigest()
    stem = locations[0].rstrip("/").rpartition("/")[2].partition(".")[0]
    return f"{_NOT_IN_A_NAME.sub('-', stem)[:40] or 'load'}-{told[:8]}"
