"""`examples/schedulers/cron/scan.sh` with a real `spark-submit`: the lock is the driver's."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from schedulers import SCHEDULERS, Machine, await_

from lastgood.lab.spark import find_default_spark, make_quick_conf, submit_command, submit_env
from lastgood.process.java import Java

APP = """
import pathlib, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
pathlib.Path(sys.argv[1]).touch()
while spark.range(1).count():
    time.sleep(0.5)
"""


def is_free(lock: Path) -> bool:
    with lock.open("ab") as handle, suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@pytest.mark.spark
def test_driver_holds_the_lock_when_all_that_started_it_was_killed(tmp_path: Path, java: Java) -> None:
    machine = Machine(tmp_path / "machine")
    app, up = tmp_path / "orders.py", tmp_path / "up"
    app.write_text(APP)
    spark = find_default_spark()
    submit = submit_command(app, [str(up)], environment=spark, conf=make_quick_conf(spark, java))
    env = submit_env(spark, java, machine.env)
    command = [str(SCHEDULERS / "cron/scan.sh"), "orders", *submit]
    lock = machine.folder / "state/lastgood/scan/orders/lock"
    scan = subprocess.Popen(command, cwd=machine.folder, env=env, start_new_session=True)
    try:
        await_(up.exists)
        below = psutil.Process(scan.pid).children(recursive=True)
        driver = next(each for each in below if "org.apache.spark.deploy.SparkSubmit" in each.cmdline())
        scan.send_signal(signal.SIGKILL)
        scan.wait()
        assert not is_free(lock)
        up.unlink()
        assert subprocess.run(command, cwd=machine.folder, env=env).returncode == 0
        assert driver.is_running()
        assert not up.exists()
        driver.kill()
        await_(lambda: is_free(lock))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(scan.pid, signal.SIGKILL)
