from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from lastgood.errors import ExtraMissingError
from lastgood.lab.ports import find_free_ports
from lastgood.ledger.connecting import LedgerError
from lastgood.ledger.opening import open_ledger, require_libraries
from lastgood.ledger.url import parse_place

SECRET = "geh3im%40x"


@pytest.mark.parametrize(
    ("module", "extra", "url"),
    [
        ("sqlalchemy", "ledger", "/nowhere/ledger.db"),
        ("alembic", "ledger", "/nowhere/ledger.db"),
        ("psycopg", "postgres", "postgresql://db/streams"),
    ],
)
def test_library_that_is_missing_names_its_extra(
    module: str, extra: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    for refuse in (lambda: open_ledger(url), lambda: require_libraries(parse_place(url))):
        with pytest.raises(ExtraMissingError) as refused:
            refuse()
        assert refused.value.next == f"pip install 'lastgood[{extra}]'"


def test_saying_where_a_ledger_is_needs_no_library() -> None:
    code = "import sys, lastgood.ledger.opening, lastgood.settings.config; print('sqlalchemy' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_place_may_come_from_the_environment(tmp_path: Path) -> None:
    with open_ledger(environment={"LASTGOOD_LEDGER": str(tmp_path / "a.db")}) as ledger:
        assert ledger.place.path == tmp_path / "a.db"


def test_database_that_does_not_answer_is_named_and_its_password_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    (port,) = find_free_ports(1)
    url = f"postgresql://me:{SECRET}@127.0.0.1:{port}/streams"
    with pytest.raises(LedgerError) as refused:
        open_ledger(url)
    error = refused.value
    shown = "".join(traceback.format_exception(error)) + str(error.to_json()) + caplog.text
    assert "geh3im" not in shown
    assert error.subject == f"postgresql://me@127.0.0.1:{port}/streams"
    assert str(port) in (error.found or "")
