"""Checkpoints: safetensors files as arrays, and into a PyTorch module."""
from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._tools import ZorseError
from .options import Path

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1", "U8": "<u1", "BOOL": "?"}


class Weights(Mapping[str, np.ndarray]):
    """The tensors of a safetensors file by name, as arrays of the file's shapes and types (BF16 as f32, which holds it exactly).

    Arrays are read when they are asked for, and are views of the file: copy what is to outlive it.
    """

    def __init__(self, path: Path):
        self.path = path
        with open(path, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            self._tensors: dict[str, dict[str, Any]] = json.loads(file.read(size))
        self._tensors.pop("__metadata__", None)
        self._bytes = np.memmap(path, mode="r", offset=8 + size) if any(t["data_offsets"][1] for t in self._tensors.values()) else np.empty(0, np.uint8)

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._tensors[name]
        begin, end = entry["data_offsets"]
        piece = self._bytes[begin:end]
        if entry["dtype"] == "BF16":
            return (piece.view("<u2").astype("<u4") << 16).view("<f4").reshape(entry["shape"])
        if entry["dtype"] not in _TYPES:
            raise ZorseError(f"{self.path}: '{name}' is of type {entry['dtype']}, expected one of {', '.join([*_TYPES, 'BF16'])}")
        return piece.view(_TYPES[entry["dtype"]]).reshape(entry["shape"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def load_into(module: Any, weights: Mapping[str, np.ndarray], stored: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Copies trained parameters into a PyTorch module.

    weights: by the names of the ONNX file. stored: which parameter of the module an initializer of another name holds, and in what form ("same",
    "transpose", "reshape"), as the file's facts say it (docs/training.md). Raises ZorseError, with nothing changed, for a tensor that the module does
    not have or has in another shape.
    """
    import torch
    parameters = dict(module.named_parameters(remove_duplicate=False))
    targets = []
    for name in weights:
        parameter, array = parameters.get(name), weights[name]
        if parameter is None and stored and name in stored:
            entry = stored[name]
            parameter = parameters.get(entry["parameter"])
            if entry["form"] == "transpose":
                array = array.T
            elif entry["form"] == "reshape" and parameter is not None:
                array = array.reshape(tuple(parameter.shape))
            elif entry["form"] == "rows":
                raise ZorseError(f"'{name}' holds some rows of '{entry['parameter']}' alone, so its trained values cannot be put back; export with the "
                                 "sequence length that the table has")
        if parameter is None:
            raise ZorseError(f"the model has no parameter '{name}'; it has {', '.join(list(parameters)[:8])}{' ...' if len(parameters) > 8 else ''}")
        if tuple(parameter.shape) != array.shape:
            raise ZorseError(f"'{name}' is of shape {list(array.shape)}, the model's of {list(parameter.shape)}")
        targets.append((parameter, array))
    with torch.no_grad():
        for parameter, array in targets:
            parameter.copy_(torch.from_numpy(np.array(array)))
