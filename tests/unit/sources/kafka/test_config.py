from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.sources.kafka.config import KafkaConfig, KafkaConfigError, read_kafka_config, translate_config

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="geheim";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="geheim";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PEM = "-----BEGIN CERTIFICATE-----\n" + "A" * 64 + "\nBBBB\n-----END CERTIFICATE-----\n"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
TLS = {"security.protocol": "SSL"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.jks"


def test_nothing_to_translate_is_plain_text() -> None:
    assert translate_config({}) == KafkaConfig()


def test_names_that_mean_the_same_are_kept_and_the_servers_are_taken_out() -> None:
    found = translate_config({"bootstrap.servers": "a:1,b:2 ", "client.id": " me ", "retry.backoff.ms": "100"})
    assert found == KafkaConfig({"client.id": "me", "retry.backoff.ms": "100"}, "a:1,b:2")


def test_settings_of_java_alone_are_ignored_by_name() -> None:
    found = translate_config({"key.deserializer": "x", "ssl.protocol": "TLSv1.3", "interceptor.classes": "y"})
    assert found.settings == {}
    assert found.ignored == ("interceptor.classes", "key.deserializer", "ssl.protocol")


@pytest.mark.parametrize(("java", "here"), [("30000", "30000"), ("1", "10"), ("900000", "300000")])
def test_request_timeout_is_kept_within_what_the_client_takes(java: str, here: str) -> None:
    assert translate_config({"request.timeout.ms": java}).settings == {"socket.timeout.ms": here}


def test_request_timeout_that_is_no_number_is_refused() -> None:
    with pytest.raises(KafkaConfigError):
        translate_config({"request.timeout.ms": "30s"})


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
def test_login_with_a_password_is_taken_from_the_login_module(mechanism: str, jaas: str) -> None:
    assert translate_config({**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}).settings == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": "geheim",
    }


def test_login_may_be_written_in_the_clients_own_names() -> None:
    own = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
        "ssl.ca.location": "/ca.pem",
    }
    assert translate_config(own) == KafkaConfig(own)


def test_token_from_a_server_is_asked_for_by_client_credentials() -> None:
    found = translate_config(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://login/token",
            "sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": (
                f'{OAUTH} clientId="c" clientSecret="geheim" scope="s" extension_a="1" extension_b="2";'
            ),
        }
    )
    assert found.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login/token",
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": "geheim",
        "sasl.oauthbearer.scope": "s",
        "sasl.oauthbearer.extensions": "a=1,b=2",
    }


def test_client_credentials_may_stand_outside_of_the_login_module() -> None:
    found = translate_config(
        {
            **SASL,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH};",
            "sasl.oauthbearer.token.endpoint.url": "https://login/token",
            "sasl.oauthbearer.client.credentials.client.id": "c",
            "sasl.oauthbearer.client.credentials.client.secret": "geheim",
            "sasl.oauthbearer.scope": "s",
        }
    )
    assert found.settings["sasl.oauthbearer.client.secret"] == "geheim"
    assert found.settings["sasl.oauthbearer.scope"] == "s"
    assert found.ignored == ()


def test_unsigned_token_is_made_for_test_clusters() -> None:
    jaas = f'{OAUTH} unsecuredLoginStringClaim_sub="admin";'
    found = translate_config({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas})
    assert found.settings["enable.sasl.oauthbearer.unsecure.jwt"] == "true"
    assert found.settings["sasl.oauthbearer.config"] == "principal=admin"


@pytest.mark.parametrize(
    ("changed", "subject"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.mechanism": ""}, "sasl.mechanism"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": PLAIN.replace('password="geheim"', "")}, "sasl.jaas.config"),
        ({"sasl.jaas.config": SCRAM.replace(";", ' tokenauth="true";')}, "sasl.jaas.config"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "x.Mine"},
            "sasl.login.callback.handler.class",
        ),
    ],
)
def test_login_that_the_client_cannot_do_is_refused_by_name(changed: dict[str, str], subject: str) -> None:
    with pytest.raises(KafkaConfigError) as raised:
        translate_config({**SASL, **changed})
    assert raised.value.subject == subject
    assert "geheim" not in f"{raised.value!r} {raised.value.to_json()}"


def test_sasl_without_a_login_is_refused() -> None:
    with pytest.raises(KafkaConfigError) as raised:
        translate_config({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    assert raised.value.found == "nothing"


def test_certificates_in_the_file_itself_get_their_line_ends_back() -> None:
    one_line = " ".join(PEM.split("\n"))
    found = translate_config(
        {
            **TLS,
            "ssl.truststore.certificates": one_line,
            "ssl.keystore.certificate.chain": one_line * 2,
            "ssl.keystore.key": one_line.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY"),
            "ssl.key.password": "geheim",
        }
    ).settings
    assert found["ssl.ca.pem"] == PEM
    assert found["ssl.certificate.pem"] == PEM * 2
    assert found["ssl.key.pem"] == PEM.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY")
    assert found["ssl.key.password"] == "geheim"


def test_certificates_that_are_none_are_refused() -> None:
    with pytest.raises(KafkaConfigError) as raised:
        translate_config({**TLS, "ssl.truststore.certificates": "MIIgeheim"})
    assert "geheim" not in f"{raised.value!r} {raised.value.to_json()}"


def test_pem_stores_are_used_where_they_lie(store: Path) -> None:
    store.write_text(f"Bag Attributes\n{PEM}")
    found = translate_config(
        {**TLS, "ssl.truststore.location": str(store), "ssl.keystore.location": str(store)}
    ).settings
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": str(store),
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
    }


def test_pkcs12_key_store_is_used_where_it_lies(store: Path) -> None:
    store.write_bytes(b"\x30\x82\x01")
    found = translate_config({**TLS, "ssl.keystore.location": str(store), "ssl.keystore.password": "geheim"}).settings
    assert found["ssl.keystore.location"] == str(store)
    assert found["ssl.keystore.password"] == "geheim"


@pytest.mark.parametrize(
    ("name", "head", "command"),
    [
        ("ssl.truststore.location", b"\xfe\xed\xfe\xed", "keytool -list -rfc -keystore {0}.jks > {0}.pem"),
        ("ssl.truststore.location", b"\x30\x82", "openssl pkcs12 -nokeys -in {0}.jks -out {0}.pem"),
        (
            "ssl.keystore.location",
            b"\xfe\xed\xfe\xed",
            "keytool -importkeystore -srckeystore {0}.jks -deststoretype PKCS12 -destkeystore {0}.p12",
        ),
    ],
)
def test_store_that_cannot_be_read_comes_with_the_command_that_converts_it(
    store: Path, name: str, head: bytes, command: str
) -> None:
    store.write_bytes(head)
    with pytest.raises(KafkaConfigError) as raised:
        translate_config({**TLS, name: str(store), "ssl.truststore.password": "geheim"})
    assert raised.value.next == command.format(store.with_suffix(""))
    assert raised.value.subject == f"{name}={store}"


def test_store_that_is_not_there_or_is_none_is_refused(store: Path) -> None:
    with pytest.raises(KafkaConfigError) as raised:
        translate_config({**TLS, "ssl.truststore.location": str(store)})
    assert raised.value.found == "No such file or directory"
    store.write_bytes(b"hello")
    with pytest.raises(KafkaConfigError):
        translate_config({**TLS, "ssl.keystore.location": str(store)})


@pytest.mark.parametrize(("java", "here"), [("", "none"), ("https", "https")])
def test_host_names_are_checked_unless_the_setting_is_empty(java: str, here: str) -> None:
    found = translate_config({**TLS, "ssl.endpoint.identification.algorithm": java}).settings
    assert found["ssl.endpoint.identification.algorithm"] == here


def test_tls_settings_without_tls_are_not_looked_at() -> None:
    assert translate_config({"ssl.truststore.location": "/nowhere"}).settings == {}


def test_file_is_read_with_its_escapes_and_shows_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    broken = PLAIN.replace(" username", " \\\n  username")
    file.write_text(
        "bootstrap.servers=broker:9092\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={broken}\nfoo=bar\n"
    )
    config = read_kafka_config(file)
    assert config.settings["sasl.password"] == "geheim"
    assert (config.bootstrap, config.ignored) == ("broker:9092", ("foo",))
    assert "geheim" not in repr(config)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigError) as raised:
        read_kafka_config(tmp_path / "none.properties")
    assert raised.value.found == "No such file or directory"
