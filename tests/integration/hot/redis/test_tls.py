"""TLS to Redis with a private CA and a client certificate, which the options of the URL name."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from chatserver.dev.servers import Server, redis_launch
from chatserver.domain.clock import SystemClock
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.redis.factory import open_hot
from chatserver.operations.doctor.redis_checks import check_redis
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import free_port


@dataclasses.dataclass(frozen=True)
class TlsRedis:
    """A Redis that requires TLS and a client certificate; the files of its CA and of a client."""

    port: int
    ca: Path
    certificate: Path
    key: Path

    def url(self, **options: Path) -> str:
        query = "&".join(f"{name}={path}" for name, path in options.items())
        return f"rediss://127.0.0.1:{self.port}/0?{query}"

    @property
    def complete_url(self) -> str:
        return self.url(ssl_ca_certs=self.ca, ssl_certfile=self.certificate, ssl_keyfile=self.key)


def write_certificates(folder: Path) -> None:
    """Create a CA, and certificates of a server at 127.0.0.1 and of a client."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CA of a test")])
    for name in ("ca", "server", "client"):
        key = ca_key if name == "ca" else ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(
                ca_name
                if name == "ca"
                else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            )
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
        )
        if name == "server":
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        signed = builder.sign(ca_key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    """A Redis with a plain port, which shows when it is ready, and a TLS port."""
    folder = tmp_path_factory.mktemp("tls")
    write_certificates(folder)
    port, launch = free_port(), redis_launch(folder, free_port(), appendonly="no")
    options = {
        "tls-port": str(port),
        "tls-cert-file": str(folder / "server.pem"),
        "tls-key-file": str(folder / "server.key"),
        "tls-ca-cert-file": str(folder / "ca.pem"),
        "tls-auth-clients": "yes",
    }
    argv = [
        *launch.argv,
        *(word for name, value in options.items() for word in (f"--{name}", value)),
    ]
    started = Server(dataclasses.replace(launch, argv=argv))
    started.start()
    try:
        yield TlsRedis(port, folder / "ca.pem", folder / "client.pem", folder / "client.key")
    finally:
        started.kill()


async def test_tls_with_a_private_ca_and_a_client_certificate(server: TlsRedis) -> None:
    """Both clients use the files: the pipelined one, and the one for blocking reads."""
    async with open_hot(redis_settings(server.complete_url)) as hot:
        await hot.call("SET", "k", "v")
        client = hot.create_blocking_client("k")
        try:
            assert await hot.with_deadline(client.get("k")) == b"v"
        finally:
            await client.aclose()


async def test_tls_with_an_unknown_ca_names_the_option(server: TlsRedis) -> None:
    """The message does not suggest to start a server."""
    settings = redis_settings(server.url(ssl_certfile=server.certificate, ssl_keyfile=server.key))

    with pytest.raises(Unavailable, match="certificate is invalid") as caught:
        async with open_hot(settings):
            pass
    (finding,) = await check_redis(settings, SystemClock())

    assert "ssl_ca_certs" in caught.value.message
    assert "redis-server" not in caught.value.message
    assert "certificate is invalid" in finding.what
    assert "ssl_ca_certs" in finding.fix


async def test_tls_without_the_client_certificate_is_refused(server: TlsRedis) -> None:
    """The server ends the connection during or after the handshake."""
    with pytest.raises(Unavailable):
        async with open_hot(redis_settings(server.url(ssl_ca_certs=server.ca))):
            pass


async def test_tls_file_that_cannot_be_read_is_a_wrong_setting(server: TlsRedis) -> None:
    """The error names the option and the file."""
    missing = Path("/no/such/ca.pem")

    with pytest.raises(ConfigError, match=r"CHAT_REDIS_URL.*ssl_ca_certs=/no/such/ca\.pem"):
        async with open_hot(redis_settings(server.url(ssl_ca_certs=missing))):
            pass
