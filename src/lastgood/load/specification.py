"""What a load is: which files go into which table, read how. Pure."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
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
_ANEW = "--checkpoint with a location of its own"
_EVOLVE = f"--evolve added to the same command, where there are more columns than before; or {_ANEW}"
_REPROCESS = "--reprocess FILE added to the same command: it is loaded as it is now, and the rows of what it was stay"
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
    may_have_grown: bool = False
    """Whether a table may have rows behind the last bound."""

    @property
    def size(self) -> int:
        """Bytes of all files, unpacked; of a table rows, or versions."""
        return sum(each.length for each in self.files)

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

    def count_bytes_before(self, file: int, position: int) -> int:
        """Bytes before a position of a file, over all files; of a table rows."""
        return sum(each.length for each in self.files[:file]) + position

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


@dataclass(frozen=True, slots=True)
class FilesRead:
    """How many files of a load, from the first on, were read."""

    whole: int
    """Of so many everything is committed."""
    planned: int
    """So many are in a plan, or begin where one ends."""


def go_on(
    begun: LoadSpec,
    asked: LoadSpec,
    *,
    continued: Collection[str] = (),
    follows_growth: bool = False,
    evolves: bool = False,
) -> LoadSpec:
    """The load that is asked for, with the columns of the one that has begun; what it is comes from who asks for it.

    Args:
        begun: As it began.
        asked: As it is asked for now.
        continued: Locations of the files that have what they had before, and more behind it.
        follows_growth: Whether what was added to the last file is read too.
        evolves: Whether the columns may be others; which they are is found out later.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: a file is not what it was.
    """
    _require_same_load(begun, asked, evolves=evolves)
    *others, last = zip(begun.files, asked.files, strict=True)
    for before, now in others:
        _require_same(before, now)
    before, now = last
    if now.location in continued:
        _require_followed(before, now, follows_growth=follows_growth)
    else:
        _require_same(before, now)
    files = [replace(now, unpacked=before.unpacked) for before, now in zip(begun.files, asked.files, strict=True)]
    return _take_on(begun, asked, files)


def go_on_in_folder(
    begun: LoadSpec,
    asked: LoadSpec,
    read: FilesRead,
    reprocessed: Collection[str] = (),
    *,
    evolves: bool = False,
) -> LoadSpec:
    """As `go_on`, of a folder: files that came since follow those that were there; one that is read may be gone.

    Args:
        begun: As it began.
        asked: As it is asked for now, with the files that lie there now.
        read: Which of its files were read.
        reprocessed: Locations of files that are read once more, as they are now, if they were written again since.
        evolves: Whether the columns may be others; which they are is found out later.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: a file of which something was read is not what it was, or is gone before it was read whole.
    """
    _require_same_load(begun, asked, evolves=evolves)
    there = {each.location: each for each in asked.files}
    kept = begun.files[: read.planned]
    again = []
    for number, before in _list_newest(kept):
        now = there.pop(before.location, None)
        is_whole = number < read.whole
        if now is None and not is_whole:
            raise _make_changed_error(before, "it is gone, and was not read whole")
        if now is None:
            continue
        if is_whole and now.location in reprocessed and any(before.list_changes(now)):
            again.append(now)
        else:
            _require_same(before, now, next=_REPROCESS if is_whole else None)
    looked = {replace(each, unpacked=None): each for each in begun.files}
    new = [looked.get(each, each) for each in (*again, *there.values())]
    return _take_on(begun, asked, (*kept, *new))


def go_on_in_table(begun: LoadSpec, asked: LoadSpec, *, evolves: bool = False) -> LoadSpec:
    """As `go_on`, of a table: rows that came behind its last bound follow.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: under the same name there is another table.
    """
    _require_same_load(begun, asked, evolves=evolves)
    (before,), (now,) = begun.files, asked.files
    if before.head != now.head:
        raise make_table_error(f"{now.location}: a table with the id {now.head}, and not {before.head}")
    has_this_version = before.tail == now.tail != ""
    may_have_grown = asked.may_have_grown and (begun.may_have_grown or not has_this_version)
    looked = replace(asked, bounds=begun.bounds, may_have_grown=may_have_grown)
    size = before.size if asked.starting_version is None else now.size
    return _take_on(begun, looked, [replace(now, size=size)])


def make_table_error(found: str) -> InputChangedError:
    """The error for a table of which rows that were read are not what they were, in which `found` names it."""
    return InputChangedError(
        "the table that is loaded is not what it was",
        found=found,
        expected="the table with which the load began, to which rows are only added, behind those that were read",
        effect="what was loaded stays",
        next="--verify added to the same command names the rows; --undo takes the load back, to load it anew",
    )


def _take_on(begun: LoadSpec, asked: LoadSpec, files: Iterable[InputFile]) -> LoadSpec:
    """What is asked for, with what was found out of it when it began."""
    return replace(asked, columns=begun.columns, columns_at_first=begun.columns_at_first, files=tuple(files))


def _list_newest(files: Sequence[InputFile]) -> Iterator[tuple[int, InputFile]]:
    """Each file with its number; of one that was read once more only as it was then."""
    newest = {each.location: number for number, each in enumerate(files)}
    return ((number, files[number]) for number in sorted(newest.values()))


def _require_same_load(begun: LoadSpec, asked: LoadSpec, *, evolves: bool) -> None:
    of_columns = list(_list_differences_of_columns(begun, asked))
    of_others = list(_list_differences(begun, asked))
    differing = of_others if evolves else [*of_others, *of_columns]
    if differing:
        found, expected = differing[0]
        raise LoadDiffersError(
            "the load that has begun on this checkpoint is another one",
            found=found,
            expected=expected,
            effect="nothing was read or written",
            next=f"the command with which it began; or {_ANEW if of_others else _EVOLVE}",
        )


def _list_differences(begun: LoadSpec, asked: LoadSpec) -> Iterator[tuple[str, str]]:
    """What is another, and what it was."""
    if _show_inputs(asked) != _show_inputs(begun):
        yield _show_inputs(asked), _show_inputs(begun)
    if asked.table != begun.table:
        yield f"the table {asked.table}", begun.table
    if asked.quarantine != begun.quarantine:
        yield _show_quarantine(asked), _show_quarantine(begun)
    if _show_order(asked) != _show_order(begun):
        yield _show_order(asked), _show_order(begun)
    if asked.form is not begun.form:
        yield f"files of {asked.form.value}", begun.form.value
    if dict(asked.options) != dict(begun.options):
        yield f"the options {_show_options(asked)}", _show_options(begun)
    if asked.mode is not begun.mode:
        yield f"the mode {asked.mode.value}", begun.mode.value


def _list_differences_of_columns(begun: LoadSpec, asked: LoadSpec) -> Iterator[tuple[str, str]]:
    if asked.schema != begun.schema:
        yield f"the schema {asked.schema or 'as Spark finds it'}", begun.schema or "as Spark finds it"
    if asked.infers != begun.infers:
        yield _show_inferring(asked), _show_inferring(begun)


def _show_inputs(spec: LoadSpec) -> str:
    if spec.folder is not None:
        return f"the folder {spec.folder}"
    return f"the files {', '.join(each.location for each in spec.files)}"


def _show_order(spec: LoadSpec) -> str:
    if spec.starting_version is not None:
        return f"--starting-version {spec.starting_version}"
    return "no --order-by" if spec.order_by is None else f"--order-by {spec.order_by}"


def _show_quarantine(spec: LoadSpec) -> str:
    return "no --quarantine" if spec.quarantine is None else f"--quarantine {spec.quarantine}"


def _show_inferring(spec: LoadSpec) -> str:
    return "--infer-schema" if spec.infers else "no --infer-schema"


def _show_options(spec: LoadSpec) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(spec.options.items())) or "none"


def _require_same(before: InputFile, now: InputFile, next: str | None = None) -> None:  # noqa: A002
    changes = list(before.list_changes(now))
    if changes:
        raise _make_changed_error(before, "; ".join(changes), next=next)


def _require_followed(before: InputFile, now: InputFile, *, follows_growth: bool) -> None:
    """See that what a file has grown by may be read on."""
    if not before.is_ended:
        found = f"it has grown to {now.size} bytes, and its last record had no line end: what follows may belong to it"
        raise _make_changed_error(before, found)
    if not follows_growth:
        found = f"it has grown to {now.size} bytes"
        raise _make_changed_error(before, found, next="--follow-growth added to the same command")


def _make_changed_error(before: InputFile, found: str, next: str | None = None) -> InputChangedError:  # noqa: A002
    return InputChangedError(
        "a file of the load is not what it was",
        subject=before.location,
        found=found,
        expected=f"the file of {before.size} bytes with which the load began",
        effect="nothing was read or written",
        next=next or f"{_ANEW}, to load the files anew",
    )
