"""Azure's and Google's object stores: whose account is asked, and with what beside the environment's own variables.

Nothing here imports a service's library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lastgood.errors import Retry, StorageError

_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")
"""Of adlfs, and of Azure's own command line."""
_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_EMULATOR = "STORAGE_EMULATOR_HOST"


class AccountMismatchError(StorageError):
    """A location names one account of Azure, and the credentials are those of another."""

    condition = "STORAGE_ACCOUNT_MISMATCH"
    exit_code = 22
    retry = Retry.AFTER_CHANGE


def name_account_host(authority: str) -> str:
    """Who is asked for `CONTAINER@ACCOUNT.dfs.SUFFIX`: the Blob service of the account."""
    return authority.partition("@")[2].replace(".dfs.", ".blob.", 1)


def make_azure_settings(authority: str, env: Mapping[str, str], configured: Mapping[str, Any]) -> dict[str, Any]:
    """Which account `CONTAINER@ACCOUNT.dfs.SUFFIX` names, and where it is: clouds of countries have other suffixes.

    Args:
        authority: Of the location.
        env: Where the variables of Azure's command line may stand, some of which adlfs does not know.
        configured: What the user has told fsspec of Azure.

    Raises:
        AccountMismatchError: the environment holds a key, and says that it is another account's.
    """
    host = name_account_host(authority)
    account = host.partition(".")[0]
    settings = {"account_name": account, "account_host": host}
    named = next(filter(None, map(env.get, _ACCOUNTS)), account)
    key = next((name for name in _KEYS if env.get(name)), None)
    if key and named != account and not configured:
        raise make_account_mismatch_error(f"{key} beside the account {named}", host)
    if not any(map(env.get, (_KEYS[0], "AZURE_STORAGE_CONNECTION_STRING"))) and "account_key" not in configured:
        settings |= {"account_key": env["AZURE_STORAGE_KEY"]} if env.get("AZURE_STORAGE_KEY") else {}
    return settings


def require_account(connection: str, host: str) -> None:
    """See that a connection string leads to the account of a location.

    Args:
        connection: As Azure gives it out: `AccountName=…;AccountKey=…;BlobEndpoint=…`.
        host: Of the location's account, `ACCOUNT.blob.SUFFIX`.

    Raises:
        AccountMismatchError: it leads to another account, or does not say to which.
    """
    parts = (part.partition("=") for part in connection.split(";"))
    told = {name.lower(): value for name, _, value in parts}
    account, endpoint = host.partition(".")[0], told.get("blobendpoint", "")
    place = urlsplit(endpoint).hostname or f"{account}.blob.{told.get('endpointsuffix', 'core.windows.net')}"
    is_azure = ".blob." in place  # any other is a place that somebody chose: an emulator, a domain of one's own
    named = told.get("accountname") or None
    if not named and endpoint and is_azure:
        named = place.partition(".")[0]
    if named != account or (is_azure and place != host):
        raise make_account_mismatch_error(
            f"a connection string for {named or 'an account without a name'} at {place}", host
        )


def make_account_mismatch_error(found: str, host: str) -> AccountMismatchError:
    """The error for credentials that were `found`, where `host` is to be asked."""
    return AccountMismatchError(
        "the credentials are not those of the location's account",
        found=found,
        expected=f"credentials of {host}",
        effect="nothing was asked of either account",
        next="set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, for this account",
    )


def make_gcs_settings(env: Mapping[str, str], configured: Mapping[str, Any]) -> dict[str, Any]:
    """What gcsfs is to be told beside what the environment says: at an emulator there are no credentials to look for.

    Args:
        env: Where `STORAGE_EMULATOR_HOST` may stand, which all of Google's libraries know.
        configured: What the user has told fsspec of Google.
    """
    if env.get(_EMULATOR, "default") != "default" and "token" not in configured:
        return {"token": "anon"}
    return {}
