"""Typed JSON in and out; never pickle, never an import by name.

payload.py is the door; classes.py says which classes may be rebuilt; pack.py and unpack.py walk the
values; faults.py does exceptions, models.py pydantic; shapes.py compares values with annotations.
Nothing here promises secrecy: whoever can read the store can read the values.
"""

from holdfast.codec.classes import TypeTable, hints, register, table_for
from holdfast.codec.pack import LEVELS_MAX
from holdfast.codec.payload import (
    ERROR_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    decode,
    decode_error,
    digest,
    encode,
    encode_error,
    error_summary,
)
from holdfast.codec.shapes import check, describe

__all__ = [
    "ERROR_BYTES_MAX",
    "LEVELS_MAX",
    "PAYLOAD_BYTES_MAX",
    "TypeTable",
    "check",
    "decode",
    "decode_error",
    "describe",
    "digest",
    "encode",
    "encode_error",
    "error_summary",
    "hints",
    "register",
    "table_for",
]
