"""What somebody can do who may write, rename and delete whatever he likes in CHECKPOINT and CHECKPOINT.lastgood.

He has read how lastgood works, so that each of his files is as lastgood would have written it, checksum and all. What
he cannot reach is the home, the configuration and the command line of who runs lastgood.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.cli.main import main

Told = dict[str, Any]
"""A plan, an incident or a note, as JSON."""

ID = "20261121-160058-7f3a"
INCIDENT = "20261121-160100-aaaa"
PROOF = "driver_check: the attacker says so"


@dataclass(frozen=True)
class Attacker:
    """At work in one lake."""

    checkpoint: Path

    @property
    def work(self) -> Path:
        """What lies beside the checkpoint."""
        return Path(f"{self.checkpoint}.lastgood")

    def place(self, plan: Told, *stages: str, folder: str | None = None, **noted: Any) -> Path:
        """A recovery, as if it was interrupted after these stages; its plan fits its checksum.

        Args:
            plan: As `Plan.to_json` has it.
            stages: Names of `Stage` that it has reached; none: only begun.
            folder: The name of its folder; None: the plan's own id.
            noted: What each stage notes down beside the usual.
        """
        room = self.work / "recoveries" / (folder or plan["recovery"])
        room.mkdir(parents=True, exist_ok=True)
        (room / "plan.json").write_bytes(signed(plan))
        for number, stage in enumerate(stages or ("begun",)):
            self.note(room, stage, **{"at_ms": 1_790_000_000_000 + number, "lease": 1, "proof": PROOF, **noted})
        return room

    def note(self, room: Path, stage: str, **facts: Any) -> None:
        """A stage, or any other note."""
        (room / f"{stage}.json").write_text(json.dumps(facts))

    def keep(self, room: Path, path: str, content: bytes) -> None:
        """The backup of a file, to be put back by an undo."""
        file = room / "before" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def seal(self, plan: Told) -> None:
        """Put up the seal of a plan."""
        for path in plan["seal"]:
            (self.checkpoint / path).write_bytes(b"")

    def incident(self, **fields: Any) -> Path:
        """An incident that says this."""
        file = self.work / f"incidents/{INCIDENT}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        told = {
            "format": 1,
            "id": INCIDENT,
            "checkpoint": str(self.checkpoint),
            "failed_at_ms": 1_790_000_000_000,
            "position": {"planned": 7, "committed": 6},
            "attempts": [],
            "outcome": "open",
        }
        file.write_text(json.dumps({**told, **fields}))
        return file

    def link(self, path: str, target: Path) -> None:
        """Beside the checkpoint something that leads elsewhere."""
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def lease(self, number: int, **facts: Any) -> None:
        """A lease of that number."""
        file = self.work / f"leases/{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts))

    def bomb(self, path: str, size: int) -> None:
        """A file that takes much more room than it seems to; sparse."""
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            stream.truncate(size)


def signed(plan: Told) -> bytes:
    """A plan file whose checksum fits."""
    told = {name: value for name, value in plan.items() if name != "checksum"}
    whole = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**told, "checksum": hashlib.sha256(whole).hexdigest()}).encode()


def writing(plan: Told, file: Path, content: bytes) -> Told:
    """The same plan, which writes a file elsewhere as well."""
    step = {
        "do": f"write {file}: the application starts there",
        "undo": f"remove {file}",
        "kind": "start_file",
        "path": str(file),
        "before": None,
        "after": base64.b64encode(content).decode(),
        "why": "the application starts there",
    }
    if file.exists():
        step |= {"do": f"re{step['do']}", "undo": f"put {file} back as it was", "before": _sha(file.read_bytes())}
    named = {"location": str(file), "form": "file", "key": None}
    return {**plan, "steps": [*plan["steps"], step], "options": {**plan["options"], "start_file": named}}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Answer:
    """What a verb said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Told:
        """What it printed, read."""
        told: Told = json.loads(self.out)
        return told

    @property
    def condition(self) -> str | None:
        """The error that it ended with, or that a person is called for."""
        error = self.json.get("error")
        return None if error is None else error["condition"]


def call(*words: object) -> Answer:
    """One verb, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*map(str, words)])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Answer(code, out.getvalue(), err.getvalue())


def tree(folder: Path) -> Mapping[str, tuple[str, int]]:
    """Every file below, with what it holds and may be, links not followed."""
    found = {}
    for top, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(top, name)
            kind = f"-> {path.readlink()}" if path.is_symlink() else "folder"
            is_file = path.is_file() and not path.is_symlink()
            found[str(path.relative_to(folder))] = (_sha(path.read_bytes()) if is_file else kind, path.lstat().st_mode)
    return found


class Listener:
    """Stands for a broker or a database of the attacker's: notes down who connects."""

    def __init__(self) -> None:
        """Open the port."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.seen: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def host(self) -> str:
        """As `bootstrap.servers` has it."""
        return f"127.0.0.1:{self.port}"

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    connection.settimeout(0.5)
                    with contextlib.suppress(OSError):
                        self.seen.append(connection.recv(100))
                    self.seen.append(b"connected")

    def close(self) -> None:
        """Close the port."""
        self._socket.close()


def listening() -> Iterator[Listener]:
    """One that must not have been asked in the end."""
    listener = Listener()
    yield listener
    listener.close()
    assert listener.seen == [], "somebody has connected to a host that nobody has named here"
