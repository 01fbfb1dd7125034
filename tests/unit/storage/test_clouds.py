from __future__ import annotations

from typing import Any

import pytest

from lastgood.storage.clouds import AccountMismatchError, make_azure_settings, make_gcs_settings, require_account

AUTHORITY, HOST = "lake@acme.dfs.core.windows.net", "acme.blob.core.windows.net"
WHERE = {"account_name": "acme", "account_host": HOST}


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ({}, {}),
        ({"AZURE_STORAGE_ACCOUNT": "other"}, {}),  # without a key there is nothing that could be another account's
        ({"AZURE_STORAGE_ACCOUNT": "acme", "AZURE_STORAGE_KEY": "k"}, {"account_key": "k"}),
        ({"AZURE_STORAGE_KEY": "k"}, {"account_key": "k"}),
        ({"AZURE_STORAGE_ACCOUNT_KEY": "k", "AZURE_STORAGE_KEY": "l"}, {}),  # adlfs finds the first by itself
        ({"AZURE_STORAGE_CONNECTION_STRING": "c", "AZURE_STORAGE_KEY": "k"}, {}),
    ],
)
def test_the_location_says_which_account_is_asked(env: dict[str, str], more: dict[str, Any]) -> None:
    assert make_azure_settings(AUTHORITY, env, {}) == {**WHERE, **more}


def test_what_fsspec_was_told_counts_above_the_environment() -> None:
    env = {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "k"}
    assert make_azure_settings(AUTHORITY, env, {"account_key": "mine"}) == WHERE


@pytest.mark.parametrize("account", ["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"])
@pytest.mark.parametrize("key", ["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"])
def test_a_key_of_another_account_is_never_used(account: str, key: str) -> None:
    with pytest.raises(AccountMismatchError) as caught:
        make_azure_settings(AUTHORITY, {account: "other", key: "secret"}, {})
    assert caught.value.found == f"{key} beside the account other"
    assert caught.value.expected == f"credentials of {HOST}"


@pytest.mark.parametrize(
    "connection",
    [
        "AccountName=acme;AccountKey=k==",
        "AccountName=acme;AccountKey=k==;EndpointSuffix=core.windows.net",
        "AccountName=acme;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/acme",
        "AccountName=acme;AccountKey=k==;BlobEndpoint=https://lake.example.com",
        f"BlobEndpoint=https://{HOST}/;SharedAccessSignature=sv=1",
    ],
)
def test_a_connection_string_of_the_account_is_taken(connection: str) -> None:
    require_account(connection, HOST)


@pytest.mark.parametrize(
    "connection",
    [
        "AccountName=other;AccountKey=k==",
        "AccountName=other;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/other",
        "AccountName=acme;AccountKey=k==;EndpointSuffix=core.chinacloudapi.cn",
        "AccountName=acme;AccountKey=k==;BlobEndpoint=https://other.blob.core.windows.net",
        "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sv=1",
        "BlobEndpoint=https://lake.example.com/;SharedAccessSignature=sv=1",
        "no connection string",
    ],
)
def test_a_connection_string_of_another_account_or_of_none_is_an_error(connection: str) -> None:
    with pytest.raises(AccountMismatchError) as caught:
        require_account(connection, HOST)
    assert "k==" not in str(caught.value.to_json())
    assert "sv=1" not in str(caught.value.to_json())


def test_at_an_emulator_of_google_no_credentials_are_looked_for() -> None:
    assert make_gcs_settings({"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"}, {}) == {"token": "anon"}
    assert make_gcs_settings({"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"}, {"token": "t"}) == {}
    assert make_gcs_settings({"STORAGE_EMULATOR_HOST": "default"}, {}) == {}
    assert make_gcs_settings({}, {}) == {}
