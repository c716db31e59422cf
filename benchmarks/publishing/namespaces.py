"""Network namespaces with a constant delay between them: for processes that are to be as if on machines of their own.

A node's only link is a TUN device, whose packets a thread of this process passes on: not every kernel has netem. No
namespace and no device has a name that would be left behind: they are gone with the processes, however these end.
https://man7.org/linux/man-pages/man7/network_namespaces.7.html,
https://docs.kernel.org/networking/tuntap.html (read 2026-11-23)
"""

import fcntl
import os
import select
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address

from sluice.clock import SystemClock

_NET = "198.18.0."  # RFC 2544 sets 198.18.0.0/15 aside for benchmarks
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_PACKET_BYTES_MAX = 9_000
_DESTINATION = slice(16, 20)  # of an IPv4 packet
_LOOK_SECONDS = 0.1
_clock = SystemClock()


class Network:
    """Nodes in namespaces of their own, and what passes their packets on.

    Raises:
        OSError: this process may not make one; it takes root, and a kernel with TUN devices.
    """

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._links: dict[bytes, int] = {}
        self._is_ended = threading.Event()
        self._passing = threading.Thread(target=self._pass_on, daemon=True)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Yield this thread's address in a first node of its own, which it is in until the block ends."""
        self._passing.start()
        try:
            with self.node() as address:
                yield address
        finally:
            self._is_ended.set()
            self._passing.join()
            for link in self._links.values():
                os.close(link)

    @contextmanager
    def node(self) -> Iterator[str]:
        """Yield the address of a new node; what this thread starts in the block, is in it and stays there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            os.unshare(os.CLONE_NEWNET)
            try:
                yield self._link(f"{_NET}{len(self._links) + 1}")
            finally:
                os.setns(before, os.CLONE_NEWNET)
        finally:
            os.close(before)

    def _link(self, address: str) -> str:
        link = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(link, _TUNSETIFF, struct.pack("16sH22x", b"sluice", _IFF_TUN | _IFF_NO_PI))
        for settings in (
            "link set lo up",
            f"addr add {address}/24 dev sluice",
            f"link set sluice mtu {_PACKET_BYTES_MAX} up",
        ):
            subprocess.run(["/usr/bin/env", "ip", *settings.split()], check=True)
        self._links[ip_address(address).packed] = link
        return address

    def _pass_on(self) -> None:
        """Pass packets on, each at its time; one that cannot be taken is lost, as on any wire."""
        waiting: deque[tuple[float, int, bytes]] = deque()
        while not self._is_ended.is_set():
            wait_seconds = max(0.0, waiting[0][0] - _clock.monotonic()) if waiting else _LOOK_SECONDS
            readable, _, _ = select.select(list(self._links.values()), [], [], wait_seconds)
            due_at = _clock.monotonic() + self._delay_seconds
            for link in readable:
                with suppress(OSError):
                    packet = os.read(link, _PACKET_BYTES_MAX)
                    if (target := self._links.get(packet[_DESTINATION])) is not None:
                        waiting.append((due_at, target, packet))
            while waiting and waiting[0][0] <= _clock.monotonic():
                _, target, packet = waiting.popleft()
                with suppress(OSError):
                    os.write(target, packet)
