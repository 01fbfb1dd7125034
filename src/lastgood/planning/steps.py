"""What a plan does: one file of a checkpoint at a time, each step with what it found and what it leaves. Pure.

A step is done when the file is as it leaves it, and not begun when the file is as it found it. So the files themselves
tell how far a plan has come, a step that is done twice changes nothing, and who wakes up late writes the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from lastgood.checkpoint.layout import (
    COMMITS,
    OFFSETS,
    SOURCES,
    ForeignFile,
    HadoopChecksumFile,
    ImmutableFile,
    LogFile,
    QueryMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    StateStoreFile,
    TemporaryFile,
    classify,
)
from lastgood.planning.sink_steps import DeltaStep, FileSinkStep, entry_rank, parse_sink_step
from lastgood.planning.start_steps import StartFileStep, parse_start_step

PATH_MAX = 1024
_STATE_FILES = (StateStoreFile, StateSchemaFile, ImmutableFile)


@dataclass(frozen=True, slots=True)
class FileStep:
    """A file of the logs gets another content, appears, or is set aside."""

    path: str
    """Below the checkpoint."""
    before: str | None
    """`digest` of what it was when the plan was made; None if there was no such file."""
    after: bytes | None
    """What it is then; None: no such file."""
    why: str
    """One line for a person."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        verb = "set aside" if self.after is None else "write" if self.before is None else "rewrite"
        return f"{verb} {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        return f"remove {self.path}" if self.before is None else f"put {self.path} back as it was"

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        after = None if self.after is None else base64.b64encode(self.after).decode()
        return {
            "do": self.do,
            "undo": self.undo,
            "kind": "file",
            "path": self.path,
            "before": self.before,
            "after": after,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class MoveStep:
    """A file of the state, which may be large, is set aside as it is."""

    path: str
    """Below the checkpoint."""
    size: int
    """Bytes that it had when the plan was made."""
    why: str
    """One line for a person."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        return f"set aside {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        return f"put {self.path} back"

    def to_json(self) -> dict[str, Any]:
        """The object in `steps` of a plan."""
        return {
            "do": self.do,
            "undo": self.undo,
            "kind": "move",
            "path": self.path,
            "size": self.size,
            "why": self.why,
        }


Step: TypeAlias = FileStep | MoveStep | DeltaStep | FileSinkStep | StartFileStep


def digest(content: bytes | None) -> str | None:
    """What tells one content of a file from another; None for no file."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def parse_step(told: object) -> Step:
    """Read one of `steps` of a plan.

    Raises:
        ValueError: it is none, or it touches what no step may touch; the message is one line for a person.
    """
    match told:
        case {
            "kind": "file",
            "path": str(path),
            "before": str() | None as before,
            "after": str() | None as after,
            "why": str(why),
        } if not _is_state(path):
            require_own(path)
            return FileStep(path, before, None if after is None else _decoded(after), why)
        case {"kind": "move", "path": str(path), "size": int(size), "why": str(why)} if _is_state(path):
            require_own(path)
            return MoveStep(path, size, why)
    step = parse_sink_step(told) or parse_start_step(told)
    if step is not None:
        return step
    raise ValueError(f"the step {told!r:.200} is not understood")


def require_own(path: str) -> None:
    """See that `path` is a file of a checkpoint that a plan may touch.

    Raises:
        ValueError: it is not.
    """
    file = classify(path)
    if isinstance(file, HadoopChecksumFile | SparkChecksumFile):
        file = file.of
    inside = all(part not in ("", ".", "..") for part in path.split("/")) and "\0" not in path and len(path) < PATH_MAX
    known = (QueryMetadataFile, LogFile, *_STATE_FILES)
    is_beside = isinstance(file, ForeignFile | TemporaryFile) and _lies_in_a_log(path)
    if not inside or not (isinstance(file, known) or is_beside):
        raise ValueError(f"{path} is no file of a checkpoint's logs or state")


def _lies_in_a_log(path: str) -> bool:
    match path.split("/"):
        case ["offsets" | "commits", _] | ["sources", _, _]:
            return True
    return False


def _is_state(path: str) -> bool:
    file = classify(path)
    return isinstance(file.of if isinstance(file, HadoopChecksumFile | SparkChecksumFile) else file, _STATE_FILES)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("the content of a step is no base64") from error


def files_after(steps: Iterable[Step]) -> dict[str, bytes | None]:
    """The files of the checkpoint that steps touch, as they leave them."""
    own = (step for step in steps if isinstance(step, FileStep | MoveStep))
    return {step.path: step.after if isinstance(step, FileStep) else None for step in own}


def in_order(steps: list[Step]) -> tuple[Step, ...]:
    """Steps in the order in which they are safe.

    Sinks go first: at no instant is one ahead of the logs that was not before. Then what is removed, commits before
    plans and newer before older; then what is written, `metadata` and sources before plans, plans before commits, older
    before newer: at no instant is a batch committed and not planned. Last comes the file outside of the checkpoint.
    """
    return tuple(sorted(steps, key=_rank))


def _rank(step: Step) -> tuple[int, int, int, str]:
    if isinstance(step, DeltaStep | FileSinkStep):
        return -1, *(entry_rank(step) if isinstance(step, FileSinkStep) else (0, 0)), step.path
    if isinstance(step, StartFileStep):
        return 2, 0, 0, step.path
    folder, _, name = step.path.rpartition("/")
    number = name.removeprefix(".").removesuffix(".crc").removesuffix(".compact")
    batch_id = int(number) if number.isdecimal() else -1
    is_checksum = name.endswith(".crc")
    if isinstance(step, MoveStep) or step.after is None:
        logs = {COMMITS: 0, OFFSETS: 1}
        # A checksum goes before the file that is rewritten and after the one that is removed; either way at its rank.
        return 0, logs.get(folder, 2), -batch_id, f"{name[1:-4]}.crc" if is_checksum else name
    logs = {"": 0, OFFSETS: 2, COMMITS: 3}
    return 1, logs.get(folder, 1 if folder.startswith(SOURCES) else 4), batch_id, name
