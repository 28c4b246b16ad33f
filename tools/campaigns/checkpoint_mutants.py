"""Damaged checkpoints: bytes that changed, files that are cut or gone, and indexes that lie with right checksums.

    PYTHONPATH=tools python -m campaigns.checkpoint_mutants --count=1000 --seed=1

Each mutant of examples/iris/model.ckpt-0 is looked at as `tpugraph run` looks at it, and restored where it is taken for whole.
Right are a refusal in one block, and values that are those of the original. A mutant that is neither is kept as a file under
tests/data/faults/checkpoints.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from tpugraph.runtime.checkpoints.index_file import masked_crc32c, read_index
from tpugraph.runtime.checkpoints.whole import verify
from tpugraph.support.errors import TpuGraphError

ROOT = Path(__file__).parents[2]
ORIGINAL = ROOT / "examples" / "iris" / "model.ckpt-0"
KEPT = ROOT / "tests" / "data" / "faults" / "checkpoints"
_HUGE = (-1, 0, 1, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 62) - 1, (1 << 63) - 1)


# --------------------------------------------------------------------------- an index of one's own


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _block(items: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(b"\0" + _varint(len(key)) + _varint(len(value)) + key + value for key, value in items)
    body += struct.pack("<II", 0, 1) + b"\0"
    return body + struct.pack("<I", masked_crc32c(body))


def index_of(header: bytes, entries: Mapping[bytes, bytes]) -> bytes:
    """An index file with right checksums, whatever its entries say."""
    data, meta = _block([(b"", header), *sorted(entries.items())]), _block([])
    last = max(entries, default=b"") + b"\0"
    index = _block([(last, _varint(0) + _varint(len(data) - 5))])
    footer = _varint(len(data)) + _varint(len(meta) - 5) + _varint(len(data) + len(meta)) + _varint(len(index) - 5)
    return data + meta + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


# --------------------------------------------------------------------------- mutations


def _flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 2, 8))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def _overwrite(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data))
    data[at : at + 64] = draw.choice((bytes(64), b"\xff" * 64, draw.randbytes(64)))[: len(data) - at]
    path.write_bytes(data)


def _cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.choice((0, 1, len(data) - 1, draw.randrange(len(data))))])


def _repeat(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    at = draw.randrange(len(data))
    path.write_bytes(data[:at] + data[at : at + draw.choice((1, 100))] + data[at:])


def _gone(path: Path, draw: random.Random) -> None:
    path.unlink()


def _garbage(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(draw.choice((1, 47, 48, 500))))


def _lie(path: Path, draw: random.Random) -> None:
    """An index whose checksums are right and of which one field is not."""
    prefix = path.with_name(path.name.partition(".data-")[0].removesuffix(".index"))
    found = read_index(prefix)
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=found.shards)
    entries = {key: entry.SerializeToString() for key, entry in found.entries.items()}
    key = draw.choice(sorted(entries))
    entry = found.entries[key]
    kind = draw.choice(("header", "key", "drop", "bytes", "field", "field", "field", "shape", "shape", "slice"))
    if kind == "header":
        setattr(header, draw.choice(("num_shards", "endianness")), draw.choice((-1, 0, 1, 2, 1 << 30)))
    elif kind == "key":
        entries[draw.choice((b"\xff\xfe", b"\0lost", key * 50))] = entries.pop(key)
    elif kind == "drop":
        del entries[key]
    elif kind == "bytes":
        entries[key] = draw.randbytes(20)
    else:
        _lie_of_entry(entry, kind, draw)
        entries[key] = entry.SerializeToString()
    prefix.with_name(f"{prefix.name}.index").write_bytes(index_of(header.SerializeToString(), entries))


def _lie_of_entry(entry: Any, kind: str, draw: random.Random) -> None:
    if kind == "field":
        name = draw.choice(("dtype", "shard_id", "offset", "size", "crc32c"))
        least, most = {"crc32c": (0, (1 << 32) - 1), "size": (-1 << 62, 1 << 62), "offset": (-1 << 62, 1 << 62)}.get(
            name, (-1, (1 << 31) - 1))  # fmt: skip
        setattr(entry, name, min(max(draw.choice((*_HUGE, draw.randrange(120))), least), most))
    elif kind == "shape" and entry.shape.dim and draw.random() < 0.7:
        draw.choice(entry.shape.dim).size = draw.choice(_HUGE)
    elif kind == "shape":
        for _ in range(draw.choice((1, 3, 300))):
            entry.shape.dim.add(size=draw.choice((1, 1, *_HUGE)))
    else:
        piece = entry.slices.add()
        for _ in range(draw.choice((0, 1, len(entry.shape.dim), 300))):
            extent = piece.extent.add(start=draw.choice(_HUGE))
            if draw.random() < 0.5:
                extent.length = draw.choice(_HUGE)


MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _overwrite, _cut, _repeat, _gone, _garbage, _lie,
                                                                 _lie, _lie)  # fmt: skip


def mutant(folder: Path, seed: int) -> Path:
    """Write a damaged copy of the original into a folder; returns its prefix. The same seed gives the same files."""
    draw = random.Random(seed)
    prefix = folder / ORIGINAL.name
    copies = []
    for path in sorted(ORIGINAL.parent.glob(f"{ORIGINAL.name}.*")):
        if path.suffix != ".meta":
            copies.append(Path(shutil.copyfile(path, folder / path.name)))
    for _ in range(draw.choice((1, 1, 1, 2))):  # faults come in pairs too
        path = draw.choice(copies)
        try:
            draw.choice(MUTATIONS)(path, draw)
        except (TpuGraphError, OSError, ValueError, IndexError):
            continue  # the second fault needs what the first has taken
    return prefix


# --------------------------------------------------------------------------- what becomes of it


def values_of(prefix: Path) -> dict[str, bytes]:
    """Every tensor of a checkpoint, as TensorFlow reads it."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key).tobytes() for key in reader.get_variable_to_shape_map()}


def verdict(prefix: Path, right: Mapping[str, bytes]) -> str:
    """``refused``, ``whole``, or what is wrong with the answer."""
    try:
        verify(prefix)
    except TpuGraphError as error:
        return "refused" if len(error.block()) < 1000 else f"a block of {len(error.block())} characters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = values_of(prefix)
    return (
        "whole" if all(right.get(key, value) == value for key, value in found.items()) else "other values were believed"
    )


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Damaged checkpoints.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    right, counts, slowest = values_of(ORIGINAL), dict.fromkeys(("refused", "whole", "wrong"), 0), 0.0
    with tempfile.TemporaryDirectory() as place:
        for seed in range(asked.seed, asked.seed + asked.count):
            folder = Path(place, str(seed))
            folder.mkdir()
            began = time.monotonic()
            found = _in_a_child(lambda folder=folder, seed=seed: verdict(mutant(folder, seed), right))
            slowest = max(slowest, time.monotonic() - began)
            if found not in ("refused", "whole"):
                shutil.copytree(folder, KEPT / str(seed), dirs_exist_ok=True)
                print(f"{seed}: {found}", flush=True)
            counts[found if found in counts else "wrong"] += 1
            shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{asked.count:,} damaged checkpoints: {counts['refused']:,} refused in a block, {counts['whole']:,} read with their "
          f"values, {counts['wrong']:,} wrong; the slowest {slowest:.2f} s, peak {peak:,.0f} MiB")  # fmt: skip
    return 1 if counts["wrong"] else 0


def _in_a_child(work: Callable[[], str]) -> str:
    """What work returns in a process of its own, which may die of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, work().encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return found if status == 0 else f"the process ended with status {status}"


if __name__ == "__main__":
    sys.exit(main())
