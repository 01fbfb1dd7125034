"""How a load is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.load.specification import ParseMode
from lastgood.storage.location import find_storage_kind
from lastgood.storage.reading import Location

_REACHED = ("file", "s3")
"""Kinds of storages to which a Spark gets that a load starts itself."""
IN_SESSION = "lastgood.spark.load in a session that reaches it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How files are loaded."""

    form: str | None = None
    """`csv`, `jsonl`, `text` or `parquet`; None: as their names tell."""
    schema: str | None = None
    """DDL of the columns; None: as Spark finds them."""
    infers: bool = False
    """Whether Spark finds out their types, for which it reads the files once."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of Spark's reader."""
    mode: ParseMode = ParseMode.PERMISSIVE
    chunk: int | None = None
    """Bytes that one batch reads; None: so that there are enough chunks, of a size that pays."""
    checkpoint: str | None = None
    """Where the checkpoint lies; None: beside the table."""
    follows_growth: bool = False
    """Whether what was added to the last file since is read too."""
    reprocessed: tuple[str, ...] = ()
    """Files of a folder that are loaded once more where they were written again since they were read."""
    evolves: bool = False
    """Whether columns that came since are taken; in rows loaded before they are null."""
    quarantine: str | None = None
    """The table, as `delta:LOCATION`, of records that are not what the schema says; None: as the mode says."""
    order_by: str | None = None
    """The column by which a table is read; None: files are read, or versions."""
    starting_version: int | None = None
    """The version of a Delta table from which on its versions are read; None: files are read, or by a column."""
    chunk_rows: int | None = None
    """About how many rows of a table one batch reads; None: a million."""
    cores: int | None = None
    """How many tasks run at a time; None: as many as this machine has cores."""
    jars: tuple[str, ...] = ()
    """JVM parts for Spark, such as the driver of a database."""
    ledger: str | None = None
    """Gets where the chunks end once everything is loaded: URL or path; None: that of `LASTGOOD_LEDGER`, if any."""
    is_in_session: bool = False
    """Whether a Spark loads that is there already, and reaches what it was told how to reach."""
    frame: str | None = None
    """The name under which a program hands over what is read; None: it is named by where it lies."""

    @property
    def is_table(self) -> bool:
        """Whether a table is read."""
        return self.order_by is not None or self.starting_version is not None


def is_reached(location: Location, wanted: LoadOptions) -> bool:
    """Whether the Spark that loads gets to a storage."""
    return wanted.is_in_session or find_storage_kind(location.scheme).scheme in _REACHED


def require_reached(location: Location, wanted: LoadOptions, next: str = IN_SESSION) -> None:  # noqa: A002
    """See that Spark gets to where it reads or writes itself.

    Args:
        location: Where that is.
        wanted: How is loaded.
        next: What is to be done where it does not.

    Raises:
        UsageError: a Spark of our own does not.
    """
    if not is_reached(location, wanted):
        raise UsageError(
            "a load does not reach this storage by itself",
            found=str(location),
            expected="a path, or s3a://BUCKET/PATH",
            next=next,
        )
