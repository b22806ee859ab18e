"""The pytest plugin: fixtures for durable code.

pytest loads this module in every session, so it imports little.
"""
