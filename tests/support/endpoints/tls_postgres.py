"""A Postgres behind TLS, with a certificate of a private authority.

The Postgres of the tests is built without TLS. So this ends TLS in front of it, as a proxy of RDS does; host name and
certificate are verified by the client's own libpq.
"""

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sqlalchemy import Engine

from tests.support.processes.worker_processes import DatabaseLine

_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"  # how a client of Postgres asks for TLS
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_IDLE_SECONDS_MAX = 600.0


@dataclass(frozen=True)
class Authority:
    """A private certificate authority, made by `openssl` in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    @classmethod
    def make(cls, folder: Path) -> "Authority":
        folder.mkdir()
        authority = cls(folder)
        authority._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Private CA")
        return authority

    def certify(self, host: str) -> Path:
        """Return a file with the certificate for a host, and its key."""
        (self.folder / "names").write_text(f"subjectAltName=DNS:{host}\n", encoding="ascii")
        self._openssl("req", *_KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", f"/CN={host}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        self._openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
        both = self.folder / f"{host}.pem"
        both.write_bytes((self.folder / "server.key").read_bytes() + (self.folder / "server.pem").read_bytes())
        return both

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=30)


class _SharedSocket:
    """A TLS socket from which one thread reads while another writes.

    OpenSSL allows one call at a time, and Python's `ssl` sees to it only from 3.13.1 on: two at once end a connection
    that is well. https://github.com/python/cpython/issues/124984 (read 2026-11-26)
    """

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._secured, self._lock = secured, threading.Lock()
        secured.setblocking(False)  # noqa: FBT003 (as the standard library has it)

    def recv(self, size: int) -> bytes:
        while True:
            with self._lock, contextlib.suppress(ssl.SSLWantReadError):
                return self._secured.recv(size)
            select.select([self._secured], [], [], _IDLE_SECONDS_MAX)

    def sendall(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            with self._lock, contextlib.suppress(ssl.SSLWantWriteError):
                left = left[self._secured.send(left) :]
                continue
            select.select([], [self._secured], [], _IDLE_SECONDS_MAX)

    def shutdown(self, how: int) -> None:
        self._secured.shutdown(how)


class TlsPostgres(DatabaseLine):
    """A TCP port at which a Postgres takes connections over TLS only."""

    def __init__(self, engine: Engine, certificate: Path) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["postgresql"])
        super().__init__(engine)

    @property
    def port(self) -> int:
        return self._port

    def _carry(self, here: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a client that does not trust us goes away
            here.settimeout(_IDLE_SECONDS_MAX)
            if here.recv(len(_SSL_REQUEST), socket.MSG_WAITALL) == _SSL_REQUEST:
                here.sendall(b"S")
                with self._context.wrap_socket(here, server_side=True, do_handshake_on_connect=False) as secured:
                    secured.do_handshake()
                    super()._carry(cast("socket.socket", _SharedSocket(secured)))
