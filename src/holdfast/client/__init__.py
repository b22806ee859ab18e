"""The client: apps, runs, and what can be asked of them."""

from holdfast.client.app import Holdfast
from holdfast.client.run import Run

__all__ = ["Holdfast", "Run"]
