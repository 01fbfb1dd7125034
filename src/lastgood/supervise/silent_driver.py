"""An application that runs its query silently: started once, asked for one batch after another, ended."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from lastgood.errors import UsageError
from lastgood.process.child import Child
from lastgood.process.driver import Launch, prepare_launch
from lastgood.recovery.rebuilding import RebuildFailedError
from lastgood.redaction import redact_told
from lastgood.spark.agent.silent import VARIABLE, name_answer, name_passed, name_turn
from lastgood.storage.reading import Location
from lastgood.storage.rights import make_private
from lastgood.supervise.agent_folder import instrument
from lastgood.supervise.output import Output
from lastgood.visible import shorten

_LOOK_SECONDS = 0.02
_PYTHON_MINIMUM = (3, 9)
_GRACE_SECONDS = 5.0
_ISOLATED = re.compile(r"-[a-zA-Z]*[IES][a-zA-Z]*")
"""Options of Python by which it leaves out PYTHONPATH, or what is found there of itself."""
_ERROR_MAX = 2_000


class ToldToStopError(Exception):
    """Whoever waits for the batches is told to stop; never shown."""


def prepare_silent(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, checkpoint: Location
) -> Launch:
    """Check the command, and have its driver run nothing but the query of a checkpoint, silently.

    Args:
        command: That starts the application.
        environment: Its environment variables.
        folder: Through which its driver is asked.
        checkpoint: Of the query.

    Raises:
        UsageError: whether its driver could be muted is not known.
        CommandNotFoundError, PythonUnusableError, JavaMissingError: see `prepare_launch`.
    """
    unseen = _find_unseen(command)
    if unseen is not None:
        raise UsageError(
            "the query could not be run without its sink: lastgood would not be in its driver",
            subject=command[0],
            found=unseen,
            expected="a driver on this machine, in a Python that goes by PYTHONPATH",
            effect="nothing was run",
        )
    launch = prepare_launch(command, environment)
    if launch.python is None or launch.python.version < _PYTHON_MINIMUM:
        raise UsageError(
            "whether the query can be run without its sink is not known of this command",
            subject=command[0],
            found="a command of which nobody knows what it starts" if launch.python is None else str(launch.python),
            expected="python APPLICATION or spark-submit APPLICATION, with Python 3.9 or newer, and no SPARK_REMOTE",
        )
    launch = instrument(launch, folder)
    return replace(launch, env={**launch.env, VARIABLE: str(checkpoint)})


def _find_unseen(command: Sequence[str]) -> str | None:
    """The words by which the driver of a command would not find the agent; None if there are none."""
    words = list(command[1:])
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--deploy-mode" and following == "cluster":
            return "--deploy-mode cluster"
        if word in ("--deploy-mode=cluster", "spark.submit.deployMode=cluster"):
            return word
    if Path(command[0]).name.startswith("spark-"):
        return None
    for word in words:
        if not word.startswith("-"):
            return None  # from here on they are the application's own
        if _ISOLATED.fullmatch(word):
            return f"python {word}"
    return None


class SilentDriver:
    """The running application; nothing of it outlives the context."""

    def __init__(
        self,
        launch: Launch,
        folder: Path,
        log: Path,
        *,
        cwd: Path | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start it.

        Args:
            launch: As `prepare_silent` gives it.
            folder: The same.
            log: Where all goes that it prints.
            cwd: Its working directory; ours if None.
            is_stopped: Whether it is to end.
        """
        make_private(folder)
        self._folder = folder
        self._is_stopped = is_stopped
        self._turns = 0
        self._output = Output(log)
        try:
            self._child = Child(
                launch.command,
                env=launch.env,
                cwd=cwd,
                output=self._output.write_end,
                grace_seconds=_GRACE_SECONDS,
            )
        finally:
            self._output.hand_over()

    def run(self, below: str, batch: int) -> None:
        """Have the query run its newest plan on another checkpoint.

        Args:
            below: What is added to the name of its own checkpoint.
            batch: The batch that this is, for what is said.

        Raises:
            RebuildFailedError: it ended with an error, or the application ended, or never came to it.
            ToldToStopError: it was to end meanwhile.
        """
        number, self._turns = self._turns, self._turns + 1
        turn = self._folder / name_turn(number)
        draft = turn.with_suffix(".draft")
        draft.write_text(json.dumps({"below": below}))
        # Safe: both are names of this run alone, in its own folder.
        draft.rename(turn)
        answer = self._folder / name_answer(number)
        while not answer.exists():
            if self._child.ending is not None:
                raise self._refuse_ended(batch)
            if self._is_stopped():
                raise ToldToStopError
            time.sleep(_LOOK_SECONDS)
        error = json.loads(answer.read_text())["error"]
        if error is not None:
            raise RebuildFailedError.of_batch(batch, str(self._output.log), show_error(error))

    def _refuse_ended(self, batch: int) -> RebuildFailedError:
        passed = self._folder / name_passed()
        others = sorted(set(passed.read_text().splitlines())) if passed.exists() else []
        found = f"it ended with {self._child.ending}"
        last = self._output.tail().strip().rpartition("\n")[2]
        if last and not others:
            found = f"{found}: {show_error(last)}"
        sentence = f"the application ended before its query had run batch {batch}"
        return RebuildFailedError.of_others(sentence, str(self._output.log), found, others)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Safe: all that it has written lies beside the checkpoint, and each batch that was answered is committed there.
        self._child.kill()
        self._output.finish()
        # Safe: a folder of this run alone; what was asked and answered there is done.
        shutil.rmtree(self._folder, ignore_errors=True)


def show_error(error: str) -> str:
    """An error of the application in one line, without secrets."""
    return shorten(redact_told(error.strip().partition("\n")[0]), _ERROR_MAX)
