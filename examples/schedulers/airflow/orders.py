"""Makes the checkpoint of a Spark query ready, then starts the application. For Airflow 2.9 or newer, and Airflow 3."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta, timezone

try:
    from airflow.sdk import dag, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task
try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:  # older than Airflow 3.2
    from airflow.exceptions import AirflowException, AirflowFailException

FOLDER = "/opt/orders"  # orders.py, the application, and lastgood.toml
RECOVER = ["lastgood", "recover", "orders"]
SUBMIT = "spark-submit orders.py"
LATER = 75


@task(retries=60, retry_delay=timedelta(minutes=1))
def recover() -> None:
    """Succeeds where the application may start; is tried again where time may mend it, and only there."""
    done = subprocess.run(RECOVER, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    if done.returncode == LATER:
        raise AirflowException("somebody else is at work, or the storage does not answer")
    if done.returncode != 0:
        raise AirflowFailException(f"exit code {done.returncode}: see above what is the matter, and what to type")


@task.bash(retries=0, cwd=FOLDER)  # a retry would come without recover: the next run has both
def submit() -> str:
    """Runs the application until it ends."""
    return SUBMIT


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),  # noqa: UP017 - its Python may be older than 3.11
    catchup=False,
    max_active_runs=1,  # never two
    max_consecutive_failed_dag_runs=3,  # then it is paused, and waits for a person
)
def orders() -> None:
    """One run: ready, then the application, to its end."""
    recover() >> submit()


orders()
