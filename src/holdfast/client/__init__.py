"""The client: apps, runs, and what can be asked of them."""

from holdfast.client.app import Holdfast, Run

__all__ = ["Holdfast", "Run"]
