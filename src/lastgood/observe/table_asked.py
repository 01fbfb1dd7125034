"""The load of a table that is asked for: what is read by an ordered column, and what the table is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.table import read_table_log
from lastgood.errors import UsageError
from lastgood.load.specification import (
    PASSWORD_VARIABLE,
    TABLE_FORMS,
    InputFile,
    LoadFormat,
    LoadSpec,
    ParseMode,
    require_known_options,
)
from lastgood.observe.load_options import LoadOptions, require_reached
from lastgood.redaction import redact
from lastgood.sinks.delta.kind import DELTA_SINK
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Location, open_storage, parse_location

JDBC = "jdbc:"
_SECONDS = 60.0


def name_tables(named: Sequence[str], wanted: LoadOptions) -> list[str]:
    """The table that is read, as it is named in what is noted down; the only one.

    Raises:
        UsageError: there are several, or an option cannot be what was meant.
    """
    _require_options_of_tables(wanted)
    if wanted.frame is not None:
        return [f"dataframe:{wanted.frame}"]
    if len(named) != 1:
        raise UsageError("one table is loaded at a time", found=f"{len(named)} names", expected="one, with --order-by")
    (table,) = named
    if not table.startswith(JDBC):
        location = parse_location(table)
        require_reached(location, wanted)
        return [str(location)]
    if redact(table) != table:
        raise UsageError(
            "a secret stands in the URL of the database, which would be kept beside the table",
            found=redact(table),
            expected=f"a URL without it; the password in the environment variable {PASSWORD_VARIABLE}",
        )
    if not wanted.options.get("dbtable"):
        raise UsageError(
            "the table of the database is not named", expected="--option dbtable=SCHEMA.TABLE, as Spark takes it"
        )
    return [f"{table}#{wanted.options['dbtable']}"]


def look_at_table(named: str, table: str, wanted: LoadOptions) -> LoadSpec:
    """The load that is asked for, with what its table is now.

    Args:
        named: As `name_tables` gives it.
        table: Where its rows go.
        wanted: How it is loaded.

    Raises:
        UsageError: it is no such table, or an option cannot be what was meant.
        StorageError: it cannot be read (subclasses).
    """
    form = _choose_form(named, wanted)
    looked = _make_input(named)
    if form is LoadFormat.DELTA:
        looked = _look_at_delta_table(parse_location(named))
    version = wanted.starting_version
    if version is not None:
        newest = int(looked.tail or -1)
        if version > newest + 1:
            raise UsageError(
                "the Delta table has no such version", subject=named, found=str(version), expected=f"0 to {newest + 1}"
            )
        looked = replace(looked, size=newest + 1, begins=version)
    return LoadSpec(
        table=table,
        form=form,
        schema=None,
        infers=False,
        options=require_known_options(form, wanted.options),
        mode=ParseMode.PERMISSIVE,
        files=(looked,),
        order_by=wanted.order_by,
        starting_version=version,
        may_have_grown=version is None,
    )


def _choose_form(named: str, wanted: LoadOptions) -> LoadFormat:
    if wanted.frame is not None:
        return LoadFormat.FRAME
    told, known = wanted.form, {form.value: form for form in TABLE_FORMS}
    if told is not None and told not in known:
        raise UsageError("how the table is kept is not known", found=told, expected=", ".join(known))
    if wanted.starting_version is not None and (told or LoadFormat.DELTA.value) != LoadFormat.DELTA.value:
        raise UsageError("only Delta tables have versions", found=f"--as {told}", expected="--as delta, or none")
    is_jdbc = named.startswith(JDBC)
    if is_jdbc and told not in (None, LoadFormat.JDBC.value):
        raise UsageError("how the table is kept is told twice", found=f"{told} and {JDBC}", expected="one")
    if is_jdbc:
        return LoadFormat.JDBC
    location = parse_location(named)
    if wanted.starting_version is not None:
        return LoadFormat.DELTA
    if told is not None:
        return known[told]
    storage = open_storage(location)
    if storage.stat(location) is None:
        raise UsageError(
            "there is no such table", found=named, expected="a Delta table, a folder of Parquet, or jdbc:URL"
        )
    assert DELTA_SINK.is_at is not None  # it is one
    if DELTA_SINK.is_at(storage, location):
        return LoadFormat.DELTA
    return LoadFormat.PARQUET


def _look_at_delta_table(location: Location) -> InputFile:
    log = read_table_log(open_storage(location), location, deadline=Deadline.after(_SECONDS))
    if log is None or isinstance(log, Damage) or log.metadata is None:
        raise UsageError(
            "there is no such Delta table", subject=str(location), found=str(log or "none"), expected="a Delta table"
        )
    return _make_input(str(location), log.metadata.table_id, str(log.newest_version))


def _make_input(named: str, table_id: str = "", version: str = "") -> InputFile:
    return InputFile(location=named, size=0, modified_ms=None, head=table_id, tail=version, begins=0, is_ended=True)


def _require_options_of_tables(wanted: LoadOptions) -> None:
    """See that nothing is asked for that only files have."""
    told = {
        "--schema": wanted.schema is not None,
        "--infer-schema": wanted.infers,
        f"--mode {wanted.mode.value}": wanted.mode is not ParseMode.PERMISSIVE,
        "--chunk-size": wanted.chunk is not None and wanted.starting_version is None,
        "--chunk-rows": wanted.chunk_rows is not None and wanted.starting_version is not None,
        "--follow-growth": wanted.follows_growth,
        "--reprocess": bool(wanted.reprocessed),
        "--quarantine": wanted.quarantine is not None,
    }
    if wanted.order_by is not None and wanted.starting_version is not None:
        both = "--order-by and --starting-version"
        raise UsageError("two options contradict each other", found=both, expected="one")
    found = next((name for name, is_told in told.items() if is_told), None)
    if found is not None:
        expected = "none: its columns are known, chunks are counted in rows, and what came behind is read by itself"
        raise UsageError("an option is not for tables", found=found, expected=expected)
