"""The load that is asked for: where it reads and writes, and what its files are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lastgood.errors import UsageError
from lastgood.load.encoding import require_known_encoding
from lastgood.load.input_files import list_folder, look_at_file
from lastgood.load.specification import (
    InputFile,
    LoadFormat,
    LoadSpec,
    ParseMode,
    choose_form,
    require_known_options,
)
from lastgood.observe.load_options import IN_SESSION, LoadOptions, is_reached, require_reached
from lastgood.observe.table_asked import JDBC, look_at_table, name_tables
from lastgood.sinks.kinds import SINK_KINDS, find_traits
from lastgood.storage.location import find_storage_kind
from lastgood.storage.reading import Location, StorageDeniedError, open_storage, parse_location

_NEEDS_NO_SCHEMA = (LoadFormat.TEXT, LoadFormat.PARQUET)
"""Of these Spark need not look for the columns."""
_HAS_CORRUPT = (LoadFormat.CSV, LoadFormat.JSONL)


def find_places(files: Sequence[str], to: str, wanted: LoadOptions) -> tuple[list[str], str]:
    """What is read, as it is noted down, and the table as `KIND:LOCATION`.

    Args:
        files: As they are named: files, one folder, or one table.
        to: The table, as it is named.
        wanted: How they are loaded.

    Raises:
        UsageError: a location, the table or an option cannot be what was meant.
    """
    inputs = find_inputs(files, wanted)
    kind, _, place = to.partition(":")
    if kind not in SINK_KINDS or find_traits(kind).reader is None or not place:
        raise UsageError("the table is not understood", found=to, expected="delta:LOCATION or file:LOCATION")
    if wanted.evolves and find_traits(kind).widening is None:
        raise UsageError(
            "a table of this kind has the columns with which it began", found=to, expected="delta:LOCATION"
        )
    if wanted.is_table and find_traits(kind).marking is None:
        raise UsageError("rows of a table go into a table that knows batches", found=to, expected="delta:LOCATION")
    require_reached(parse_location(place), wanted)
    if wanted.follows_growth:
        _require_same_plan(kind, place, "--follow-growth")
    return inputs, f"{kind}:{parse_location(place)}"


def _require_same_plan(kind: str, place: str, found: str) -> None:
    """See that a table can be told where two drivers have planned a chunk of other files each.

    Raises:
        UsageError: Spark's log of a folder names the files of the one who was late, and Delta has two versions.
    """
    if parse_location(place).scheme != "file" and find_traits(kind).marking is None:
        raise UsageError(
            "what grows goes, on an object store, into a table that knows batches",
            found=f"{found}, into {kind}:{place}",
            expected="delta:LOCATION, or files that are named and stay as they are",
        )


def require_answer(place: Location) -> None:
    """See that the storage of a table answers, and has its bucket, before Spark asks it again and again for minutes.

    Args:
        place: Of the table.

    Raises:
        UsageError: there is no such bucket.
        StorageError: it does not answer, or not to us (subclasses).
    """
    if place.scheme == "file":
        return
    storage, bucket = open_storage(place), replace(place, path="/")
    if storage.stat(place) is not None or not find_storage_kind(place.scheme).is_bucket:
        return
    with suppress(StorageDeniedError):  # who may see no more of it than a folder
        if storage.stat(bucket) is None:
            raise UsageError(
                "there is no such bucket",
                found=str(bucket),
                expected="one that is there: a load makes none",
                effect="nothing was read or written",
            )


def find_quarantine(table: str, wanted: LoadOptions) -> str | None:
    """Where records go that are not what the schema says, as `KIND:LOCATION`; None if not apart.

    Args:
        table: Where the others go, as `find_places` gives it.
        wanted: How they are loaded.

    Raises:
        UsageError: it cannot be what was meant.
    """
    if wanted.quarantine is None:
        return None
    kind, _, place = wanted.quarantine.partition(":")
    for named, told in ((kind, wanted.quarantine), (table.partition(":")[0], table)):
        if find_traits(named).marking is None or not place:
            raise UsageError("records go apart into tables that know batches", found=told, expected="delta:LOCATION")
    if wanted.mode is not ParseMode.PERMISSIVE:
        found = f"--quarantine and --mode {wanted.mode.value}"
        raise UsageError("two options contradict each other", found=found, expected="one")
    require_reached(parse_location(place), wanted)
    quarantine = f"{kind}:{parse_location(place)}"
    if quarantine == table:
        raise UsageError("records go apart into a table of their own", found=quarantine, expected="another one")
    return quarantine


def find_inputs(files: Sequence[str], wanted: LoadOptions) -> list[str]:
    """What is read, as it is noted down.

    Args:
        files: As for `find_places`.
        wanted: How they are read.

    Raises:
        UsageError: a location or an option cannot be what was meant.
    """
    if wanted.checkpoint is not None:
        require_reached(parse_location(wanted.checkpoint), wanted)
    if wanted.is_table:
        return name_tables(files, wanted)
    _require_no_table(files, wanted)
    if not files:
        raise UsageError("no file is named", expected="FILE, one or several")
    locations = [parse_location(each) for each in files]
    twice = {str(each) for each in locations if locations.count(each) > 1}
    if twice:
        raise UsageError("a file is named twice", found=min(twice), expected="each file once")
    if wanted.schema is not None and wanted.infers:
        raise UsageError("two options contradict each other", found="--schema and --infer-schema", expected="one")
    return list(map(str, locations))


def _require_no_table(files: Sequence[str], wanted: LoadOptions) -> None:
    """See that nothing is asked for that only tables have."""
    told = {
        f"--as {wanted.form}": wanted.form in (LoadFormat.DELTA.value, LoadFormat.JDBC.value),
        JDBC: any(each.startswith(JDBC) for each in files),
        "--chunk-rows": wanted.chunk_rows is not None,
    }
    found = next((name for name, is_told in told.items() if is_told), None)
    if found is not None:
        raise UsageError(
            "a table is read by an ordered column, which is not named",
            found=found,
            expected="a column whose values only grow; or of a Delta table a version from which on it is read",
            next="--order-by COLUMN, or --starting-version VERSION, added to the same command",
        )


def look_at_load(named: Sequence[str], table: str, wanted: LoadOptions, begun: LoadSpec | None) -> LoadSpec:
    """The load that is asked for, with what its files are now.

    Args:
        named: What is read, as `find_inputs` gives it.
        table: As `find_places` gives it.
        wanted: How they are loaded.
        begun: As it has begun; of a folder, who has the size and time that he had then is not looked at again.

    Raises:
        UsageError: a file or an option cannot be what was meant.
        StorageError: a file cannot be read (subclasses).
    """
    if wanted.is_table:
        return look_at_table(named[0], table, wanted)
    locations = list(map(parse_location, named))
    far = [each for each in locations if not is_reached(each, wanted)]
    if far and wanted.schema is None and choose_form(list(map(str, far)), wanted.form) not in _NEEDS_NO_SCHEMA:
        require_reached(far[0], wanted, next=f"--schema DDL added to the same command; or {IN_SESSION}")
    inputs, folder = _list_inputs(locations, wanted)
    kind, _, place = table.partition(":")
    if folder is not None and kind in SINK_KINDS:
        _require_same_plan(kind, place, "a folder")
    form = choose_form([str(each) for each in inputs], wanted.form)
    quarantine = find_quarantine(table, wanted)
    if quarantine is not None and form not in _HAS_CORRUPT:
        raise UsageError("files of this kind have no broken records", found=form.value, expected="csv or jsonl")
    if form is LoadFormat.PARQUET:
        _require_nothing_to_parse(wanted)
    _require_files_of_folder(wanted.reprocessed, inputs, folder)
    options = require_known_options(form, wanted.options)
    require_known_encoding(options)
    known: dict[str, InputFile] = {}
    if begun is not None and folder is not None:
        known = {each.location: each for each in begun.files}
    return LoadSpec(
        table=table,
        form=form,
        schema=wanted.schema,
        infers=wanted.infers,
        options=options,
        mode=wanted.mode,
        files=tuple(_look_at(each, known.get(str(each)), form, options) for each in inputs),
        folder=None if folder is None else str(folder),
        quarantine=quarantine,
    )


def _require_nothing_to_parse(wanted: LoadOptions) -> None:
    """See that nothing is asked for that only files have which are text."""
    told = {
        "--schema": wanted.schema is not None,
        "--infer-schema": wanted.infers,
        f"--mode {wanted.mode.value}": wanted.mode is not ParseMode.PERMISSIVE,
        "--follow-growth": wanted.follows_growth,
    }
    found = next((name for name, is_told in told.items() if is_told), None)
    if found is not None:
        expected = "none: the files tell their columns, and have no broken records"
        raise UsageError("an option is not for Parquet", found=found, expected=expected)


def _require_files_of_folder(named: Sequence[str], inputs: Sequence[Location], folder: Location | None) -> None:
    """See that what is to be loaded once more lies in the folder that is loaded."""
    for each in named:
        if folder is None:
            raise UsageError("--reprocess is for a folder", found=each, expected="one folder, with that file in it")
        if parse_location(each) not in inputs:
            raise UsageError("a file does not lie in the folder", found=each, expected=f"a file in {folder}")


def _list_inputs(locations: Sequence[Location], wanted: LoadOptions) -> tuple[list[Location], Location | None]:
    """The files, and the folder in which they lie if that was named."""
    listed = {each: list_folder(open_storage(each), each) for each in locations}
    folders = [each for each, files in listed.items() if files is not None]
    if not folders:
        return list(locations), None
    if len(locations) > 1:
        raise UsageError("a folder is loaded alone", found=str(folders[0]), expected="files, or one folder")
    if wanted.follows_growth:
        raise UsageError("two options contradict each other", found="--follow-growth and a folder", expected="one")
    return listed[folders[0]] or [], folders[0]


def _look_at(location: Location, before: InputFile | None, form: LoadFormat, options: Mapping[str, str]) -> InputFile:
    """What a file is now; who has the size and the time that he had is not read again."""
    storage = open_storage(location)
    if before is not None and before.modified_ms is not None:
        now = storage.stat(location)
        if now is not None and (now.size, now.modified_ms) == (before.size, before.modified_ms):
            return before
    return look_at_file(storage, location, form, options)
