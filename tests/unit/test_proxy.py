"""Each way in which the proxy misbehaves, seen from both of its sides."""

from __future__ import annotations

import select
import socket
import threading

import pytest

from holdfast.testing.proxy import Proxy
from tests.helpers.processes import eventually

SECONDS_MAX = 120.0


class Target:
    """A listening socket whose connections the test holds in its hands."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS_MAX)
        self.port = self._listener.getsockname()[1]

    def take(self) -> socket.socket:
        taken, _ = self._listener.accept()
        taken.settimeout(SECONDS_MAX)
        return taken

    def knocked(self) -> bool:
        return bool(select.select([self._listener], [], [], 0)[0])

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def target():
    made = Target()
    yield made
    made.close()


@pytest.fixture
def proxy(target):
    with Proxy(target.port) as made:
        yield made


@pytest.fixture
def connect(proxy, target):
    """Makes connected pairs: what the client holds, and what the target holds."""
    opened: list[socket.socket] = []

    def connected() -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX)
        opened.append(client)
        server = target.take()
        opened.append(server)
        return client, server

    yield connected
    for one in opened:
        one.close()


def passes(sender: socket.socket, receiver: socket.socket, text: bytes = b"hello") -> bool:
    sender.sendall(text)
    return receive(receiver, len(text)) == text


def receive(receiver: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (more := receiver.recv(count - len(got))):
        got += more
    return got


def silent(receiver: socket.socket) -> bool:
    return not select.select([receiver], [], [], 0)[0]


def test_it_forwards_both_ways_and_counts(proxy, connect):
    client, server = connect()
    assert passes(client, server) and passes(server, client)
    connect()
    assert (proxy.connections, proxy.open) == (2, 2)
    large = bytes(range(256)) * 20_000
    sending = threading.Thread(target=client.sendall, args=(large,))
    sending.start()
    assert receive(server, len(large)) == large
    sending.join()


def test_an_end_is_passed_on_and_the_other_direction_goes_on(proxy, connect):
    client, server = connect()
    client.sendall(b"last words")
    client.shutdown(socket.SHUT_WR)
    assert receive(server, 99) == b"last words"
    assert passes(server, client)
    server.close()
    assert client.recv(1) == b""
    eventually(lambda: proxy.open == 0, "the proxy to close the connection")


def test_a_reset_is_passed_on(proxy, connect):
    client, server = connect()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    server.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    eventually(lambda: proxy.open == 0, "the proxy to close the connection")


def test_cut_resets_what_is_open_and_lets_new_ones_in(proxy, connect):
    pairs = [connect(), connect()]
    proxy.cut()
    assert proxy.open == 0
    for one in (one for pair in pairs for one in pair):
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    client, server = connect()
    assert passes(client, server)
    assert proxy.connections == 3


def test_cut_catches_connections_that_have_just_come(proxy):
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as client:
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            assert proxy.open == 0


def test_cut_without_a_reset_ends_politely(proxy, connect):
    client, server = connect()
    proxy.cut(reset=False)
    assert client.recv(1) == server.recv(1) == b""


def test_refuse_turns_new_ones_away_until_resume(proxy, connect):
    client, server = connect()
    port = proxy.port
    proxy.refuse()
    proxy.refuse()  # once more does nothing
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
    assert passes(client, server), "an open one goes on"
    proxy.resume()
    assert proxy.port == port
    client, server = connect()
    assert passes(client, server)
    assert proxy.connections == 2


def test_a_target_that_does_not_listen_resets_the_client(proxy, target):
    target.close()
    with pytest.raises(ConnectionResetError):  # on reading or, if that takes long, on connecting
        with socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as client:
            client.recv(1)


def test_pause_holds_everything_back_and_resume_loses_nothing(proxy, target, connect):
    client, server = connect()
    assert passes(client, server)
    proxy.pause()
    client.sendall(b"question")
    server.sendall(b"answer")
    server.close()
    late = socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX)
    late.sendall(b"late")
    eventually(lambda: proxy.connections == 2, "the late one to be taken")
    proxy.delay(0)  # once around the proxy's loop
    assert silent(client) and not target.knocked()
    assert proxy.open == 2
    proxy.resume()
    assert receive(client, 99) == b"answer"
    taken = target.take()
    assert receive(taken, 4) == b"late"
    taken.close()
    late.close()


def test_a_pause_towards_the_client_lets_the_target_hear(proxy, connect):
    client, server = connect()
    proxy.pause(towards="client")
    assert passes(client, server, b"commit")
    server.sendall(b"done")
    assert passes(client, server, b"are you there?")
    assert silent(client)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_nothing_more_leaves_after_a_pause_in_the_midst_of_much(proxy, connect):
    client, server = connect()
    much = b"x" * 50_000_000

    def send() -> None:
        with pytest.raises(OSError):
            client.sendall(much)

    sending = threading.Thread(target=send)
    sending.start()
    assert receive(server, 1_000_000)
    proxy.pause()
    proxy.cut(reset=False)  # the target gets what had left the proxy, and then the end
    assert len(receive(server, len(much))) < len(much) - 1_000_000
    sending.join()


def test_a_delay_holds_back_what_arrives_while_it_is_set(proxy, connect):
    client, server = connect()
    proxy.delay(3600)
    client.sendall(b"in an hour")
    other = connect()
    proxy.delay(0)
    assert passes(*other) and silent(server)
    proxy.delay(0.01)
    assert passes(*other) and passes(*reversed(other))
    with pytest.raises(ValueError, match="-1"):
        proxy.delay(-1)


def test_half_close_ends_one_direction_alone(proxy, connect):
    client, server = connect()
    proxy.half_close()
    assert client.recv(1) == b""
    assert passes(client, server)
    server.sendall(b"swallowed")
    assert client.recv(1) == b""
    client, server = connect()
    proxy.half_close(towards="target")
    assert server.recv(1) == b""
    assert passes(server, client)


def test_a_new_target_takes_the_new_connections(proxy, connect):
    client, server = connect()
    other = Target()
    proxy.target = ("127.0.0.1", other.port)
    assert passes(client, server)
    with socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as second:
        taken = other.take()
        assert passes(second, taken)
        taken.close()
    other.close()


def test_stop_ends_everything(target):
    proxy = Proxy(target.port).start()
    with socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX) as client:
        target.take().close()
        proxy.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), SECONDS_MAX)
        assert client
    Proxy(target.port).stop()  # never started
