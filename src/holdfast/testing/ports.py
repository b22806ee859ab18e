"""Free ports on loopback that stay ours while nobody listens on them for a moment."""

from __future__ import annotations

import atexit
import random
import socket
import sys

# Below the range from which Linux and macOS number outgoing connections: a server that restarts
# finds its port again, and nobody who knocks meanwhile is connected to himself.
FIRST, LAST = 15_000, 32_000
TRIES_MAX = 200


def free_port() -> int:
    """A port nobody listens on, for a server with SO_REUSEADDR.

    On Linux nobody else is given it while this process lives: not before the server listens, nor
    while it restarts. Elsewhere another process may take it.
    """
    for _ in range(TRIES_MAX):
        port = random.SystemRandom().randrange(FIRST, LAST)
        tried = socket.socket()
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            tried.close()
            continue
        if sys.platform == "linux":
            # A bound socket that does not listen keeps out whoever does not set this, as we above.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            atexit.register(tried.close)
        else:
            tried.close()
        return port
    raise OSError(f"no free port between {FIRST} and {LAST} in {TRIES_MAX} tries")
