"""Durable AI agent runs on SQLite."""

__all__: list[str] = []
