"""`client.properties` against a broker that insists on TLS and on a login, and lets only some people look."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import find_free_port, is_accepting
from lastgood.process.java import Java
from lastgood.sources.kafka.cluster import ask_kafka, ask_record_times
from lastgood.sources.kafka.config import KafkaConfig, KafkaConfigError, read_kafka_config
from lastgood.sources.kafka.facts import KafkaFacts

pytestmark = pytest.mark.services

PASSWORD = 's3c"r\\e t;#=:!'
# The same within a quoted JAAS value, and that within a properties file.
IN_PROPERTIES = 's3c\\\\"r\\\\\\\\e t;#=:!'
STORE_PASSWORD = "changeit"
MODULE = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Certificates:
    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / name

    def text(self, name: str) -> str:
        return self.file(name).read_text()


class SecuredBroker(KafkaBroker):
    """A broker whose port for clients insists on a login, which the lab's own look at it has not."""

    def _answers(self, port: int) -> bool:
        return is_accepting(port) if port == self.port else super()._answers(port)


def openssl(folder: Path, *command: str) -> None:
    subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a broker that it has signed, a client that it has signed, and their keys."""
    folder = tmp_path_factory.mktemp("tls")
    authority = "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"
    openssl(folder, *authority.split())
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("broker", "client"):
        openssl(folder, *f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}".split())
        sign = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.crt -days 2 -extfile san"
        openssl(folder, *sign.split())
        (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    openssl(folder, *f"pkcs8 -topk8 -in client.key -out client.enc.key -passout pass:{STORE_PASSWORD}".split())
    p12 = f"pkcs12 -export -inkey client.key -in client.crt -out client.p12 -passout pass:{STORE_PASSWORD}"
    openssl(folder, *p12.split())
    return Certificates(folder)


@pytest.fixture(scope="module")
def secured(
    java: Java, broker_jars: tuple[Path, ...], certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """Alice may do everything, carol may describe the topic `orders`, bob may do nothing."""
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    users = f'user_alice="{quoted}" user_bob="{quoted}"'
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULE}.plain.PlainLoginModule required {users};",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": (
            f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;"
        ),
        **{
            f"listener.name.plaintext.scram-sha-{bits}.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;"
            for bits in (256, 512)
        },
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.file("broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.file("ca.pem")),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    folder = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder, java=java, jars=broker_jars, port=find_free_port(), config=config) as broker:
        prepare(broker, certificates)
        yield broker


def prepare(broker: KafkaBroker, certificates: Certificates) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificates.file("ca.pem")),
            "ssl.certificate.location": str(certificates.file("client.crt")),
            "ssl.key.location": str(certificates.file("client.key")),
            "log_level": 0,
        }
    )
    for name in ("orders", "secret"):
        broker.create_topic(name)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([credential]).values():
            future.result(60)
    may_describe = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:carol",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([may_describe]).values():
        future.result(60)


def config_of(folder: Path, text: str) -> KafkaConfig:
    file = folder / "client.properties"
    file.write_text(text, encoding="iso-8859-1")
    return read_kafka_config(file)


def login(user: str = "alice", mechanism: str = "PLAIN", password: str = IN_PROPERTIES) -> str:
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    return (
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={MODULE}.{module} required \\\n"
        f'   username="{user}" \\\n'
        f'   password="{password}";\n'
    )


def pem_stores(certificates: Certificates) -> str:
    return (
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.file('ca.pem')}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={certificates.file('client.pem')}\n"
    )


def facts(broker: KafkaBroker, config: KafkaConfig, topic: str = "orders") -> KafkaFacts:
    return ask_kafka(broker.bootstrap, [topic], config=config.settings)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_with_every_sign_gets_through(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path, mechanism: str
) -> None:
    config = config_of(tmp_path, login(mechanism=mechanism) + pem_stores(certificates))
    assert facts(secured, config).unknowns == {}
    assert ask_record_times(secured.bootstrap, {"orders": {0: 0}}, config=config.settings)["orders"][0].unknown is None


def test_unsigned_token_gets_through(secured: KafkaBroker, certificates: Certificates, tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";\n' + pem_stores(certificates),
    )
    assert facts(secured, config).unknowns == {}


def test_certificates_on_one_line_and_an_encrypted_key_get_through(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path
) -> None:
    def on_one_line(name: str) -> str:
        return " ".join(certificates.text(name).split("\n"))

    config = config_of(
        tmp_path,
        f"{login()}"
        f"ssl.truststore.type=PEM\nssl.truststore.certificates={on_one_line('ca.pem')}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.certificate.chain={on_one_line('client.crt')}\n"
        f"ssl.keystore.key={on_one_line('client.enc.key')}\nssl.key.password={STORE_PASSWORD}\n",
    )
    assert facts(secured, config).unknowns == {}


def test_pkcs12_key_store_gets_through(secured: KafkaBroker, certificates: Certificates, tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        f"{login()}ssl.truststore.type=PEM\nssl.truststore.location={certificates.file('ca.pem')}\n"
        f"ssl.keystore.location={certificates.file('client.p12')}\nssl.keystore.password={STORE_PASSWORD}\n",
    )
    assert facts(secured, config).unknowns == {}


def test_commands_that_the_errors_name_make_stores_that_get_through(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path, java: Java
) -> None:
    keytool = java.program.with_name("keytool")
    if not keytool.exists():
        keytool = Path(shutil.which("keytool") or "keytool")
    stores = {"ca.jks": "JKS", "ca.p12": "PKCS12"}
    for name, kind in stores.items():
        command = f"-importcert -noprompt -alias ca -file {certificates.file('ca.pem')} -keystore {name}"
        run(tmp_path, f"{keytool} {command} -storetype {kind} -storepass {STORE_PASSWORD}")
    source = f"-srckeystore {certificates.file('client.p12')} -srcstoretype PKCS12 -srcstorepass {STORE_PASSWORD}"
    run(
        tmp_path,
        f"{keytool} -importkeystore {source} -destkeystore client.jks -deststoretype JKS "
        f"-deststorepass {STORE_PASSWORD}",
    )
    key_store = f"ssl.keystore.location={tmp_path / 'client.jks'}\nssl.keystore.password={STORE_PASSWORD}\n"
    run(tmp_path, command_of(tmp_path, login() + key_store, keytool), f"{STORE_PASSWORD}\n" * 3)
    for name in stores:
        trust = f"ssl.truststore.location={tmp_path / name}\nssl.truststore.password={STORE_PASSWORD}\n"
        run(tmp_path, command_of(tmp_path, login() + trust, keytool), f"{STORE_PASSWORD}\n")
        config = config_of(
            tmp_path,
            login() + trust.replace(name, "ca.pem") + key_store.replace("client.jks", "client.p12"),
        )
        assert facts(secured, config).unknowns == {}
        (tmp_path / "ca.pem").unlink()


def command_of(folder: Path, text: str, keytool: Path) -> str:
    with pytest.raises(KafkaConfigError) as raised:
        config_of(folder, text)
    assert raised.value.next is not None
    # OpenSSL asks at the terminal, which a test has not.
    return raised.value.next.replace("keytool ", f"{keytool} ").replace(
        " -nokeys ", f" -nokeys -passin pass:{STORE_PASSWORD} "
    )


def run(folder: Path, command: str, typed: str = "") -> None:
    subprocess.run(["sh", "-c", command], cwd=folder, input=typed, text=True, check=True, capture_output=True)


def test_wrong_password_is_an_answer_that_does_not_show_it(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = config_of(tmp_path, login(password="Tr0ub4dor") + pem_stores(certificates))
    answer = facts(secured, config)
    assert answer.unknown is not None
    assert "uthentication" in answer.unknown
    assert "Tr0ub4dor" not in f"{answer} {answer.to_json()} {config}"
    assert capfd.readouterr() == ("", "")


def test_authority_that_nobody_trusts_is_an_answer(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path
) -> None:
    stores = pem_stores(certificates).replace("ca.pem", "client.crt")
    answer = facts(secured, config_of(tmp_path, login() + stores))
    assert answer.unknown is not None
    assert "certificate" in answer.unknown


def test_plain_text_to_a_secured_port_is_an_answer(secured: KafkaBroker) -> None:
    assert ask_kafka(secured.bootstrap, ["orders"], timeout_seconds=4).unknown is not None


def test_forbidden_topic_is_an_answer(secured: KafkaBroker, certificates: Certificates, tmp_path: Path) -> None:
    config = config_of(tmp_path, login("bob") + pem_stores(certificates))
    answer = facts(secured, config, "secret")
    assert answer.unknown is None
    assert answer.topics["secret"].exists is None
    assert "uthoriz" in (answer.topics["secret"].unknown or "")


def test_topic_whose_settings_alone_are_forbidden_still_shows_its_offsets(
    secured: KafkaBroker, certificates: Certificates, tmp_path: Path
) -> None:
    config = config_of(
        tmp_path,
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="carol";\n' + pem_stores(certificates),
    )
    topic = facts(secured, config).topics["orders"]
    assert (topic.partitions[0].earliest, topic.partitions[0].latest) == (0, 0)
    assert topic.config == {}
    assert "uthoriz" in (topic.config_unknown or "")
    forbidden = ask_record_times(secured.bootstrap, {"orders": {0: 0}}, config=config.settings)
    assert "uthoriz" in (forbidden["orders"][0].unknown or "")


def test_sasl_without_tls_gets_through(java: Java, broker_jars: tuple[Path, ...], tmp_path: Path) -> None:
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{MODULE}.plain.PlainLoginModule required user_alice="alice-secret";'
        ),
    }
    with SecuredBroker(
        tmp_path / "broker", java=java, jars=broker_jars, port=find_free_port(), config=config
    ) as broker:
        broker.create_topic("orders", partitions=2)
        client = config_of(tmp_path, login(password="alice-secret").replace("SASL_SSL", "SASL_PLAINTEXT"))
        assert facts(broker, client).latest == {"orders": {0: 0, 1: 0}}
