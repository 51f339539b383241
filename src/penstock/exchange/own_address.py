"""The address of this machine, as other machines see it.

In: MASTER_ADDR, the address of the first process of a group. Out: an address, and the network interface that has it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

_SIOCGIFADDR = 0x8915


def own_address() -> str:
    """Return the local address from which this machine reaches the first one of the group, or its host name; nothing is sent."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1").strip("[]")  # torchrun puts IPv6 addresses in brackets
    try:
        for family, _, _, _, place in socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as end:
                end.connect(place)
                return end.getsockname()[0]
    except OSError:
        pass
    return socket.gethostname()


def interface_of(address: str) -> str | None:
    """Return the network interface that has an address; None for names, for loopback addresses, and if none is found."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    if wanted.is_loopback:
        return None
    with suppress(OSError, ValueError):
        if wanted.version == 6:
            lines = (line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines())
            return next((line[-1] for line in lines if int(line[0], 16) == int(wanted)), None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # an interface without an address
                    found = fcntl.ioctl(end, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                    if found[20:24] == wanted.packed:
                        return name
    return None
