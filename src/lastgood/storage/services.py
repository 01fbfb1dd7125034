"""What object stores need beside fsspec's own filesystems: an end to the waiting, and doubt about odd answers.

Nothing here imports a service's library before a location on it is opened.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import sys
from collections.abc import Mapping
from typing import Any

from lastgood.storage.clouds import make_azure_settings, make_gcs_settings
from lastgood.storage.limits import CONNECT_SECONDS, READ_SECONDS, OddAnswerError, estimate_send_seconds

_LISTING_FIELDS = frozenset({"Name", "KeyCount", "IsTruncated", "Prefix"})


def make_s3_settings(env: Mapping[str, str], configured: Mapping[str, Any], *, requests: int) -> dict[str, Any]:
    """How to talk to S3, beside what AWS's own variables and files say of endpoint, region and keys.

    An endpoint that is not there is known within ten seconds.

    Args:
        env: Where `AWS_REGION` may stand, which botocore does not know; the newer tools know only that.
        configured: What the user has told fsspec of S3.
        requests: How many there may be at once.
    """
    ours = {
        "max_pool_connections": requests,
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": 2},
    }
    settings = {"config_kwargs": {**ours, **configured.get("config_kwargs", {})}}
    region = env.get("AWS_REGION")
    if region and not env.get("AWS_DEFAULT_REGION"):
        settings["client_kwargs"] = {"region_name": region, **configured.get("client_kwargs", {})}
    return settings


def make_service_settings(
    protocol: str, authority: str, env: Mapping[str, str], configured: Mapping[str, Any], *, requests: int
) -> dict[str, Any]:
    """What the filesystem of a service is to be told, beside what the environment says to its own library.

    Args:
        protocol: `s3`, `gs` or `abfss`.
        authority: Of the location: bucket, or container and account.
        env: The environment.
        configured: What the user has told fsspec of this protocol.
        requests: How many there may be at once.

    Raises:
        AccountMismatchError: the environment holds a key of another account of Azure.
    """
    if protocol == "s3":
        return make_s3_settings(env, configured, requests=requests)
    if protocol == "abfss":
        return make_azure_settings(authority, env, configured)
    return make_gcs_settings(env, configured)


def make_impatient(filesystem: Any, protocol: str) -> type[Any]:
    """The same filesystem, which gives up on who does not answer, and doubts odd answers."""
    if protocol == "s3":
        return _make_impatient_s3(filesystem)
    library = filesystem.__module__.partition(".")[0]  # of what somebody else has registered: another
    if library == "adlfs":
        from lastgood.storage.azure import BoundedAzure  # noqa: PLC0415 - a library that others need not have

        return BoundedAzure
    if library == "gcsfs":
        from lastgood.storage.gcs import BoundedGcs  # noqa: PLC0415

        return BoundedGcs
    return filesystem  # type: ignore[no-any-return]


@functools.cache
def _make_impatient_s3(filesystem: Any) -> type[Any]:
    import asyncio  # noqa: PLC0415 - with all of the network, which no local checkpoint needs

    class ImpatientS3(filesystem):  # type: ignore[misc]  # s3fs has no types
        retries = 1  # botocore tries again by itself: both together would take minutes to give up

        async def set_session(self, *args: Any, **kwargs: Any) -> Any:
            client = await super().set_session(*args, **kwargs)
            client.meta.events.register("after-call.s3", _refuse_odd_answer, unique_id="lastgood-doubt")
            client.meta.events.register_last("before-call.s3", _send_at_once, unique_id="lastgood-send")
            return client

        async def _call_s3(self, method: Any, *given: Any, **more: Any) -> Any:
            call, body = super()._call_s3(method, *given, **more), more.get("Body", b"")
            if isinstance(body, bytes):
                size = len(body)
            else:
                size = 0
            # No timeout of botocore counts while a request is being sent.
            return await (asyncio.wait_for(call, estimate_send_seconds(size)) if size else call)

    return ImpatientS3


def _send_at_once(*, params: Mapping[str, Any], **_: object) -> None:
    """Ask no server whether it wants the content: the library waits for that answer for ever."""
    params["headers"].pop("Expect", None)


def _refuse_odd_answer(*, http_response: Any, parsed: Mapping[str, Any], model: Any, **_: object) -> None:
    """Refuse a 404 of a server that is no S3, and a listing that is none; every 403 is a refusal, whatever its name.

    S3 names what is not there, except to HEAD, whose answers have no body; and even an empty listing has fields.
    """
    if http_response.status_code in (401, 403):
        raise PermissionError(parsed.get("Error", {}).get("Message") or "access denied")
    is_nameless = parsed.get("Error", {}).get("Code") == "404" and model.http.get("method") != "HEAD"
    is_blank = (
        model.name == "ListObjectsV2" and http_response.status_code == 200 and not _LISTING_FIELDS & parsed.keys()
    )
    if is_nameless or is_blank:
        raise OddAnswerError(f"what answers there is no S3: {http_response.status_code} to {model.name}")


def is_unreachable(error: BaseException | None) -> bool:
    """Whether there was no answer at all, so that another question is no use."""
    botocore = sys.modules.get("botocore.exceptions")
    return isinstance(error, (ConnectionError, TimeoutError, *((botocore.HTTPClientError,) if botocore else ())))


def lacks_credentials(error: Exception) -> bool:
    """Whether nobody has told AWS's libraries any credentials, or not all of them."""
    botocore = sys.modules.get("botocore.exceptions")
    return botocore is not None and isinstance(error, (botocore.NoCredentialsError, botocore.PartialCredentialsError))


def parse_milliseconds(value: object) -> int | None:
    """The time of a file, as one of many libraries tells it, milliseconds since 1970; None if it is none."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, int):  # WebHDFS counts in milliseconds
        return value
    if isinstance(value, float):
        return int(value * 1000)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return int(datetime.datetime.fromisoformat(value).timestamp() * 1000)
    return None
