"""A Kafka that asks for a login and for rights: one node with a listener for each way in, and the real authorizer.

Rules: who comes in by ADMIN may do everything, which no product code of a test uses; all others only what a test
grants.
"""

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import CreateAclsRequest, DescribeAclsRequest
from free_ports import free_port
from kafka.certificates import Authority, Identity

from stream_dp.broker.jars import resolve_jars
from stream_dp.broker.process import Node, NodeRuntime, find_java, stop_nodes, until_ready
from stream_dp.errors import StreamDPError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.records.endpoints import Security
from stream_dp.testing.kafka import missing

PASSWORD = "swordfish"  # noqa: S105 - of these tests only
WAYS = ("SCRAM", "PLAIN", "MTLS", "OAUTH")
USERS = {
    "SCRAM": "User:scram-engine",
    "PLAIN": "User:plain-engine",
    "MTLS": "User:CN=tls-engine",
    "OAUTH": "User:oauth-engine",
}
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
READ, WRITE, CREATE, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 5, 8, 10
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3
_CLUSTER_ID = "c2VjdXJlZC1icm9rZXItMA"
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """A running broker: an address for each way in, and what a client needs to come in."""

    folder: Path
    ports: dict[str, int]
    authority: Authority
    client: Identity

    @property
    def admin(self) -> str:
        return self.at("ADMIN")

    def at(self, way: str) -> str:
        return f"127.0.0.1:{self.ports[way]}"

    def secret(self, name: str, content: str) -> Path:
        """A file that only its owner may read."""
        path = self.folder / name
        path.write_text(content)
        path.chmod(0o600)
        return path

    def yaml(self, way: str) -> dict[str, str]:
        """`source.security` of a pipeline that comes in this way."""
        ca = {"ca_file": str(self.authority.file)}
        password = {"password_file": str(self.secret("password", f"{PASSWORD}\n"))}
        scram = {"mechanism": "SCRAM-SHA-512", "username": "scram-engine", **password}
        plain = {"mechanism": "PLAIN", "username": "plain-engine", **password, **ca}
        own = {"certificate_file": str(self.client.certificate), "key_file": str(self.client.key)}
        token = {"token_file": str(self.secret("token", unsecured_token("oauth-engine")))}
        return {
            "SCRAM": {"protocol": "SASL_PLAINTEXT", **scram},
            "PLAIN": {"protocol": "SASL_SSL", **plain},
            "MTLS": {"protocol": "SSL", **own, **ca},
            "OAUTH": {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", **token},
        }[way]

    def settings(self, way: str, **changes: Any) -> KafkaSettings:
        """How a client comes in this way; `changes` are keys of `security`."""
        keys: dict[str, Any] = {
            key: Path(value) if key.endswith("_file") else value
            for key, value in self.yaml(way).items()
        }
        return KafkaSettings(self.at(way), Security(**(keys | changes)))


def unsecured_token(subject: str, life_s: int = 3600) -> str:
    """A token that no one has signed (RFC 7515, `alg: none`), as Kafka takes it in tests."""

    def part(content: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    now = int(time.time())
    claims: dict[str, object] = {"sub": subject, "iat": now, "exp": now + life_s}
    return f"{part({'alg': 'none'})}.{part(claims)}."


def properties(ports: dict[str, int], authority: Path) -> str:
    protocols = {
        "ADMIN": "PLAINTEXT",
        "CONTROLLER": "PLAINTEXT",
        "SCRAM": "SASL_PLAINTEXT",
        "PLAIN": "SASL_SSL",
        "MTLS": "SSL",
        "OAUTH": "SASL_PLAINTEXT",
    }
    open_to_clients = [f"{way}://127.0.0.1:{ports[way]}" for way in ("ADMIN", *WAYS)]
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listeners": ",".join([*open_to_clients, f"CONTROLLER://127.0.0.1:{ports['CONTROLLER']}"]),
        "advertised.listeners": ",".join(open_to_clients),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "ADMIN",
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "log.dirs": "data",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required "
        f'user_plain-engine="{PASSWORD}";',
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "broker-keystore.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


@asynccontextmanager
async def secured_broker(folder: Path) -> AsyncIterator[Secured]:
    """Start the broker over this folder; it is stopped at the end."""
    ports = {way: free_port() for way in ("ADMIN", "CONTROLLER", *WAYS)}
    authority = Authority(folder, "authority")
    own, node = authority.sign("broker"), Node(folder / "node-1")
    java = await asyncio.to_thread(find_java)
    jars = await asyncio.to_thread(resolve_jars)
    node.write_config(properties(ports, authority.file))
    keystore = own.key.read_bytes() + own.certificate.read_bytes()
    (node.folder / "broker-keystore.pem").write_bytes(keystore)
    with (folder / "lock").open("w") as lock:
        machine = NodeRuntime(java, os.pathsep.join(map(str, jars)), 400, lock.fileno())
        await asyncio.to_thread(_format, machine, node.folder)
        node.launch(machine)
        try:
            await until_ready([node])
            yield Secured(folder, ports, authority, authority.sign("tls-engine"))
        finally:
            await stop_nodes([node], 10)


def _format(machine: NodeRuntime, folder: Path) -> None:
    scram = f"SCRAM-SHA-512=[name=scram-engine,password={PASSWORD}]"
    tool = [
        str(machine.java),
        "-Dlog4j2.configurationFile=log4j2.properties",
        "-cp",
        machine.classpath,
    ]
    tool += ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", "server.properties"]
    subprocess.run([*tool, "--add-scram", scram], cwd=folder, check=True, capture_output=True)


def needed(principal: str, pipeline: str, topic: str) -> list[tuple[Any, ...]]:
    """The rights of the documentation: what an engine of PIPELINE needs that reads TOPIC."""
    own = f"{pipeline}."
    grants = [(TOPIC, topic, _LITERAL, right) for right in (READ, DESCRIBE_CONFIGS)]
    grants += [(TOPIC, own, _PREFIXED, right) for right in (READ, WRITE, CREATE, DESCRIBE_CONFIGS)]
    grants += [(TRANSACTION, own, _PREFIXED, WRITE), (GROUP, own, _PREFIXED, READ)]
    return [(*grant, principal) for grant in grants]


async def grant(secured: Secured, grants: Sequence[tuple[Any, ...]]) -> None:
    """Grant (kind, name, pattern, right, principal), and wait until the broker goes by the last of them."""
    client = AIOKafkaClient(bootstrap_servers=secured.admin)
    await client.bootstrap()
    try:
        for kind, name, pattern, right, principal in grants:
            rule = (kind, name, pattern, principal, "*", right, _ALLOW)
            answer = await client.send(client.get_random_node(), CreateAclsRequest(*rule))
            assert [one[0] for one in answer.creation_responses] == [0], answer
        async with asyncio.timeout(60):
            while grants:
                told = await client.send(client.get_random_node(), DescribeAclsRequest(*rule))
                assert told.error_code == 0, told
                if told.resources:
                    break
                await asyncio.sleep(0.02)
    finally:
        await client.close()


def secured_session(folder: Path) -> Iterator[Secured]:
    """The broker for a whole session, on a loop of its own; without a Kafka the tests are skipped."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        context = secured_broker(folder)
        try:
            found = runner.run(context.__aenter__())
        except StreamDPError as error:
            missing("kafka", str(error))
        try:
            yield found
        finally:
            runner.run(context.__aexit__(None, None, None))
