from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.ledger.url import LedgerUrlError, choose_default_place, is_ledger_url, parse_place

SECRET = "geh3im"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "lastgood" / "ledger.sqlite3"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("sqlite:////data/ledger.db", "/data/ledger.db"),
        ("sqlite:///ledger.db", "/here/ledger.db"),
        ("/data/ledger.db", "/data/ledger.db"),
        ("below/../ledger.db", "/here/ledger.db"),
        ("SQLite:////data/100% #1?.db".replace("?", ""), "/data/100% #1.db"),
    ],
)
def test_file_of_sqlite_is_named_by_url_or_path(text: str, path: str) -> None:
    place = parse_place(text, folder=Path("/here"))
    assert (str(place.path), str(place)) == (path, f"sqlite:///{path}")
    assert place.secrets == ()


def test_path_without_a_folder_begins_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_place("ledger.db").path == tmp_path / "ledger.db"


def test_where_none_is_named_it_is_the_variable_or_the_data_folder(data: Path) -> None:
    assert choose_default_place({}).path == data
    assert parse_place("sqlite:").path == parse_place("sqlite://").path == data
    assert choose_default_place({"LASTGOOD_LEDGER": "/other.db"}).path == Path("/other.db")
    assert str(choose_default_place({"LASTGOOD_LEDGER": "postgresql://db/streams"})) == "postgresql://db/streams"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://me:{SECRET}@db:5433/streams?sslmode=require", "postgresql://me@db:5433/streams"),
        (f"postgres://me:{SECRET}@db/streams", "postgresql://me@db/streams"),
        (f"postgresql+psycopg://db/streams?user=me&password={SECRET}", "postgresql://db/streams"),
        ("postgresql:///streams?host=/run/postgresql", "postgresql:///streams"),
    ],
)
def test_password_of_postgresql_is_never_shown(url: str, shown: str) -> None:
    place = parse_place(url)
    assert place.path is None
    assert str(place) == shown
    assert SECRET not in repr(place)
    assert SECRET in place.url or SECRET not in url
    assert place.secrets == ((SECRET,) if SECRET in url else ())


def test_password_is_known_as_it_is_written_and_as_it_is_meant() -> None:
    assert parse_place("postgresql://me:a%40b@db/streams").secrets == ("a%40b", "a@b")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mysql://db/streams",
        "sqlite:/data/ledger.db",
        "sqlite:///",
        "sqlite:////data/ledger.db?mode=ro",
        "postgresql:streams",
        f"postgresql://me:1/{SECRET}@db/streams",
        f"postgresql://me:1#{SECRET}@db/streams",
        f"postgresql://me:1?{SECRET}@db/streams",
        f"postgresql+asyncpg://me:{SECRET}@db/streams",
    ],
)
def test_what_cannot_be_meant_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(LedgerUrlError) as refused:
        parse_place(text)
    error = refused.value
    assert (
        SECRET
        not in f"{error}{error.facts()}{error.__cause__}{error.__context__ if not error.__suppress_context__ else ''}"
    )


def test_url_of_a_database_is_told_from_a_folder() -> None:
    assert all(
        map(is_ledger_url, ["sqlite:", "sqlite:///a", "postgresql://db/a", "postgres://a", "postgresql+psycopg://a"])
    )
    assert not any(map(is_ledger_url, ["/a", "a", "file:/a", "s3a://lake/records", "sqlite", "postgresql/records"]))
