"""Exports any PyTorch module: wrapped, compiled, of transformers, with data instead of example
inputs."""
from __future__ import annotations

import contextlib
import difflib
import glob
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ._tools import ZorseError
from .torch_export import export as write_file
from .torch_export import hugging_face

_ROWS = 2  # samples in example inputs: with one sample, exporters would fix the batch dimension


def from_hub(folder: Any) -> Any:
    """The model of a Hugging Face hub directory, in f32: the class with a head that config.json
    names, or a causal language model."""
    try:
        return hugging_face(os.fspath(folder), {}, by_architecture=True)
    except (ImportError, ValueError) as error:
        raise ZorseError(f"{os.fspath(folder)}: cannot be loaded by transformers: {error}") from None


def unwrapped(module: Any) -> Any:
    """The module behind torch.compile and the wrappers of data parallelism."""
    while isinstance(module, torch.nn.Module):
        if type(module).__name__ == "FullyShardedDataParallel":
            raise ZorseError("FullyShardedDataParallel contains only shards of its module's parameters. Pass the module before it is wrapped: zorse shards "
                             "the state automatically")
        inner = getattr(module, "_orig_mod", None)
        if inner is None and list(module._modules) == ["module"] and not module._parameters and re.search("Parallel|Engine", type(module).__name__):
            inner = module.module
        if not isinstance(inner, torch.nn.Module):
            return module
        module = inner
    raise ZorseError(f"expected a PyTorch module, the path of an ONNX file, a directory of the Hugging Face hub or a zorse.Bundle, got {type(module).__name__}")


def check_types(module: Any) -> None:
    """Checks that parameters have values, in f32 (or f64, for tests)."""
    for name, p in module.named_parameters():
        if p.device.type == "meta":
            raise ZorseError(f"parameter '{name}' has no values (it is on the device meta); load them, or export only shapes: zorse-torch-export --no-weights")
        if type(p).__name__ == "DTensor":
            raise ZorseError(f"parameter '{name}' is a shard (DTensor); pass the module before it is sharded: zorse shards the state automatically")
        if p.dtype in (torch.float16, torch.bfloat16):
            short = "f16" if p.dtype == torch.float16 else "bf16"
            raise ZorseError(f"parameter '{name}' is of {p.dtype}: training would lose small updates. Call module.float(), and train in low precision with "
                             f"precision='{short}', which keeps parameters in f32")
        if not p.dtype.is_floating_point:
            raise ZorseError(f"parameter '{name}' is of {p.dtype} (quantized?); load the module in float32: only parameters of floats can be read")


def is_of_transformers(module: Any) -> bool:
    """Whether it returns objects with a loss and other values, which no exporter supports."""
    return hasattr(module, "base_model_prefix") and hasattr(module, "config") or type(module).__name__.startswith("PeftModel")


def argument_names(module: Any) -> list[str]:
    """Names of the arguments of forward."""
    forward = module.forward
    if type(module).__name__.startswith("PeftModel"):
        forward = module.get_base_model().forward
    return list(inspect.signature(forward).parameters)


@contextlib.contextmanager
def returning_loss(module: Any, names: list[str]) -> Iterator[None]:
    """Inside, a module takes these inputs, in order, and returns only its loss if it returns an object
    with an attribute loss, as transformers models do. Parameters keep their names."""
    known, of_transformers = argument_names(module), is_of_transformers(module)
    if not of_transformers and (isinstance(module, torch.jit.ScriptModule) or not set(names) <= set(known)):
        yield
        return
    fixed = {"return_dict": True, **({"use_cache": False} if "use_cache" in known else {})} if of_transformers else {}
    forward = module.forward

    def loss_of(given: dict[str, Any]) -> Any:
        result = forward(**given, **fixed)
        loss = getattr(result, "loss", None)
        if not of_transformers:
            return loss if isinstance(loss, torch.Tensor) and not isinstance(result, torch.Tensor) else result
        if loss is None:
            raise ZorseError(f"{type(module).__name__} returns no loss for the inputs {', '.join(names)}: give a class with a head "
                             "(AutoModelForCausalLM, ...) and its labels, or a module whose forward returns the loss")
        return loss

    scope: dict[str, Any] = {"loss_of": loss_of}
    exec(f"def forward({', '.join(names)}): return loss_of(dict({', '.join(f'{n}={n}' for n in names)}))", scope)  # exporters need one argument per input
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = scope["forward"]
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def _with_labels(data: Mapping[str, Any]) -> dict[str, Any]:
    """The first samples of the data in which no integers are all negative: the loss of samples
    whose labels are all ignored (-100) is not a number."""
    samples = min((len(value) for value in data.values()), default=0)
    kept = np.ones(min(samples, 4096), dtype=bool)
    for value in data.values():
        array = np.asarray(value[:len(kept)].detach().cpu() if hasattr(value, "detach") else value[:len(kept)])
        if array.dtype.kind == "i" and array.size:
            kept &= (array.reshape(len(kept), -1) >= 0).any(1)
    chosen = np.flatnonzero(kept)[:_ROWS]
    if len(chosen) < _ROWS:
        return {name: value[:_ROWS] for name, value in data.items()}
    return {name: value[chosen] if hasattr(value, "shape") else [value[i] for i in chosen] for name, value in data.items()}


def _arrays(data: Any) -> dict[str, Any] | None:
    """Inputs by name with a few samples; None: a stream of tokens."""
    if isinstance(data, Mapping):
        return _with_labels(data)
    if not isinstance(data, (str, os.PathLike)) or not re.match(r"\w+=", os.fspath(data)):
        return None
    found: dict[str, Any] = {}
    for word in os.fspath(data).split(","):
        name, _, path = word.rpartition("=") if "=" in word else ("", "", "")  # a further shard has no name
        files = sorted(glob.glob(path)) if name else []
        if files and files[0].endswith(".npy"):
            found[name] = np.load(files[0], mmap_mode="r")
    return _with_labels(found) or None


def _smallest_table(module: Any) -> int:
    return min((m.num_embeddings for m in module.modules() if isinstance(m, torch.nn.Embedding)), default=256)


def example(module: Any, data: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of export derived from the data that the module will be trained on: example inputs in the order of forward's arguments, or a vocabulary
    that every embedding table covers."""
    known = argument_names(module)
    arrays = _arrays(data)
    if arrays is None:
        missing = [name for name in ("input_ids", "labels") if name not in known]
        if is_of_transformers(module) and missing:
            raise ZorseError(f"{type(module).__name__} takes {', '.join(known[:6])}, ..., and tokens are for models of input_ids and labels; give arrays by the names of "
                             "its inputs, such as {'pixel_values': ..., 'labels': ...}")
        return {} if "vocabulary" in given else {"vocabulary": _smallest_table(module)}
    parameters = inspect.signature(module.forward).parameters.values()
    unknown = [name for name in arrays if name not in known]
    missing = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty and p.name not in arrays]
    if unknown and not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        near = missing if len(missing) == 1 else difflib.get_close_matches(unknown[0], missing or known, 1)
        raise ZorseError(f"data: {type(module).__name__} has no input '{unknown[0]}'; its inputs are {', '.join(known)}. " +
                         (f"Did you mean '{near[0]}'?" if near else f"If the loss is computed from '{unknown[0]}', wrap the module in one whose forward also takes "
                                                                    f"'{unknown[0]}' and returns the loss"))
    if missing and not is_of_transformers(module):
        raise ZorseError(f"data: {type(module).__name__} also needs an input '{missing[0]}'; the data have {', '.join(arrays)}")
    inputs = {}
    for name in sorted(arrays, key=lambda n: known.index(n) if n in known else len(known)):
        value = torch.as_tensor(np.array(arrays[name]) if not hasattr(arrays[name], "detach") else arrays[name].detach().cpu().clone()).contiguous()
        if len(value) < _ROWS:
            raise ZorseError(f"data['{name}']: expected at least {_ROWS} samples, got {len(value)}")
        if value.dtype != torch.bool:
            value = value.float() if value.is_floating_point() else value.long()
        inputs[name] = value
    return {"inputs": inputs}


def check_loss(module: Any, path: Any) -> None:
    """Checks that the file at `path`, which `module` was exported to, has a scalar output, which
    is the loss."""
    import onnx

    shapes = [[d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim] for output in onnx.load(path, load_external_data=False).graph.output]
    if not any(shape in ([], [1]) for shape in shapes):
        found = " and ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
        raise ZorseError(f"expected a module that returns its loss, a single number; the forward of {type(module).__name__} returns {'a tensor' if len(shapes) == 1 else 'tensors'} "
                         f"of shape {found}. Wrap it in a module whose forward also takes the labels and returns the loss, such as F.cross_entropy(self.model(x), labels)")


def export(module: Any, path: Any, **arguments: Any) -> Any:
    """zorse.export: torch_export.export for any module, including compiled and wrapped ones and
    transformers models with a head."""
    module = unwrapped(module)
    check_types(module)
    if is_of_transformers(module):
        arguments.setdefault("vocabulary", _smallest_table(module))
    names = list(arguments.get("inputs") or ("input_ids", "labels"))
    with returning_loss(module, names):
        return write_file(module, path, **arguments)
