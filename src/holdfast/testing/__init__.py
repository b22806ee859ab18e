"""Helpers for tests of durable code."""
