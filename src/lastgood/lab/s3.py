"""A real S3 server on this machine: versitygw over a folder, on loopback, that ends with its owner.

Go builds it once, its module checked against Go's own sum database; where there is no Go, moto stands in, if installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from lastgood.errors import LastgoodError, Retry, StorageError
from lastgood.lab.cache import cache_errors, cache_folder, exclusive
from lastgood.lab.ports import LOOPBACK, accepts, free_port, is_free
from lastgood.process.child import Child

VERSION = "1.8.0"
ACCESS_KEY = "lastgood"
SECRET_KEY = "lastgood-secret"  # noqa: S105 - of a server that only this machine reaches
REGION = "us-east-1"

_MODULE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_GO_PLACES = ("/usr/local/go/bin/go",)
_BUILD_SECONDS = 900.0
_START_SECONDS = 30.0
_POLL_SECONDS = 0.02
_PORT_ATTEMPTS = 5


class S3ServerError(LastgoodError):
    """The S3 server of the lab cannot be built, or does not come up."""

    condition = "S3_SERVER_NOT_STARTED"
    exit_code = 14
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class S3Program:
    """What serves S3. `find_s3` gives one."""

    name: str
    """`versitygw`, whose buckets are folders and who checks keys, or `moto`, who keeps all in memory and does not."""
    command: tuple[str, ...]

    def serving(self, buckets: Path, port: int) -> list[str]:
        """The command that serves on `port`; the folders in `buckets` are the buckets of versitygw."""
        if self.name == "moto":
            return [*self.command, "-H", LOOPBACK, "-p", str(port)]
        return [*self.command, "--port", f"{LOOPBACK}:{port}", "--region", REGION, "--quiet", "posix", str(buckets)]


def find_s3(
    *, env: Mapping[str, str], cache: Path | None = None, progress: Callable[[str], None] | None = None
) -> S3Program:
    """What can serve S3 here: versitygw, built if that has not been done yet (two minutes), else moto.

    Args:
        env: Where `go` is looked for, and what it is built with; `LASTGOOD_CACHE` names the cache.
        cache: Another folder for what is built.
        progress: Is told, in a few words, what takes time.

    Raises:
        S3ServerError: it cannot be built, or there is neither Go nor moto.
        StorageError: the cache cannot be read or written.
    """
    program = cache_folder(cache, env) / "go" / f"versitygw-{VERSION}"
    tell = progress or (lambda _: None)
    go = shutil.which("go", path=env.get("PATH", "")) or next(filter(os.path.exists, _GO_PLACES), None)
    with cache_errors(program.parent):
        if not program.exists() and go is not None:
            with exclusive(program.parent / "lock", on_wait=lambda: tell("waiting for another build of the S3 server")):
                if not program.exists():
                    tell("building the S3 server, once")
                    _build(go, program, env)
        if program.exists():
            return S3Program("versitygw", (str(program),))
    if importlib.util.find_spec("moto") is not None:
        return S3Program("moto", (sys.executable, "-m", "moto.server"))
    raise S3ServerError(
        "there is nothing to serve S3 with",
        found="neither Go nor moto",
        expected="Go, which builds versitygw",
        next="install Go, or pip install 'moto[server]'",
    )


def _build(go: str, program: Path, env: Mapping[str, str]) -> None:
    """Build beside its place and only then put it there: what is there is whole."""
    log = program.parent / "versitygw.log"
    with tempfile.TemporaryDirectory(prefix="build-", dir=program.parent) as workspace:
        settings = {**env, "GOBIN": workspace, "CGO_ENABLED": "0"}
        with log.open("wb") as output, Child([go, "install", _MODULE], env=settings, output=output) as child:
            ending = child.wait(_BUILD_SECONDS)
        built = Path(workspace) / "versitygw"
        if ending is None or not ending.is_success or not built.is_file():
            raise S3ServerError(
                "the S3 server of the lab cannot be built",
                subject=str(log),
                found=f"no end within {_BUILD_SECONDS:g} s" if ending is None else f"{ending}: {_last_line(log)}",
                next=f"tail {log}",
            )
        built.replace(program)


class S3Server:
    """An S3 server with its buckets in a folder. Use it as a context manager, or call `stop` in the end.

    Should we be killed, it ends too. Its port stays the same as long as this object lives.

    Example::

        with S3Server(Path("s3"), find_s3(env=os.environ), buckets=["lake"]) as server:
            open_storage(parse_location("s3a://lake/chk"), server.options)
    """

    def __init__(
        self, folder: Path, program: S3Program, *, buckets: tuple[str, ...] = ("lake",), port: int | None = None
    ) -> None:
        """Describe a server; nothing is started.

        Args:
            folder: For its data and log; created, or used again with what it holds.
            program: From `find_s3`.
            buckets: That are there when it has started.
            port: Where it listens; a free one if None.
        """
        self.folder = folder.absolute()
        self.program = program
        self._buckets = buckets
        self._port = port
        self._child: Child | None = None

    @property
    def log(self) -> Path:
        """What the server said, over all its starts."""
        return self.folder / "s3.log"

    @property
    def endpoint(self) -> str:
        """Its address, as `AWS_ENDPOINT_URL` takes it; the same after a restart.

        Raises:
            RuntimeError: it has not been started, and no port was asked for.
        """
        if self._port is None:
            message = "a server has no port before its first start"
            raise RuntimeError(message)
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the server, or None if it does not run."""
        return self._child.pid if self._child is not None and self._child.ending is None else None

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment: address and keys, under the names of AWS's own tools."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": REGION,
        }

    @property
    def options(self) -> dict[str, object]:
        """The same as options of `open_storage`."""
        return {
            "endpoint_url": self.endpoint,
            "key": ACCESS_KEY,
            "secret": SECRET_KEY,
            "client_kwargs": {"region_name": REGION},
        }

    def start(self) -> None:
        """Start the server and wait until it answers; nothing happens if it runs.

        Raises:
            S3ServerError: it ended, or did not answer in time.
            StorageError: its folder cannot be written.
        """
        if self.pid is not None:
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port = self._port or free_port()
            try:
                self._child = self._launch(port)
            except S3ServerError:
                # Somebody took the port between our look and the server's: try another, unless it must be this one.
                if is_free(port) or self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                self._port = port
                self._make_buckets()
                return

    def stop(self) -> None:
        """End it in order."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, port: int) -> Child:
        data = self.folder / "buckets"
        try:
            for bucket in self._buckets:
                (data / bucket).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                "the folder of the S3 server cannot be written", subject=str(self.folder), found=error.strerror
            ) from error
        env = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with self.log.open("ab") as output:
            child = Child(self.program.serving(data, port), env=env, output=output, grace_seconds=5.0)
        try:
            self._await_ready(child, port)
        except BaseException:
            child.kill()
            raise
        return child

    def _await_ready(self, child: Child, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        ending = None
        while ending is None and time.monotonic() < deadline:
            # An answer is not enough: it may come from who took the port before us, while the server dies of that.
            if listens(child, port) and accepts(port):
                return
            ending = child.wait(_POLL_SECONDS)
        why = f"no answer within {_START_SECONDS:g} s" if ending is None else f"it ended with {ending}"
        raise S3ServerError(
            "the S3 server of the lab does not come up",
            subject=str(self.log),
            found=f"{why}: {_last_line(self.log)}",
            next=f"tail {self.log}",
        )

    def _make_buckets(self) -> None:
        for bucket in self._buckets if self.program.name == "moto" else ():
            request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")  # noqa: S310 - our own address
            with urllib.request.urlopen(request, timeout=_START_SECONDS):  # noqa: S310
                pass


def listens(child: Child, port: int) -> bool:
    """Whether a process of `child` is the one that listens on this port."""
    for process in child.processes():
        with contextlib.suppress(psutil.Error):
            for socket in process.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port:
                    return True
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "not a word")
