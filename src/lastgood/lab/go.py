"""Programs of the lab that Go builds, once, each module checked against Go's own sum database."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.lab.cache import explain_cache_errors, hold_exclusively, locate_cache
from lastgood.lab.server import find_last_cause
from lastgood.process.child import Child

_PLACES = ("/usr/local/go/bin/go",)
_BUILD_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program that the lab builds from its source."""

    module: str
    """The package that `go install` takes, without its version."""
    version: str
    name: str
    """Of its file in the cache, before the version."""
    noun: str
    """What it is, for messages: `S3 server`."""
    not_built: type[LastgoodError]
    """What is raised where it cannot be built."""

    def built(
        self, *, env: Mapping[str, str], cache: Path | None = None, progress: Callable[[str], None] | None = None
    ) -> Path | None:
        """The program, built if that has not been done yet; None where that needs a Go, and there is none.

        Args:
            env: Where `go` is looked for, and what it is built with; `LASTGOOD_CACHE` names the cache.
            cache: Another folder for what is built.
            progress: Is told, in a few words, what takes time.

        Raises:
            LastgoodError: the class `not_built`: it cannot be built.
            StorageError: the cache cannot be read or written.
        """
        program = locate_cache(cache, env) / "go" / f"{self.name}-{self.version}"
        tell = progress or (lambda _: None)
        go = shutil.which("go", path=env.get("PATH", "")) or next(filter(os.path.exists, _PLACES), None)
        with explain_cache_errors(program.parent):
            if not program.exists() and go is not None:
                with hold_exclusively(
                    program.parent / "lock", on_wait=lambda: tell("waiting for another build with Go")
                ):
                    if not program.exists():
                        tell(f"building the {self.noun}, once")
                        self._build(go, program, env)
            return program if program.exists() else None

    def _build(self, go: str, program: Path, env: Mapping[str, str]) -> None:
        """Build beside its place and only then put it there: what is there is whole."""
        log = program.parent / f"{self.name}.log"
        with tempfile.TemporaryDirectory(prefix="build-", dir=program.parent) as workspace:
            settings = {**env, "GOBIN": workspace, "CGO_ENABLED": "0"}
            command = [go, "install", f"{self.module}@v{self.version}"]
            with log.open("wb") as output, Child(command, env=settings, output=output) as child:
                ending = child.wait(_BUILD_SECONDS)
            built = Path(workspace) / self.module.rpartition("/")[2]
            if ending is None or not ending.is_success or not built.is_file():
                said = find_last_cause(log.read_text(errors="replace")) or "not a word"
                raise self.not_built(
                    f"the {self.noun} of the lab cannot be built",
                    subject=str(log),
                    found=f"no end within {_BUILD_SECONDS:g} s" if ending is None else f"{ending}: {said}",
                    next=f"tail {log}",
                )
            # Safe: of our own cache; what is there is the same program, and who runs it keeps it.
            built.replace(program)
