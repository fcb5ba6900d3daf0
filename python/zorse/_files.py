"""Writes Python values to files that the tools read."""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._tools import ZorseError, call
from .options import Path

_TOKENS = {2: 20240520, 4: 20240801}  # magic numbers of llm.c's header, by bytes of a token (docs/guides/prepare-data.md)


def model_file(model: Any) -> str:
    """Returns the path of a model file. Raises TypeError for a module."""
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"expected the path of an ONNX file, got {type(model).__name__}; zorse.export(module, \"model.onnx\") writes one, and zorse.train takes modules")
    return os.fspath(model)


def cluster_file(cluster: Path | Mapping[str, Any] | None, folder: str) -> str:
    """Returns the path of a cluster file (docs/reference/cluster-yaml.md): the given one, or a new one in `folder` with the contents of the mapping; None: with the devices
    of this machine."""
    if cluster is not None and not isinstance(cluster, (Mapping, str, os.PathLike)):
        raise TypeError(f"cluster: expected the path of a cluster file, or its contents as a dictionary {{'nodes': [{{'name': ..., 'devices': [...]}}]}}, got {type(cluster).__name__}")
    if cluster is not None and not isinstance(cluster, Mapping):
        return os.fspath(cluster)
    path = os.path.join(folder, "cluster.yaml")
    if cluster is None:
        call("zorse-cluster", ["--quiet", "-o", path])
    else:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(cluster, file, indent=1)  # YAML reads JSON
    return path


def data_words(data: Any, folder: str, name: str) -> str:
    """Returns the value of `--data` or `--eval-data`.

    data: a path, or NAME=FILE.npy,... as for zorse-run; a one-dimensional array of token ids; or arrays by input name with samples in the first
    axis (shape [samples, ...]). Arrays are written to `folder`. PyTorch tensors are converted to arrays.
    """
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    if isinstance(data, Mapping):
        arrays = {key: _array(value, f"{name}['{key}']") for key, value in data.items()}
        if not arrays:
            raise ZorseError(f"{name}: expected an array for every input of the model, got none")
        samples = {key: a.shape[0] if a.ndim else 0 for key, a in arrays.items()}
        if len(set(samples.values())) > 1:
            raise ZorseError(f"{name}: expected the same number of samples for every input, got " + ", ".join(f"'{k}': {n}" for k, n in samples.items()))
        words = []
        for i, (key, array) in enumerate(arrays.items()):
            path = os.path.join(folder, f"{name}-{i}.npy")
            np.save(path, array)
            words.append(f"{key}={path}")
        return ",".join(words)
    return _token_file(_array(data, name), os.path.join(folder, f"{name}.bin"), name)


def _array(value: Any, name: str) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.ascontiguousarray(value)
    if array.dtype == object:
        raise ZorseError(f"{name}: expected numbers in an array, got {type(value).__name__}; rows must be of one length")
    return array


def _token_file(tokens: np.ndarray, path: str, name: str) -> str:
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ZorseError(f"{name}: expected a path, arrays by the names of the model's inputs, or token ids as whole numbers in one dimension; got an array of "
                         f"shape {list(tokens.shape)}, {tokens.dtype}")
    if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 32):
        raise ZorseError(f"{name}: expected token ids from 0 to {(1 << 32) - 1}, got {tokens.min()} to {tokens.max()}")
    width = 4 if tokens.size and tokens.max() >= 1 << 16 else 2
    if tokens.size >= 1 << 32:
        raise ZorseError(f"{name}: expected at most {(1 << 32) - 1} tokens in one array, got {tokens.size}; give a file")
    with open(path, "wb") as file:
        file.write(struct.pack("<2iI", _TOKENS[width], 1, tokens.size) + bytes(253 * 4))
        file.write(tokens.astype(f"<u{width}").tobytes())
    return path
