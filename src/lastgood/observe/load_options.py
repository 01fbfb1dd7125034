"""How a load is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.load.specification import ParseMode
from lastgood.storage.reading import Location


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
    frame: str | None = None
    """The name under which a program hands over what is read; None: it is named by where it lies."""

    @property
    def is_table(self) -> bool:
        """Whether a table is read."""
        return self.order_by is not None or self.starting_version is not None


def require_here(location: Location, sentence: str, expected: str) -> None:
    """See that Spark gets there with what this machine has installed.

    Args:
        location: Where it reads or writes.
        sentence: What is said where it does not.
        expected: What was expected there.

    Raises:
        UsageError: it does not.
    """
    if location.scheme != "file":
        raise UsageError(sentence, found=str(location), expected=expected)
