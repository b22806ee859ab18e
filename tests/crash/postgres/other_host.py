"""Another host, as far as its network goes: a network namespace with a cable of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

import pytest

from holdfast.testing.postgres import PostgresServer

NEEDS = "Another host is a network namespace, for which one must be root on Linux: {}"


class OtherHost:
    def __init__(self) -> None:
        number = os.getpid() % 256
        self._name = f"holdfast-{os.getpid()}"
        self._cable = f"hf{os.getpid()}"  # at our end; fifteen letters at most
        # Of a range that is set aside for tests of networks.
        self.our_address, self._its_address = f"198.18.{number}.1", f"198.18.{number}.2"
        self.command = ["ip", "netns", "exec", self._name]

    def __enter__(self) -> Self:
        try:
            ip("netns", "add", self._name)
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
            pytest.skip(NEEDS.format(said))
        try:
            far = ["name", "eth0", "netns", self._name]
            ip("link", "add", self._cable, "type", "veth", "peer", *far)
            ip("address", "add", f"{self.our_address}/30", "dev", self._cable)
            self.plug_it_in()
            its = ["-n", self._name]
            ip(*its, "address", "add", f"{self._its_address}/30", "dev", "eth0")
            ip(*its, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        ip("netns", "del", self._name)  # the cable goes with it

    def let_in(self, server: PostgresServer) -> None:
        rules = Path(server.sql("SHOW hba_file")[0][0])
        with rules.open("a") as file:
            file.write(f"host all all {self._its_address}/32 scram-sha-256\n")
        server.sql("SELECT pg_reload_conf()")

    def pull_the_cable(self) -> None:
        ip("link", "set", self._cable, "down")

    def plug_it_in(self) -> None:
        ip("link", "set", self._cable, "up")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
