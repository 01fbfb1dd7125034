from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.redaction import _FORMS, _NAME_SIGNS, _SECRET_NAME, _Late, is_secret_name, redact

SECRET = "hunter2+Zz/9"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://etl:{SECRET}@db/orders",
        f"s3a://someone:{SECRET}@bucket/chk",
        f"s3a://someone%3A{SECRET}/{SECRET}@bucket/chk",
        f"https://acc.blob.core.windows.net/c/f.csv?sv=2024&sig={SECRET}&se=2026",
        f"s3://b/f?X-Amz-Signature={SECRET}&X-Amz-Date=1",
        f"https://h/f?access_token={SECRET}",
        f"spark.hadoop.fs.s3a.secret.key={SECRET}",
        f"fs.azure.account.key.acc.dfs.core.windows.net={SECRET}",
        f"fs.azure.sas.container.acc={SECRET}",
        f'ScramLoginModule required username="etl" password="{SECRET}";',
        rf"required password=\"{SECRET}\";",
        f"password: {SECRET}",
        f"Authorization: {SECRET}",
        f"curl -H 'X: Bearer {SECRET}='",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        json.dumps({"fs.s3a.secret.key": SECRET, "n": 1}),
        json.dumps({"kafka.sasl.jaas.config": f'x password="{SECRET}";'}),
    ],
)
def test_a_secret_is_gone_and_what_stands_around_it_is_not(text: str) -> None:
    hidden = redact(text)
    assert SECRET not in hidden
    assert "***" in hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize("text", ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln"])
def test_a_key_that_is_known_by_its_form_is_gone(text: str) -> None:
    assert redact(f"id {text}, then") == "id ***, then"


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://nn:8020/user/etl@corp/chk",
        "abfss://chk@acc.dfs.core.windows.net/orders",
        "s3a://bucket/date=2026-11-21/key=7/part-0.parquet",
        '{"tokens":{"0":10,"1":12}}',
        '{"path":"file:///data/tokens/a.json","timestamp":1,"batchId":0}',
        '{"spark.sql.dropDuplicates.deterministicKeyOrder.enabled":"false"}',
        "design=7, signal: strong",
        "v1\n{}",
        "",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_json_stays_the_same_json() -> None:
    told = {"conf": {"a.password": 'x"y\\z', "url": f"jdbc:x://u:{SECRET}@h", "retries": 3}, "list": [SECRET]}
    read = json.loads(redact(json.dumps(told)))
    assert read == {"conf": {"a.password": "***", "url": "jdbc:x://u:***@h", "retries": 3}, "list": [SECRET]}


def test_names_of_settings_tell_what_is_secret() -> None:
    assert all(map(is_secret_name, ("password", "fs.s3a.access.key", "sasl.jaas.config", "sig", "ssl.key.password")))
    assert not any(map(is_secret_name, ("user", "key", "signal", "retention.ms", "bootstrap.servers", "design")))


ASCII = st.characters(max_codepoint=127)


@pytest.mark.parametrize(("signs", "form"), [form[:2] for form in _FORMS], ids=[form[0][0] for form in _FORMS])
@settings(max_examples=4)
@given(data=st.data())
def test_what_has_the_form_of_a_secret_has_a_sign_of_it(
    signs: tuple[str, ...], form: _Late, data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(form.pattern, alphabet=ASCII)).lower()
    assert any(sign in text for sign in signs)


@settings(max_examples=20)
@given(st.from_regex(_SECRET_NAME, alphabet=ASCII))
def test_the_name_of_a_secret_has_a_sign_of_it(name: str) -> None:
    assert any(sign in name.lower() for sign in _NAME_SIGNS)


@pytest.mark.parametrize("name", ["pa\u017f\u017fword", "TO\u212aEN", "acce\u017fs_\u212aey"])
def test_a_letter_that_is_another_case_of_one_of_ascii_hides_no_name(name: str) -> None:
    assert redact(f"{name}={SECRET}") == f"{name}=***"


@pytest.mark.parametrize(
    "text", [f"BEARER {SECRET}", f"HTTPS://HOOKS.SLACK.COM/services/{SECRET}", f"PassWord={SECRET}"]
)
def test_a_secret_is_gone_in_letters_of_any_case(text: str) -> None:
    assert SECRET not in redact(text)
