"""A real S3 server on this machine: versitygw over a folder, on loopback, that ends with its owner.

Go builds it once, its module checked against Go's own sum database; where there is no Go, moto stands in, if installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.lab.go import GoProgram
from lastgood.lab.ports import LOOPBACK, is_accepting
from lastgood.lab.server import Server, is_listening
from lastgood.process.child import Child

VERSION = "1.8.0"
ACCESS_KEY = "lastgood"
SECRET_KEY = "lastgood-secret"  # noqa: S105 - of a server that only this machine reaches
REGION = "us-east-1"

_START_SECONDS = 30.0


class S3ServerError(LastgoodError):
    """The S3 server of the lab cannot be built, or does not come up."""

    condition = "S3_SERVER_NOT_STARTED"
    exit_code = 14
    retry = Retry.AFTER_CHANGE


_GATEWAY = GoProgram(
    "github.com/versity/versitygw/cmd/versitygw", VERSION, "versitygw", noun="S3 server", not_built=S3ServerError
)


@dataclass(frozen=True, slots=True)
class S3Program:
    """What serves S3. `find_s3` gives one."""

    name: str
    """`versitygw`, whose buckets are folders and who checks keys, or `moto`, who keeps all in memory and does not."""
    command: tuple[str, ...]

    def make_command(self, buckets: Path, port: int) -> list[str]:
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
    program = _GATEWAY.built(env=env, cache=cache, progress=progress)
    if program is not None:
        return S3Program("versitygw", (str(program),))
    if importlib.util.find_spec("moto") is not None:
        return S3Program("moto", (sys.executable, "-P", "-m", "moto.server"))
    raise S3ServerError(
        "there is nothing to serve S3 with",
        found="neither Go nor moto",
        expected="Go, which builds versitygw",
        next="install Go, or pip install 'moto[server]'",
    )


class S3Server(Server):
    """An S3 server with its buckets in a folder. Use it as a context manager, or call `stop` in the end.

    Should we be killed, it ends too. Its port stays the same as long as this object lives.

    Example::

        with S3Server(Path("s3"), find_s3(env=os.environ), buckets=["lake"]) as server:
            open_storage(parse_location("s3a://lake/chk"), server.options)
    """

    noun = "S3 server"
    not_started = S3ServerError
    log_name = "s3"
    grace_seconds = 5.0

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
        super().__init__(folder, ports=(port,), start_seconds=_START_SECONDS)
        self.program = program
        self._buckets = buckets

    @property
    def endpoint(self) -> str:
        """Its address, as `AWS_ENDPOINT_URL` takes it; the same after a restart.

        Raises:
            RuntimeError: it has not been started, and no port was asked for.
        """
        return f"http://{LOOPBACK}:{self.port}"

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
    def spark_conf(self) -> dict[str, str]:
        """The same as settings of a Spark that has the JVM parts `s3a`."""
        told = {
            "endpoint": self.endpoint,
            "endpoint.region": REGION,
            "access.key": ACCESS_KEY,
            "secret.key": SECRET_KEY,
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in told.items()}

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
        if not self.is_running:
            super().start()
            self._make_buckets()

    def _make_folder(self) -> None:
        super()._make_folder()
        for bucket in self._buckets:
            (self._data / bucket).mkdir(parents=True, exist_ok=True)

    @property
    def _data(self) -> Path:
        return self.folder / "buckets"

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        env = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = self.program.make_command(self._data, ports[0])
        return Child(command, env=env, output=output, grace_seconds=self.grace_seconds)

    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        return is_listening(child, ports[0]) and is_accepting(ports[0])

    def _make_buckets(self) -> None:
        for bucket in self._buckets if self.program.name == "moto" else ():
            request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")  # noqa: S310 - our own address
            with urllib.request.urlopen(request, timeout=_START_SECONDS):  # noqa: S310
                pass
