"""A real HDFS on this machine: one name node and one data node in a JVM on loopback, that ends with its owner."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree as ET

from lastgood.errors import LastgoodError, Retry
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.server import JavaServer, is_listening
from lastgood.process.child import Child
from lastgood.process.java import Java

SUPERUSER = "lastgood"
"""Who may do everything there; anybody else is bound to the permissions of files and folders."""

_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_LOOK_SECONDS = 5.0
_ESCAPED = re.compile(r'[\s%"<>\\^`{|}?#\[\]]')

_SETTINGS = {
    "dfs.replication": "1",
    # What Hadoop has written survives our SIGKILL without reaching the disk: only the machine's own end would lose it.
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    # By default a restarted name node refuses to write for 30 s after it has seen all blocks.
    "dfs.namenode.safemode.extension": "0",
    # By default 0.999 of the blocks, rounded down, are enough to leave safe mode: of a few, that is all but one.
    "dfs.namenode.safemode.threshold-pct": "1",
    # By default the data node asks every 3 s whether a restarted name node is there.
    "dfs.heartbeat.interval": "1",
}


class HdfsStartError(LastgoodError):
    """The HDFS of the lab does not come up."""

    condition = "HDFS_NOT_STARTED"
    exit_code = 17
    retry = Retry.AFTER_CHANGE


class HdfsCluster(JavaServer):
    """One name node and one data node, with their data in a folder; started, stopped, killed and restarted at will.

    Everything that was closed survives `stop` and `kill`. The ports of the name node stay the same as long as this
    object lives. Use it as a context manager, or call `stop` in the end; should we be killed, it ends too.

    Example::

        jars = fetch_jars(["hdfs"], java=java)
        with HdfsCluster(Path("hdfs"), java=java, jars=jars["hdfs"]) as hdfs:
            open_storage(parse_location(f"{hdfs.webhdfs}/chk"), hdfs.options)
    """

    noun = "HDFS"
    not_started = HdfsStartError
    log_name = "hdfs"
    grace_seconds = 10.0
    shared = (
        *("hadoop-client-api-", "hadoop-client-runtime-", "jcl-over-slf4j-", "log4j-1.2-api-2."),
        *("commons-cli-", "commons-io-", "commons-lang3-"),
        *("jackson-core-2.", "jackson-databind-2.", "jackson-annotations-2."),
        *("slf4j-api-2.", "log4j-api-2.", "log4j-core-2.", "log4j-slf4j2-impl-2."),
    )

    def __init__(
        self,
        folder: Path,
        *,
        java: Java,
        jars: Sequence[Path],
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        start_seconds: float = 120.0,
    ) -> None:
        """Describe an HDFS; nothing is started.

        Args:
            folder: For its data and log; created, or used again with the data that it holds.
            java: What it runs on.
            jars: The set `hdfs` of `fetch_jars`.
            port: Where the name node listens for Hadoop's own clients; a free one if None.
            config: Hadoop's settings beside and above ours.
            start_seconds: How long it may take to be ready.
        """
        super().__init__(folder, java=java, jars=jars, ports=(port, None), start_seconds=start_seconds)
        self._config = dict(config or {})

    @property
    def uri(self) -> str:
        """The root as Spark names it: `hdfs://127.0.0.1:20100`.

        Raises:
            RuntimeError: it has not been started, and no port was asked for.
        """
        return f"hdfs://{LOOPBACK}:{self.port}"

    @property
    def http_port(self) -> int:
        """Where the name node serves WebHDFS.

        Raises:
            RuntimeError: it has not been started.
        """
        return self._port(1)

    @property
    def webhdfs(self) -> str:
        """The root as it is reached without Hadoop: `webhdfs://127.0.0.1:20101`.

        Raises:
            RuntimeError: it has not been started.
        """
        return f"webhdfs://{LOOPBACK}:{self.http_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What Spark and lastgood need in their environment to know it and to be its superuser."""
        return {"HADOOP_CONF_DIR": str(self._conf), "HADOOP_USER_NAME": SUPERUSER}

    @property
    def options(self) -> dict[str, object]:
        """The same as options of `open_storage`."""
        return {"user": SUPERUSER, "port": self.http_port}

    @property
    def _conf(self) -> Path:
        return self.folder / "conf"

    def _make_folder(self) -> None:
        super()._make_folder()
        self._conf.mkdir(exist_ok=True)

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        if escaped := _ESCAPED.search(str(self.folder)):
            raise HdfsStartError(
                "HDFS cannot keep its data in a folder of such a name",
                subject=str(self.folder),
                found=f"{escaped[0]!r} in its path",
                expected="a path that is the same as a URI: Hadoop trips over %20",
            )
        rpc, http = ports
        data = self.folder / "data"
        told = {
            "dfs.namenode.rpc-address": f"{LOOPBACK}:{rpc}",
            "dfs.namenode.http-address": f"{LOOPBACK}:{http}",
            "dfs.replication": _SETTINGS["dfs.replication"],
        }
        (self._conf / "hdfs-site.xml").write_text(_format_xml(told))
        (self._conf / "core-site.xml").write_text(_format_xml({"fs.defaultFS": f"hdfs://{LOOPBACK}:{rpc}"}))
        settings = {
            "hdfs.minidfs.basedir": str(data),
            "hadoop.tmp.dir": str(self.folder / "tmp"),
            **_SETTINGS,
            **self._config,
        }
        command = self._java_command(
            f"-DHADOOP_USER_NAME={SUPERUSER}",
            _MAIN,
            *("-nomr", "-datanodes", "1", "-nnport", str(rpc), "-nnhttpport", str(http)),
            *(() if any(data.glob("name-*/current/VERSION")) else ("-format",)),
            *(word for name, value in settings.items() for word in ("-D", f"{name}={value}")),
        )
        return Child(command, output=output, cwd=self.folder, grace_seconds=self.grace_seconds)

    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        """Whether it can be read and written: the data node is there, and has reported every block of every file."""
        _, http = ports
        if not is_listening(child, http):
            return False
        state = _ask_facts(http, "FSNamesystemState")
        return state.get("FSState") == "Operational" and state.get("NumLiveDataNodes") == 1


def _format_xml(settings: Mapping[str, str]) -> str:
    """Settings as a file of Hadoop."""
    root = ET.Element("configuration")
    for name, value in settings.items():
        each = ET.SubElement(root, "property")
        ET.SubElement(each, "name").text = name
        ET.SubElement(each, "value").text = value
    return ET.tostring(root, encoding="unicode")


def _ask_facts(http_port: int, bean: str) -> dict[str, Any]:
    """What the name node tells of itself; nothing while it comes up."""
    address = f"http://{LOOPBACK}:{http_port}/jmx?qry=Hadoop:service=NameNode,name={bean}"
    try:
        with urllib.request.urlopen(address, timeout=_LOOK_SECONDS) as answer:
            beans: list[dict[str, Any]] = json.load(answer)["beans"]
    except (OSError, ValueError, KeyError):
        return {}
    if not beans:
        return {}
    return beans[0]
