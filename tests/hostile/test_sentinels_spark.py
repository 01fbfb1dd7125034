"""A real application that says too much, recorded, supervised and looked at: nothing written holds what it said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.attacker import Answer, call
from hostile.sentinels import ROW, SECRET, require_none, require_none_in

from lastgood.lab.spark import find_default_spark, make_quick_conf, submit_command
from lastgood.process.java import Java
from lastgood.redaction import redact_nothing_else

pytestmark = pytest.mark.spark

APP = Path(__file__).with_name("sentinels_app.py")
FILES = 3
"""Each is a batch; the last one holds the row."""


@pytest.fixture
def here(tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a configuration for the application, its input beside it."""
    source = tmp_path / "lake/source"
    source.mkdir(parents=True)
    for number in range(FILES):
        (source / f"{number}.txt").write_text(f"{ROW if number == FILES - 1 else number}\n")
    conf = tmp_path / "conf"
    conf.mkdir()
    said = {**make_quick_conf(find_default_spark(), java), "spark.my.password": SECRET}
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in said.items()))
    spark = find_default_spark()
    words = [str(tmp_path / "lake"), f"sqlite:///{tmp_path}/home/ledger.db"]
    env = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": str(spark.python),
        "SPARK_HOME": str(spark.home),
        "SPARK_CONF_DIR": str(conf),
        "DB_PASSWORD": SECRET,
    }
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    (here / "lastgood.toml").write_text(
        f'ledger = "sqlite:///{tmp_path}/home/ledger.db"\n'
        "[pipeline.orders]\n"
        f"command = {json.dumps(submit_command(APP, words, environment=spark, conf={}))}\n"
        f'checkpoint = "{tmp_path}/lake/chk"\n'
        "[pipeline.orders.env]\n"
        f"{''.join(f'{name} = {json.dumps(value)}' + chr(10) for name, value in env.items())}"
        "[pipeline.orders.policy]\n"
        "max_attempts = 0\n"
    )
    (here / "lastgood.toml").chmod(0o600)
    monkeypatch.chdir(here)
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("state", "data", "cache", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / "home" / name))
    yield here
    redact_nothing_else()


def require_told(answer: Answer, words: tuple[str, ...]) -> None:
    assert "Traceback" not in answer.err, (words, answer.err)
    assert answer.code != 4, (words, answer)
    for text in (answer.out, answer.err):
        require_none(text, words)


def test_an_application_that_says_too_much(here: Path) -> None:
    lake = here.parent / "lake"
    run = ("run", "orders")
    answer = call(*run)
    require_told(answer, run)
    assert answer.code in (3, 71), answer
    records = [file for file in (lake / "chk.lastgood/records").rglob("*") if file.is_file()]
    assert any("terminated" in file.read_text() for file in records), "its end was not recorded"
    for words in (
        ("status", "orders"),
        ("diagnose", "orders"),
        ("inspect", "orders", "--all"),
        ("plan", "orders", "--goal", "replan", "--accept", "duplicates"),
        ("recover", "orders"),
        ("verify", "orders"),
        ("offsets", "orders"),
        ("backup", "create", "orders"),
        ("report", "last", "--checkpoint", str(lake / "chk")),
    ):
        for output_format in ("text", "json"):
            told = (*words, "--format", output_format)
            require_told(call(*told), told)
    state = here.parent / "home/state/lastgood"
    own = [file for name in ("log", "agent") for file in (state / name).rglob("*") if file.is_file()]  # as it said it
    assert any(SECRET in file.read_text() and ROW in file.read_text() for file in own), "nothing was said"
    for folder in (lake / "chk.lastgood", here.parent / "home"):
        for file in folder.rglob("*"):
            if file.is_file() and file not in own:
                require_none_in(file)
