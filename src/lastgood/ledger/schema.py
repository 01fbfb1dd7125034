"""The versions of a ledger's tables: brought up to date when it is opened, by whoever comes first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from lastgood.errors import Retry
from lastgood.ledger.connecting import LedgerError, open_for_reading, open_for_writing
from lastgood.ledger.tables import PREFIX
from lastgood.ledger.url import LedgerPlace

OPTIONS: dict[str, Any] = {"version_table": f"{PREFIX}version"}
"""What Alembic is told of every ledger."""
_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_NUMBER = 6_027_118_340_517_721
"""Of PostgreSQL's advisory locks the one that whoever migrates a ledger holds."""
_in_this_process = threading.Lock()  # Alembic keeps what it runs in a global variable


class LedgerNewerError(LedgerError):
    """The ledger was written by a newer lastgood."""

    condition = "LEDGER_NEWER"
    exit_code = 46
    retry = Retry.AFTER_CHANGE


class LedgerMissingError(LedgerError):
    """There is no ledger at this place."""

    condition = "LEDGER_MISSING"
    exit_code = 47
    retry = Retry.AFTER_CHANGE


def migrate(engine: sa.Engine, place: LedgerPlace, *, create: bool) -> None:
    """Bring the tables up to date; two that do it at once wait for each other.

    Raises:
        LedgerNewerError: they are newer than this lastgood.
        LedgerMissingError: there are none, and they are not to be made.
        LedgerError: the database refuses (subclasses).
    """
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    with open_for_reading(engine, place) as connection:
        current = MigrationContext.configure(connection, opts=OPTIONS).get_current_revision()
    if current == script.get_current_head():
        return
    if current is None and not create:
        raise LedgerMissingError("there is no ledger", subject=str(place), found="a database without its tables")
    if current is not None and current not in {each.revision for each in script.walk_revisions()}:
        raise LedgerNewerError(
            "the ledger was written by a newer lastgood",
            subject=str(place),
            found=f"version {current} of its tables",
            expected=f"version {script.get_current_head()} or older",
            next="pip install --upgrade lastgood",
        )
    with _in_this_process, open_for_writing(engine, place) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_NUMBER)))
        config.attributes.update(connection=connection, options=OPTIONS)
        command.upgrade(config, "head")
