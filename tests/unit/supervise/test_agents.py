"""What `lastgood run` reads of the agents: files as they are while drivers live, die and start again."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from lastgood.records.record import Crashed, Progress, QueryStarted, Record, RecordedFailure, Terminated
from lastgood.spark.agent.files import encode_records
from lastgood.spark.agent.fit import KEPT_FILE
from lastgood.spark.kept_code import NOTHING_KEPT
from lastgood.storage.reading import Location
from lastgood.supervise import agents as agents_module
from lastgood.supervise.agents import Agents

FAILURE = RecordedFailure(message="out")


def beat(
    folder: Path,
    pid: int,
    *checkpoints: str | None,
    trouble: str | None = None,
    host: str = "vm",
    is_classic: bool = True,
    at_ms: int = 1,
    held: list[str] | None = None,
    has_unheld: bool = False,
) -> None:
    queries = [
        {"query_id": str(number), "run_id": str(number), "query_name": None, "checkpoint": each}
        for number, each in enumerate(checkpoints)
    ]
    process: dict[str, Any] = {"pid": pid, "host": host, "process_started_at_ms": pid, "python": "3.9.18"}
    counts = {"recorded": 0, "dropped": 0, "trouble": trouble, "is_classic": is_classic}
    told = {"beat_at_ms": at_ms, "exited_at_ms": None, "queries": queries, "held": held or [], **counts}
    told["has_unheld"] = has_unheld
    draft = folder / "draft"
    draft.write_text(json.dumps(process | told))
    draft.replace(folder / f"{pid:013d}-{pid}.driver.json")


def write(folder: Path, pid: int, *records: Record, number: int = 1) -> None:
    file = folder / f"{pid:013d}-{pid}.{number:06d}.jsonl"
    file.write_bytes(encode_records(record.to_json() for record in records))


def test_starts_can_be_held_back_where_the_agent_stood_before_each(tmp_path: Path) -> None:
    now = [0.0]
    agents = Agents(tmp_path, clock=lambda: now[0])
    me = psutil.Process()
    mine = {"host": socket.gethostname()}

    def judge(*checkpoints: str) -> tuple[bool, str | None]:
        return agents.judge_standby(checkpoints, [me])

    agents.begin()
    assert judge() == (False, None)
    beat(tmp_path, me.pid, "/chk/a", held=["0", "of one that has ended"], **mine)
    assert judge("/chk/a") == (True, None)
    assert judge("/chk/a", "/chk/b") == (False, None)  # that of the second is not started yet
    beat(tmp_path, me.pid, "/chk/a", "/chk/b", held=["0"], **mine)
    assert judge("/chk/a", "/chk/b") == (False, None)  # it is just being started, as far as anybody knows
    now[0] += 60
    assert "in another way" in str(judge("/chk/a", "/chk/b")[1])
    beat(tmp_path, me.pid, "/chk/a", "/chk/b", held=["0", "1"], **mine)
    assert judge("/chk/a", "/chk/b") == (True, None)


@pytest.mark.parametrize(
    ("told", "because"),
    [
        ({"host": "elsewhere"}, "no process below this one"),
        ({"pid": 1}, "no process below this one"),
        ({"is_classic": False}, "Spark Connect"),
        ({"has_unheld": True}, "in another way"),
        ({"pids": (os.getpid(), os.getppid())}, "several Python processes"),
    ],
)
def test_none_stands_by_where_a_start_might_not_be_held_back(
    tmp_path: Path, told: dict[str, Any], because: str
) -> None:
    now = [0.0]
    agents = Agents(tmp_path, clock=lambda: now[0])
    agents.begin()
    pids = told.pop("pids", (told.pop("pid", os.getpid()),))
    for pid in pids:
        beat(tmp_path, pid, "/chk/a", **{"held": ["0"], "host": socket.gethostname(), **told})
    for _ in range(2):
        found = agents.judge_standby(["/chk/a"], [psutil.Process()])
        now[0] += 60
    assert because in str(found[1])


def test_another_spark_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "is_driver_java", lambda _: True)
    agents = Agents(tmp_path)
    agents.begin()
    beat(tmp_path, os.getpid(), "/chk/a", held=["0"], host=socket.gethostname())
    assert "more than one Spark" in str(agents.judge_standby(["/chk/a"], [psutil.Process()] * 2)[1])


def test_that_none_stands_by_is_told_once_where_a_query_does_not_run(tmp_path: Path) -> None:
    now = [0.0]
    agents = Agents(tmp_path, clock=lambda: now[0])
    agents.begin()
    told = []
    for _ in range(5):
        assert agents.judge_standby(["/chk/a"], [psutil.Process()]) == (False, None)
        told += agents.notices()
        now[0] += 200
    (notice,) = told
    assert (notice.condition, "/chk/a" in notice.sentence) == ("STANDBY_WAITS", True)


def test_the_newest_start_of_a_query_counts(tmp_path: Path) -> None:
    agents = Agents(tmp_path, named={})
    agents.begin()
    beat(tmp_path, 1, "file:/chk/a")
    agents.watches()
    assert agents.find_query_start_ms("/chk/a") is None
    started = [
        QueryStarted(
            recorded_at_ms=at_ms, query_id="0", run_id="1", checkpoint=f"file:/chk/{name}", started_at_ms=at_ms
        )
        for at_ms, name in ((5, "a"), (7, "b"), (9, "a"))
    ]
    write(tmp_path, 1, *started)
    assert agents.find_query_start_ms("/chk/a") == 9
    agents.begin()
    assert agents.find_query_start_ms("/chk/a") is None


def test_checkpoints_are_found_as_queries_start_and_stay_known(tmp_path: Path) -> None:
    told: list[Location] = []
    agents = Agents(tmp_path, on_checkpoint=told.append)
    agents.begin()
    assert agents.watches() == {}
    beat(tmp_path, 1, "file:/chk/a", None)
    assert list(agents.watches()) == ["/chk/a"]
    beat(tmp_path, 1, "file:/chk/a", "/chk/b")
    assert list(agents.watches()) == ["/chk/a", "/chk/b"]
    agents.begin()
    beat(tmp_path, 2, "file:///chk/a")
    assert list(agents.watches()) == ["/chk/a", "/chk/b"]
    assert [str(each) for each in told] == ["/chk/a", "/chk/b"]


def test_checkpoints_that_are_named_already_or_made_up_by_spark_are_left_out(tmp_path: Path) -> None:
    agents = Agents(tmp_path, named={"file:///chk/a": "/chk/a"})
    beat(tmp_path, 1, "file:/chk/a", "file:/tmp/temporary-8c1f", "viewfs://x/chk")
    assert agents.watches() == {}
    (notice,) = agents.notices()
    assert notice.condition == "LOCATION_INVALID"
    assert notice.sentence.startswith("the progress of viewfs://x/chk cannot be seen: ")
    assert agents.notices() == []


def test_folder_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    agents = Agents(tmp_path / "missing")
    agents.begin()
    assert (agents.watches(), agents.notices(), agents.failure()) == ({}, [], None)


def test_trouble_of_an_agent_is_told_once(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    beat(tmp_path, 1, trouble="OSError: disk full")
    (tmp_path / "7.trouble.txt").write_text("Traceback …\nAttributeError: option\n")
    assert [notice.sentence for notice in agents.notices()] == [
        "the agent in the driver: AttributeError: option",
        "the agent in the driver: OSError: disk full",
    ]
    assert agents.notices() == []


def test_error_is_that_of_the_run_that_has_just_ended(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    agents.begin()
    write(tmp_path, 1, Terminated(recorded_at_ms=1, query_id="q", failure=FAILURE))
    assert agents.failure() == (None, FAILURE)
    agents.begin()
    assert agents.failure() is None
    write(tmp_path, 2, QueryStarted(recorded_at_ms=1, query_id="q"), Progress(recorded_at_ms=2, batch_id=1))
    assert agents.failure() is None
    write(tmp_path, 2, Crashed(recorded_at_ms=3, failure=RecordedFailure(message="later")), number=2)
    assert agents.failure() == (None, RecordedFailure(message="later"))


def test_error_is_of_a_query_by_the_name_that_its_checkpoint_has_here(tmp_path: Path) -> None:
    agents = Agents(tmp_path, named={"file:///chk/a": "file:///chk/a"})
    for checkpoint, name in (("file:/chk/a", "file:///chk/a"), ("file:/chk/b", "/chk/b"), ("viewfs://x/chk",) * 2):
        write(tmp_path, 1, Terminated(recorded_at_ms=1, query_id="q", checkpoint=checkpoint, failure=FAILURE))
        assert agents.failure() == (name, FAILURE)


def test_error_is_found_behind_more_progress_than_is_read(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    batches = [Progress(recorded_at_ms=1, batch_id=number, query_name="x" * 1000) for number in range(10_000)]
    write(tmp_path, 1, *batches, Terminated(recorded_at_ms=2, failure=FAILURE))
    assert next(tmp_path.iterdir()).stat().st_size > 8 * 1024 * 1024
    assert agents.failure() == (None, FAILURE)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_query_that_failed_in_a_driver_that_goes_on_is_dead_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    agents = Agents(tmp_path, clock=clock)
    agents.begin()
    beat(tmp_path, 1, "/chk/a", "/chk/b")
    assert agents.dead_query() is None
    beat(tmp_path, 1, "/chk/a", at_ms=2)
    write(tmp_path, 1, Terminated(recorded_at_ms=1, query_id="1", failure=FAILURE))
    assert agents.dead_query() is None
    clock.now = 29
    assert agents.dead_query() is None
    clock.now = 30
    assert agents.dead_query() == ("/chk/b", FAILURE)


def test_query_that_the_application_starts_again_is_not_dead(tmp_path: Path) -> None:
    clock = Clock()
    agents = Agents(tmp_path, clock=clock)
    beat(tmp_path, 1, "/chk/a")
    assert agents.dead_query() is None
    beat(tmp_path, 1, at_ms=2)
    write(tmp_path, 1, Terminated(recorded_at_ms=1, query_id="0", failure=FAILURE))
    assert agents.dead_query() is None
    beat(tmp_path, 1, "/chk/a", at_ms=3)
    clock.now = 60
    assert agents.dead_query() is None


def test_query_that_was_stopped_on_purpose_is_not_dead(tmp_path: Path) -> None:
    clock = Clock()
    agents = Agents(tmp_path, clock=clock)
    beat(tmp_path, 1, "/chk/a", "/chk/b")
    assert agents.dead_query() is None
    beat(tmp_path, 1, "/chk/a", at_ms=2)
    write(tmp_path, 1, Terminated(recorded_at_ms=1, query_id="1"))
    for clock.now in (0, 60, 120):
        assert agents.dead_query() is None


def test_driver_is_known_once_it_was_seen_on_this_machine(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    beat(tmp_path, 1, "/chk/a", host="elsewhere")
    beat(tmp_path, 2, "/chk/a", host=socket.gethostname(), is_classic=False)
    assert agents.death is None
    beat(tmp_path, 3, "/chk/a", host=socket.gethostname())
    assert agents.death is not None
    assert f"process 3 on {socket.gethostname()}" in agents.death
    agents.begin()
    assert agents.death is not None


def tell_code(
    folder: Path, number: int, checkpoint: str, code: dict[str, Any] | None, *misfits: dict[str, str]
) -> None:
    told = {"checkpoint": checkpoint, "code": code, "misfits": misfits}
    (folder / f"0000000000001-1.{number:06d}.code.json").write_text(json.dumps(told))


def test_code_that_was_let_start_is_known_of_this_run_alone(tmp_path: Path) -> None:
    agents = Agents(tmp_path, named={"file:///chk/a": "/chk/a"})
    tell_code(tmp_path, 0, "/chk/a", {"spark": "before"})
    agents.begin()
    assert agents.code_of("/chk/a") is None
    tell_code(tmp_path, 1, "file:/chk/a", {"spark": "now"})
    tell_code(tmp_path, 2, "file:/chk/b", {"spark": "another"})
    tell_code(tmp_path, 3, "file:/chk/c", None)
    (tmp_path / "0000000000001-1.000004.code.json").write_text("{")
    assert agents.code_of("/chk/a") == {"spark": "now"}
    assert agents.code_of("/chk/c") is None


def test_what_only_a_person_can_tell_of_code_is_told_once(tmp_path: Path) -> None:
    agents = Agents(tmp_path)
    agents.begin()
    renamed = {"subject": "state/0", "found": "grouped by k", "expected": "grouped by j", "outcome": "renamed"}
    for number in range(2):
        tell_code(tmp_path, number, "/chk/a", {"spark": "now"}, renamed)
    (told,) = agents.notices()
    assert told.condition == "CODE_RENAMED"
    assert "state/0: grouped by k; there: grouped by j" in told.sentence
    assert agents.notices() == []


def test_what_checkpoints_keep_is_put_where_the_guard_looks(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    agents = Agents(folder)
    agents.put_kept({"/chk/a": NOTHING_KEPT})
    agents.put_kept({"/chk/a": NOTHING_KEPT, "/chk/b": NOTHING_KEPT})
    told = json.loads((folder / KEPT_FILE).read_text())
    assert [each["checkpoint"] for each in told] == ["/chk/a", "/chk/b"]
    assert (folder / KEPT_FILE).stat().st_mode & 0o077 == 0
    assert [each.name for each in folder.iterdir()] == [KEPT_FILE]


class Dead:
    """A query that has failed in a driver that goes on, as its agent tells."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.folder = folder
        self.agents = Agents(folder, named={"file:/chk/a": "/chk/a"}, clock=lambda: self.now)
        self.agents.begin()

    def tell(self, *, is_awaited: bool) -> None:
        (self.folder / "run.ended.json").write_text(json.dumps({"is_awaited": is_awaited}))

    def record(self, checkpoint: str | None = "file:/chk/a") -> None:
        ended = Terminated(recorded_at_ms=1, query_id="0", run_id="run", checkpoint=checkpoint, failure=FAILURE)
        write(self.folder, 1, ended)


def test_one_that_is_waited_for_is_decided_on_as_soon_as_its_failure_is_known(tmp_path: Path) -> None:
    dead = Dead(tmp_path)
    dead.tell(is_awaited=True)
    assert dead.agents.list_dead() == []
    dead.record()
    (found,) = dead.agents.list_dead()
    assert (found.checkpoint, found.failure) == ("/chk/a", FAILURE)
    dead.agents.answer(found, is_to_start=True)
    assert (tmp_path / "run.answer").read_text() == "start"
    assert dead.agents.list_dead() == []


def test_one_whose_failure_nobody_tells_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    dead = Dead(tmp_path)
    dead.tell(is_awaited=True)
    assert dead.agents.list_dead() == []
    dead.now = 15
    assert [each.failure for each in dead.agents.list_dead()] == [None]


def test_one_that_nobody_waits_for_is_left_to_the_application_for_a_while(tmp_path: Path) -> None:
    dead = Dead(tmp_path)
    dead.tell(is_awaited=False)
    dead.record()
    assert dead.agents.list_dead() == []
    dead.now = 15
    assert [each.failure for each in dead.agents.list_dead()] == [FAILURE]
    beat(tmp_path, 1, "file:/chk/a")  # it was started again: another run of the same query
    assert [each.failure for each in dead.agents.list_dead()] == [None]


def test_what_an_earlier_run_of_the_command_has_told_is_over(tmp_path: Path) -> None:
    dead = Dead(tmp_path)
    dead.tell(is_awaited=True)
    dead.record()
    dead.agents.begin()
    assert dead.agents.list_dead() == []


def test_a_file_that_tells_nothing_is_as_one_that_nobody_waits_for(tmp_path: Path) -> None:
    dead = Dead(tmp_path)
    dead.record()
    for content in ("", "[]", '{"is_awaited": "yes"}'):
        (tmp_path / "run.ended.json").write_text(content)
        assert dead.agents.list_dead() == []
