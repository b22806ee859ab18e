"""Agent frameworks and model clients, made durable: `durable(agent)` returns what it was given.

Each module is for one framework and imports nothing but that, the public `holdfast` and what the
adapters share (modules that begin with an underscore).
"""
