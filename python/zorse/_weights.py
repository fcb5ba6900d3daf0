"""Reads checkpoints (safetensors files) as arrays, and copies them into a PyTorch module."""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ._tools import ZorseError
from .options import Path

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U8": "<u1", "BOOL": "?"}


class Weights(Mapping[str, np.ndarray]):
    """The tensors of a safetensors file by name, as arrays with the file's shapes and types (BF16 as f32, which represents it exactly).

    Arrays are read on access and are views of the file: copy arrays that must outlive it. `same`: groups of names of one tensor, such as tied parameters;
    names that are not in the file can be looked up, but are not iterated over.
    """

    def __init__(self, path: Path, same: Iterable[Sequence[str]] = ()):
        self.path = path
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            self._tensors: dict[str, dict[str, Any]] = json.loads(file.read(size))
        self._tensors.pop("__metadata__", None)
        self._bytes = np.memmap(path, mode="r", offset=8 + size) if any(t["data_offsets"][1] for t in self._tensors.values()) else np.empty(0, np.uint8)
        self._aliases = {}
        for names in same:
            held = next((name for name in names if name in self._tensors), None)
            if held is not None:
                self._aliases.update((name, held) for name in names if name not in self._tensors)

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._tensors[self._aliases.get(name, name)]
        begin, end = entry["data_offsets"]
        piece = self._bytes[begin:end]
        if entry["dtype"] == "BF16":
            return (piece.view("<u2").astype("<u4") << 16).view("<f4").reshape(entry["shape"])
        if entry["dtype"] not in _TYPES:
            raise ZorseError(f"{self.path}: '{name}' is of type {entry['dtype']}, expected one of {', '.join([*_TYPES, 'BF16'])}")
        return piece.view(_TYPES[entry["dtype"]]).reshape(entry["shape"])

    def __contains__(self, name: object) -> bool:
        return name in self._tensors or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        numbers = sum(int(np.prod(t["shape"], dtype=np.int64)) for t in self._tensors.values())
        return f"Weights({len(self)} tensors of {numbers:,} numbers in {os.fspath(self.path)!r})"


def same_tensors(facts: Mapping[str, Any]) -> list[list[str]]:
    """Groups of names of one tensor according to the facts of a file: tied parameters, and
    initializers of another name that hold a parameter unchanged."""
    ties = [list(names) for names in facts.get("ties", [])]
    for held, entry in facts.get("stored", {}).items():
        if entry["form"] == "same":
            tied = next((names for names in ties if entry["parameter"] in names), None)
            tied.append(held) if tied else ties.append([entry["parameter"], held])
    return ties


def _assignment(tensors: Mapping[str, Any], name: str, array: np.ndarray, stored: Mapping[str, Mapping[str, Any]]) -> tuple[Any, np.ndarray]:
    """Returns the destination of an array of a checkpoint. Raises ZorseError if the module has no
    such tensor, or one with another shape."""
    target, entry = tensors.get(name), stored.get(name)
    if target is None and entry is not None:
        target = tensors.get(entry["parameter"])
        if entry["form"] == "transpose":
            array = array.T
        elif entry["form"] == "reshape" and target is not None:
            array = array.reshape(tuple(target.shape))
        elif entry["form"] == "rows":
            if target is None or entry.get("start") is None or array.ndim != 2:
                raise ZorseError(f"'{name}' contains only some rows of '{entry['parameter']}', so its trained values cannot be copied into the module; export with the "
                                 "sequence length that the table has")
            target = target[entry["start"]:entry["start"] + len(array)]
    if target is None:
        known = list(tensors)
        raise ZorseError(f"the model has no parameter '{name}'; it has {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}")
    if tuple(target.shape) != array.shape:
        raise ZorseError(f"'{name}' is of shape {list(array.shape)}, the model's of {list(target.shape)}")
    return target, array


def load_into(module: Any, weights: Mapping[str, np.ndarray], stored: Mapping[str, Mapping[str, Any]] | None = None, *, strict: bool = True) -> list[str]:
    """Copies trained parameters, and running statistics, into a PyTorch module.

    weights: by names of the ONNX file. stored: for an initializer of another name, the module's parameter that it holds and in what form ("same",
    "transpose", "reshape", "rows"), as in the file's facts (docs/reference/training.md). strict: raises ZorseError, without changing anything, for a tensor that the
    module does not have or has with another shape; otherwise such tensors are skipped, and the problem of each is returned.
    """
    import torch
    tensors = {**dict(module.named_buffers(remove_duplicate=False)), **dict(module.named_parameters(remove_duplicate=False))}
    targets, left_out = [], []
    for name in weights:
        try:
            targets.append(_assignment(tensors, name, weights[name], stored or {}))
        except ZorseError as problem:
            if strict:
                raise
            left_out.append(str(problem))
    with torch.no_grad():
        for target, array in targets:
            target.copy_(torch.from_numpy(np.array(array)))
    return left_out
