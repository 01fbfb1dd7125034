"""The step that writes the file by which an application is told where to start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.planning.draft import StartEdit
from lastgood.planning.steps import compute_digest
from lastgood.recovery.start_file import make_start_steps
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX, StartFile, StartForm
from lastgood.storage.reading import parse_location

CONTENT = b'{"orders":{"0":7}}\n'


def edit(file: Path) -> StartEdit:
    return StartEdit(StartFile(str(file)), {"orders": {0: 7}}, "why")


def test_step_knows_what_the_file_was(tmp_path: Path) -> None:
    checkpoint = parse_location(str(tmp_path / "chk"))
    file = tmp_path / "start.json"
    (step,) = make_start_steps(edit(file), checkpoint)
    assert (step.path, step.before, step.after) == (str(file), None, CONTENT)
    file.write_bytes(b"earliest")
    (step,) = make_start_steps(edit(file), checkpoint)
    assert step.before == compute_digest(b"earliest")


def test_file_that_says_so_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_bytes(CONTENT)
    assert make_start_steps(edit(tmp_path / "start.json"), parse_location(str(tmp_path / "chk"))) == ()


@pytest.mark.parametrize("path", ["chk/start.json", "chk.lastgood/start.json", "chk", "folder"])
def test_file_that_cannot_be_one_of_the_application_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        make_start_steps(edit(tmp_path / path), parse_location(str(tmp_path / "chk")))


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (
            b"spark.app.name a\nspark.hadoop.fs.s3a.secret.key hunter2\n",
            "what nobody else may read: spark.hadoop.fs.s3a.secret.key",
        ),
        (b"db.url = jdbc:postgresql://etl:hunter2@db/o\n", "what nobody else may read: db.url"),
        (b"# once password=hunter2\na=b\n", "what nobody else may read: line 1"),
    ],
)
def test_file_that_holds_secrets_is_copied_nowhere(tmp_path: Path, content: bytes, secrets: str) -> None:
    """A plan holds all of it, and so does the lake, where many may read."""
    (tmp_path / "app.conf").write_bytes(content)
    file = StartFile(str(tmp_path / "app.conf"), StartForm.SPARK_DEFAULTS, "spark.orders.start")
    with pytest.raises(UsageError) as refused:
        make_start_steps(StartEdit(file, {"orders": {0: 7}}, "why"), parse_location(str(tmp_path / "chk")))
    assert refused.value.found == secrets


def test_topic_that_is_called_like_a_secret_is_none(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_bytes(b'{"tokens":{"0":5}}')
    file = StartFile(str(tmp_path / "start.json"), StartForm.JSON, None)
    (step,) = make_start_steps(StartEdit(file, {"tokens": {0: 7}}, "why"), parse_location(str(tmp_path / "chk")))
    assert step.after == b'{"tokens":{"0":7}}\n'


def test_link_is_not_taken_for_the_file_that_the_application_reads(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(b"earliest")
    (tmp_path / "start.json").symlink_to("real.json")
    with pytest.raises(UsageError) as refused:
        make_start_steps(edit(tmp_path / "start.json"), parse_location(str(tmp_path / "chk")))
    assert refused.value.found == f"a link to {tmp_path.resolve()}/real.json"


def test_link_into_the_checkpoint_is_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "chk").mkdir()
    (tmp_path / "conf").symlink_to("chk")
    with pytest.raises(UsageError) as refused:
        make_start_steps(edit(tmp_path / "conf" / "start.json"), parse_location(str(tmp_path / "chk")))
    assert refused.value.found == "a file of the checkpoint"


def test_file_that_would_not_be_read_whole_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    with file.open("wb") as stream:
        stream.truncate(FILE_BYTES_MAX + 1)
    big = StartEdit(StartFile(str(file), StartForm.PROPERTIES, "orders.start"), {"orders": {0: 7}}, "why")
    with pytest.raises(UsageError) as refused:
        make_start_steps(big, parse_location(str(tmp_path / "chk")))
    assert refused.value.found == f"{FILE_BYTES_MAX + 1} bytes"
