"""The way into a ledger; no database library is needed to import it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lastgood.errors import ExtraMissingError
from lastgood.ledger.url import LedgerPlace, choose_default_place, parse_place

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger


def open_ledger(
    url: str | LedgerPlace | None = None, *, create: bool = True, environment: Mapping[str, str] | None = None
) -> Ledger:
    """A ledger, ready to be written to and asked; close it, or use it as a context manager.

    Its tables are made, or brought up to date, as needed.

    Args:
        url: `postgresql://USER@HOST/DATABASE`, `sqlite:///FILE`, or the path of a SQLite file. None: what the
            environment variable `LASTGOOD_LEDGER` says, else a file in the user's data folder.
        create: Make one where there is none.
        environment: Environment variables; ours if None.

    Raises:
        LedgerUrlError: the URL cannot be understood.
        ExtraMissingError: the libraries for a ledger, or for PostgreSQL, are not installed.
        LedgerMissingError: there is none, and it is not to be made.
        LedgerNewerError: a newer lastgood has written it.
        LedgerError: its database refuses us, or does not answer (subclasses).
        NoSpaceError: there is no room for it.

    Example::

        with open_ledger("postgresql://lastgood@db/streams") as ledger:
            for holding in ledger.holding("orders", 0, 31_337):
                print(holding.query.checkpoint, holding.batch_id)
    """
    place = _find_place(url, os.environ if environment is None else environment)
    require_libraries(place)
    from lastgood.ledger.store import Ledger  # noqa: PLC0415 - it needs what we have just looked for

    return Ledger(place, create=create)


def require_libraries(place: LedgerPlace) -> None:
    """Refuse a ledger that cannot be opened for want of libraries.

    Raises:
        ExtraMissingError: one of them is not installed; names the extra.
    """
    if place.path is None:
        _require("psycopg", extra="postgres", needed_for="a ledger in PostgreSQL")
    for module in ("sqlalchemy", "alembic"):
        _require(module, extra="ledger", needed_for="a ledger")


def _require(module: str, *, extra: str, needed_for: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(extra=extra, module=module, needed_for=needed_for) from error


def _find_place(url: str | LedgerPlace | None, environment: Mapping[str, str]) -> LedgerPlace:
    if url is None:
        return choose_default_place(environment)
    if isinstance(url, LedgerPlace):
        return url
    return parse_place(url)
