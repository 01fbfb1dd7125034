"""Google's object store by gcsfs, and what gcsfs lacks to be relied upon.

gcsfs finds the credentials and knows the questions. How long each is asked, and what an answer means, is decided here:
gcsfs itself asks for half a minute, writes tracebacks meanwhile, and takes every 404 for "there is none".
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from fsspec.asyn import sync_wrapper
from gcsfs.core import GCSFileSystem
from google.auth.exceptions import GoogleAuthError, TransportError

from lastgood.storage.limits import CONNECT_SECONDS, READ_SECONDS, OddAnswerError, estimate_send_seconds

# What they log is in the error, too; without a handler Python would write it to standard error.
for _library in ("gcsfs", "google"):
    logging.getLogger(_library).addHandler(logging.NullHandler())

_ATTEMPTS, _PAUSE_SECONDS = 2, 0.5
_BUSY = frozenset({408, 429, 500, 502, 503, 504})


class BoundedGcs(GCSFileSystem):  # type: ignore[misc]  # gcsfs has no types
    """Google as gcsfs reaches it, which gives up on who does not answer, and doubts odd answers.

    Of gcsfs it is the one that speaks HTTP: the other one first asks by gRPC of which kind a bucket is, elsewhere.
    """

    async def _call(  # the one road of gcsfs to the service
        self, method: str, path: str, *args: str, json_out: bool = False, info_out: bool = False, **more: Any
    ) -> Any:
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE_SECONDS)
            try:
                answer, content = await self._asked(method, path, *args, **more)
            except (aiohttp.ClientError, TimeoutError, TransportError) as error:
                failure = ConnectionError(f"{type(error).__name__}: {error}")
                failure.__cause__ = error
                continue
            except GoogleAuthError as error:
                raise PermissionError(str(error)) from error
            if answer.status not in _BUSY:
                is_content = method == "GET" and not json_out
                _check(answer.status, answer.headers, content, wants_json=json_out, is_content=is_content)
                if json_out:
                    return json.loads(content)
                if info_out:
                    return answer.request_info
                return (answer.headers, content)
            failure = ConnectionError(f"Google answers {answer.status}")
        raise failure

    async def _asked(
        self, method: str, path: str, *args: str, headers: Any = None, data: Any = None, **more: Any
    ) -> tuple[Any, bytes]:
        if path.startswith("http"):
            url = path
        else:
            url = self.base + path
        if args:
            url = url.format(*(quote(arg, safe="") for arg in args))
        for name in ("cache_type", "cache_source"):  # for statistics of gcsfs
            more.pop(name, None)
        told_json = more.pop("json", None)
        told = dict(headers or {})
        self.credentials.apply(told)
        if isinstance(data, (bytes, bytearray, memoryview)):
            body = io.BytesIO(data)
        else:
            body = data
        session = await self._set_session()
        if isinstance(data, (bytes, bytearray, memoryview)):
            size = len(data)
        else:
            size = 0
        limits = aiohttp.ClientTimeout(
            total=estimate_send_seconds(size) if size else None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )
        asking = session.request(
            method, url, params=self._get_params(more), json=told_json, headers=told, data=body, timeout=limits
        )
        async with asking as answer:
            return answer, await answer.read()

    async def _ls(self, path: str, *, detail: bool = False, **more: Any) -> Any:
        listed = await super()._ls(path, detail=True, **more)
        if [each["name"] for each in listed if each["type"] == "file"] == [path.rstrip("/")]:
            raise NotADirectoryError(path)
        if detail:
            return listed
        return [each["name"] for each in listed]

    async def _find(self, path: str, *, detail: bool = False, **_: Any) -> Any:
        objects, _prefixes = await self._do_list_objects(path, delimiter="")
        if detail:
            return {each["name"]: each for each in objects}
        return [each["name"] for each in objects]

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        try:
            return bytes(await super()._cat_file(path, start=start, end=end, **more))
        except FileNotFoundError:
            # Here a 404 has no form by which Google would be known; what is asked for now has one.
            bucket, name, _ = self.split_path(path)
            await self._call("GET", "b/{}/o/{}", bucket, name, json_out=True)
            return bytes(await super()._cat_file(path, start=start, end=end, **more))

    ls, find, cat_file = sync_wrapper(_ls), sync_wrapper(_find), sync_wrapper(_cat_file)


def _check(status: int, headers: Mapping[str, str], content: bytes, *, wants_json: bool, is_content: bool) -> None:
    """Raise what an answer means, as Python calls it; OddAnswerError if it is none of Google's.

    Google's answers are JSON, in which errors and listings have a name; the content of an object has a generation, but
    what Google says where there is no object to give the content of has no form.
    """
    if wants_json or status >= 400:
        told = _parse_told(content)
    else:
        told = {}
    message = str(told.get("message") or f"HTTP {status}")
    if status in (401, 403):
        raise PermissionError(message)
    if status == 412:
        raise FileExistsError(message)
    if status == 404 and (is_content or told.get("code") == 404):
        raise FileNotFoundError(message)
    is_google = not wants_json or str(told.get("kind", "")).startswith("storage#")
    if status == 404 or (status < 400 and not (_has_generation(headers) if is_content else is_google)):
        raise OddAnswerError(f"what answers there is no Google: {status}")
    if status >= 400:
        raise OSError(f"{status}: {message}")


def _has_generation(headers: Mapping[str, str]) -> bool:
    return bool({"x-goog-generation", "x-guploader-uploadid"} & {name.lower() for name in headers})


def _parse_told(content: bytes) -> dict[str, Any]:
    """What JSON says, of an error what stands below that; {} of anything else."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    if isinstance(value, dict):
        value = value.get("error", value)
    else:
        value = {}
    if isinstance(value, dict):
        return value
    return {"message": str(value)}
