"""Facts about the parameters of a PyTorch module that an exported file does not contain: which are trained, frozen or buffers, which are one tensor under several
names, which row of an embedding is padding, where gradients stop, and their names in checkpoints of the Hugging Face hub.

    from zorse.metadata import write_metadata
    torch.onnx.export(module, (ids, labels), "model.onnx", ...)
    write_metadata(module, "model.onnx", (ids, labels))

The facts become one metadata property of the file, `zorse.metadata`. zorse-compile prefers it to anything it would infer (docs/reference/training.md). `export` in torch_export.py
writes the facts automatically.
"""
import json
import os

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .hub_names import hub_names

KEY, VERSION = "zorse.metadata", 1
OLD_KEY = "zorse.facts"  # of files that were exported before
OWN, HOOKED = "has a custom backward", "has a hook on its gradient"
STOPPED = "has no gradient although an operand has one (no_grad?)"
# Results that need no gradient although an operand does: new tensors with a given shape, or with
# another operand's type.
SHAPED_LIKE = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "type_as",
               "expand_as", "view_as", "reshape_as", "to", "requires_grad_"}
READ_AS_NUMBERS = {"item", "tolist", "__float__", "__int__", "__bool__", "numpy", "__array__"}


class GradientStops(TorchFunctionMode):
    """Intercepts every call of a PyTorch function and records those with a result without a
    gradient although an operand has one: detach, or anything under no_grad."""

    def __init__(self):
        super().__init__()
        self.stops, self.modules, self.read = [], [""], set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        owner = getattr(function, "__self__", None)
        name = getattr(owner, "__name__", "") if getattr(function, "__name__", "") == "__get__" else getattr(function, "__name__", "")
        self.read.update(id(t) for t in tensors([*args, *(kwargs or {}).values()]) if isinstance(t, torch.nn.Parameter))
        operands = args[:1] if name in SHAPED_LIKE else [*args, *(kwargs or {}).values()]
        if any(t.requires_grad for t in tensors(operands)):
            cut = any(t.is_floating_point() and not t.requires_grad for t in tensors([result])) and name not in SHAPED_LIKE - {"to", "type_as"} and name != "grad"
            if cut or name in READ_AS_NUMBERS:
                self.stops.append({"by": name, "module": self.modules[-1]})
        return result


def tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())


def traced(module, inputs):
    """The outputs of one forward, where gradients stopped in it, and the parameters that it read,
    by id. Restores buffers."""
    names = {id(m): name for name, m in module.named_modules()}
    watch = GradientStops()
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    enter = torch.nn.modules.module.register_module_forward_pre_hook(lambda m, _: watch.modules.append(names.get(id(m), "")))
    leave = torch.nn.modules.module.register_module_forward_hook(lambda *_: watch.modules.pop() is None or None)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), watch:
            result = module(*inputs)
    finally:
        enter.remove()
        leave.remove()
        with torch.no_grad():
            for name, b in module.named_buffers():
                b.copy_(buffers[name])
    return list(tensors([result])), watch.stops, watch.read


def backward_nodes(outputs):
    """Every node of the backward graph."""
    pending, seen = [t.grad_fn for t in outputs if t.grad_fn is not None], set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending += [following for following, _ in node.next_functions if following is not None]
    return seen


def leaf(node):
    """The parameter at an edge of the backward graph, or None."""
    return getattr(node, "variable", None) if node is not None else None


def of_gradients(module, inputs, name_of):
    """Facts that only a run shows: parameters that it reads and that the outputs depend on, padding
    rows by table, and effects that no ONNX file can represent."""
    outputs, stops, read = traced(module, inputs)
    if not outputs:
        return {}
    unsaid = [f"in '{s['module']}' the result of {s['by']} {STOPPED}" for s in stops if s["by"] != "detach"]
    reached, padding = set(), {}
    for node in backward_nodes(outputs[:1]):
        if leaf(node) is not None:
            reached.add(name_of.get(id(leaf(node))))
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            unsaid.append(f"{type(node).__name__} {OWN}")
        if type(node).__name__.startswith("EmbeddingBackward"):
            table = name_of.get(id(leaf(node.next_functions[0][0])))
            row = node._saved_padding_idx
            if node._saved_scale_grad_by_freq:
                unsaid.append(f"the gradient of embedding '{table}' is scaled by frequency")
            if row < (1 << 62):  # unsigned: -1, which means none, is a large number
                padding.setdefault(table, set()).add(int(row))
            else:
                padding.setdefault(table, set()).add(None)
    for table, rows in padding.items():
        if len(rows) > 1 or (table is None and rows != {None}):
            unsaid.append(f"uses of embedding '{table}' differ in padding_idx")
    unsaid += [f"parameter '{name}' {HOOKED}" for name, p in module.named_parameters() if p._backward_hooks]
    return {"reached": sorted(n for n in reached if n), "read": sorted({name_of[i] for i in read if i in name_of}), "detached": sum(s["by"] == "detach" for s in stops), "unsaid": sorted(set(unsaid)),
            "padding": {table: rows.copy().pop() for table, rows in padding.items() if table and len(rows) == 1 and rows != {None}}}


def trains_statistics(m):
    """Whether the running statistics of a batch norm are updated during training: exporters write
    it in evaluation mode in any case."""
    if not isinstance(m, torch.nn.modules.batchnorm._BatchNorm) or m.running_mean is None or m.momentum is None:
        return False
    mode = m.training
    m.train(True)  # the statistics of a frozen one are not updated
    trains = m.training
    m.train(mode)
    return trains


def of_module(module, inputs=None, hub=None):
    """Returns the facts as a dictionary. Facts that only a run shows (unused parameters, stops of
    gradients) need inputs."""
    named = list(module.named_parameters(remove_duplicate=False))
    first, names = {}, {}
    for name, p in named:
        names.setdefault(id(p), []).append(name)
        first.setdefault(id(p), name)
    facts = {"version": VERSION, "training": module.training,
             "parameters": {name: {"shape": list(p.shape), "trained": bool(p.requires_grad)} for name, p in named},
             "buffers": {name: {"shape": list(b.shape)} for name, b in module.named_buffers(remove_duplicate=False)},
             "ties": [group for group in names.values() if len(group) > 1],
             "padding": {}, "unsaid": [], "statistics": [f"{path}.running_mean" if path else "running_mean" for path, m in module.named_modules() if trains_statistics(m)]}
    for path, m in module.named_modules():
        if isinstance(m, torch.nn.Embedding):
            if m.padding_idx is not None:
                facts["padding"][first[id(m.weight)]] = m.padding_idx
            if m.max_norm is not None:
                facts["unsaid"].append(f"embedding '{path}' renormalizes its rows (max_norm)")
    names = hub_names(module, hub)
    if names:
        facts["hub"] = names
    if inputs is not None:
        run = of_gradients(module, inputs, first)
        facts["unsaid"] += run.pop("unsaid", [])
        facts.update(run)
    return facts


def holds(array, parameter):
    """Describes how an initializer holds a parameter's elements: its entry in the facts, or None. A
    tensor of equal values proves nothing."""
    if array.dtype != parameter.dtype or array.size == 0 or array.min() == array.max():
        return None
    if array.size == parameter.size:
        if array.shape == parameter.shape and np.array_equal(array, parameter):
            return {"form": "same"}
        if parameter.ndim == 2 and array.shape == parameter.T.shape and np.array_equal(array, parameter.T):
            return {"form": "transpose"}
        return {"form": "reshape"} if np.array_equal(array.ravel(), parameter.ravel()) else None
    if parameter.ndim == 2 and array.ndim >= 2 and array.shape[-1] == parameter.shape[1]:  # rows of a table of positions, possibly repeated per sample
        rows = array.reshape(-1, *array.shape[-2:])
        count = rows.shape[1]
        if (rows == rows[:1]).all():
            for start in range(parameter.shape[0] - count + 1):
                if np.array_equal(rows[0], parameter[start:start + count]):
                    return {"form": "rows", "start": start}
    return None


def of_file(model, module, folder, read=None):
    """Matches the module's tensors with the file: initializers of other names that hold a parameter, and tensors of equal values, which exporters merge. read: parameters
    that the forward reads; the file contains no others."""
    import onnx
    from onnx import numpy_helper

    tensors = dict(module.named_parameters())
    if any(t.device.type == "meta" for t in tensors.values()):
        return {}  # nothing to compare
    first = {id(t): name for name, t in reversed([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])}
    known = {name: t for name, t in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]}
    stored = {}
    for initializer in model.graph.initializer:
        if initializer.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16):
            continue
        array = numpy_helper.to_array(initializer, base_dir=folder)
        if initializer.name in known:
            value = known[initializer.name].detach().cpu().numpy()
            if initializer.name in tensors and list(array.shape) == list(value.shape) and array.dtype == value.dtype and not np.array_equal(array, value, equal_nan=True):
                raise ValueError(f"'{initializer.name}' has other values in the file than in the module: write the facts before the module changes")
            continue
        found = {}
        for name, p in tensors.items():
            if read is not None and name not in read:
                continue
            form = holds(array, p.detach().cpu().numpy()) if p.is_floating_point() and p.dtype != torch.bfloat16 else None
            if form:
                found[name] = form
        if len(found) == 1:
            (name, form), = found.items()
            stored[initializer.name] = {"parameter": name, **form}
    by_content = {}
    for name, t in known.items():
        if t.is_floating_point() and first[id(t)] == name and t.dtype != torch.bfloat16:
            by_content.setdefault((tuple(t.shape), str(t.dtype), t.detach().cpu().numpy().tobytes()) if t.numel() <= 1 << 16 else id(t), []).append(name)
    return {"stored": stored, "equal": [names for names in by_content.values() if len(names) > 1]}


def write_metadata(module, path, inputs=None, hub=None, renamed=None):
    """Write the facts about `module` into the file at `path`, which torch.onnx.export created from it.

    inputs: example inputs of the export, as a tuple. If given, the module runs forward once, and the facts contain the parameters that the outputs
    depend on and the places where gradients stop.
    hub: names of parameters in checkpoints of the hub, for modules that are not of transformers (hub_names.py).
    renamed: the module's parameter names by names in the file, if they differ.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    facts = of_module(module, inputs, hub)
    facts.update(of_file(model, module, os.path.dirname(os.path.abspath(path)), facts.get("read")))
    if renamed:
        facts.setdefault("stored", {}).update({name: {"parameter": parameter, "form": "same"} for name, parameter in renamed.items() if parameter in facts["parameters"]})
    for entry in [p for p in model.metadata_props if p.key in (KEY, OLD_KEY)]:
        model.metadata_props.remove(entry)
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(facts, separators=(",", ":"))
    onnx.save(model, path)


def settle(path, detaches, is_linear):
    """Removes facts that the comparison of a training step (_check.py) has refuted: gradients stop where the module's do, whatever the reason, and custom backward functions
    and hooks give the gradients of the file, if these grow with the loss (`is_linear` is called only then). Effects that only repeated elements show are kept: gradients scaled by
    frequency, renormalized rows.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    for entry in (p for p in model.metadata_props if p.key in (KEY, OLD_KEY)):
        facts = json.loads(entry.value)
        unsaid = facts.get("unsaid", [])
        own = any(text.endswith((OWN, HOOKED)) for text in unsaid)
        settled = (STOPPED, OWN, HOOKED) if own and is_linear() else (STOPPED,)
        left = [text for text in unsaid if not text.endswith(settled)]
        detached = min(facts["detached"], detaches) if "detached" in facts else None
        if left == unsaid and detached == facts.get("detached"):
            return
        facts["unsaid"] = left
        if detached is not None:
            facts["detached"] = detached
        entry.value = json.dumps(facts, separators=(",", ":"))
    onnx.save(model, path)
