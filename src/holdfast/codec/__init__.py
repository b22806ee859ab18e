"""Typed JSON in and out; never pickle, never an import by name.

payload.py is the door; classes.py says which classes may be rebuilt; pack.py and unpack.py walk the
values; faults.py does exceptions, models.py pydantic. For plain data from outside, shapes.py
describes annotations, fit.py compares and converts, scalars.py and build.py make the values, and
words.py complains: all but shapes.py are imported when such data comes.
Nothing here promises secrecy: whoever can read the store can read the values.
"""

from holdfast.codec.classes import TypeTable, hints, register, table_for
from holdfast.codec.pack import LEVELS_MAX
from holdfast.codec.payload import (
    ERROR_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    admit,
    decode,
    decode_error,
    decode_fitting,
    digest,
    encode,
    encode_error,
    error_summary,
    fitted,
)
from holdfast.codec.shapes import describe, shape_of

__all__ = [
    "ERROR_BYTES_MAX",
    "LEVELS_MAX",
    "PAYLOAD_BYTES_MAX",
    "TypeTable",
    "admit",
    "decode",
    "decode_error",
    "decode_fitting",
    "describe",
    "digest",
    "encode",
    "encode_error",
    "error_summary",
    "fitted",
    "hints",
    "register",
    "shape_of",
    "table_for",
]
