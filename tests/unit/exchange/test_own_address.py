"""Where a machine is, as others see it; addresses of IPv6."""

import ipaddress
import socket

import pytest
from tests.feed.inputs import homogeneous_data
from tests.partitions import cut, together

import penstock
from penstock.exchange import join
from penstock.exchange.own_address import interface_of, own_address


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


def test_of_this_machine_for_itself(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert own_address() == "127.0.0.1"
    for name in ("127.0.0.1", "127.0.1.1", "::1", "a name", "203.0.113.1", "2001:db8::1"):
        assert interface_of(name) is None


@needs_ipv6
@pytest.mark.parametrize("master", ["::1", "[::1]"])
def test_ipv6(master, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", master)
    assert own_address() == "::1"


@pytest.mark.parametrize("master", ["203.0.113.1", "2001:db8::1"])
def test_an_interface(master, monkeypatch):
    """That by which another machine would be reached, if there is a network."""
    monkeypatch.setenv("MASTER_ADDR", master)
    address = own_address()
    is_there = address != socket.gethostname() and not ipaddress.ip_address(address).is_loopback
    assert interface_of(address) in ([name for _, name in socket.if_nameindex()] if is_there else [None])


@needs_ipv6
def test_joined_by_ipv6(tmp_path):
    penstock.ingest(homogeneous_data(), tmp_path / "store")
    parts, addresses = cut(penstock.open(tmp_path / "store"), tmp_path / "parts", 2), []
    for _ in range(2):
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as door:
            addresses.append(f"[::1]:{door.getsockname()[1]}")

    def digests(rank):
        with join(parts, addresses=addresses, rank=rank) as graph:
            assert str(graph._peers[1 - rank]) == f"rank {1 - rank} ({addresses[1 - rank]})"
            loader = penstock.NeighborLoader(graph, [3, 2], "train", batch_size=32, seed=0, rank=rank, num_ranks=2)
            return [penstock.digest(batch) for batch in loader]

    whole = penstock.NeighborLoader(penstock.open(tmp_path / "store"), [3, 2], "train", batch_size=32, seed=0)
    expected = [penstock.digest(batch) for batch in whole]
    assert together(2, digests) == [expected[0::2], expected[1::2]]
