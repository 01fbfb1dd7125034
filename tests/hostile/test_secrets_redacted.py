"""One function takes every secret out of a text, however it is spelled, and leaves the rest."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import FORMS, SECRET, SPELLINGS, spelled

from lastgood.redaction import add_redaction, is_secret_name, redact, redact_json, redact_nothing_else, redact_words
from lastgood.signing import format_keys, make_key


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_secret_is_hidden_in_every_spelling(name: str) -> None:
    text = spelled(name)
    assert SECRET in text
    hidden = redact(text)
    assert SECRET not in hidden
    assert "***" in hidden


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize(
    "around", ["Caused by: {}", "x {} failed, see a@b", "[{}]", "({})", "'{}'", "{}; b=1\nnext {}"]
)
def test_what_stands_around_it_does_not_matter(name: str, around: str) -> None:
    hidden = redact(around.replace("{}", spelled(name)))
    assert SECRET not in hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize("name", SPELLINGS)
def test_json_stays_the_same_json(name: str) -> None:
    told = {"before": [1, None, "x"], "error": spelled(name), "list": [spelled(name)], "n": {"a": 2.5}, "mail": "a@b"}
    for text in (json.dumps(told), json.dumps(told, indent=1), json.dumps({"inner": json.dumps(told)})):
        hidden = redact(text)
        assert SECRET not in hidden
        read = json.loads(hidden)
        read = json.loads(read["inner"]) if "inner" in read else read
        assert (read["before"], read["n"], read["mail"]) == (told["before"], told["n"], told["mail"])
    assert SECRET not in json.dumps(redact_json(told))


@pytest.mark.parametrize("name", FORMS)
def test_a_secret_is_known_by_its_form(name: str) -> None:
    assert redact(f"id {FORMS[name]}, then") == "id ***, then"


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://nn:8020/user/etl@corp/chk",
        "https://h:443/@user",
        "abfss://chk@acc.dfs.core.windows.net/orders",
        "postgresql://etl@db:5432/orders",
        "postgresql://a:5432,b:5432/orders, a mail to x@y",
        "http://[::1]:9000/a@b",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
        "Basic authentication is off",
        "KafkaV2[Subscribe[tokens]]: 5 partitions",
        "lastgood recover chk --sink /lake/orders --kafka-config client.properties",
        '{"tokens":{"0":10,"1":12}}',
        '{"token": 5, "passwords": {"0": 1}}',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_the_words_of_a_command_are_read_as_words() -> None:
    words = [
        "spark-submit",
        "--conf",
        f"spark.my.password=a b,{SECRET}",
        "--password",
        f"-{SECRET}",
        "--token",
        "--x",
        "y",
    ]
    hidden = ["spark-submit", "--conf", "spark.my.password=***", "--password", "***", "--token", "--x", "y"]
    assert redact_words(words) == hidden
    assert redact_words(hidden) == hidden
    assert redact_json({"command": words}) == {"command": hidden}


_LETTERS = [
    "password",
    "token",
    '"',
    "'",
    "\\",
    '\\"',
    "=",
    ": ",
    "://",
    "@",
    "{",
    "}",
    ",",
    ";",
    "&",
    " ",
    "\n",
    "a",
    "é",
]
_PIECES = st.sampled_from(
    [
        *(f" {spelled(name)} " for name in SPELLINGS),
        *(f"{form} " for form in FORMS.values()),
        *_LETTERS,
        *("--password", "->", "-----BEGIN PRIVATE KEY-----", "***"),
    ]
)
_LONG = [
    *("a", "token", "token.", "-", "password=", 'password="', "password='", '\\"', 'password=\\"', "://", "u://a:"),
    *("@", "x://u:p ", "-----BEGIN PRIVATE KEY-----", "eyJ", "eyJ-", "xoxb-", "Basic ", "Bearer ", "password "),
    *(",token", "jdbc:oracle:thin:a/", "googleapis.com/", "hooks.slack.com/a/", "--password ", "password={"),
    *("password=a,b", "\\", "%25", "%3A%2F%2Fa%3A", "IDENTIFIED BY ", "-u a", "cookie: ", "password:", "<token>"),
]


@settings(max_examples=400)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_what_is_hidden_stays_as_it_is(text: str) -> None:
    hidden = redact(text)
    assert redact(hidden) == hidden


@settings(max_examples=200)
@given(st.recursive(st.none() | st.integers() | _PIECES, lambda each: st.lists(each) | st.dictionaries(_PIECES, each)))
def test_any_json_stays_json(value: object) -> None:
    assert type(json.loads(redact(json.dumps(value)))) is type(value)


@pytest.mark.parametrize("piece", _LONG)
def test_the_work_grows_as_the_text_does(piece: str) -> None:
    """Counted in calls and pieces, not in time: a text four times as long takes about four times as much of both."""

    def work(size: int) -> int:
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        text = piece * (size // len(piece))
        sys.setprofile(count)
        try:
            redact(text)
        finally:
            sys.setprofile(None)
        return calls

    assert work(80_000) <= 5 * work(20_000) + 100


def test_the_user_may_count_more_as_secret() -> None:
    assert not is_secret_name("iban")
    try:
        add_redaction("(?i)iban")
        add_redaction(None, r"\bDE\d{20}\b")
        assert redact("iban=DE12, then DE12500105170648489890") == "iban=***, then ***"
        assert redact("password=x") == "password=***"
        with pytest.raises(ValueError, match="empty"):
            add_redaction("x*")
    finally:
        redact_nothing_else()
    assert redact("iban=DE12") == "iban=DE12"


def test_a_key_of_our_own_that_was_printed_by_mistake_is_hidden() -> None:
    """As in the log of an application that prints its environment."""
    key = make_key()
    secret, text = key.line.split(":")[-1], format_keys([key])
    for each in (key.line, f"LASTGOOD_KEY={text}", json.dumps({"env": text})):
        assert secret in each
        assert secret not in redact(each)
        assert key.id in redact(each)
