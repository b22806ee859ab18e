"""The command line. It reaches runs only through the client, and never the engine."""

import sys

from holdfast.worker.process import fix_hash_seed

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        fix_hash_seed()  # it may start this program anew: so before the commands are imported
    from holdfast.cli import app

    app.main()
