"""A real proxy with real faults in front of a service of the lab: latency, resets, answers that break off.

Toxiproxy, which Go builds once. What is wrong with connections is a toxic; it counts for those that are open too.
"""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import IO, Any

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.lab.go import GoProgram
from lastgood.lab.ports import LOOPBACK, is_accepting
from lastgood.lab.server import Server, is_listening
from lastgood.process.child import Child

VERSION = "2.5.0"

_START_SECONDS = 30.0
_ANSWER_SECONDS = 10.0


class ToxiproxyError(LastgoodError):
    """The proxy of the lab cannot be built, does not come up, or does not do what it is told."""

    condition = "TOXIPROXY_FAILED"
    exit_code = 18
    retry = Retry.AFTER_CHANGE


_PROGRAM = GoProgram(
    "github.com/Shopify/toxiproxy/v2/cmd/server", VERSION, "toxiproxy", noun="proxy", not_built=ToxiproxyError
)


def find_toxiproxy(
    *, env: Mapping[str, str], cache: Path | None = None, progress: Callable[[str], None] | None = None
) -> Path:
    """The program, built if that has not been done yet (a minute).

    Args:
        env: Where `go` is looked for, and what it is built with; `LASTGOOD_CACHE` names the cache.
        cache: Another folder for what is built.
        progress: Is told, in a few words, what takes time.

    Raises:
        ToxiproxyError: it cannot be built, or there is no Go.
        StorageError: the cache cannot be read or written.
    """
    program = _PROGRAM.built(env=env, cache=cache, progress=progress)
    if program is None:
        raise ToxiproxyError(
            "there is nothing to build the proxy with", found="no Go", expected="Go", next="install Go"
        )
    return program


@dataclass(frozen=True, slots=True)
class Toxic:
    """One thing that is wrong with connections."""

    kind: str
    """Toxiproxy's name of it: `latency`, `reset_peer`, `limit_data`, `timeout`, `bandwidth`, `slicer`, `slow_close`."""
    attributes: Mapping[str, int] = field(default_factory=dict)
    """As Toxiproxy has them: `latency` and `timeout` in milliseconds, `bytes`, …"""
    upstream: bool = False
    """Whether it is on the way to the service, not on the way back."""
    toxicity: float = 1.0
    """Which part of the connections has it."""

    def to_json(self, name: str) -> dict[str, Any]:
        """The object that Toxiproxy takes."""
        stream = "upstream" if self.upstream else "downstream"
        return {
            "name": name,
            "type": self.kind,
            "stream": stream,
            "toxicity": self.toxicity,
            "attributes": dict(self.attributes),
        }


class Toxiproxy(Server):
    """A proxy server; each service gets a proxy of its own. Use it as a context manager, or call `stop` in the end.

    Should we be killed, it ends too. After a restart it knows no proxy any more.

    Example::

        with Toxiproxy(Path("toxiproxy"), find_toxiproxy(env=os.environ)) as server:
            proxy = server.proxy("s3", s3.port)
            with proxy.poisoned(Toxic("latency", {"latency": 50})):
                open_storage(location, {**s3.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"})
    """

    noun = "proxy"
    not_started = ToxiproxyError
    log_name = "toxiproxy"
    grace_seconds = 5.0

    def __init__(self, folder: Path, program: Path, *, port: int | None = None) -> None:
        """Describe a server; nothing is started.

        Args:
            folder: For its log.
            program: From `find_toxiproxy`.
            port: Where it takes commands; a free one if None.
        """
        super().__init__(folder, ports=(port,), start_seconds=_START_SECONDS)
        self._program = program

    def proxy(self, name: str, upstream: int, *, listen: str = f"{LOOPBACK}:0") -> ToxicProxy:
        """Stand in front of a port on loopback; passes everything on until something is wrong with it.

        Args:
            name: Of the proxy; no two have the same.
            upstream: The port of the service.
            listen: Where clients connect: an address of loopback with its port, 0 for a free one.

        Raises:
            ToxiproxyError: it cannot listen there, or there is a proxy of that name.
        """
        asked = {"name": name, "listen": listen, "upstream": f"{LOOPBACK}:{upstream}", "enabled": True}
        host, _, port = str(self._ask("POST", "/proxies", asked)["listen"]).rpartition(":")
        return ToxicProxy(host, int(port), lambda method, path, body: self._ask(method, f"/proxies/{name}{path}", body))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        address = f"http://{LOOPBACK}:{self.port}{path}"
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
        request = urllib.request.Request(address, raw, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - our own
                told: dict[str, Any] = json.loads(answer.read() or b"{}")
                return told
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError):
                said = error.read().decode(errors="replace")
            else:
                said = ""
            raise ToxiproxyError(
                f"the proxy does not do {method} {path}", subject=address, found=said.strip() or str(error)
            ) from error

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        command = [str(self._program), "-host", LOOPBACK, "-port", str(ports[0])]
        return Child(command, env=dict(os.environ), output=output, grace_seconds=self.grace_seconds)

    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        return is_listening(child, ports[0]) and is_accepting(ports[0])


class ToxicProxy:
    """One proxy. `Toxiproxy.proxy` gives it."""

    def __init__(
        self, host: str, port: int, ask: Callable[[str, str, Mapping[str, Any] | None], Mapping[str, Any]]
    ) -> None:
        """Know where it listens, and how to speak of it."""
        self.host = host
        self.port = port
        """Where clients connect."""
        self._ask = ask
        self._made = 0

    @contextlib.contextmanager
    def poisoned(self, *toxics: Toxic) -> Iterator[None]:
        """Something is wrong with its connections while the block runs.

        Raises:
            ToxiproxyError: Toxiproxy knows no such toxic, or does not answer.
        """
        with contextlib.ExitStack() as stack:
            for toxic in toxics:
                self._made += 1
                name = f"{toxic.kind}-{self._made}"
                self._ask("POST", "/toxics", toxic.to_json(name))
                stack.callback(self._ask, "DELETE", f"/toxics/{name}", None)
            yield

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens there while the block runs, and connections that were open are closed.

        Raises:
            ToxiproxyError: Toxiproxy does not answer.
        """
        self._ask("POST", "", {"enabled": False})
        try:
            yield
        finally:
            self._ask("POST", "", {"enabled": True})
