"""Damage to the form of files: fields of a protobuf on the wire, or words and brackets of its text."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_HUGE = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
_WORDS = (
    "{",
    "}",
    "<",
    ">",
    ":",
    '"',
    "'",
    "#",
    "\\",
    "-",
    "nan",
    "inf",
    "0x",
    "1e999",
    "[x.y.Z]",
    "true",
    "\x00",
    "\u00e4",
    "99999999999999999999",
)
_BLOCKS = ("node { }\n", "library { function { } }\n", "versions { producer: 1 }\n", "meta_info_def { }\n")
MOST_BYTES = 64 << 20
"""Where a file is cut off: copies of copies are as large as the memory that reads them."""

MOST = 4
"""The most pieces of damage of one mutant, for shrinking."""


@dataclass
class Field:
    """A field on the wire: its number, its wire type, and its value or, of a message, its fields."""

    number: int
    wire: int
    value: Any

    def encoded(self) -> bytes:
        """Its bytes."""
        tag = varint(self.number << 3 | self.wire)
        if self.wire == _VARINT:
            return tag + varint(self.value)
        if self.wire == _BYTES:
            body = b"".join(field.encoded() for field in self.value) if isinstance(self.value, list) else self.value
            return tag + varint(len(body)) + body
        return tag + self.value


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _take(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("no end of a number")


def fields_of(data: bytes, depth: int = 5) -> list[Field]:
    """The fields of a message; bytes that could be one are taken for one, down to a depth.

    Raises:
        ValueError, IndexError: it is none.
    """
    found, at = [], 0
    while at < len(data):
        tag, at = _take(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 10_000:
            raise ValueError("no number of a field")
        if wire == _VARINT:
            value, at = _take(data, at)
        elif wire == _BYTES:
            size, at = _take(data, at)
            if at + size > len(data):
                raise ValueError("longer than the message")
            value, at = _message_or_bytes(data[at : at + size], depth), at + size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if at + size > len(data):
                raise ValueError("longer than the message")
            value, at = data[at : at + size], at + size
        else:
            raise ValueError("no wire type of today")
        found.append(Field(number, wire, value))
    return found


def _message_or_bytes(data: bytes, depth: int) -> Any:
    if depth and len(data) > 1:
        try:
            return fields_of(data, depth - 1)
        except (ValueError, IndexError):
            return data
    return data


# --------------------------------------------------------------------------- damage on the wire


def _message(rng: random.Random, fields: list[Field]) -> list[Field]:
    """A message somewhere below, that has fields."""
    while True:
        below = [field.value for field in fields if isinstance(field.value, list) and field.value]
        if not below or rng.random() < 0.2:
            return fields
        fields = rng.choice(below)


def damage_wire(rng: random.Random, fields: list[Field]) -> None:
    """Damage one field, in place."""
    held = _message(rng, fields)
    place = rng.randrange(len(held))
    field = held[place]
    kind = rng.choice(
        ("drop", "twice", "move", "number", "wire", "value", "value", "unknown", "nest", "transplant", "many")
    )
    if kind == "drop":
        del held[place]
    elif kind == "twice":
        held.insert(rng.randrange(len(held) + 1), Field(field.number, field.wire, field.value))
    elif kind == "move":
        held.insert(rng.randrange(len(held)), held.pop(place))
    elif kind == "number":
        held[place] = Field(rng.choice([1, 2, 3, 4, 5, 6, 8, 15, 100, field.number + 1]), field.wire, field.value)
    elif kind == "wire":
        others = (
            (_VARINT, rng.choice(_HUGE)),
            (_BYTES, b"\xff\x00x"),
            (_FIXED32, b"\0\0\xc0\x7f"),
            (_FIXED64, bytes(8)),
        )
        held[place] = Field(field.number, *rng.choice(others))
    elif kind == "value":
        held[place] = Field(field.number, field.wire, _other_value(rng, field))
    elif kind == "unknown":
        held.insert(place, Field(rng.choice([7, 99, 5000]), _BYTES, rng.randbytes(rng.choice([0, 3, 300]))))
    elif kind == "nest":
        made = field
        for _ in range(rng.choice([1, 3, 99, 120, 5000])):
            made = Field(field.number, _BYTES, made.encoded())
        held[place] = made
    elif kind == "transplant":
        other = b"".join(found.encoded() for found in _message(rng, fields))
        held[place] = Field(field.number, _BYTES, other)
    else:
        most = (4 << 20) // (len(field.encoded()) + 1) + 1  # or the mutant, and not what reads it, takes all memory
        held[place:place] = [field] * min(rng.choice([3, 100, 3000]), most)


def _other_value(rng: random.Random, field: Field) -> Any:
    if field.wire == _VARINT:
        return rng.choice([*_HUGE, field.value ^ 1, field.value + 1])
    if field.wire == _BYTES and not isinstance(field.value, list):
        held = field.value
        return rng.choice([b"", held * 2, held[::-1], held[:-1], b"\xff" + held, held + b"\n", b"a" * 100_000])
    if field.wire == _BYTES:
        return []
    return rng.choice([bytes(len(field.value)), b"\xff" * len(field.value), rng.randbytes(len(field.value))])


# --------------------------------------------------------------------------- damage to text


def damage_text(rng: random.Random, text: str) -> str:
    """Damage one place of a text."""
    lines = text.splitlines(keepends=True)
    place = rng.randrange(len(lines))
    kind = rng.choice(("drop", "twice", "swap", "word", "number", "cut", "name", "nest", "block", "line"))
    if kind == "drop":
        del lines[place : place + rng.choice([1, 1, 5])]
    elif kind == "twice":
        again = "".join(lines[place : place + rng.choice([1, 10, 50])])
        lines.insert(place, again * _at_most(rng.choice([1, 1, 300]), again))
    elif kind == "swap":
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == "word":
        at = rng.randrange(len(lines[place]))
        lines[place] = lines[place][:at] + rng.choice(_WORDS) + lines[place][at:]
    elif kind == "number":
        place = next((i for i in range(place, len(lines)) if re.search(r"\d", lines[i])), place)
        lines[place] = re.sub(r"-?\d+", lambda _: str(rng.choice([-1, 0, 10**9, 2**63, 10**30])), lines[place], count=1)
    elif kind == "cut":
        del lines[place:]
    elif kind == "name":
        lines[place] = re.sub(
            r"\w+", lambda _: rng.choice(["node", "attr", "key", "value", "DT_VOID", "zz"]), lines[place], count=1
        )
    elif kind == "nest":
        lines.insert(place, "attr { value { list { func { " * rng.choice([3, 2000]))
    elif kind == "block":
        lines.insert(
            place,
            rng.choice(
                ["node { }\n", "library { function { } }\n", "versions { producer: 1 }\n", "meta_info_def { }\n"]
            ),
        )
    else:
        lines[place] = lines[place].rstrip() * _at_most(rng.choice([2, 1000]), lines[place])
    return "".join(lines)


def _at_most(times: int, text: str) -> int:
    """Fewer times where a text that is repeated as often would be longer than any file."""
    return min(times, 1 + MOST_BYTES // (len(text) + 1))


def mutant(meta: Any, seed: str, *, without: frozenset[int] = frozenset()) -> bytes:
    """The file of a graph with damage to its form, one in four as text; see :func:`mutations.mutant`."""
    rng = random.Random(seed)
    message = meta if meta.collection_def else meta.graph_def
    count, as_text = rng.choice([1, 1, 2, 4]), rng.random() < 0.25
    numbers = [number for number in range(count) if number not in without]
    if as_text:
        text = text_format.MessageToString(message)
        for number in numbers:
            text = damage_text(random.Random(f"{seed}/{number}"), text)[:MOST_BYTES] or " "
        return text.encode()
    fields = fields_of(message.SerializeToString(deterministic=True))
    for number in numbers:
        damage_wire(random.Random(f"{seed}/{number}"), fields)
    return b"".join(field.encoded() for field in fields)[:MOST_BYTES]
