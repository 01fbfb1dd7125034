"""Real services as fixtures, each started once per session; loaded by `conftest.py`.

What this machine lacks (a Java, the network) skips a person's tests with a reason, and fails where `CI` is set.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from emulators import Azurite, EmulatorError, FakeGcs, find_azurite, find_gcs

from lastgood.demo import set_up
from lastgood.lab.class_archive import make_class_archive
from lastgood.lab.hdfs import HdfsCluster
from lastgood.lab.jars import JarsUnavailableError, fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.s3 import S3Program, S3Server, S3ServerError, find_s3
from lastgood.lab.spark import SparkEnvironment, SparkUnavailableError, find_default_spark, provide_spark
from lastgood.lab.toxiproxy import Toxiproxy, ToxiproxyError, find_toxiproxy
from lastgood.process.java import Java, JavaMissingError, find_java
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage, open_writable, require_exclusive_create
from lastgood.supervise.class_archives import CLASSES_JOB


def require_service(reason: str) -> NoReturn:
    """Skip the test; fail it where `CI` is set."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def java() -> Java:
    """The Java of this machine."""
    try:
        return find_java(os.environ)
    except JavaMissingError as error:
        require_service(f"{error}: {error.found}")


def _jars(name: str, java: Java) -> tuple[Path, ...]:
    try:
        return fetch_jars([name], java=java)[name]
    except JarsUnavailableError as error:
        require_service(f"{error}: {error.found}")


@pytest.fixture(scope="session")
def spark_jars() -> tuple[Path, ...]:
    """Kafka's source and Delta for the default Spark, which starts faster from now on, also without them."""
    try:
        parts = set_up()
        make_class_archive(CLASSES_JOB, environment=find_default_spark(), java=parts.java)
        return parts.jars["spark"]
    except (JavaMissingError, JarsUnavailableError) as error:
        require_service(f"{error}: {error.found}")


@pytest.fixture(scope="session")
def s3a_jars(java: Java) -> tuple[Path, ...]:
    """S3 for the default Spark."""
    return _jars("s3a", java)


@pytest.fixture(scope="session")
def broker_jars(java: Java) -> tuple[Path, ...]:
    """What a Kafka broker consists of."""
    return _jars("broker", java)


@pytest.fixture(scope="session")
def broker(
    java: Java,
    broker_jars: tuple[Path, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KafkaBroker]:
    """A broker for all tests of a session that leave it running; use `topic` for a name of your own."""
    folder = tmp_path_factory.mktemp("broker")
    with KafkaBroker(folder, java=java, jars=broker_jars, start_seconds=300) as running:
        yield running


@pytest.fixture(scope="session")
def hdfs_jars(java: Java) -> tuple[Path, ...]:
    """What an HDFS consists of."""
    return _jars("hdfs", java)


@pytest.fixture(scope="session")
def hdfs(
    java: Java,
    hdfs_jars: tuple[Path, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HdfsCluster]:
    """An HDFS for all tests of a session that leave it running; use a folder of your own."""
    with HdfsCluster(tmp_path_factory.mktemp("hdfs"), java=java, jars=hdfs_jars, start_seconds=300) as running:
        yield running


@pytest.fixture(scope="session")
def s3_program() -> S3Program:
    """The S3 server that this machine has."""
    try:
        return find_s3(env=os.environ)
    except S3ServerError as error:
        require_service(f"{error}: {error.found}")


@pytest.fixture(scope="session")
def s3(s3_program: S3Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server for all tests of a session; its bucket is `lake`, use a folder of your own."""
    with S3Server(tmp_path_factory.mktemp("s3"), s3_program) as running:
        yield running


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """An emulator of Azure's object store for all tests of a session; use a folder of your own."""
    try:
        program = find_azurite(env=os.environ)
    except EmulatorError as error:
        require_service(f"{error}: {error.found}; {error.next}")
    with Azurite(tmp_path_factory.mktemp("azure"), program) as running:
        yield running


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """An emulator of Google's object store for all tests of a session; use a folder of your own."""
    try:
        program = find_gcs(env=os.environ)
    except EmulatorError as error:
        require_service(f"{error}: {error.found}; {error.next}")
    with FakeGcs(tmp_path_factory.mktemp("gcs"), program) as running:
        yield running


FAR = [pytest.param(kind, marks=pytest.mark.proof) for kind in ("hdfs", "azure", "gcs")]
"""They take their time, so `make proof` goes there."""


@pytest.fixture(params=["local", "s3", *FAR])
def new_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], tuple[WritableStorage, Location]]:
    """Gives folders that nobody else has, on each kind of storage that can be repaired."""
    options = None
    if request.param == "local":
        root = str(tmp_path)
    elif request.param == "s3":
        root, options = "s3a://lake", request.getfixturevalue("s3").options
    elif request.param in ("azure", "gcs"):
        emulator: Azurite | FakeGcs = request.getfixturevalue(request.param)
        root, options = emulator.root, emulator.options()
    else:
        cluster = request.getfixturevalue("hdfs")
        root, options = f"{cluster.uri}/lake", cluster.options

    def new() -> tuple[WritableStorage, Location]:
        folder = parse_location(f"{root}/{uuid.uuid4().hex}")
        storage = open_writable(folder, options)
        require_exclusive_create(storage, folder)
        return storage, folder

    return new


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    """A proxy server for all tests of a session; `topic` gives a proxy a name of its own."""
    try:
        program = find_toxiproxy(env=os.environ)
    except ToxiproxyError as error:
        require_service(f"{error}: {error.found}")
    with Toxiproxy(tmp_path_factory.mktemp("toxiproxy"), program) as running:
        yield running


@pytest.fixture
def silent() -> Iterator[int]:
    """A port on which somebody accepts connections and never says a word."""
    with socket.create_server((LOOPBACK, 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[int]:
    """A port on which a web server answers that knows nothing of storages."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", LOOPBACK, "0", "--directory", str(tmp_path)]
    with subprocess.Popen([*command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline().split(" port ")[1].split()[0])
        process.kill()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; the topic is not created."""
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', request.node.name)[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark_of() -> Callable[[str], SparkEnvironment]:
    """Gives the Spark of a version, in an environment of its own if it is not the installed one."""

    def of(version: str) -> SparkEnvironment:
        try:
            return provide_spark(version)
        except SparkUnavailableError as error:
            require_service(f"{error}: {error.found}")

    return of
