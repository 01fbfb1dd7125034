"""A server on the loopback interface: it answers what real cluster managers do not answer on demand."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lastgood.lab.ports import LOOPBACK

Answer = tuple[int, bytes]
"""Status and body; of a redirection, where to."""

SENSELESS = (b"", b"<html>Log in</html>", b"null", b"[]", b"7", b'"dead"', b"{}", b'{"apps": 7}', b'{"items": null}')
REFUSALS = (401, 403, 404, 500, 503)
_REDIRECTION = 307


def body(value: object) -> Answer:
    return 200, json.dumps(value).encode()


@dataclass
class Server:
    """Answers by path; whatever it has no answer for is not found."""

    answers: dict[str, Answer] = field(default_factory=dict)
    cuts: bool = False
    """Whether its answers end before they should."""

    def __post_init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = server.answers.get(self.path, (404, b""))
                self.send_response(status)
                if status == _REDIRECTION:
                    self.send_header("Location", content.decode())
                self.send_header("Content-Length", str(len(content) + server.cuts))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._http = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def falling_silent() -> Iterator[str]:
    """The address of a server that accepts, and never answers."""
    with closing(socket.create_server((LOOPBACK, 0))) as waiting:
        yield f"http://{LOOPBACK}:{waiting.getsockname()[1]}"
