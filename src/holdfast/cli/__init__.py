"""The command line. It reaches runs only through the client, and never the engine."""

from holdfast.cli.app import main

__all__ = ["main"]
