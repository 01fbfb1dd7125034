"""Azure's object store by adlfs, and what adlfs lacks to be relied upon.

adlfs finds the credentials. What is asked with them is asked here, once a question: adlfs itself waits for minutes,
takes every 404 for "there is none", and reads `?` and `#` in a name as something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from adlfs import AzureBlobFileSystem
from azure.core import exceptions as azure
from azure.core.credentials import AzureSasCredential
from azure.storage.blob.aio import BlobServiceClient, LinearRetry
from fsspec.asyn import sync_wrapper

from lastgood.storage.clouds import make_account_mismatch_error, require_account
from lastgood.storage.limits import CONNECT_SECONDS, READ_SECONDS, OddAnswerError, estimate_send_seconds

# What it logs is in the error, too; without a handler Python would write it to standard error.
logging.getLogger("azure").addHandler(logging.NullHandler())

_EXISTS = frozenset({"BlobAlreadyExists", "ConditionNotMet"})
_COPY_LOOKS, _COPY_LOOK_SECONDS = 240, 0.5


class BoundedAzure(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs has no types
    """Azure as adlfs reaches it, which gives up on who does not answer, and doubts odd answers."""

    def do_connect(self) -> None:
        """Make the client; a connection string counts above all else, as with adlfs."""
        self.service_client = _make_client(self)

    def split_path(self, path: str, *_: Any, **__: Any) -> tuple[str, str, None]:
        """Container and name: whatever follows the first slash is a name."""
        container, _slash, name = path.lstrip("/").partition("/")
        return container, name, None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def _blob(self, path: str) -> Any:
        container, name = self.split_path(path)[:2]
        return self.service_client.get_blob_client(container, name)

    async def _listed(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        """What lies below a folder, and the empty blob that may mark the folder itself."""
        container, name = self.split_path(path)[:2]
        client = self.service_client.get_container_client(container)
        told = {"name_starts_with": f"{name}/" if name else None, "include": ["metadata"]}
        with _translate_errors():
            if deep:
                blobs = client.list_blobs(**told)
            else:
                blobs = client.walk_blobs(**told, delimiter="/")
            return [_make_entry(container, blob) async for blob in blobs]

    async def _ls(self, path: str, *_: Any, **__: Any) -> list[dict[str, Any]]:
        listed = await self._listed(path, deep=False)
        if not listed and self.split_path(path)[1]:
            await self._require_folder(path)
        files = {each["name"]: each for each in listed if each["type"] != "directory"}
        # With a hierarchical namespace a folder comes twice: as the begin of names, and as what marks it.
        return [*{**files, **{each["name"]: each for each in listed if each["type"] == "directory"}}.values()]

    async def _require_folder(self, path: str) -> None:
        """See that a blob of this name marks an empty folder, where no name begins with it."""
        container = self.split_path(path)[0]
        with _translate_errors():
            found = _make_entry(container, await self._blob(path).get_blob_properties())
        if found["type"] != "directory":
            raise NotADirectoryError(path)

    async def _find(self, path: str, *_: Any, **__: Any) -> dict[str, dict[str, Any]]:
        try:
            listed = await self._listed(path, deep=True)
        except FileNotFoundError:
            return {}
        return {each["name"]: each for each in listed if each["type"] != "directory"}

    async def _info(self, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        container, name = self.split_path(path)[:2]
        if name:
            with contextlib.suppress(FileNotFoundError), _translate_errors():
                return _make_entry(container, await self._blob(path).get_blob_properties())
        client = self.service_client.get_container_client(container)
        with _translate_errors():
            async for _found in client.list_blobs(name_starts_with=f"{name}/" if name else None, results_per_page=1):
                return {"name": path, "size": None, "type": "directory"}
        raise FileNotFoundError(path)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        with _translate_errors():
            length = None
            if end is not None:
                length = end - (start or 0)
            stream = await self._blob(path).download_blob(offset=start or 0, length=length)
            return bytes(await stream.readall())

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", metadata: Mapping[str, str] | None = None, **_: Any
    ) -> None:
        """Put a blob; with mode `create`, FileExistsError if there is one already: the service decides."""
        put = self._blob(path).upload_blob(
            data=bytes(value),
            overwrite=mode != "create",
            metadata={"is_directory": "false", **(metadata or {})},
        )
        with _translate_errors():
            await asyncio.wait_for(put, estimate_send_seconds(len(value)))

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a blob within the account, and wait until the service has done so."""
        target = self._blob(path2)
        with _translate_errors():
            state = (await target.start_copy_from_url(self._blob(path1).url))["copy_status"]
            for _look in range(_COPY_LOOKS):
                if state != "pending":
                    break
                await asyncio.sleep(_COPY_LOOK_SECONDS)
                state = (await target.get_blob_properties()).copy.status
        if state != "success":
            raise ConnectionError(f"a copy within Azure has not ended: {state}")

    async def _rm_file(self, path: str, **_: Any) -> None:
        with _translate_errors():
            await self._blob(path).delete_blob()

    ls, find, info = sync_wrapper(_ls), sync_wrapper(_find), sync_wrapper(_info)
    cat_file, pipe_file = sync_wrapper(_cat_file), sync_wrapper(_pipe_file)
    cp_file, rm_file = sync_wrapper(_cp_file), sync_wrapper(_rm_file)


def _make_client(told: Any) -> Any:
    """A client for what adlfs was told, and found in the environment; it asks twice and then gives up."""
    how: dict[str, Any] = {
        "retry_policy": LinearRetry(backoff=0, retry_total=1, random_jitter_range=0),
        "connection_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "raw_response_hook": _refuse_odd_answer,
    }
    host = getattr(told, "account_host", None) or f"{told.account_name}.blob.core.windows.net"
    if told.account_name and told.account_name != host.partition(".")[0]:
        raise make_account_mismatch_error(f"the account {told.account_name}", host)
    if told.connection_string is not None:
        require_account(told.connection_string, host)
        return BlobServiceClient.from_connection_string(told.connection_string, **how)
    sas = None
    if told.sas_token:
        sas = AzureSasCredential(told.sas_token.lstrip("?"))
    return BlobServiceClient(f"https://{host}", credential=told.credential or told.account_key or sas, **how)


def _refuse_odd_answer(response: Any) -> None:
    """Refuse what no Azure has answered: each answer of Azure bears the number of its request."""
    answer = response.http_response
    if "x-ms-request-id" not in answer.headers:
        raise OddAnswerError(f"what answers there is no Azure: {answer.status_code}")


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn what Azure's library raises into what Python calls it."""
    try:
        yield
    except azure.ResourceNotFoundError as error:
        raise FileNotFoundError(_take_sentence(error)) from error
    except (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError) as error:
        raise ConnectionError(_take_sentence(error)) from error
    except azure.HttpResponseError as error:
        if str(getattr(error, "error_code", None)).rpartition(".")[2] in _EXISTS:
            raise FileExistsError(_take_sentence(error)) from error
        if isinstance(error, azure.ClientAuthenticationError) or error.status_code in (401, 403):
            raise PermissionError(_take_sentence(error)) from error
        raise


def _take_sentence(error: Exception) -> str:
    return re.split(r"[\r\n]", str(error), maxsplit=1)[0]


def _make_entry(container: str, blob: Any) -> dict[str, Any]:
    """What Azure tells of a blob, or of what the names of several begin with, as fsspec tells it."""
    marks = {name.lower(): value for name, value in (blob.get("metadata") or {}).items()}
    is_folder = blob.name.endswith("/") or "true" in (marks.get("hdi_isfolder"), marks.get("is_directory"))
    entry: dict[str, Any] = {
        "name": f"{container}/{blob.name}".rstrip("/"),
        "type": "directory",
        "size": None,
        "last_modified": None,
        "metadata": marks,
    }
    if not is_folder:
        entry |= {"type": "file", "size": blob.size, "last_modified": blob.last_modified}
    return entry
