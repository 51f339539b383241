"""The tier whose rows are with several processes: the contract, with every row at a place of its own, and what is said where it fails."""

import errno
import re
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from penstock.errors import InputError, TierError
from penstock.exchange import RemoteTier, server, wire
from penstock.exchange import peers as exchange_peers
from penstock.exchange.peers import Address, Peer
from penstock.exchange.server import Server
from penstock.exchange.tables import FIELDS, Table
from penstock.partition import make_book
from penstock.records import NODE
from tests.contract.tiers import TierContract
from tests.partitions import free_addresses

DIGEST, TOKEN = "0123456789abcdef", b"t" * 32


class Processes:
    """Parts of some arrays, each served by threads of its own."""

    def __init__(self, arrays, owners, num_parts, timeout_s=10.0):
        self.book = make_book(owners, num_parts)
        order = np.argsort(self.book.places)
        self.tables, self.servers, self.peers = [], [], []
        for part in range(num_parts):
            mine = order[self.book.starts[part] : self.book.starts[part + 1]]
            self.tables.append(Table((FIELDS, NODE), [np.ascontiguousarray(array[mine]) for array in arrays], self.book, {}))
            door = socket.create_server(("127.0.0.1", 0))
            self.servers.append(Server(door, wire.Hello(TOKEN, part, part, DIGEST), [self.tables[part]]))
            us = wire.Hello(TOKEN, 0, 0, DIGEST)
            self.peers.append(Peer(Address(*door.getsockname()), us, part, part, timeout_s))

    def tier(self):
        """As process 0 sees the rows."""
        return RemoteTier(self.tables[0], 0, 0, [None, *self.peers[1:]])

    def close(self):
        for one in (*self.servers, *self.peers):
            one.close()


class TestRemoteTier(TierContract):
    num_parts = 3

    def rows_counted(self, tier):
        return tier.stats.num_rows + tier.peers["own part"].num_rows

    @pytest.fixture(autouse=True)
    def _processes(self):
        self.made = []
        yield
        for one in self.made:
            one.close()

    def make(self, arrays):
        owners = np.random.default_rng(3).integers(0, self.num_parts, len(arrays[0]))
        self.made.append(Processes(arrays, owners, self.num_parts))
        return self.made[-1].tier()


class TestAllElsewhere(TestRemoteTier):
    def make(self, arrays):
        self.made.append(Processes(arrays, np.ones(len(arrays[0]), np.int64), 2))
        return self.made[-1].tier()


class TestAlone(TestRemoteTier):
    num_parts = 1


class TestInPieces(TestRemoteTier):
    """Answers of three rows at a time, and of one where no more fit."""

    @pytest.fixture(autouse=True, params=[28 * 3, 1])
    def _small_pieces(self, monkeypatch, request):
        monkeypatch.setattr(wire, "PIECE_BYTES", request.param)


@pytest.fixture
def arrays():
    return [np.arange(40.0).reshape(20, 2), np.arange(20)]


@pytest.fixture
def processes(arrays):
    made = Processes(arrays, np.arange(20) % 2, 2, timeout_s=0.5)
    yield made
    made.close()


def read(tier, rows):
    rows = np.array(rows)
    outs = [np.zeros(rows.size * width, np.uint8) for width in tier.row_bytes]
    tier.submit(rows, outs, np.arange(rows.size)).wait()
    return outs[1].view(np.int64).tolist()


def test_many_at_once(processes):
    tier, found = processes.tier(), {}

    def work(number):
        rows = np.random.default_rng(number).integers(0, 20, 7)
        found[number] = all(read(tier, rows) == rows.tolist() for _ in range(20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), True)


def test_one_that_has_ended(processes):
    tier = processes.tier()
    assert read(tier, [0, 1]) == [0, 1]
    processes.servers[1].close()
    with pytest.raises(TierError, match=r"rank 1 \(127.0.0.1:\d+\) has ended: its part is gone"):
        read(tier, [0, 1])
    with pytest.raises(TierError, match=r"rank 1 .* is gone: "):
        read(tier, [0, 1])
    assert read(tier, [0, 2]) == [0, 2]


def test_one_that_stands_still():
    """It is reached, and says nothing any more."""
    with answering(wire.Hello(TOKEN, 1, 1, DIGEST).to_bytes(), b"", b"") as address:
        peer = Peer(address, wire.Hello(TOKEN, 0, 0, DIGEST), 1, 1, 0.3)
        with pytest.raises(TierError, match=r"rank 1 .* has not answered for 0.3 s: it has stopped, or the network does not reach it"):
            list(peer.ask(0, np.array([1], np.int32)).pieces(1, 24))
        peer.close()


@pytest.mark.parametrize("is_done", [True, False])
def test_one_that_is_at_work(arrays, is_done, caplog):
    """It answers hellos: before its first answer it may have to read all its edges."""
    made, go_on = Processes(arrays, np.arange(20) % 2, 2, timeout_s=0.1), threading.Event()
    table = made.tables[1]

    class Slow(Table):
        def answer(self, rows, part):
            go_on.wait(0.35 if is_done else 30)
            return table.answer(rows, part)

    made.servers[1]._tables = [Slow(table.key, table.arrays, table.shares, table.fields)]
    if is_done:
        assert read(made.tier(), [1, 3]) == [1, 3]
    else:
        with pytest.raises(
            TierError, match=r"rank 1 .* is there, and has not answered for 1 s: its disk hangs, or it needs longer; join w"
        ):
            read(made.tier(), [1])
    assert "has not answered for 0.2 s; it is there, and waited for" in caplog.text
    go_on.set()
    made.close()


def test_a_door_that_cannot_open_for_a_while(arrays, monkeypatch, caplog):
    """As of a process with too many open files: who comes later is let in."""

    class Stuck:
        def __init__(self, door):
            self.door, self.has_failed = door, False

        def accept(self):
            if not self.has_failed:
                self.has_failed = True
                raise OSError(errno.EMFILE, "Too many open files")
            return self.door.accept()

        def __getattr__(self, name):
            return getattr(self.door, name)

    monkeypatch.setattr(server, "_AGAIN_S", 0.01)
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *address: Stuck(create(*address)))
    made = Processes(arrays, np.arange(20) % 2, 2)
    assert read(made.tier(), [1, 2]) == [1, 2]
    assert "rank 1 lets nobody in for now: [Errno 24] Too many open files" in caplog.text
    made.close()


def test_one_that_fails_says_why(processes, arrays):
    table = processes.tables[1]

    class Failing(Table):
        def answer(self, rows, part):
            yield from ()
            raise TierError("the disk is gone")

    processes.servers[1]._tables = [Failing(table.key, table.arrays, table.shares, table.fields)]
    tier = processes.tier()
    with pytest.raises(TierError, match=r"rank 1 .* could not give rows of its part: the disk is gone"):
        read(tier, [1])
    processes.servers[1]._tables = [table]
    assert read(tier, [1, 3]) == [1, 3]  # over the same connection


def test_one_that_fails_in_the_middle(processes, arrays, monkeypatch):
    monkeypatch.setattr(wire, "PIECE_BYTES", 24)
    table = processes.tables[1]

    class Failing(Table):
        def answer(self, rows, part):
            pieces = table.answer(rows, part)
            yield next(pieces)
            raise TierError("the disk is gone")

    processes.servers[1]._tables = [Failing(table.key, table.arrays, table.shares, table.fields)]
    tier = processes.tier()
    with pytest.raises(TierError, match="the disk is gone"):
        read(tier, [1, 3, 5])
    processes.servers[1]._tables = [table]
    assert read(tier, [1, 3, 5]) == [1, 3, 5]


def test_rows_of_others_are_not_given(processes):
    asked = processes.peers[1].ask(0, np.array([2], np.int32))
    with pytest.raises(TierError, match="rows were asked for that part 1 does not own"):
        list(asked.pieces(1, 24))
    asked = processes.peers[0].ask(0, np.array([1], np.int32))
    with pytest.raises(TierError, match="rows were asked for that part 0 does not own"):
        list(asked.pieces(1, 24))
    for row in (-1, 20):
        asked = processes.peers[1].ask(0, np.array([row], np.int32))
        with pytest.raises(TierError, match=f"rows from {row} to {row} were asked for, and there are 20"):
            list(asked.pieces(1, 24))


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, wire.Hello(b"x" * 32, 0, 0, DIGEST).to_bytes()])
def test_strangers_are_told_nothing(said, processes):
    with socket.create_connection(processes.peers[1].address) as end, suppress(OSError):  # it may be gone before all is said
        end.sendall(said)
        end.shutdown(socket.SHUT_WR)
        assert end.recv(1) == b""
    assert read(processes.tier(), [1]) == [1]
    wait_until(lambda: len(processes.servers[1]._ends) == 1)  # that of the read


def wait_until(is_so):
    until = time.monotonic() + 10
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
    assert is_so()


def test_requests_that_make_no_sense_end_the_connection(processes, caplog):
    for number, count in ((7, 1), (-2, 1), (0, -1), (0, 1 << 40)):
        asked = processes.peers[1].ask(0, np.array([1], np.int32))
        list(asked.pieces(1, 24))
        with processes.peers[1]._take() as end:
            wire.send(end, number, count)
            assert end.recv(1) == b""
    assert read(processes.tier(), [1]) == [1]
    assert not caplog.records


@contextmanager
def answering(*said):
    """A process that says these bytes to whoever connects, and what it is answered; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer():
            with suppress(OSError):
                while True:
                    end, _ = door.accept()
                    with end:
                        for each in said:
                            end.recv(1 << 10)
                            end.sendall(each)
                        end.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        yield Address(*door.getsockname())
        door.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("header", [(wire.DONE, 7), (wire.FAILED, 1 << 40), (wire.FAILED, -1), (5, 24)])
def test_answers_that_make_no_sense(header):
    with answering(wire.Hello(TOKEN, 1, 1, DIGEST).to_bytes(), struct.pack("<qq", *header)) as address:
        peer = Peer(address, wire.Hello(TOKEN, 0, 0, DIGEST), 1, 1, 5.0)
        with pytest.raises(InputError, match="answers what was not asked: are all processes of one version"):
            list(peer.ask(0, np.array([1], np.int32)).pieces(1, 24))
        peer.close()


def test_garbage_at_the_address():
    with answering(b"HTTP/1.1 400 Bad Request\r\n" * 9) as address:
        peer = Peer(address, wire.Hello(TOKEN, 0, 0, DIGEST), 1, 1, 5.0)
        with pytest.raises(TierError, match=r"has not answered .somebody else is there, or it joined otherwise.: every process joins"):
            peer.connect(0.0)


def test_a_connection_to_itself_is_nobody(processes, monkeypatch):
    """Who asks again and again at a port of its own machine where nobody listens yet is given that port itself, by chance."""
    peer, create = processes.peers[1], socket.create_connection
    ports = iter([free_addresses(1)[0].rpartition(":")[2]])

    def connect(address, timeout):
        if (port := next(ports, None)) is None:
            return create(address, timeout)
        return create(("127.0.0.1", int(port)), timeout, ("127.0.0.1", int(port)))

    monkeypatch.setattr(socket, "create_connection", connect)
    peer.connect(time.monotonic() + 5)
    assert read(processes.tier(), [1, 3]) == [1, 3]
    assert next(ports, None) is None


def test_machines_that_are_still_starting(processes, monkeypatch, caplog):
    """Their names are unknown at first, then there is no route to them."""
    peer, create, first = processes.peers[1], socket.create_connection, [socket.gaierror(-2, "Name or service not known")]
    first += [OSError(errno.EHOSTUNREACH, "No route to host")] * 3

    def connect(address, timeout):
        if first:
            raise first.pop(0)
        return create(address, timeout)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(exchange_peers, "_SAY_S", 0.0)
    peer.connect(time.monotonic() + 5)
    assert read(processes.tier(), [1, 3]) == [1, 3]
    assert re.search(r"rank 0 waits for rank 1 \(127.0.0.1:\d+\): Name or service not known", caplog.text)
    assert len(caplog.records) == 1


def test_who_joins_again_is_not_let_in_by_those_of_before(processes):
    """Processes that join once more, by the same addresses, meet those who do too, and nobody who is about to end."""
    assert read(processes.tier(), [1, 3]) == [1, 3]
    address = processes.peers[1].address
    again = Peer(address, wire.Hello(TOKEN, 0, 0, DIGEST, b"another1"), 1, 1, 5.0)
    with pytest.raises(TierError, match=r"rank 1 .* has not answered .*: every process joins the same partition"):
        again.connect(0.0)
    for rank, session in ((0, bytes(8)), (2, b"another1")):
        one = Peer(address, wire.Hello(TOKEN, rank, 0, DIGEST, session), 1, 1, 5.0)
        one.connect(0.0)
        one.close()


def test_words_that_are_no_text(processes, monkeypatch):
    """A path of other bytes, say."""

    def answer(table, rows, part):
        raise TierError("no \udcff.npy")
        yield

    monkeypatch.setattr(Table, "answer", answer)
    with pytest.raises(TierError, match=r"rank 1 .* could not give rows of its part: no \?.npy"):
        read(processes.tier(), [1])


def test_long_words_are_cut(processes, monkeypatch):
    def answer(table, rows, part):
        raise TierError("x" * 100_000)
        yield

    monkeypatch.setattr(Table, "answer", answer)
    with pytest.raises(TierError, match="x" * 1000):
        read(processes.tier(), [1])


def test_connections_that_come_to_rest_after_the_end_are_closed(processes):
    peer = processes.peers[1]
    asked = peer.ask(0, np.array([1], np.int32))
    peer.close()
    list(asked.pieces(1, 24))
    wait_until(lambda: not processes.servers[1]._ends)
    with pytest.raises(TierError, match="is asked for nothing more: the graph was closed"):
        peer.ask(0, np.array([1], np.int32))


def test_a_goodbye_wakes_who_waits_for_it(processes):
    started = time.monotonic()
    threading.Timer(0.05, processes.peers[1].say_goodbye).start()
    assert processes.servers[1].wait_for_goodbyes({0}, 30.0) == set()
    assert time.monotonic() - started < 20
    assert processes.servers[1].wait_for_goodbyes({0, 2}, 0.01) == {2}


def test_somebody_else_answers(processes):
    peer = processes.peers[1]
    for us, rank, part in (
        (wire.Hello(TOKEN, 0, 0, "f" * 16), 1, 1),
        (wire.Hello(TOKEN, 0, 0, DIGEST), 2, 1),
        (wire.Hello(TOKEN, 0, 0, DIGEST), 1, 0),
    ):
        with pytest.raises(TierError, match=f"has part 1 of partition {DIGEST} as rank 1, and part {part} of"):
            Peer(peer.address, us, rank, part, 1.0).connect(0.0)
    with socket.create_server(("127.0.0.1", 0)) as door:
        stranger = Peer(Address(*door.getsockname()), wire.Hello(TOKEN, 0, 0, DIGEST), 1, 1, 0.2)
        with pytest.raises(TierError, match=r"rank 1 .* has not answered \(timed out\): every process joins"):
            stranger.connect(0.0)
