"""Every way in which a secret is spelled in what lastgood reads: by name, with the secret in place of `{}`."""

from __future__ import annotations

import base64
import json

SECRET = "Zq7hunter2xK"
"""Letters and digits alone, so that every spelling can hold it."""

_JSON = json.dumps({"fs.s3a.secret.key": SECRET, "n": 1}).replace(SECRET, "{}")
_ACCOUNT = json.dumps({"type": "service_account", "private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END "})
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="etl" password="{}";'

SPELLINGS = {
    # URLs of databases
    "jdbc-parameters": "jdbc:postgresql://db/orders?user=etl&password={}&ssl=true",
    "jdbc-sqlserver": "jdbc:sqlserver://db:1433;user=sa;password={};encrypt=true",
    "jdbc-sqlserver-braces": "jdbc:sqlserver://db;user=sa;password={{a;{}}};encrypt=true",
    "jdbc-oracle": "jdbc:oracle:thin:scott/{}@//db:1521/orders",
    "jdbc-oracle-sid": "jdbc:oracle:thin:scott/{}@db:1521:orders",
    "jdbc-oracle-quoted": 'jdbc:oracle:thin:scott/"a{}"@//db:1521/orders',
    "jdbc-mysql": "jdbc:mysql://etl:{}@db:3306/orders",
    "jdbc-mysql-list": "jdbc:mysql://(host=db,port=1,user=etl,password={})/orders",
    "jdbc-sqlserver-doubled": "jdbc:sqlserver://db;user=sa;password={{a}}}};{}}};encrypt=true",
    "jdbc-snowflake": "jdbc:snowflake://acc.snowflakecomputing.com/?user=etl&private_key_pwd={}",
    "url": "postgresql://etl:{}@db/orders",
    "url-driver": "postgresql+psycopg://etl:{}@db/orders",
    "url-percent": "postgresql://etl:p%40{}%2F@db/orders",
    "url-at": "postgresql://etl:p@{}@db/orders",
    "url-slash": "postgresql://etl:p/{}@db/orders",
    "url-slash-number": "postgresql://etl:12/{}@db/orders",
    "url-question": "postgresql://etl:p?{}@db/orders",
    "url-hash": "postgresql://etl:p#{}@db/orders",
    "url-blank": "postgresql://etl:p {}@db/orders",
    "url-quote": "postgresql://etl:p'{}@db/orders",
    "url-encoded": "https://h/x?url=postgresql%3A%2F%2Fetl%3Ap%2F{}%40db%2Forders&n=1",
    "url-encoded-parameter": "https://h/x?url=jdbc%3Apostgresql%3A%2F%2Fdb%2Fo%3Fuser%3Detl%26password%3D{}%26ssl%3Dtrue",
    "url-encoded-small": "https://h/x?url=jdbc%3apostgresql%3a%2f%2fdb%2fo%3fuser%3detl%26password%3d{}%26ssl%3dtrue",
    "url-encoded-twice": "s3a%253A%252F%252FKEY%253A{}%2540bucket%252Forders",
    "url-encoded-parameter-twice": "x%253Fpassword%253D{}%2526ssl%253Dtrue",
    "url-encoded-scheme": "postgresql%3A//etl:{}@db/orders",
    "url-encoded-colon": "postgresql://etl%3A{}@db/orders",
    "url-encoded-name": "postgresql://db/orders?user=etl&p%61ssword={}",
    "url-encoded-json": "https://h/x?options=%7B%22password%22%3A%22{}%22%7D",
    "login-without-scheme": "etl:{}@broker:9092",
    "url-parameter": "postgresql://db/orders?user=etl&password={}",
    "url-as-path": "/lake/postgresql:/etl:{}@db/orders",
    "dsn": "host=db user=etl password={} dbname=orders",
    "dsn-quoted": "host=db user=etl password='a {}' dbname=orders",
    "dsn-escaped": r"host=db password='a\' {}' dbname=orders",
    "dsn-blanks": "host = db password = {} dbname = orders",
    "sql": "CREATE TABLE t USING jdbc OPTIONS (url 'x', password '{}')",
    "sql-identified": "CREATE USER etl IDENTIFIED BY 'a {}'",
    "sql-identified-bare": "ALTER USER etl IDENTIFIED BY {};",
    "sql-doubled": "OPTIONS (password 'it''s{}')",
    # object stores
    "s3-login": "s3a://etl:{}@bucket/chk",
    "s3-login-slash": "s3a://etl:ab/c+{}@bucket/chk",
    "s3-login-at": "s3a://etl:a@b/{}@bucket/chk",
    "sas": "https://acc.blob.core.windows.net/c/f?sv=2024-01-01&sig={}&se=2026",
    "sas-encoded": "https://acc.blob.core.windows.net/c/f?sv=2024&sig=a%2B{}%3D",
    "sas-url-encoded": "https://h/x?to=https%3A%2F%2Facc.blob.core.windows.net%2Fc%3Fsv%3D2024%26sig%3D{}%26se%3D2026",
    "presigned": "https://b.s3.amazonaws.com/f?X-Amz-Date=1&X-Amz-Signature={}",
    "presigned-credential": "https://b.s3.amazonaws.com/f?X-Amz-Credential={}%2F20260101%2Fus-east-1",
    "presigned-token": "https://b.s3.amazonaws.com/f?X-Amz-Security-Token={}",
    "presigned-old": "https://b.s3.amazonaws.com/f?AWSAccessKeyId={}&Expires=1",
    "azure-connection": "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=ab+/{}==;EndpointSuffix=x",
    "event-hubs": "Endpoint=sb://h/;SharedAccessKeyName=root;SharedAccessKey={}=;EntityPath=orders",
    "azure-conf": "fs.azure.account.key.acc.dfs.core.windows.net={}",
    "gcs-account": _ACCOUNT.replace("{", "{{").replace("}", "}}").replace(SECRET, "{}"),
    "gcs-conf": "fs.gs.auth.service.account.private.key={}",
    # Kafka
    "jaas": _JAAS,
    "jaas-single": "ScramLoginModule required username='etl' password='{}';",
    "jaas-escaped": r"required username=\"etl\" password=\"{}\";",
    "jaas-escaped-twice": r"required username=\\\"etl\\\" password=\\\"p {}\\\";",
    "jaas-blank": 'required username="etl" password="p q {}";',
    "jaas-bare": "required username=etl password={};",
    "jaas-property": f"sasl.jaas.config={_JAAS}",
    "jaas-option": f"Map(kafka.sasl.jaas.config -> {_JAAS}, subscribe -> orders)",
    "jaas-json": json.dumps({"kafka.sasl.jaas.config": "@"})
    .replace("{", "{{")
    .replace("}", "}}")[:-2]
    .replace("@", "m {}")
    + "}}",
    "truststore": "ssl.truststore.password={}",
    "schema-registry": "schema.registry.basic.auth.user.info=etl:{}",
    "cookie": "Set-Cookie: session={}",
    "cookies": "Cookie: theme=dark; session={}",
    "header-close": "X-Auth-Token:{}",
    "ntlm": "Proxy-Authorization: NTLM {}",
    "signature": "Authorization: AWS AKI:{}",
    "oauth": "sasl.oauthbearer.client.secret={}",
    # representations
    "json": _JSON.replace('{"', '{{"').replace("1}", "1}}"),
    "json-in-json": r"{{\"options\":{{\"password\":\"{}\",\"a\":1}}}}",
    "json-backslash": r'{{"password":"a\\\"{}"}}',
    "json-other-letters": r'{{"url":"postgresql://etl:p\u00e4{}@db/x"}}',
    "python": "{{'user': 'etl', 'password': '{}'}}",
    "python-bytes": "{{'password': b'{}'}}",
    "python-pairs": "[('user', 'etl'), ('spark.my.password', '{}')]",
    "scala": "Map(user -> etl, password -> {}, url -> jdbc:x)",
    "scala-comma": "Map(password -> a,{}, user -> etl)",
    "scala-nested": "List(Map(a -> Map(password -> {})))",
    "scala-pairs": "ArrayBuffer((spark.user,etl), (spark.my.password,{}))",
    "scala-arrow": '"password" -> "{}"',
    "java": "{{password={}, user=etl}}",
    "java-brace": "{{password=a}}{}, user=etl}}",
    "ampersand": "password=a&{}",
    "quote": "password=a'{}",
    "xml": "<property><name>fs.s3a.secret.key</name><value>{}</value></property>",
    "xml-element": "<Error><AWSAccessKeyId>{}</AWSAccessKeyId></Error>",
    "xml-attribute": '<property name="fs.s3a.secret.key" value="{}"/>',
    "yaml": "password: {}",
    "colon": "user:etl, password:{}",
    "colon-digits": "password:12{}",
    "colon-blank": "password : {}",
    "assigned": "password := {}",
    "scala-arrow-close": "Map(user->etl,password->{})",
    "environment": "PGPASSWORD={} psql",
    "compared": "password == '{}'",
    # commands
    "mysql": "mysql -u etl -p{} orders",
    "conf": "spark-submit --conf spark.hadoop.fs.s3a.secret.key={} app.py",
    "conf-quoted": "spark-submit --conf 'spark.my.password=a {}' app.py",
    "option": "app.py --password {} --topic orders",
    "option-quoted": "app.py --password 'a {}' --topic orders",
    "option-equals": "app.py --db-password={}",
    "option-list": '["app.py", "--password", "{}"]',
    "option-python": "['app.py', '--api-token', '{}']",
    "option-keytool": "keytool -list -storepass {} -keystore k.jks",
    "option-user": "curl -fsS -u etl:{} http://yarn:8088/ws",
    "option-user-long": "curl --proxy-user etl:{} http://yarn:8088/ws",
    "option-user-list": "['curl', '-u', 'etl:{}']",
    "java-pass": "keystorePass={}",
    "java-pwd": "saslPwd={}",
    "java-option": "-Djavax.net.ssl.trustStorePassword={}",
    # the web
    "basic": "Authorization: Basic " + base64.b64encode(b"etl:").decode().rstrip("=") + "{}==",
    "basic-alone": "sent Basic ZXRsOnA5{}=",
    "bearer": "curl -H 'X: Bearer {}='",
    "header": "Authorization: {}",
    "slack": "https://hooks.slack.com/services/T00/B00/{}",
    "discord": "https://discord.com/api/webhooks/123/{}",
    "teams": "https://corp.webhook.office.com/webhookb2/abc@def/IncomingWebhook/{}",
    "pagerduty": "https://events.pagerduty.com/integration/{}/enqueue",
    "pagerduty-json": '{{"routing_key": "{}"}}',
    "telegram": "https://api.telegram.org/bot123:{}/sendMessage",
    "google-chat": "https://chat.googleapis.com/v1/spaces/A/messages?key={}&token={}",
    "token-login": "https://{}@github.com/corp/repo",
    "token-user": "https://{}:x-oauth-basic@github.com/corp/repo",
    "access-token": "https://h/f?access_token={}",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "pem-cut": "-----BEGIN PRIVATE KEY-----\n{}",
}
"""Name of the spelling → the text that holds it."""


def spelled(name: str, secret: str = SECRET) -> str:
    """A text that holds a secret, in this spelling."""
    return SPELLINGS[name].format(*[secret] * 4)


FORMS = {
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws-session": "ASIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln",
    "databricks": "dapi0123456789abcdef0123456789abcdef",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github-fine": "github_pat_0123456789abcdefghij_ABCDEFGHIJ",
    "gitlab": "glpat-0123456789abcdefghij",
    "slack": "xoxb-0123456789-abcdef",
    "google": "AIza0123456789abcdefghijklmnopqrstuvwxy",
}
"""Secrets that are known by their form alone."""
