"""Storages behind a network that delays, resets and cuts, and what lastgood says from the other end of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lastgood.lab.hdfs import SUPERUSER, HdfsCluster
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.s3 import S3Server
from lastgood.lab.toxiproxy import Toxic, ToxicProxy, Toxiproxy

LASTGOOD = Path(sys.executable).parent / "lastgood"
LATENCY_MS = 50
ATTEMPTS = 6
"""In bad weather; then comes one with nothing but latency."""
VERB_SECONDS = 300
KINDS = ("reset_peer", "limit_data", "timeout")
QUICK = KINDS[:2]
"""Those that are known at once."""
UNREACHED = frozenset({"STORAGE_UNAVAILABLE"})


@dataclass(frozen=True)
class Far:
    """A storage, and the road to it."""

    root: str
    options: Mapping[str, Any]
    """To reach it without the proxies."""
    env: Mapping[str, str]
    """To reach it through them."""
    proxies: Sequence[ToxicProxy]


def far_s3(s3: S3Server, toxiproxy: Toxiproxy) -> Far:
    """An S3 server behind a proxy."""
    proxy = toxiproxy.proxy(f"s3-{uuid.uuid4().hex}", s3.port)
    env = {**s3.environment, "AWS_ENDPOINT_URL": f"http://{proxy.host}:{proxy.port}"}
    return Far("s3a://lake", s3.options, env, [proxy])


def far_hdfs(hdfs: HdfsCluster, toxiproxy: Toxiproxy, conf: Path) -> Far:
    """An HDFS with proxies before its name node and its data node.

    Args:
        hdfs: Runs.
        toxiproxy: Runs.
        conf: An empty folder, for the settings of clients that know it by its proxies.
    """
    port = _data_port(hdfs)
    names = toxiproxy.proxy(f"names-{uuid.uuid4().hex}", hdfs.http_port)
    data = toxiproxy.proxy(f"data-{uuid.uuid4().hex}", port)
    way = {f"http://{LOOPBACK}:{port}": f"http://{LOOPBACK}:{data.port}"}
    for file in Path(hdfs.environment["HADOOP_CONF_DIR"]).iterdir():
        (conf / file.name).write_text(file.read_text().replace(f":{hdfs.http_port}<", f":{names.port}<"))
    env = {**hdfs.environment, "HADOOP_CONF_DIR": str(conf), "FSSPEC_WEBHDFS": json.dumps({"data_proxy": way})}
    return Far(f"{hdfs.uri}/lake", hdfs.options, env, [names, data])


def _data_port(hdfs: HdfsCluster) -> int:
    """Where its data node serves what the name node sends clients there for."""
    address = f"http://{LOOPBACK}:{hdfs.http_port}/webhdfs/v1/probe?op=CREATE&noredirect=true&user.name={SUPERUSER}"
    request = urllib.request.Request(address, method="PUT")
    with urllib.request.urlopen(request, timeout=VERB_SECONDS) as answer:
        port = urlsplit(json.load(answer)["Location"]).port
    assert port is not None
    return port


def weather(rng: random.Random, kinds: Sequence[str] = KINDS) -> Toxic:
    """What is wrong with some of the connections."""
    toxicity = rng.choice((0.03, 0.1, 0.3))
    upstream = rng.random() < 0.5
    match rng.choice(kinds):
        case "reset_peer":
            return Toxic("reset_peer", {"timeout": rng.randrange(200)}, upstream, toxicity)
        case "limit_data":
            return Toxic("limit_data", {"bytes": rng.randrange(50, 3000)}, upstream, toxicity)
        case _:
            return Toxic("timeout", {"timeout": rng.choice((0, 100, 1000))}, upstream, toxicity)


@dataclass(frozen=True)
class Said:
    """How a verb ended."""

    code: int
    condition: str | None
    """Of its error."""
    output: str


@dataclass(frozen=True)
class Traveller:
    """A person who has nothing but that road, and a folder."""

    far: Far
    folder: Path

    def says(self, *words: str, toxics: Sequence[Toxic] = ()) -> Said:
        """A verb in a process of its own, through latency and what else is wrong."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        with ExitStack() as stack:
            for proxy in self.far.proxies:
                stack.enter_context(proxy.poisoned(Toxic("latency", {"latency": LATENCY_MS}), *toxics))
            done = subprocess.run(
                [LASTGOOD, *words, "--format=json"],
                env={**env, **self.far.env},
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=VERB_SECONDS,
            )
        assert "Traceback" not in done.stderr, done.stderr
        condition = json.loads(done.stdout)["error"]["condition"] if done.returncode else None
        return Said(done.returncode, condition, done.stdout + done.stderr)

    def does(self, rng: random.Random, *words: str, kinds: Sequence[str] = KINDS) -> list[Toxic]:
        """Try a verb in bad weather until it is done; the weather of the attempts that were not."""
        failed: list[Toxic] = []
        for attempt in range(ATTEMPTS + 1):
            toxics = [weather(rng, kinds)] if attempt < ATTEMPTS else []
            said = self.says(*words, toxics=toxics)
            if said.code == 0:
                break
            assert toxics, said
            assert said.condition in UNREACHED, (toxics, said)
            failed += toxics
        return failed
