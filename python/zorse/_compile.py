"""zorse.compile: compiles an ONNX file into a bundle."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any, Unpack

from ._files import cluster_file, model_file
from ._tools import call
from .options import CompileOptions, Path, check, words


class Bundle:
    """A compiled model: a folder with one verified program per device, and kernels
    (docs/reference/bundle.md). `zorse.Bundle("model.zorse")` refers to a folder that exists."""

    def __init__(self, path: Path):
        self.path: str = os.fspath(path)  #: the folder

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Bundle({self.path!r})"


def compile(model: Path, output: Path, *, global_batch_size: int | None = None, cluster: Path | Mapping[str, Any] | None = None, quiet: bool = False,
            **options: Unpack[CompileOptions]) -> Bundle:
    """Compiles an ONNX model for the devices of a cluster: `zorse-compile`.

    model: ONNX file with the forward graph and its loss. output: folder to write. global_batch_size: samples per step of all devices together.
    cluster: a cluster file, or its contents as a mapping (docs/reference/cluster-yaml.md); None: the devices of
    this machine. options: CompileOptions.
    Raises ZorseError with the compiler's message.
    """
    check(options, CompileOptions)
    if global_batch_size is None:
        raise TypeError("expected global_batch_size, the samples per step of all devices together")
    with tempfile.TemporaryDirectory(prefix="zorse-") as folder:
        line = [model_file(model), "-o", os.fspath(output), "--global-batch-size", str(global_batch_size), "--cluster", cluster_file(cluster, folder), *words(options)]
        call("zorse-compile", line + (["--quiet"] if quiet else []), quiet)
    return Bundle(output)
