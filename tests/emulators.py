"""Emulators of Azure's and Google's object stores, on loopback: Azurite, which npm installs, and fake-gcs-server."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from lastgood.lab.cache import explain_cache_errors, hold_exclusively, locate_cache
from lastgood.lab.go import GoProgram
from lastgood.lab.ports import LOOPBACK, is_accepting
from lastgood.lab.s3 import S3ServerError
from lastgood.lab.server import Server, is_listening
from lastgood.process.child import Child

AZURITE_VERSION = "3.35.0"
GCS_VERSION = "1.56.1"
ACCOUNT, CONTAINER, BUCKET = "acme", "lake", "lake"
KEY = base64.b64encode(b"a key that only this machine knows: no secret, but 64 bytes long").decode()
WRONG_KEY = base64.b64encode(b"another key, of nobody at all".ljust(64)).decode()
_INSTALL_SECONDS = 600.0


EmulatorError = S3ServerError
"""Also an object store of the lab; an error class of the tests' own would stand on the product's pages of errors."""


def find_azurite(*, env: Mapping[str, str], cache: Path | None = None) -> list[str]:
    """The command of Azurite, which npm installs once into the cache of the lab.

    Raises:
        EmulatorError: there is no npm or node, or npm could not.
    """
    node, npm = shutil.which("node", path=env.get("PATH")), shutil.which("npm", path=env.get("PATH"))
    folder = locate_cache(cache, env) / "npm" / f"azurite-{AZURITE_VERSION}"
    program = folder / "node_modules/azurite/dist/src/blob/main.js"
    if node is None or (npm is None and not program.exists()):
        raise EmulatorError("there is nothing to serve Azure with", found="no npm", next="install Node.js with npm")
    with explain_cache_errors(folder), hold_exclusively(folder.parent / "lock", on_wait=lambda: None):
        if not program.exists():
            _install(str(npm), folder, env)
    return [node, str(program)]


def _install(npm: str, folder: Path, env: Mapping[str, str]) -> None:
    """Install beside its place and only then put it there: what is there is whole."""
    with tempfile.TemporaryDirectory(prefix="install-", dir=folder.parent) as workspace:
        command = [npm, "install", "--prefix", workspace, "--no-audit", "--no-fund", "--ignore-scripts"]
        package = f"azurite@{AZURITE_VERSION}"
        done = subprocess.run(
            [*command, package], env=dict(env), capture_output=True, text=True, timeout=_INSTALL_SECONDS
        )
        if done.returncode:
            raise EmulatorError("npm cannot install Azurite", found=done.stderr.strip()[-300:], next=f"npm i {package}")
        Path(workspace).rename(folder)
        Path(workspace).mkdir()  # for who removes it


def find_gcs(*, env: Mapping[str, str], cache: Path | None = None) -> Path:
    """fake-gcs-server, which Go builds once into the cache of the lab.

    Raises:
        EmulatorError: there is no Go, or it could not.
    """
    server = GoProgram(
        "github.com/fsouza/fake-gcs-server",
        GCS_VERSION,
        "fake-gcs-server",
        noun="emulator of Google's object store",
        not_built=EmulatorError,
    )
    program = server.built(env=env, cache=cache)
    if program is None:
        raise EmulatorError("there is nothing to serve Google's object store with", found="no Go", next="install Go")
    return program


class _Emulator(Server):
    """It keeps all in memory."""

    not_started = EmulatorError
    grace_seconds = 5.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ports=(None,), start_seconds=60.0)

    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        return is_listening(child, ports[0]) and is_accepting(ports[0])


class Azurite(_Emulator):
    """Azure's object store, with a flat namespace; the account is `acme`, with a container `lake`."""

    noun, log_name = "emulator of Azure", "azurite"
    root = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"

    def __init__(self, folder: Path, command: list[str]) -> None:
        super().__init__(folder)
        self._command = command

    def connection(self, *, port: int | None = None, account: str = ACCOUNT, key: str = KEY) -> str:
        """How its account is reached, in the form in which Azure gives it out; through a proxy if it has a port."""
        endpoint = f"http://{LOOPBACK}:{port or self.port}/{account}"
        return f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};BlobEndpoint={endpoint};"

    def options(self, port: int | None = None) -> dict[str, object]:
        return {"connection_string": self.connection(port=port)}

    def environment(self, port: int | None = None) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection(port=port)}

    def start(self) -> None:
        """Start it, and make its container."""
        if not self.is_running:
            super().start()
            from azure.storage.blob import BlobServiceClient

            with BlobServiceClient.from_connection_string(self.connection()) as client:
                client.create_container(CONTAINER).close()

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        env = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY};other:{KEY}"}
        told = ("--silent", "--disableTelemetry", "--inMemoryPersistence", "--skipApiVersionCheck")
        command = [*self._command, *told, "--blobHost", LOOPBACK, "--blobPort", str(ports[0])]
        return Child(command, env=env, output=output, cwd=self.folder, grace_seconds=self.grace_seconds)


class FakeGcs(_Emulator):
    """Google's object store, with a bucket `lake`; it lets everybody in."""

    noun, log_name = "emulator of Google's object store", "gcs"
    root = f"gs://{BUCKET}"

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__(folder)
        self._program = program

    def options(self, port: int | None = None) -> dict[str, object]:
        return {"endpoint_url": f"http://{LOOPBACK}:{port or self.port}", "token": "anon"}

    def environment(self, port: int | None = None) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"http://{LOOPBACK}:{port or self.port}"}

    def start(self) -> None:
        """Start it, and make its bucket."""
        if not self.is_running:
            super().start()
            request = urllib.request.Request(
                f"http://{LOOPBACK}:{self.port}/storage/v1/b",
                data=json.dumps({"name": BUCKET}).encode(),
                headers={"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=30).close()

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        at = ("-host", LOOPBACK, "-port", str(ports[0]), "-public-host", f"{LOOPBACK}:{ports[0]}")
        command = [str(self._program), "-backend", "memory", "-scheme", "http", "-log-level", "warn", *at]
        return Child(command, output=output, cwd=self.folder, grace_seconds=self.grace_seconds)
