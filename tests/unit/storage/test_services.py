from __future__ import annotations

from types import SimpleNamespace

import pytest
from botocore.exceptions import NoCredentialsError, ReadTimeoutError

from lastgood.storage.services import (
    OddAnswerError,
    _refuse_odd_answer,
    _send_at_once,
    is_unreachable,
    lacks_credentials,
    make_impatient,
    make_s3_settings,
)


def answer(operation: str, status: int, *, method: str = "GET", code: str | None = None, **parsed: object) -> None:
    """What S3, or somebody else, answers to an operation."""
    error = {} if code is None else {"Error": {"Code": code, "Message": "what it says"}}
    _refuse_odd_answer(
        http_response=SimpleNamespace(status_code=status),
        parsed={**error, **parsed},
        model=SimpleNamespace(name=operation, http={"method": method}),
        context={},
    )


def test_answers_of_s3_are_taken() -> None:
    answer("ListObjectsV2", 200, Name="lake", KeyCount=0)
    answer("ListObjectsV2", 404, code="NoSuchBucket")
    answer("GetObject", 404, code="NoSuchKey")
    answer("GetObject", 200)
    answer("HeadObject", 404, method="HEAD", code="404")  # has no body that could say more


def test_no_server_is_asked_whether_it_wants_what_is_sent() -> None:
    request = {"headers": {"Expect": "100-continue", "Content-Length": "3"}, "body": b"abc"}
    _send_at_once(params=request, model=None, context={})
    assert request["headers"] == {"Content-Length": "3"}


@pytest.mark.parametrize("operation", ["ListObjectsV2", "GetObject"])
def test_a_404_without_a_name_is_none_of_s3(operation: str) -> None:
    with pytest.raises(OddAnswerError, match=f"no S3: 404 to {operation}"):
        answer(operation, 404, code="404")


def test_a_listing_without_any_field_is_no_empty_listing() -> None:
    with pytest.raises(OddAnswerError):
        answer("ListObjectsV2", 200, ResponseMetadata={})


@pytest.mark.parametrize("status", [401, 403])
def test_every_refusal_is_one_whatever_its_name(status: int) -> None:
    with pytest.raises(PermissionError, match="what it says"):
        answer("ListObjectsV2", status, code="XUnheardOf")


def test_what_the_user_told_fsspec_counts_above_ours() -> None:
    settings = make_s3_settings({}, {"config_kwargs": {"read_timeout": 60}}, requests=7)
    assert settings["config_kwargs"]["read_timeout"] == 60
    assert settings["config_kwargs"]["max_pool_connections"] == 7
    assert "client_kwargs" not in settings


def test_the_region_is_taken_from_either_variable() -> None:
    assert make_s3_settings({"AWS_REGION": "eu-west-1"}, {}, requests=1)["client_kwargs"] == {
        "region_name": "eu-west-1"
    }
    both = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-2"}
    assert "client_kwargs" not in make_s3_settings(both, {}, requests=1)  # botocore reads that one itself
    chosen = {"client_kwargs": {"region_name": "us-east-2"}}
    assert (
        make_s3_settings({"AWS_REGION": "eu-west-1"}, chosen, requests=1)["client_kwargs"]["region_name"] == "us-east-2"
    )


def test_no_answer_is_told_from_an_answer() -> None:
    assert is_unreachable(ConnectionRefusedError())
    assert is_unreachable(TimeoutError())
    assert is_unreachable(OddAnswerError())
    assert is_unreachable(ReadTimeoutError(endpoint_url="http://x"))
    assert not is_unreachable(OSError(22, "InvalidRange"))
    assert not is_unreachable(None)


def test_missing_credentials_are_told_from_other_errors() -> None:
    assert lacks_credentials(NoCredentialsError())
    assert not lacks_credentials(ValueError())


def test_other_services_are_left_as_they_are() -> None:
    assert make_impatient(dict, "gs") is dict
