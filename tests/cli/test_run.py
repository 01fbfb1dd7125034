"""`lastgood run` as a user starts it: every way in which a command can end, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import forked
import psutil
import pytest
from reading import CASES

from lastgood.ledger.opening import open_ledger
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
DEADLINE_SECONDS = 30
MARK = "LASTGOOD_TEST_MARK"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment of its own; afterwards no process that carries its mark may be left."""
    mark = str(tmp_path)
    yield {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "COLUMNS": "200",
        MARK: mark,
    }
    left = [process for process in psutil.process_iter() if _carries(process, mark)]
    assert left == []


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


def run(env: dict[str, str], *arguments: str | Path, cwd: Path | None = None) -> forked.Ended:
    return forked.run("run", *arguments, env=env, cwd=cwd)


def start(env: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [str(LASTGOOD), "run", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def script(folder: Path, code: str) -> str:
    path = folder / "app.py"
    path.write_text(textwrap.dedent(code))
    return str(path)


def python(folder: Path, code: str) -> list[str]:
    """A command that is no Spark application, so that a test needs no Java."""
    return ["--", "env", sys.executable, script(folder, code)]


def quick(folder: Path, attempts: int = 0) -> str:
    """A configuration with a policy that loses no time; its command stands in app.py."""
    path = folder / "lastgood.toml"
    path.write_text(f"""
[pipeline.app]
command = ["env", "{sys.executable}", "{folder}/app.py"]
checkpoint = "{folder}/checkpoint"
policy = {{ max_attempts = {attempts}, backoff = "10ms", grace = "500ms" }}
""")
    return f"--config={path}"


def log_of(folder: Path, name: str = "app") -> Path:
    (log,) = (folder / "state").rglob(f"{name}.log")
    return log


def await_line(path: Path, text: str = "") -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{path} never held {text!r}"
        time.sleep(0.02)


def test_application_that_succeeds(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(env, *python(tmp_path, "print('hello')"))
    assert done.returncode == 0
    assert "ended       exit code 0" in done.stdout
    assert log_of(tmp_path).read_text() == "hello\n"
    assert "\x1b" not in done.stdout


def test_application_that_fails_at_once_is_given_up_with_its_error(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "raise ValueError('no such flight')")
    failed = run(env, quick(tmp_path, attempts=2))
    assert failed.returncode == 71
    assert failed.stdout.count("last error: ValueError: no such flight") == 3
    assert "attempt 2 of 2" in failed.stdout
    assert failed.stderr.startswith("error [ATTEMPTS_EXHAUSTED] the command failed 3 times in a row")
    assert f"next      less +G {log_of(tmp_path)}" in failed.stderr


def test_code_that_keeps_other_state_is_sent_to_where_a_way_out_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    text = "org.apache.spark.SparkException: [STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema"
    script(tmp_path, f"import sys; sys.exit({text!r})")
    failed = run(env, quick(tmp_path, attempts=0))
    assert failed.returncode == 71
    assert f"next      lastgood diagnose {tmp_path}/checkpoint --log {log_of(tmp_path)}" in failed.stderr


def test_application_that_is_killed_is_told_so(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "import os; os.kill(os.getpid(), 9)")
    failed = run(env, quick(tmp_path))
    assert failed.returncode == 71
    assert "killed by SIGKILL" in failed.stdout


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_are_passed_on(tmp_path: Path, env: dict[str, str], signum: int, code: int) -> None:
    app = python(
        tmp_path,
        f"""
        import signal, sys, time
        def stop(signum, frame):
            print("told", signal.Signals(signum).name, flush=True); sys.exit(0)
        signal.signal({int(signum)}, stop)
        print("up", flush=True)
        while True: time.sleep(0.1)
        """,
    )
    running = start(env, *app)
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    running.send_signal(signum)
    out, err = running.communicate(timeout=DEADLINE_SECONDS)
    assert (running.returncode, err) == (code, "")
    assert f"stopping    {signal.Signals(signum).name} passed on" in out
    assert f"told {signal.Signals(signum).name}" in log_of(tmp_path).read_text()


def test_application_that_hangs_on_sigterm_is_killed(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(900)")
    running = start(env, quick(tmp_path))
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 143
    assert "killed by SIGKILL" in out


def test_application_that_forks_leaves_nothing_behind(tmp_path: Path, env: dict[str, str]) -> None:
    app = python(
        tmp_path,
        """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                time.sleep(900)
        """,
    )
    assert run(env, *app).returncode == 0


def test_supervisor_that_is_killed_takes_the_application_along(tmp_path: Path, env: dict[str, str]) -> None:
    running = start(env, *python(tmp_path, "import time; print('up', flush=True); time.sleep(900)"))
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    children = psutil.Process(running.pid).children(recursive=True)
    running.kill()
    running.communicate()
    _, alive = psutil.wait_procs(children, DEADLINE_SECONDS)
    assert len(children) >= 2
    assert alive == []


def test_application_that_prints_without_end_is_bounded(tmp_path: Path, env: dict[str, str]) -> None:
    app = python(tmp_path, "for _ in range(1500): print('x' * 65535)")
    assert run(env, *app).returncode == 0
    sizes = [file.stat().st_size for file in log_of(tmp_path).parent.iterdir()]
    assert sum(sizes) < 60_000_000


def test_command_that_does_not_exist_is_one_clear_line(env: dict[str, str]) -> None:
    refused = run(env, "--", "spark-sumbit", "app.py")
    assert refused.returncode == 72
    assert refused.stderr.splitlines()[0] == "error [COMMAND_NOT_FOUND] the command cannot be started"
    assert "spark-sumbit" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_missing_java_is_one_clear_line(tmp_path: Path, env: dict[str, str]) -> None:
    refused = run({**env, "JAVA_HOME": "/nowhere"}, "--", sys.executable, script(tmp_path, "print(1)"))
    assert refused.returncode == 6
    assert refused.stderr.startswith("error [JAVA_MISSING] Spark needs Java 17 or newer\n")
    assert "next" in refused.stderr


def test_wrong_pyspark_python_is_one_clear_line(tmp_path: Path, env: dict[str, str]) -> None:
    refused = run({**env, "PYSPARK_PYTHON": "/no/python"}, "--", sys.executable, script(tmp_path, "print(1)"))
    assert refused.returncode == 8
    assert "PYSPARK_PYTHON=/no/python" in refused.stderr
    assert "unset PYSPARK_PYTHON" in refused.stderr


def test_port_that_is_taken_is_the_last_error(tmp_path: Path, env: dict[str, str]) -> None:
    script(
        tmp_path,
        """
        import socket
        first = socket.create_server(("127.0.0.1", 0))
        socket.create_server(("127.0.0.1", first.getsockname()[1]))
        """,
    )
    failed = run(env, quick(tmp_path))
    assert failed.returncode == 71
    assert "last error: OSError: [Errno 98] Address already in use" in failed.stdout


def test_full_disk_stops_the_log_and_not_the_application(tmp_path: Path, env: dict[str, str]) -> None:
    log = tmp_path / "state" / "lastgood" / "log" / "app.log"
    log.parent.mkdir(parents=True)
    log.symlink_to("/dev/full")
    done = run(env, *python(tmp_path, "print('hello')"))
    assert done.returncode == 0
    assert "LOG_NOT_WRITTEN" in done.stdout
    assert "No space left on device" in done.stdout


def test_second_run_on_a_checkpoint_is_told_who_holds_it(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "import time; print('up', flush=True); time.sleep(900)")
    config = quick(tmp_path)
    running = start(env, config)
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    refused = run(env, config)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=DEADLINE_SECONDS)
    assert refused.returncode == 73
    assert f"process {running.pid} on " in refused.stderr
    assert str(tmp_path / "checkpoint") in refused.stderr


def test_run_is_refused_while_the_driver_of_one_that_was_killed_is_ended(tmp_path: Path, env: dict[str, str]) -> None:
    script(
        tmp_path,
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", os.getpid(), flush=True)
        time.sleep(900)
        """,
    )
    config = quick(tmp_path)
    settings = tmp_path / "lastgood.toml"
    settings.write_text(settings.read_text().replace('grace = "500ms"', 'grace = "10m"'))
    running = start(env, config)
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    driver = psutil.Process(int(log_of(tmp_path).read_text().split()[1]))
    running.kill()
    running.communicate()
    refused = run(env, config)
    assert refused.returncode == 73
    assert f"the driver of process {running.pid} on " in refused.stderr
    assert "which has died: it is being ended" in refused.stderr
    driver.kill()
    script(tmp_path, "print('done')")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while run(env, config).returncode != 0:
        assert time.monotonic() < deadline


def test_reader_that_leaves_does_not_end_the_application(tmp_path: Path, env: dict[str, str]) -> None:
    script(
        tmp_path,
        f"""
        import pathlib, time
        while not pathlib.Path({str(tmp_path / "go")!r}).exists():
            time.sleep(0.01)
        pathlib.Path({str(tmp_path / "runs")!r}).open("a").write("x")
        raise SystemExit(1)
        """,
    )
    running = start(env, quick(tmp_path, attempts=2))
    assert running.stdout is not None
    assert running.stdout.readline()
    running.stdout.close()
    (tmp_path / "go").touch()
    assert running.wait(DEADLINE_SECONDS) in (71, 141)
    assert (tmp_path / "runs").read_text() == "xxx"
    assert running.stderr is not None
    with running.stderr as told:
        assert "Traceback" not in told.read()


def test_full_disk_of_who_reads_does_not_end_the_application(tmp_path: Path, env: dict[str, str]) -> None:
    script(
        tmp_path, f"import pathlib; pathlib.Path({str(tmp_path / 'runs')!r}).open('a').write('x'); raise SystemExit(1)"
    )
    with Path("/dev/full").open("wb") as full:
        command = [str(LASTGOOD), "run", quick(tmp_path, attempts=2)]
        done = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (tmp_path / "runs").read_text() == "xxx"
    assert done.returncode == 71
    assert "Traceback" not in done.stderr


def test_nohup_keeps_its_word(tmp_path: Path, env: dict[str, str]) -> None:
    script(
        tmp_path,
        f"""
        import pathlib, time
        print("up", flush=True)
        while not pathlib.Path({str(tmp_path / "go")!r}).exists():
            time.sleep(0.01)
        """,
    )
    running = subprocess.Popen(
        ["nohup", str(LASTGOOD), "run", quick(tmp_path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    await_line(tmp_path / "state" / "lastgood" / "log" / "app.log", "up")
    running.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 0


def test_checkpoint_that_is_named_twice_is_a_clear_error(tmp_path: Path, env: dict[str, str]) -> None:
    config = tmp_path / "lastgood.toml"
    config.write_text(f"""
[pipeline.app]
command = ["true"]
[pipeline.app.query.early]
checkpoint = "{tmp_path}/checkpoint"
[pipeline.app.query.late]
checkpoint = "{tmp_path}/./checkpoint"
""")
    refused = run(env, f"--config={config}")
    assert refused.returncode == 2
    assert "a checkpoint is named twice" in refused.stderr


def test_state_is_kept_while_a_command_runs_and_what_it_costs_is_told_before(
    tmp_path: Path, env: dict[str, str]
) -> None:
    shutil.copytree(CASES / "4.2-agg-nokey-rocksdb-ckptv2/checkpoint", tmp_path / "chk")
    kept = tmp_path / "chk.lastgood/backups/*.state.json"
    command = python(tmp_path, f"import glob, time\nwhile not glob.glob({str(kept)!r}):\n    time.sleep(0.05)")[1:]
    (tmp_path / "lastgood.toml").write_text(f"""
[pipeline.app]
command = {json.dumps(command)}
checkpoint = "{tmp_path}/chk"
mirror_state = true
mirror_state_every = "1s"
""")
    ended = run(env, "--format=json", "--restart-only", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each["condition"] for each in told if each["event"] == "noticed"] == ["STATE_KEPT"]


def test_broken_toml_is_named_with_its_line(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "lastgood.toml").write_text("[pipeline.a\n")
    refused = run(env, cwd=tmp_path)
    assert refused.returncode == 2
    assert "error [CONFIG_INVALID] lastgood.toml is no valid TOML" in refused.stderr
    assert "line 1" in refused.stderr


def test_check_starts_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "raise SystemExit(9)")
    checked = run(env, quick(tmp_path), "--check")
    assert checked.returncode == 0
    assert checked.stdout.endswith("Nothing has been started.\n")
    assert not (tmp_path / "state").exists()
    assert json.loads(run(env, quick(tmp_path), "--check", "--format=json").stdout)["pipeline"] == "app"


def short_retention(folder: Path, *, max_downtime: str, retention_ms: int = 3_600_000) -> Path:
    """A pipeline that has not run yet, and what a broker says of its topic."""
    topic = {"partitions": {"0": {}}, "config": {"retention.ms": str(retention_ms), "cleanup.policy": "delete"}}
    (folder / "kafka.json").write_text(json.dumps({"bootstrap": "broker:9092", "topics": {"orders": topic}}))
    command = json.dumps([sys.executable, "-c", ""])
    (folder / "lastgood.toml").write_text(
        f'[pipeline.app]\ncommand = {command}\ncheckpoint = "chk"\ntopics = ["orders"]\n'
        f'kafka = {{ bootstrap = "kafka.json" }}\nmax_downtime = "{max_downtime}"\n'
    )
    return folder


def test_check_holds_the_retention_against_the_downtime_that_is_to_be_survived(
    tmp_path: Path, env: dict[str, str]
) -> None:
    short = short_retention(tmp_path, max_downtime="3d")
    checked = run(env, "--check", cwd=short)
    assert checked.returncode == 0
    assert "warning      TOPIC_RETENTION_SHORT orders: Kafka keeps records of orders for 60.0 minutes" in checked.stdout
    assert "--alter --add-config retention.ms=345600000" in checked.stdout
    told = json.loads(run(env, "--check", "--format=json", cwd=short).stdout)
    assert [(each["condition"], each["severity"]) for each in told["findings"]] == [
        ("TOPIC_RETENTION_SHORT", "warning")
    ]
    assert told["unknowns"] == []
    enough = run(env, "--check", cwd=short_retention(tmp_path, max_downtime="1h"))
    assert "TOPIC_RETENTION_SHORT" not in enough.stdout


def test_check_says_what_no_broker_tells(tmp_path: Path, env: dict[str, str]) -> None:
    short_retention(tmp_path, max_downtime="3d")
    (tmp_path / "kafka.json").write_text(json.dumps({"bootstrap": "broker:9092", "unknown": "no broker answers"}))
    checked = run(env, "--check", cwd=tmp_path)
    assert checked.returncode == 0
    assert "not known    max_downtime against retention: no broker answers" in checked.stdout


def test_a_run_begins_with_a_word_about_a_retention_that_is_too_short(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(env, "--no-agent", "--format=json", cwd=short_retention(tmp_path, max_downtime="3d"))
    assert done.returncode == 0, done.stderr
    noticed = [each for each in map(json.loads, done.stdout.splitlines()) if each["event"] == "noticed"]
    assert [each["condition"] for each in noticed].count("TOPIC_RETENTION_SHORT") == 1


def test_a_command_without_dashes_names_the_right_form(env: dict[str, str]) -> None:
    refused = run(env, "spark-submit", "my app.py")
    assert refused.returncode == 2
    assert "lastgood run -- spark-submit 'my app.py'" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--"], "there is no command after --"),
        (["orders", "--", "true"], "exclude each other"),
        (["--checkpoint", "/c", "orders"], "--checkpoint goes with -- COMMAND"),
        (["--format", "yaml"], "'yaml' is not one of"),
    ],
)
def test_arguments_that_cannot_be_meant(env: dict[str, str], arguments: list[str], sentence: str) -> None:
    refused = run(env, *arguments)
    assert refused.returncode == 2
    assert sentence in refused.stderr


def test_options_of_a_command_are_refused_beside_a_pipeline(tmp_path: Path, env: dict[str, str]) -> None:
    refused = run(env, quick(tmp_path), "app", "--sink", "delta:/t")
    assert refused.returncode == 2
    assert "--sink goes with -- COMMAND" in refused.stderr
    several = run(env, "--checkpoint=/a", "--checkpoint=/b", "--sink=/t", "--", "true")
    assert several.returncode == 2
    assert "2 checkpoints" in several.stderr


def test_json_is_one_event_a_line_and_ends_with_the_error(tmp_path: Path, env: dict[str, str]) -> None:
    script(tmp_path, "raise SystemExit(1)")
    failed = run(env, quick(tmp_path, attempts=1), "--format=json")
    lines = [json.loads(line) for line in failed.stdout.splitlines()]
    names = [line.get("event", "error") for line in lines]
    once = ["diagnosed", "started", "ended"]
    assert names == ["noticed", *once, "restarting", *once, "gave_up", "error"]
    assert lines[-1]["error"]["condition"] == "ATTEMPTS_EXHAUSTED"
    assert failed.stderr == ""


def test_output_is_shown_on_request(tmp_path: Path, env: dict[str, str]) -> None:
    assert run(env, "--show-output", *python(tmp_path, "print('hello')")).stderr == "hello\n"


def test_options_of_the_command_are_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    app = python(tmp_path, "import sys; print(sys.argv[1:])")
    assert run(env, *app, "--format", "json", "--", "x").returncode == 0
    assert log_of(tmp_path).read_text() == "['--format', 'json', '--', 'x']\n"


AGENT = "import os; print(os.environ.get('LASTGOOD_AGENT_DIR'), os.environ.get('PYTHONPATH'))"


def test_command_finds_the_agent_before_what_its_own_path_has(tmp_path: Path, env: dict[str, str]) -> None:
    assert run({**env, "PYTHONPATH": "/own"}, *python(tmp_path, AGENT)).returncode == 0
    folder, path = log_of(tmp_path).read_text().split()
    assert Path(folder).parent == tmp_path / "state" / "lastgood" / "agent" / "app"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    site, own = path.split(os.pathsep)
    assert (Path(site) / "sitecustomize.py").is_file()
    assert own == "/own"


def test_no_agent_leaves_the_command_as_it_is(tmp_path: Path, env: dict[str, str]) -> None:
    done = run(env, "--no-agent", *python(tmp_path, AGENT))
    assert log_of(tmp_path).read_text() == "None None\n"
    assert "NO_CHECKPOINT_NAMED" in done.stdout
    assert not (tmp_path / "state" / "lastgood" / "agent").exists()


def test_that_progress_cannot_be_seen_is_told_once_it_matters(tmp_path: Path, env: dict[str, str]) -> None:
    assert "NO_CHECKPOINT_NAMED" not in run(env, *python(tmp_path, "pass")).stdout
    config = tmp_path / "lastgood.toml"
    config.write_text(f'''
[pipeline.app]
command = ["env", "{sys.executable}", "-c", "raise SystemExit(1)"]
policy = {{ max_attempts = 2, backoff = "10ms" }}
''')
    failed = run(env, f"--config={config}")
    assert failed.returncode == 71
    assert failed.stdout.count("NO_CHECKPOINT_NAMED") == 1


def test_folder_that_the_agent_cannot_have_is_a_notice(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "state" / "lastgood").mkdir(parents=True)
    (tmp_path / "state" / "lastgood" / "agent").touch()
    done = run(env, *python(tmp_path, "print('on')"))
    assert done.returncode == 0
    assert "AGENT_FOLDER_NOT_WRITTEN" in done.stdout


def test_folders_of_runs_long_past_are_removed_unless_their_owner_lives(tmp_path: Path, env: dict[str, str]) -> None:
    agents = tmp_path / "state" / "lastgood" / "agent" / "app"
    for day in range(10, 31):
        (agents / f"202601{day}T000000Z-99999999").mkdir(parents=True)
    (agents / f"20250101T000000Z-{os.getpid()}").mkdir()
    run(env, *python(tmp_path, "pass"))
    left = sorted(each.name for each in agents.iterdir())
    assert left[:2] == [f"20250101T000000Z-{os.getpid()}", "20260111T000000Z-99999999"]
    assert len(left) == 22


def test_ledger_of_the_environment_is_filled_and_never_fails_a_run(tmp_path: Path, env: dict[str, str]) -> None:
    CheckpointBuilder(tmp_path / "chk").run(2)
    ledger = tmp_path / "ledger" / "ledger.db"
    env = {**env, "LASTGOOD_LEDGER": str(ledger)}
    command = ["--format=json", f"--checkpoint={tmp_path}/chk", *python(tmp_path, "")]
    (tmp_path / "ledger").touch()
    done = run(env, *command)
    assert done.returncode == 0
    notices = [event for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "noticed"]
    assert [notice["condition"] for notice in notices] == ["LEDGER_NOT_WRITTEN"]
    (tmp_path / "ledger").unlink()
    done = run(env, *command)
    assert (done.returncode, "LEDGER" in done.stdout) == (0, False)
    with open_ledger(str(ledger), create=False) as opened:
        assert [opened.batch_ids(query) for query in opened.queries()] == [[0, 1]]


def test_ledger_that_cannot_be_meant_starts_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    done = run({**env, "LASTGOOD_LEDGER": "mysql://me:geh3im@db/x"}, *python(tmp_path, "print(1)"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "LEDGER_URL_INVALID" in done.stderr
    assert "geh3im" not in done.stderr


def require_refused(refused: forked.Ended, *told: str) -> None:
    assert (refused.returncode, refused.stdout) == (2, "")
    assert all(each in refused.stderr for each in told)


@pytest.mark.parametrize(
    ("words", "told", "found"),
    [
        (["--no-agent", "--", "true"], {}, "--no-agent"),
        (["--", "true", "--deploy-mode", "cluster"], {}, "cluster mode"),
        (["--", "true", "--conf", "spark.submit.deployMode=cluster"], {}, "cluster mode"),
        (["--", "true", "--remote=sc://x"], {}, "Spark Connect"),
        (["--", "true"], {"SPARK_REMOTE": "sc://x"}, "Spark Connect"),
    ],
)
def test_no_driver_stands_by_where_nothing_could_hold_it_back(
    env: dict[str, str], words: list[str], told: dict[str, str], found: str
) -> None:
    require_refused(run(env | told, "--standby", *words), "no second driver can stand by", found)


def test_none_stands_by_beside_a_check_that_would_take_it_for_the_driver(env: dict[str, str], tmp_path: Path) -> None:
    config = '[pipeline.a]\ncommand = ["true"]\nstandby = true\ndriver_check = ["true"]\n'
    (tmp_path / "lastgood.toml").write_text(config)
    refused = run(env, "a", cwd=tmp_path)
    assert refused.returncode == 2
    assert "driver_check" in refused.stderr


def test_check_says_what_a_second_driver_means(env: dict[str, str]) -> None:
    checked = run(env, "--check", "--standby", "--", "true")
    assert checked.returncode == 0
    assert "a second driver" in checked.stdout
    assert "done twice, and beside the first driver" in " ".join(checked.stdout.split())


@pytest.mark.parametrize(
    ("words", "told", "found"),
    [
        (["--", "true"], {}, "not known to start a driver"),
        (["--", "spark-submit", "--deploy-mode", "cluster", "a.py"], {}, "cluster mode"),
        (["--", "python", "a.py"], {"SPARK_REMOTE": "sc://x"}, "Spark Connect"),
    ],
)
def test_no_class_archive_where_no_driver_starts_here(
    env: dict[str, str], words: list[str], told: dict[str, str], found: str
) -> None:
    require_refused(run(env | told, "--class-archive", *words), "no class archive can be made", found)


def test_check_says_what_a_class_archive_means(env: dict[str, str]) -> None:
    checked = run(env, "--check", "--class-archive", "--", "python", "a.py")
    assert checked.returncode == 0
    assert "made once, beside the running command" in " ".join(checked.stdout.split())


@pytest.mark.parametrize(
    ("words", "told", "found"),
    [
        (["--no-agent", "--", "true"], {}, "--no-agent"),
        (["--restart-only", "--", "true"], {}, "--restart-only"),
        (["--", "spark-submit", "--deploy-mode", "cluster", "a.py"], {}, "cluster mode"),
        (["--", "python", "a.py"], {"SPARK_REMOTE": "sc://x"}, "Spark Connect"),
    ],
)
def test_no_query_is_started_again_in_a_driver_that_nobody_reaches(
    env: dict[str, str], words: list[str], told: dict[str, str], found: str
) -> None:
    refused = run(env | told, "--restart-in-session", *words)
    require_refused(refused, "no query can be started again in its driver", found)


def test_check_says_which_queries_are_started_again_in_their_driver(env: dict[str, str]) -> None:
    checked = run(env, "--check", "--restart-in-session", "--", "true")
    assert checked.returncode == 0
    assert "as it stands, and has committed a batch" in " ".join(checked.stdout.split())
