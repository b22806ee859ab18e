"""Free ports on loopback that stay ours while nobody listens on them for a moment."""

from __future__ import annotations

import random
import socket

# Below the range from which Linux and macOS number outgoing connections: a server that restarts
# finds its port again, and nobody who knocks meanwhile is connected to himself.
FIRST, LAST = 15_000, 32_000
TRIES_MAX = 200


def free_port() -> int:
    """A port nobody listens on. Another process may still take it before you do."""
    for _ in range(TRIES_MAX):
        port = random.SystemRandom().randrange(FIRST, LAST)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {FIRST} and {LAST} in {TRIES_MAX} tries")
