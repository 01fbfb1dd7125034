"""The supervisor, with real processes and a checkpoint that the test writes."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from supervising import (
    DEADLINE_SECONDS,
    Caring,
    Counter,
    Inside,
    Listener,
    Unreadable,
    await_file,
    in_background,
    supervisor,
)

from lastgood.recovery.attempts import AttemptsExhaustedError
from lastgood.settings.policy import Policy
from lastgood.supervise import events
from lastgood.supervise.loop import Watch


def test_success_ends_the_supervision(tmp_path: Path) -> None:
    told = Listener()
    assert supervisor(tmp_path, "print('done')", told).run() == 0
    assert told.names == ["started", "ended"]
    assert (tmp_path / "app.log").read_text() == "done\n"


def test_failure_is_told_with_its_last_error(tmp_path: Path) -> None:
    told = Listener()
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "raise ValueError('no such flight')", told, Policy(max_attempts=0)).run()
    ended = told.only("ended")
    assert isinstance(ended, events.Ended)
    assert (ended.exit_code, ended.error) == (1, "ValueError: no such flight")


def test_it_gives_up_after_restarts_that_commit_nothing(tmp_path: Path) -> None:
    told = Listener()
    with pytest.raises(AttemptsExhaustedError) as raised:
        supervisor(tmp_path, "raise SystemExit(3)", told, checkpoint=Counter(tmp_path)).run()
    assert told.names == ["started", "ended", *["restarting", "started", "ended"] * 3, "gave_up"]
    assert raised.value.found == "exit code 3"
    assert "4 times" in raised.value.sentence


def test_a_new_committed_batch_resets_the_count(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import sys, pathlib
        runs = pathlib.Path(sys.argv[1], "committed")
        done = len(runs.read_text()) if runs.exists() else 0
        with runs.open("a") as log: log.write("x")
        raise SystemExit(0 if done == 8 else 1)
    """
    assert supervisor(tmp_path, code, told, checkpoint=Counter(tmp_path)).run() == 0
    attempts = [event.attempt for event in told.events if isinstance(event, events.Restarting)]
    assert attempts == [1] * 8


def test_batches_of_the_other_queries_do_not_reset_the_count_of_the_one_that_fails(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    code = """
        import sys, pathlib
        with pathlib.Path(sys.argv[1], "committed").open("a") as log: log.write("x")
        raise SystemExit(1)
    """
    healthy, failing = Counter(tmp_path), Counter(tmp_path / "failing")
    agent = Inside(tmp_path / "none", "of its own", of="failing")
    with pytest.raises(AttemptsExhaustedError) as raised:
        supervisor(tmp_path, code, told, agent=agent, care=care, healthy=healthy, failing=failing).run()
    assert raised.value.sentence.endswith("4 times in a row without a new committed batch of failing")
    assert [standing.of("failing").failures for standing in care.standings] == [0, 1, 2, 3]
    assert [standing.of("healthy").failures for standing in care.standings] == [0] * 4


def test_query_whose_progress_nobody_sees_has_not_failed_alone(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import sys, pathlib
        file = pathlib.Path(sys.argv[1], "committed")
        file.write_text((file.read_text() if file.exists() else "") + "x")
        raise SystemExit(len(file.read_text()) <= 5)
    """
    seen, other = Counter(tmp_path), Counter(tmp_path / "other")
    agent = Inside(tmp_path / "none", "of no query here", of="elsewhere")
    assert supervisor(tmp_path, code, told, agent=agent, seen=seen, other=other).run() == 0
    assert [event.attempt for event in told.events if isinstance(event, events.Restarting)] == [1] * 5


def test_recovery_is_told_with_the_batch_that_was_run_again(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import os, pathlib, sys, time
        folder = pathlib.Path(sys.argv[1])
        if not (folder / "planned").exists():
            (folder / "planned").write_text("xxx"); (folder / "committed").write_text("xx")
            os.kill(os.getpid(), 9)
        (folder / "new").write_text("xxx"); (folder / "new").replace(folder / "committed")
        time.sleep(0.5)
    """
    assert supervisor(tmp_path, code, told, checkpoint=Counter(tmp_path)).run() == 0
    recovered = told.only("recovered")
    assert isinstance(recovered, events.Recovered)
    assert (recovered.batch, recovered.rerun) == (2, True)
    ended = told.events[told.names.index("ended")]
    assert isinstance(ended, events.Ended)
    assert (ended.signal, ended.positions) == ("SIGKILL", {"checkpoint": {"planned": 2, "committed": 1}})


def test_first_batch_of_a_new_plan_is_no_rerun(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import pathlib, sys, time
        folder = pathlib.Path(sys.argv[1])
        if not (folder / "planned").exists():
            (folder / "planned").write_text("x"); (folder / "committed").write_text("x")
            sys.exit(1)
        (folder / "new").write_text("xx"); (folder / "new").replace(folder / "committed")
        time.sleep(0.5)
    """
    assert supervisor(tmp_path, code, told, checkpoint=Counter(tmp_path)).run() == 0
    recovered = told.only("recovered")
    assert isinstance(recovered, events.Recovered)
    assert (recovered.batch, recovered.rerun) == (1, False)


SLEEPER = """
    import pathlib, signal, sys, time
    {signals}
    pathlib.Path(sys.argv[1], "up").write_text("")
    while True: time.sleep(600)
"""


def test_stop_passes_the_signal_on_and_does_not_restart(tmp_path: Path) -> None:
    told = Listener()
    kept = supervisor(tmp_path, SLEEPER.format(signals=""), told)
    codes: list[int] = []
    thread = in_background(lambda: codes.append(kept.run()))
    await_file(tmp_path / "up")
    kept.stop(signal.SIGTERM)
    thread.join(DEADLINE_SECONDS)
    assert codes == [143]
    assert told.names == ["started", "stopping", "ended"]
    assert kept.child is None


def test_command_that_hangs_on_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    told = Listener()
    kept = supervisor(tmp_path, SLEEPER.format(signals="signal.signal(15, signal.SIG_IGN)"), told)
    thread = in_background(kept.run)
    await_file(tmp_path / "up")
    kept.stop()
    thread.join(DEADLINE_SECONDS)
    ended = told.only("ended")
    assert isinstance(ended, events.Ended)
    assert ended.signal == "SIGKILL"


def test_second_stop_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    told = Listener()
    patient = Policy(grace_seconds=3600)
    kept = supervisor(tmp_path, SLEEPER.format(signals="signal.signal(15, signal.SIG_IGN)"), told, patient)
    thread = in_background(kept.run)
    await_file(tmp_path / "up")
    kept.stop()
    kept.stop()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_stop_ends_a_pause_before_a_restart(tmp_path: Path) -> None:
    told = Listener()
    slow = Policy(max_attempts=9, backoff_seconds=3600, backoff_max_seconds=3600)
    kept = supervisor(tmp_path, "raise SystemExit(1)", told, slow)
    thread = in_background(kept.run)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while told.names.count("restarting") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    kept.stop()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_what_a_command_leaves_behind_is_ended_before_the_restart(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import os, pathlib, sys, time
        pids = pathlib.Path(sys.argv[1], "pids")
        if os.fork() == 0:
            os.setsid()
            with pids.open("a") as log: print(os.getpid(), file=log, flush=True)
            time.sleep(600)
        while not pids.exists(): time.sleep(0.01)
        sys.exit(1)
    """
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, code, told, Policy(max_attempts=1)).run()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        assert not psutil.pid_exists(pid)


def test_checkpoint_that_cannot_be_read_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    told = Listener()
    assert supervisor(tmp_path, "import time; time.sleep(0.3)", told, checkpoint=Unreadable()).run() == 0
    noticed = told.only("noticed")
    assert isinstance(noticed, events.Noticed)
    assert (noticed.condition, noticed.sentence) == (
        "STORAGE_UNAVAILABLE",
        "the checkpoint cannot be listed (permission denied)",
    )


ONE_BATCH_A_RUN = """
    import pathlib, sys, time
    folder = pathlib.Path(sys.argv[1])
    (folder / "planned").write_text("x" * 9)
    committed = folder / "committed"
    done = len(committed.read_text()) if committed.exists() else 0
    time.sleep(1.5)
    with committed.open("a") as log: log.write("x")
    time.sleep(0.5)
    raise SystemExit(0 if done == 2 else 1)
"""


def test_batches_of_a_query_that_only_the_agent_knows_are_progress(tmp_path: Path) -> None:
    told = Listener()
    agent = Inside(tmp_path)
    assert supervisor(tmp_path, ONE_BATCH_A_RUN, told, Policy(max_attempts=1), agent).run() == 0
    assert agent.runs == 3
    ended = [event for event in told.events if isinstance(event, events.Ended)]
    assert [event.positions["seen"]["committed"] for event in ended] == [0, 1, 2]
    recovered = [event for event in told.events if isinstance(event, events.Recovered)]
    assert [(event.checkpoint, event.batch) for event in recovered] == [("seen", 1), ("seen", 2)]
    assert [event.condition for event in told.events if isinstance(event, events.Noticed)] == ["AGENT_TROUBLE"]


class Adopting(Inside):
    """Locks the checkpoint of a query once it is seen, as `run` does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = folder / "lock"
        self.holds: list[int] = []
        self.looks_since = 0

    def watches(self) -> dict[str, Watch]:
        seen = super().watches()
        if seen and not self.holds:
            self.holds.append(os.open(self.lock, os.O_CREAT | os.O_RDWR))
            fcntl.flock(self.holds[0], fcntl.LOCK_EX)
        elif seen:
            self.looks_since += 1
        return seen

    def is_free(self) -> bool:
        with self.lock.open() as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


def test_lock_of_a_checkpoint_that_nobody_named_stands_as_long_as_the_command(tmp_path: Path) -> None:
    told, agent = Listener(), Adopting(tmp_path)
    code = """
        import pathlib, sys, time
        folder = pathlib.Path(sys.argv[1])
        (folder / "planned").write_text("x")
        while not (folder / "go").exists():
            time.sleep(0.01)
    """
    thread = in_background(supervisor(tmp_path, code, told, agent=agent, holds=agent.holds).run)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not agent.looks_since:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(agent.holds[0])  # as if the supervisor had died
    assert not agent.is_free()
    (tmp_path / "go").touch()
    thread.join(DEADLINE_SECONDS)
    assert agent.is_free()


def test_what_the_agent_says_counts_before_what_was_printed(tmp_path: Path) -> None:
    told = Listener()
    with pytest.raises(AttemptsExhaustedError):
        supervisor(
            tmp_path, "raise ValueError('printed')", told, Policy(max_attempts=0), Inside(tmp_path, "told")
        ).run()
    ended = told.only("ended")
    assert isinstance(ended, events.Ended)
    assert ended.error == "told"


def test_process_that_was_killed_had_no_time_to_tell_the_agent(tmp_path: Path) -> None:
    told = Listener()
    code = "import os; print('ValueError: printed', flush=True); os.kill(os.getpid(), 9)"
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, code, told, Policy(max_attempts=0), Inside(tmp_path, "of an earlier query")).run()
    ended = told.only("ended")
    assert isinstance(ended, events.Ended)
    assert ended.error == "ValueError: printed"


def test_that_no_query_was_seen_is_told_once_and_only_after_a_failure(tmp_path: Path) -> None:
    told = Listener()
    with pytest.raises(AttemptsExhaustedError):
        supervisor(
            tmp_path, "raise SystemExit(1)", told, Policy(max_attempts=2, backoff_seconds=0.01), Inside(tmp_path)
        ).run()
    noticed = [event.condition for event in told.events if isinstance(event, events.Noticed)]
    assert noticed == ["AGENT_TROUBLE", "NO_CHECKPOINT_NAMED"]
    well = Listener()
    assert supervisor(tmp_path, "pass", well, agent=Inside(tmp_path)).run() == 0
    assert [event.condition for event in well.events if isinstance(event, events.Noticed)] == ["AGENT_TROUBLE"]
