"""Names of a module's tensors in checkpoints of the Hugging Face hub: a part of the facts
(metadata.py)."""
import re

import torch

from .lora import Adapted


def hub_module(module):
    """Returns the transformers model in `module` and its path, or None."""
    for path, m in module.named_modules():
        if hasattr(m, "save_pretrained") and hasattr(m, "base_model_prefix"):
            return path, m
    return None


def ignored(model):
    """Endings of names that the model's class ignores in files: buffers written by older versions.
    Uses the last part of a regular expression without operators."""
    for pattern in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ():
        end = re.split(r"\\d\+|\.\*|[\[\](){}|*+?^$]", str(pattern).replace(r"\.", "."))[-1].lstrip(".")
        if end and re.fullmatch(r"[\w.]+", end):
            yield end


def running_statistics(model):
    """Buffers that are state of the model and not computed by it: the running statistics of batch
    norms."""
    for path, m in model.named_modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.running_mean is not None:
            for name in ("running_mean", "running_var"):
                yield f"{path}.{name}" if path else name


def hub_names(module, given=None):
    """Returns the facts, or None if nothing is known.

    given: for modules that are not of transformers: names in checkpoints by the module's parameter names, as a name or, if the checkpoint contains the
    transpose of a matrix, as (name, True).
    """
    if given is not None:
        unknown = set(given) - {name for name, _ in module.named_parameters(remove_duplicate=False)}
        if unknown:
            raise ValueError(f"hub: the module has no parameters {sorted(unknown)[:5]}")
        pairs = {name: (value, False) if isinstance(value, str) else value for name, value in given.items()}
        return {"parameters": {name: {"names": [hub], **({"transposed": True} if transposed else {})} for name, (hub, transposed) in pairs.items()}}
    found = hub_module(module)
    if not found:
        return None
    path, model = found
    prefix = path + "." if path else ""
    adapters = {f"{at}.{name}" for at, m in model.named_modules() if isinstance(m, Adapted) for name in ("lora_A.weight", "lora_B.weight")}
    parameters = {prefix + name: {"names": ["base_model.model." + name], "adapter": True} if name in adapters else {"names": [name]}
                  for name, _ in model.named_parameters(remove_duplicate=False)}
    parameters.update({prefix + name: {"names": [name]} for name in running_statistics(model)})
    statistics = set(running_statistics(model))
    facts = {"parameters": parameters, "buffers": sorted({*(name for name, _ in model.named_buffers() if name not in statistics), *ignored(model)})}
    if getattr(model, "lora", None):
        facts["lora"] = model.lora
    return facts
