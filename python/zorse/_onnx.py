"""Reads the metadata of an ONNX file without the package onnx."""
from __future__ import annotations

import io
import json
import os
from typing import Any, BinaryIO

from .options import Path

_METADATA, _KEY, _VALUE = 14, 1, 2  # fields of ModelProto and of StringStringEntryProto
_FACTS = (b"zorse.metadata", b"zorse.facts")  # the second: files that were exported before


def _number(file: BinaryIO) -> int | None:
    """Reads a protobuf varint; None at the end of the file."""
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
        shift += 7
    return None


def _fields(file: BinaryIO, end: int, wanted: set[int]) -> list[tuple[int, bytes]]:
    """Returns the `wanted` length-delimited fields of a message; skips all others, whatever their
    size."""
    found = []
    while file.tell() < end and (tag := _number(file)) is not None:
        kind = tag & 7
        if kind == 0:
            _number(file)
            continue
        size = {1: 8, 5: 4}.get(kind) if kind != 2 else _number(file)
        if size is None:  # not an ONNX message
            break
        if kind == 2 and tag >> 3 in wanted:
            found.append((tag >> 3, file.read(size)))
        else:
            file.seek(size, os.SEEK_CUR)
    return found


def read_metadata(path: Path) -> dict[str, Any]:
    """Returns the facts of a module in the ONNX file at `path` (docs/reference/training.md); empty if there
    are none."""
    try:
        with open(path, "rb") as file:
            for _, entry in _fields(file, os.fstat(file.fileno()).st_size, {_METADATA}):
                pair = dict(_fields(io.BytesIO(entry), len(entry), {_KEY, _VALUE}))
                if pair.get(_KEY) in _FACTS:
                    facts = json.loads(pair.get(_VALUE, b"{}"))
                    return facts if isinstance(facts, dict) else {}
    except (OSError, ValueError):  # the compiler reports errors of the file
        pass
    return {}
