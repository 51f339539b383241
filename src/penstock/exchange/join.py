"""Joining a partition: each process opens its part, serves its rows to the others, and reads theirs.

In: a partition, and how the processes find each other: a `torch.distributed` group, or addresses. Out: a graph that loaders accept.
Invariant: batches are those of the whole store, bit for bit, whatever the number of parts and processes.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import socket
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash

from penstock.errors import StoreError, TierError, UsageError, reason_of
from penstock.exchange import wire
from penstock.exchange.draws import DrawTable, RemoteDraws
from penstock.exchange.own_address import own_address
from penstock.exchange.peers import Address, Peer
from penstock.exchange.remote import RemoteTier
from penstock.exchange.server import Server
from penstock.exchange.tables import NEIGHBORS, NUMBERS, PAIRS, Key, Table, tables_of
from penstock.partition import Book, Part
from penstock.partition.part import num_parts_at
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.lists import TierLists
from penstock.store.tiers import Elements

logger = logging.getLogger("penstock")

_LOOK_S = 1.0
_SAY_S = 10.0
_MOST_S = 1_000_000
"""Longest `timeout_s`: a system's clock refuses some that are longer."""


class PartitionedGraph:
    """A partitioned graph; this process has one part. Made by `join`. As a context manager, at the end of a block that did not fail, it
    waits until no other process needs its rows.

    Args:
        part: the part of this process, open.
        us: the introduction that this process sends to others.
        peers: all processes, by rank, including this one.
        door: the listening socket for connections of other processes.
    Attributes:
        rank, num_ranks: rank of this process and number of ranks, for loaders: part p belongs to the ranks r with r mod num_parts = p.
        tables, tiers: by key (see `penstock.exchange.tables`): the description of rows, and the tier that reads them from their owners.
    """

    def __init__(self, part: Part, us: wire.Hello, peers: Sequence[Peer], door: socket.socket) -> None:
        self.part = part
        self.rank = us.rank
        self.num_ranks = len(peers)
        self._peers = peers
        self.tables, self.tiers, self._draws = dict[Key, Table](), dict[Key, RemoteTier](), dict[Key, RemoteDraws]()
        nearest, tables = [self._ask_for(p) for p in range(part.num_parts)], tables_of(part, self.tiers)
        for number, table in enumerate(tables):
            if isinstance(table, DrawTable):
                self._draws[table.key] = RemoteDraws(table.lists, number, nearest)
            else:
                self.tables[table.key], self.tiers[table.key] = table, RemoteTier(table, number, part.number, nearest)
        self._server, self._pid = Server(door, us, tables), os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._server, peers, self._pid)

    def _ask_for(self, part: int) -> Peer | None:
        """Return the peer to ask for rows of a part; each process that has the part serves equally many others."""
        if part == self.part.number:
            return None
        having = [peer for peer in self._peers if peer.part == part]
        return having[self.rank // self.part.num_parts % len(having)]

    @property
    def num_nodes(self) -> dict[NodeType, int]:
        """Node type -> number of nodes of the whole graph."""
        return {t: each.num_nodes for t, each in self.part.manifest.nodes.items()}

    @property
    def books(self) -> dict[NodeType, Book]:
        """Node type -> which part owns which node."""
        return self.part.books

    def graph(self) -> Graph:
        """Return the topology: row pointers are local, neighbours are read from their owners."""
        graph, adjacency = self.part.graph(), {}
        for e, csc in graph.adjacency.items():
            numbers = self.elements(NUMBERS, e) if (NUMBERS, e) in self.tiers else None
            are_edges = partial(self._are_edges, e) if (PAIRS, e) in self.tiers else None
            adjacency[e] = replace(csc, lists=TierLists(self.tiers[NEIGHBORS, e]), numbers=numbers, are_edges=are_edges)
        return replace(graph, adjacency=adjacency)

    def elements(self, what: str, key: NodeType | EdgeType) -> Elements:
        """Return a table of single numbers as a vector."""
        return Elements(self.tiers[what, key], self.tables[what, key].arrays[0].dtype)

    def draws(self, what: str, edge_type: EdgeType) -> RemoteDraws:
        """Return draws from the lists of an edge type in all parts. Their owners prepare them now, so that invalid weights are found before
        the first batch: TierError, or InputError for this part."""
        found, nodes = self._draws[what, edge_type], np.flatnonzero(np.diff(self.part.map(self.part.manifest.edges[edge_type].indptr)))
        _, firsts = np.unique(self.books[edge_type[2]].owners(nodes), return_index=True)  # one node of each part
        found.prepare(nodes[firsts])
        return found

    def _are_edges(self, edge_type: EdgeType, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return bool[n]: whether each pair of nodes is an edge of a type."""
        return Elements(self.tiers[PAIRS, edge_type], np.bool_)[targets * self.num_nodes[edge_type[0]] + sources]

    def close(self, *, wait: bool = True) -> None:
        """Send no more requests; with `wait`, serve until no other process needs rows; then end. May be called again.

        Processes that have ended are not waited for. Loaders of this graph fail afterwards.
        """
        if wait and self._finalizer.alive and self._pid == os.getpid():
            self._wait_for_others()
        self._finalizer()

    def _wait_for_others(self) -> None:
        missing = {peer.rank: peer for peer in self._peers if peer.rank != self.rank}
        said = time.monotonic() + _SAY_S
        while missing:
            missing = {rank: peer for rank, peer in missing.items() if peer.say_goodbye()}  # again, to see if it is there
            missing = {rank: missing[rank] for rank in self._server.wait_for_goodbyes(missing.keys(), _LOOK_S)}
            if missing and time.monotonic() > said:
                logger.warning("rank %d has finished, and gives rows to ranks %s, which have not yet", self.rank, sorted(missing))
                said = time.monotonic() + 6 * _SAY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(wait=error is None)

    def __repr__(self) -> str:
        return f"PartitionedGraph({str(self.part.path)!r}, rank={self.rank}, num_ranks={self.num_ranks})"


def join(
    path: str | os.PathLike[str],
    *,
    group: Any = None,
    addresses: Sequence[str] | None = None,
    rank: int | None = None,
    host: str | None = None,
    timeout_s: float = 60.0,
) -> PartitionedGraph:
    """Join a partition. Every process calls it at the same point, and gets the same graph.

    Args:
        path: folder of the whole partition (this process opens its part), or of the part that this machine has.
        group: the `torch.distributed` group of the processes; None: the default one.
        addresses: instead of a group: "host:port" of each process, by rank; process r has part r mod num_parts. Anyone who can
            reach these ports can read the graph.
        rank: of this process in `addresses`.
        host: name or address at which others reach this machine, IPv4 or IPv6; default: the address from which it reaches MASTER_ADDR.
        timeout_s: how long others may take to answer a request, ten times as long if they are there and at work; and how long to join. In
            a group, they may take as long as it waits to come here.
    Raises:
        UsageError: parts have different numbers of processes; there is no group; an address or `timeout_s` is invalid.
        StoreError: the part cannot be opened.
        TierError: another process cannot be reached, has ended, or has joined another partition.
    """
    if not (isinstance(timeout_s, (int, float)) and 0 < timeout_s <= _MOST_S):
        raise UsageError(f"timeout_s must be seconds above 0, at most {_MOST_S:,}; got {timeout_s!r}")
    if addresses is not None:
        return _join_by_addresses(path, addresses, rank, timeout_s)
    if rank is not None:
        raise UsageError("rank goes with addresses: a group knows its ranks")
    return _join_group(path, group, host, timeout_s)


def _join_by_addresses(path: Any, addresses: Sequence[str], rank: int | None, timeout_s: float) -> PartitionedGraph:
    places, num_parts = [_parse(address) for address in addresses], num_parts_at(path)
    if not isinstance(rank, (int, np.integer)) or not 0 <= rank < len(places):
        raise UsageError(f"rank must say which of the {len(places)} addresses is this process's, from 0 on; got {rank!r}")
    rank = int(rank)
    part = _open_part(path, None if num_parts is None else rank % num_parts)
    if part.number != rank % part.num_parts:
        raise UsageError(f"rank {rank} has part {rank % part.num_parts} of {part.num_parts}, and {path} is part {part.number}")
    parts = [r % part.num_parts for r in range(len(places))]
    _check_parts(parts, part.num_parts)
    token = xxhash.xxh3_128_hexdigest(f"{part.manifest.digest} {list(addresses)}".encode()).encode()  # not a secret: see `addresses`
    door = _open_door(*places[rank])
    return _enter(part, door, places, parts, rank, token, timeout_s)


def _join_group(path: Any, group: Any, host: str | None, timeout_s: float) -> PartitionedGraph:
    import torch.distributed as dist

    from penstock.exchange.aside import gather_objects

    if not dist.is_available() or not dist.is_initialized():
        raise UsageError(
            "join finds the other processes by torch.distributed: call init_process_group first (under torchrun), or give addresses"
        )
    ours, world = dist.get_rank(group), dist.get_world_size(group)
    failed: Exception | None = None
    mine: Any = None
    try:
        num_parts = num_parts_at(path)
        part = _open_part(path, None if num_parts is None else ours * num_parts // world)
        door = _open_door(host or own_address(), 0)
        mine = part.number, part.manifest.digest, door.getsockname()[:2], secrets.token_bytes(wire.TOKEN_BYTES)
    except (StoreError, UsageError, OSError) as error:
        failed = error
    try:
        said = gather_objects(mine, group)  # also after an error here, since the others wait
    except RuntimeError as error:
        if mine is not None:
            door.close()
        raise failed or TierError(
            f"another of the {world} processes has ended before it joined, or was silent for as long as the group waits: see what it says"
        ) from error
    if failed is not None:
        raise failed
    try:
        return _enter_group(part, door, said, ours, timeout_s)
    except BaseException:
        door.close()
        raise


def _enter_group(part: Part, door: socket.socket, said: Sequence[Any], ours: int, timeout_s: float) -> PartitionedGraph:
    if None in said:
        raise TierError(f"process {said.index(None)} of {len(said)} could not open its part: see what it says")
    _check_together([each[1] for each in said], [each[2][0] for each in said])
    counts, order = {}, []
    for number, _, _, _ in said:
        order.append(counts.get(number, 0) * part.num_parts + number)
        counts[number] = counts.get(number, 0) + 1
    by_rank = [said[process] for process in np.argsort(order)]
    _check_parts([each[0] for each in by_rank], part.num_parts)
    return _enter(part, door, [Address(*each[2]) for each in by_rank], [each[0] for each in by_rank], order[ours], said[0][3], timeout_s)


def _enter(
    part: Part, door: socket.socket, places: Sequence[Address], parts: Sequence[int], rank: int, token: bytes, timeout_s: float
) -> PartitionedGraph:
    us = wire.Hello(token, rank, part.number, part.manifest.digest, secrets.token_bytes(wire.SESSION_BYTES))
    peers = [Peer(place, us, r, parts[r], timeout_s) for r, place in enumerate(places)]
    graph, deadline = PartitionedGraph(part, us, peers, door), time.monotonic() + timeout_s
    try:
        for peer in peers:
            if peer.rank != rank:
                peer.connect(deadline)
    except BaseException:
        graph.close(wait=False)
        raise
    return graph


def _open_part(path: Any, number: int | None) -> Part:
    part = Part(path, number)
    part.check_books()
    return part


def _end(server: Server, peers: Sequence[Peer], pid: int) -> None:
    if pid != os.getpid():  # a forked child: its connections are copies of ones still in use
        return
    server.close()
    for peer in peers:
        peer.close()


def _check_together(digests: Sequence[str], hosts: Sequence[str]) -> None:
    """Raise in all processes for errors that otherwise only some would notice while the others wait: different partitions, and a mixture of
    loopback and other addresses."""
    for process, digest in enumerate(digests):
        if digest != digests[0]:
            raise TierError(
                f"process {process} has a part of partition {digest}, and process 0 of {digests[0]}: join the same partition everywhere"
            )
    are_local = [ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts]
    if any(are_local) and not all(are_local):
        process = are_local.index(True)
        raise TierError(
            f"process {process} is at {hosts[process]}, where no other machine reaches it: its MASTER_ADDR must be an address of the "
            "network, and no name that means the machine itself there (torchrun --local-addr, --master-addr; or join(host=...))"
        )


def _check_parts(parts: Sequence[int], num_parts: int) -> None:
    """Refuse parts with different numbers of processes, or none."""
    counts = np.bincount(parts, minlength=num_parts)
    if len(set(counts.tolist())) != 1:
        raise UsageError(
            f"{len(parts)} processes for {num_parts} parts, of which they have {counts.tolist()}: start equally many for each part"
        )


def _parse(address: str) -> Address:
    host, colon, port = str(address).rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16 or (":" in host and not is_bracketed):
        raise UsageError(f"an address is host:port, for instance 10.0.0.1:7000, or [fd00::1]:7000; got {address!r}")
    return Address(host, int(port))


def _open_door(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2] if family == socket.AF_INET else place, family=family, backlog=512)
    except OSError as error:
        at = Address(host, port)
        raise StoreError(f"cannot listen at {at}: {reason_of(error)}; give an address of this machine (host, addresses)") from None
