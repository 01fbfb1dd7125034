"""Record files on a real disk: rotation, room, and writes that break off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lastgood.records.files import RECORD_FILE, parse_records, sort_record_files
from lastgood.spark.agent import files
from lastgood.spark.agent.files import RecordFileWriter, list_surplus


def lines_in(folder: Path) -> list[list[int]]:
    names = sort_record_files(file.name for file in folder.iterdir())
    return [[json.loads(line)["n"] for line in (folder / name).read_text().splitlines()] for name in names]


def numbered(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def test_records_are_lines_of_one_file(tmp_path: Path) -> None:
    sink = RecordFileWriter(tmp_path / "new" / "folder")
    sink.write(numbered(1, 2))
    sink.write(numbered(3))
    sink.close()
    assert lines_in(tmp_path / "new" / "folder") == [[1, 2, 3]]


def test_file_that_has_grown_is_followed_by_another_and_the_oldest_goes(tmp_path: Path) -> None:
    sink = RecordFileWriter(tmp_path, file_bytes_max=20, files_max=3)
    for number in range(10, 20):
        sink.write(numbered(number))
    assert lines_in(tmp_path) == [[14, 15], [16, 17], [18, 19]]


def test_two_recorders_of_a_process_do_not_share_a_file(tmp_path: Path) -> None:
    for number in (1, 2):
        RecordFileWriter(tmp_path).write(numbered(number))
    assert lines_in(tmp_path) == [[1], [2]]


def test_only_record_files_make_room() -> None:
    names = ["1795258200400-9.000001.jsonl", "1795258200400-9.000002.jsonl", "notes.jsonl", "9.driver.json"]
    assert list_surplus(names, 1) == ["1795258200400-9.000001.jsonl"]
    assert all(RECORD_FILE.fullmatch(name) for name in names[:2])
    assert files.RECORD_FILE.fullmatch(files.name_record_file(7))


def test_text_that_no_file_can_hold_is_written_all_the_same(tmp_path: Path) -> None:
    RecordFileWriter(tmp_path).write(
        [{"kind": "crashed", "recorded_at_ms": 1, "failure": {"message": "half a pair: \ud800"}}]
    )
    (file,) = tmp_path.iterdir()
    (record,) = parse_records(file.read_bytes()).records
    assert record.to_json()["failure"]["message"] == "half a pair: \ud800"


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from lastgood.spark.agent.files import RecordFileWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
sink = RecordFileWriter(Path(sys.argv[1]))
sink.write([{"n": 1}, {"n": 2}])
try:
    sink.write([{"n": 3, "text": "x" * 200}])
except OSError as error:
    print(type(error).__name__, flush=True)
sink.write([{"n": 4}])
"""


def test_write_that_breaks_off_for_want_of_room_leaves_no_half_line(tmp_path: Path) -> None:
    source = str(Path(files.__file__).parents[3])
    command = [sys.executable, "-c", FULL, str(tmp_path), source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("OSError\n", "")
    assert lines_in(tmp_path) == [[1, 2, 4]]


def test_folder_that_cannot_be_made_is_an_error_each_time_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = RecordFileWriter(tmp_path / "file" / "below")
    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            sink.write(numbered(1))
    (tmp_path / "file").unlink()
    sink.write(numbered(1))
    assert lines_in(tmp_path / "file" / "below") == [[1]]
