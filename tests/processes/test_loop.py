"""The supervisor, with real processes and a checkpoint that the test writes."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lastgood.diagnosis.failure_class import FailureClass
from lastgood.errors import StorageError
from lastgood.process.driver import Launch
from lastgood.records.record import Failure
from lastgood.supervise import events
from lastgood.supervise.failure import Cause
from lastgood.supervise.ladder import Standing
from lastgood.supervise.loop import AttemptsExhaustedError, PersonNeededError, Supervisor, Wait, Watch
from lastgood.supervise.policy import Policy
from lastgood.supervise.progress import Progress

FAST = Policy(max_attempts=3, backoff_seconds=0.01, grace_seconds=0.5)
DEADLINE_SECONDS = 20


class Counter:
    """A checkpoint whose progress is the number of lines in two files."""

    poll_seconds = 0.01

    def __init__(self, folder: Path) -> None:
        self.planned = folder / "planned"
        self.committed = folder / "committed"

    def look(self) -> Progress:
        return Progress(_newest(self.planned), _newest(self.committed))


def _newest(file: Path) -> int | None:
    count = len(file.read_text()) if file.exists() else 0
    return count - 1 if count else None


class Unreadable:
    poll_seconds = 0.01

    def look(self) -> Progress:
        raise StorageError("the checkpoint cannot be listed", found="permission denied")


class Listener:
    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def only(self, name: str) -> events.Event:
        (found,) = [event for event in self.events if event.name == name]
        return found


class Inside:
    """An agent that sees the query of a Counter from its first batch on, and knows why the command ended."""

    def __init__(self, folder: Path, error: str | None = None, of: str | None = None) -> None:
        self.counter = Counter(folder)
        self.error = error
        self.of = of
        self.runs = 0
        self.untold = [events.Noticed(at=0.0, condition="AGENT_TROUBLE", sentence="disk full")]

    def begin(self) -> None:
        self.runs += 1

    def watches(self) -> dict[str, Watch]:
        return {"seen": self.counter} if self.counter.planned.exists() else {}

    def notices(self) -> list[events.Noticed]:
        untold, self.untold = self.untold, []
        return untold

    def failure(self) -> tuple[str | None, Failure] | None:
        return None if self.error is None else (self.of, Failure(message=self.error))

    def dead_query(self) -> tuple[str, Failure] | None:
        return None


class Caring:
    """Answers what it was told to, one turn at a time; then: start."""

    def __init__(self, *answers: Wait | PersonNeededError | None, resort: PersonNeededError | None = None) -> None:
        self.answers = list(answers)
        self.resort = resort
        self.standings: list[Standing] = []
        self.causes: list[Cause] = []
        self.first: list[tuple[str, int, bool]] = []
        self.astray: Cause | None = None

    def before_start(self, standing: Standing) -> Wait | None:
        self.standings.append(standing)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, PersonNeededError):
            raise answer
        return answer

    def failed(self, ended: events.Ended, cause: Cause) -> None:
        assert ended.failure == cause.cls.value
        self.causes.append(cause)

    def first_batch(self, checkpoint: str, batch: int, *, rerun: bool) -> None:
        self.first.append((checkpoint, batch, rerun))

    def is_ahead(self, checkpoint: str) -> bool:
        return False

    def strayed(self, checkpoint: str) -> Cause | None:
        return self.astray

    def last_resort(self) -> PersonNeededError | None:
        return self.resort


def supervisor(
    folder: Path,
    code: str,
    told: Listener,
    policy: Policy = FAST,
    agent: Inside | None = None,
    care: Caring | None = None,
    **watches: Watch,
) -> Supervisor:
    command = (sys.executable, "-c", textwrap.dedent(code), str(folder))
    launch = Launch(command, dict(os.environ), None, None)
    log = folder / "app.log"
    return Supervisor(launch, policy=policy, watches=watches, log=log, tell=told, agent=agent, care=care)


def in_background(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def await_file(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


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


def test_queries_are_looked_at_before_every_start(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "raise ValueError('no such flight')", told, care=care, checkpoint=Counter(tmp_path)).run()
    assert [standing.failures for standing in care.standings] == [0, 1, 2, 3]
    assert [cause.line for cause in care.causes] == ["ValueError: no such flight"] * 4
    assert care.standings[1].cause == care.causes[0]


def test_nothing_is_started_while_nobody_can_tell_how_the_query_stands(tmp_path: Path) -> None:
    told, care = Listener(), Caring(Wait("no answer"), Wait("no answer"), Wait("still none"))
    assert supervisor(tmp_path, "print('done')", told, care=care).run() == 0
    assert told.names == ["waiting", "waiting", "started", "ended"]
    assert len(care.standings) == 4


def test_wait_ends_when_we_are_told_to_stop(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(*[Wait("no answer")] * 1000)
    supervised = supervisor(tmp_path, "print('done')", told, care=care)
    thread = in_background(supervised.run)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not told.events:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    supervised.stop(signal.SIGTERM)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    assert "started" not in told.names


def test_command_is_not_started_where_a_person_is_needed(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(PersonNeededError("a person is needed: nobody has accepted loss", next="lastgood recover …"))
    with pytest.raises(PersonNeededError):
        supervisor(tmp_path, "print('done')", told, care=care).run()
    assert told.names == ["called"]


def test_giving_up_names_the_plan_that_a_person_might_allow(tmp_path: Path) -> None:
    told = Listener()
    care = Caring(resort=PersonNeededError("a person is needed: nobody has accepted loss"))
    with pytest.raises(PersonNeededError):
        supervisor(tmp_path, "raise SystemExit(1)", told, Policy(max_attempts=0), care=care).run()
    assert told.names == ["started", "ended", "gave_up", "called"]


def test_command_that_commits_nothing_for_too_long_is_ended_and_started_again(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    code = """
        import sys, pathlib, time
        planned = pathlib.Path(sys.argv[1], "planned")
        if planned.exists():
            raise SystemExit(0)
        planned.write_text("x")
        time.sleep(60)
    """
    policy = Policy(backoff_seconds=0.01, grace_seconds=5, stall_after_seconds=0.5)
    assert supervisor(tmp_path, code, told, policy, care=care, checkpoint=Counter(tmp_path)).run() == 0
    assert told.names == ["started", "stalled", "ended", "restarting", "started", "ended"]
    assert [cause.line for cause in care.causes] == ["batch 0 was not committed within 0.5 s"]


def test_command_whose_query_reads_something_else_than_it_was_started_on_is_ended(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    care.astray = Cause(FailureClass.SOURCE_RECREATED, line="orders was created again")
    policy = Policy(max_attempts=0, grace_seconds=5)
    with pytest.raises(AttemptsExhaustedError):
        supervisor(tmp_path, "import time; time.sleep(60)", told, policy, care=care, checkpoint=Counter(tmp_path)).run()
    assert told.names == ["started", "stalled", "ended", "gave_up"]
    assert care.causes == [replace(care.astray, checkpoint="checkpoint")]


def test_stalled_command_that_ends_in_order_has_failed_all_the_same(tmp_path: Path) -> None:
    told = Listener()
    code = """
        import sys, pathlib, signal, time
        runs = pathlib.Path(sys.argv[1], "runs")
        with runs.open("a") as log: log.write("x")
        if len(runs.read_text()) == 2:
            raise SystemExit(0)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        pathlib.Path(sys.argv[1], "planned").write_text("x")
        time.sleep(60)
    """
    policy = Policy(backoff_seconds=0.01, grace_seconds=5, stall_after_seconds=2)
    assert supervisor(tmp_path, code, told, policy, checkpoint=Counter(tmp_path)).run() == 0
    assert (tmp_path / "runs").read_text() == "xx"


def test_first_new_batch_after_a_failure_is_told_to_whoever_cares(tmp_path: Path) -> None:
    told, care = Listener(), Caring()
    code = """
        import sys, pathlib, time
        folder = pathlib.Path(sys.argv[1])
        if not (folder / "planned").exists():
            (folder / "planned").write_text("x")
            raise SystemExit(1)
        (folder / "committed").write_text("x")
        time.sleep(0.5)
    """
    assert supervisor(tmp_path, code, told, care=care, checkpoint=Counter(tmp_path)).run() == 0
    assert care.first == [("checkpoint", 0, True)]
