"""zorse.compile: compiles an ONNX file into a bundle."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, overload

from ._files import cluster_file, model_file
from ._tools import call
from .options import CompileOptions, Path, check, words

if TYPE_CHECKING:
    from ._compiled_module import CompiledModule


class Bundle:
    """A compiled model: a folder with one verified program per device, and kernels
    (docs/reference/bundle.md). `zorse.Bundle("model.zorse")` refers to a folder that exists."""

    def __init__(self, path: Path):
        self.path: str = os.fspath(path)  #: the folder

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"Bundle({self.path!r})"


def compile_file(model: Path, output: Path, global_batch_size: int | None, cluster: Path | Mapping[str, Any] | None, quiet: bool, options: Mapping[str, Any]) -> Bundle:
    """Compiles an ONNX file."""
    if global_batch_size is None:
        raise TypeError("expected global_batch_size, the samples per step of all devices together")
    with tempfile.TemporaryDirectory(prefix="zorse-") as folder:
        line = [model_file(model), "-o", os.fspath(output), "--global-batch-size", str(global_batch_size), "--cluster", cluster_file(cluster, folder), *words(options)]
        call("zorse-compile", line + (["--quiet"] if quiet else []), quiet)
    return Bundle(output)


@overload
def compile(model: Path, output: Path, *, global_batch_size: int | None = None, cluster: Path | Mapping[str, Any] | None = None, quiet: bool = False,
            **options: Unpack[CompileOptions]) -> Bundle: ...


@overload
def compile(model: Any, output: Path | None = None, *, global_batch_size: int | None = None, cluster: Path | Mapping[str, Any] | None = None, quiet: bool = False,
            max_steps: int | None = None, export: Mapping[str, Any] | None = None, lr_scheduler: Any = None, tokenizer: Any = None, **options: Any) -> CompiledModule: ...


def compile(model: Any, output: Path | None = None, *, global_batch_size: int | None = None, cluster: Path | Mapping[str, Any] | None = None, quiet: bool = False,
            max_steps: int | None = None, export: Mapping[str, Any] | None = None, lr_scheduler: Any = None, tokenizer: Any = None, **options: Any) -> Any:
    """Compiles a model for the devices of a cluster: an ONNX file to a bundle (`zorse-compile`), or a PyTorch module to an object whose `step(batch)` trains it.

    model: ONNX file with the forward graph and its loss, or a module as for zorse.train. output: folder to write; for a module, None: a temporary one that
    exists as long as the object. global_batch_size: samples per step of all devices together; for a module, None: those of the first batch. cluster: a cluster
    file, or its contents as a mapping (docs/reference/cluster-yaml.md); None: the devices of this machine. options: CompileOptions; for a module also
    RunOptions, and an `optimizer` object of torch.optim. max_steps: number of the last step; needed only for schedules of the learning rate that end. export:
    for a module, the arguments of zorse.export. lr_scheduler: for a module, as for zorse.train. tokenizer: for a module, an object whose pad_token_id fills rows
    of different length.

    Returns a Bundle, or a CompiledModule. Raises ZorseError with the compiler's message.
    """
    if callable(getattr(model, "named_parameters", None)):
        from ._compiled_module import CompiledModule
        return CompiledModule(model, output, global_batch_size=global_batch_size, cluster=cluster, quiet=quiet, max_steps=max_steps, export=export,
                              lr_scheduler=lr_scheduler, tokenizer=tokenizer, options=options)
    if given := [name for name, value in (("max_steps", max_steps), ("export", export), ("lr_scheduler", lr_scheduler), ("tokenizer", tokenizer)) if value is not None]:
        raise TypeError(f"'{given[0]}' is for PyTorch modules; {os.fspath(model)!r} is a file")
    if output is None:
        raise TypeError("expected output, the folder of the bundle")
    check(options, CompileOptions)
    return compile_file(model, output, global_batch_size, cluster, quiet, options)
