"""What a plan does: one file of a checkpoint at a time, each step with what it found and what it leaves. Pure.

A step is done when the file is as it leaves it, and not begun when the file is as it found it. So the files themselves
tell how far a plan has come, a step that is done twice changes nothing, and who wakes up late writes the same bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from lastgood.checkpoint.layout import (
    COMMITS,
    OFFSETS,
    SOURCES,
    ForeignFile,
    HadoopChecksumFile,
    ImmutableFile,
    LogFile,
    OperatorMetadataFile,
    QueryMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    StateStoreFile,
    TemporaryFile,
    classify,
)
from lastgood.frozen import dataclass
from lastgood.steps.step import Rank, SinkEdit, Step, Turn
from lastgood.values import make_form

PATH_MAX = 1024
_BEFORE_PLANS = 1
"""Among what is written."""
REBUILT = "rebuilt"
"""The folder beside a checkpoint in which states are made anew, each in a folder that bears the id of its rebuild."""
REBUILT_CHECKPOINT = "checkpoint"
"""In that folder, what the silent query takes for its checkpoint."""
_REBUILT = re.compile(rf"{REBUILT}/[A-Za-z0-9-]{{1,64}}")
_STATE_FILES = (StateStoreFile, StateSchemaFile, OperatorMetadataFile, ImmutableFile)


@dataclass(frozen=True, slots=True)
class FileStep(Step):
    """A file of the logs gets another content, appears, or is set aside."""

    json = make_form("do undo kind path before after why", strict=True, check=lambda step: _require_file(step.path))
    kind: ClassVar = "file"

    path: str
    """Below the checkpoint."""
    before: str | None
    """`compute_digest` of what it was when the plan was made; None if there was no such file."""
    after: bytes | None
    """What it is then; None: no such file."""
    why: str
    """One line for a person."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        if self.after is None:
            verb = "set aside"
        elif self.before is None:
            verb = "write"
        else:
            verb = "rewrite"
        return f"{verb} {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.before is None:
            return f"remove {self.path}"
        return f"put {self.path} back as it was"

    @property
    def rank(self) -> Rank:
        """What is removed goes commits first, what is written comes plans first; see `sort_steps`."""
        if self.after is None:
            return _rank_removal(self.path)
        folder, name, batch_id = _parse_place_in_logs(self.path)
        written = {"": 0, OFFSETS: 2, COMMITS: 3}
        return Turn.WRITTEN, written.get(folder, _BEFORE_PLANS if folder.startswith(SOURCES) else 4), batch_id, name

    @property
    def found(self) -> Mapping[str, str | None]:
        """What it was."""
        return {self.path: self.before}

    @property
    def left(self) -> Mapping[str, bytes | None]:
        """What it is then."""
        return {self.path: self.after}


@dataclass(frozen=True, slots=True)
class MoveStep(Step):
    """A file of the state, which may be large, is set aside as it is."""

    json = make_form("do undo kind path size why", check=lambda step: _require_state(step.path))
    kind: ClassVar = "move"

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

    @property
    def rank(self) -> Rank:
        """With what is removed, after the logs."""
        return _rank_removal(self.path)

    @property
    def left(self) -> Mapping[str, bytes | None]:
        """No such file."""
        return {self.path: None}


@dataclass(frozen=True, slots=True)
class StateStep(Step):
    """A version of a state store is made anew, small; what is there of it is set aside as it is."""

    json = make_form(
        "do undo kind path size after found_beside why", strict=True, check=lambda step: _require_version(step.path)
    )
    kind: ClassVar = "state"

    path: str
    """Below the checkpoint."""
    size: int | None
    """Bytes of the file that was there when the plan was made; None if there was none."""
    after: bytes
    """What it is then."""
    why: str
    """One line for a person."""
    found_beside: tuple[str, ...] = ()
    """Names of the files of this version and later ones that lie beside it, and that other steps set aside: what else
    of these versions is there when the plan is taken back, a batch has made since."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        return f"write {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.size is None:
            return f"remove {self.path}"
        return f"put {self.path} back as it was"

    @property
    def rank(self) -> Rank:
        """Before the plans that are written: at no instant does one stand without its state."""
        return Turn.WRITTEN, _BEFORE_PLANS, 0, self.path

    @property
    def left(self) -> Mapping[str, bytes | None]:
        """What it is then."""
        return {self.path: self.after}


@dataclass(frozen=True, slots=True)
class BringStep(Step):
    """A file of the state that was made anew elsewhere beside the checkpoint takes its place.

    What is there of it is set aside as it is.
    """

    json = make_form(
        "do undo kind path size source brought_size found_beside why",
        strict=True,
        check=lambda step: _require_brought(step.path, step.source),
    )
    kind: ClassVar = "bring"

    path: str
    """Below the checkpoint."""
    size: int | None
    """Bytes of the file that was there when the plan was made; None if there was none."""
    source: str
    """Where the new one lies, below what lies beside the checkpoint."""
    brought_size: int
    """Its bytes."""
    why: str
    """One line for a person."""
    found_beside: tuple[str, ...] = ()
    """As in `StateStep`."""

    @property
    def do(self) -> str:
        """What it does; one line for a person."""
        return f"bring {self.path}: {self.why}"

    @property
    def undo(self) -> str:
        """What takes it back; one line for a person."""
        if self.size is None:
            return f"move {self.path} back"
        return f"put {self.path} back as it was"

    @property
    def rank(self) -> Rank:
        """As of a `StateStep`."""
        return Turn.WRITTEN, _BEFORE_PLANS, 0, self.path

    @property
    def brought(self) -> Mapping[str, tuple[str, int]]:
        """Where it lies until then, and its bytes."""
        return {self.path: (self.source, self.brought_size)}


def compute_digest(content: bytes | None) -> str | None:
    """What tells one content of a file from another; None for no file."""
    if content is None:
        return None
    return hashlib.sha256(content).hexdigest()


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
    is_beside = isinstance(file, ForeignFile | TemporaryFile) and _is_in_a_log(path)
    if not inside or not (isinstance(file, known) or is_beside):
        raise ValueError(f"{path} is no file of a checkpoint's logs or state")


def _require_file(path: str) -> None:
    if is_of_state(path):
        raise ValueError(f"{path} is a file of the state, which is moved and not written")
    require_own(path)


def _require_state(path: str) -> None:
    if not is_of_state(path):
        raise ValueError(f"{path} is no file of a checkpoint's state")
    require_own(path)


def _require_version(path: str) -> None:
    file = classify(path)
    if not (isinstance(file, StateStoreFile) and file.file.kind.is_snapshot):
        raise ValueError(f"{path} is no version of a state store that is whole by itself")
    require_own(path)


def _require_brought(path: str, source: str) -> None:
    """See that a file of the state comes from where a rebuild has made it, and from nowhere else."""
    _require_state(path)
    folder, _, made = source.partition(f"/{REBUILT_CHECKPOINT}/")
    if made != path or not _REBUILT.fullmatch(folder):
        raise ValueError(f"{source} is no place where {path} was made anew")


def _is_in_a_log(path: str) -> bool:
    match path.split("/"):
        case ["offsets" | "commits", _] | ["sources", _, _]:
            return True
    return False


def is_of_state(path: str) -> bool:
    """Whether a path below a checkpoint is that of a file of the state which a step may move."""
    file = classify(path)
    return isinstance(file.of if isinstance(file, HadoopChecksumFile | SparkChecksumFile) else file, _STATE_FILES)


def list_files_after(steps: Iterable[Step]) -> dict[str, bytes | None]:
    """The files of the checkpoint that steps touch, as they leave them."""
    return {path: content for step in steps for path, content in step.left.items()}


def list_files_brought(steps: Iterable[Step]) -> dict[str, tuple[str, int]]:
    """The files of the checkpoint that come from what lies beside it: from where, and their bytes."""
    return {path: told for step in steps for path, told in step.brought.items()}


def list_files_before(steps: Iterable[Step]) -> dict[str, str | None]:
    """The digests of the files of the logs that steps write or remove, as they found them."""
    return {path: before for step in steps for path, before in step.found.items()}


def list_files_outside(steps: Iterable[Step]) -> tuple[str, ...]:
    """The locations of the files that steps write outside of the checkpoint and of all sinks."""
    return tuple(step.file_outside for step in steps if step.file_outside is not None)


def sum_sink_edits(steps: Iterable[Step]) -> tuple[SinkEdit, ...]:
    """What the steps of a plan come to, one for each sink that they touch."""
    edits = (step.edit for step in steps)
    return tuple({edit.location: edit for edit in edits if edit is not None}.values())


def sort_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps in the order in which they are safe.

    Sinks go first: at no instant is one ahead of the logs that was not before. Then what is removed, commits before
    plans and newer before older; then what is written, `metadata`, sources and state before plans, plans before
    commits, older before newer: at no instant is a batch committed and not planned. Last comes the file outside of the
    checkpoint.
    """
    return tuple(sorted(steps, key=lambda step: step.rank))


def _rank_removal(path: str) -> Rank:
    folder, name, batch_id = _parse_place_in_logs(path)
    removed = {COMMITS: 0, OFFSETS: 1}
    # A checksum goes before the file that is rewritten and after the one that is removed; either way at its rank.
    return Turn.REMOVED, removed.get(folder, 2), -batch_id, f"{name[1:-4]}.crc" if name.endswith(".crc") else name


def _parse_place_in_logs(path: str) -> tuple[str, str, int]:
    """The folder, the name, and the number that the name tells; -1 if it tells none."""
    folder, _, name = path.rpartition("/")
    number = name.removeprefix(".").removesuffix(".crc").removesuffix(".compact")
    return folder, name, int(number) if number.isdecimal() else -1
