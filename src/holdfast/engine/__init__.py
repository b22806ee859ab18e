"""Execution and replay: how a plain asyncio function becomes a run that survives its process."""
