"""Where a ledger is: a file of SQLite, or a database of PostgreSQL. Pure; no database library is needed to say so."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass

VARIABLE = "LASTGOOD_LEDGER"
"""Environment variable: the ledger where none is named."""
_SCHEME = re.compile(r"(sqlite|postgres|postgresql)(\+[a-z0-9]+)?:", re.IGNORECASE)
_EXPECTED = "sqlite:///FILE, a path, or postgresql://USER@HOST/DATABASE"


class LedgerUrlError(LastgoodError):
    """The URL of a ledger cannot be understood."""

    condition = "LEDGER_URL_INVALID"
    exit_code = 2
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """A ledger's place; `str()` is safe to show. Make one with `parse_place`."""

    shown: str
    """Without its password."""
    path: Path | None = None
    """Of SQLite; None for PostgreSQL."""
    url: str = field(default="", repr=False)
    """Of PostgreSQL, in full."""

    def __str__(self) -> str:
        """To show."""
        return self.shown

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        parts = urlsplit(self.url)
        given = [parts.password or "", unquote(parts.password or ""), *parse_qs(parts.query).get("password", ())]
        return tuple(sorted({each for each in given if each}, key=len, reverse=True))


def is_ledger_url(text: str) -> bool:
    """Whether it names a database, and not a folder."""
    return _SCHEME.match(text) is not None


def choose_default_place(environment: Mapping[str, str]) -> LedgerPlace:
    """The ledger where none is named: what `LASTGOOD_LEDGER` says, else a file in the user's data folder.

    Raises:
        LedgerUrlError: the variable cannot be understood.
    """
    named = environment.get(VARIABLE)
    if named:
        return parse_place(named)
    return _make_sqlite_place(_locate_default_file())


def _locate_default_file() -> Path:
    import platformdirs  # noqa: PLC0415 - most have no ledger

    return platformdirs.user_data_path("lastgood") / "ledger.sqlite3"


def parse_place(text: str, *, folder: Path | None = None) -> LedgerPlace:
    """Read the URL of a ledger, or the path of a SQLite file. `sqlite:` alone is the file in the user's data folder.

    Args:
        text: As the user wrote it.
        folder: Where relative paths begin; the current folder if None.

    Raises:
        LedgerUrlError: it is neither.
    """
    found = _SCHEME.match(text)
    if found is None:
        if not text.strip() or "\0" in text or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
            raise _make_invalid_error(text.partition(":")[0])
        return _make_sqlite_place((folder or Path()) / text)
    scheme, rest = found[1].lower(), text[found.end() :]
    if scheme == "sqlite":
        return _parse_sqlite(rest, folder or Path())
    if not rest.startswith("//") or found[2] not in (None, "+psycopg"):
        raise _make_invalid_error(scheme)
    return _parse_postgresql(rest)


def _parse_sqlite(rest: str, folder: Path) -> LedgerPlace:
    if rest in ("", "//"):
        return _make_sqlite_place(_locate_default_file())
    if not rest.startswith("///") or len(rest) == len("///") or "?" in rest:
        raise _make_invalid_error("sqlite")
    return _make_sqlite_place(folder / rest[3:])


def _make_sqlite_place(path: Path) -> LedgerPlace:
    try:
        place = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - by text: what is a link stays one
    except FileNotFoundError as error:
        raise LedgerUrlError(
            "a relative path of a ledger counts from the current folder, and that was removed",
            found=str(path),
            expected="an absolute path, or another current folder",
        ) from error
    return LedgerPlace(f"sqlite:///{place}", path=place)


def _parse_postgresql(rest: str) -> LedgerPlace:
    url = f"postgresql:{rest}"
    try:
        parts = urlsplit(url)
        if parts.port is not None:
            port = f":{parts.port}"
        else:
            port = ""
    except ValueError:
        raise _make_invalid_error("postgresql") from None  # it quotes what it takes for a port, which may be a password
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise _make_invalid_error(
            "postgresql"
        )  # a password that is not encoded: whatever we showed might be a part of it
    if parts.username:
        user = f"{parts.username}@"
    else:
        user = ""
    # The part behind the question mark may hold a password, too: it is left out.
    return LedgerPlace(f"postgresql://{user}{parts.hostname or ''}{port}{parts.path}", url=url)


def _make_invalid_error(found: str) -> LedgerUrlError:
    return LedgerUrlError("the URL of the ledger is not understood", found=f"'{found}:…'", expected=_EXPECTED)
