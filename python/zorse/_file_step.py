"""Runs one training step of an ONNX file with PyTorch's operators, in a separate process: `serve` reads requests and answers them, one line of JSON each.

A request names the file and a folder with inputs, loss and gradients of the module that the file was made from (_check.py). The answer contains the differences.
A second request for the same step contains the outputs of all modules; the answer names the first one that equals no value of the file.
"""
import json
import os
import re
import sys

import numpy as np
import torch

from . import _masks, _operators
from ._onnx import read_metadata

_DRAWS = {"RandomNormal", "RandomNormalLike", "Multinomial"}
_TYPES = {1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64,
          16: torch.bfloat16}


class Node:
    def __init__(self, op, inputs, outputs, attributes, detaches):
        self.op, self.inputs, self.outputs, self.attributes, self.detaches = op, inputs, outputs, attributes, detaches


class File:
    """The graph without changes, in f64 if `wide`."""

    def __init__(self, path, wide):
        import onnx

        self._onnx, self._folder = onnx, os.path.dirname(os.path.abspath(path))
        self.types = {**_TYPES, 1: torch.float64} if wide else _TYPES
        model = onnx.load(path)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        self.facts = read_metadata(path)
        graph = model.graph
        self.initializers = {i.name: self._tensor(i) for i in graph.initializer}
        self.inputs = [i.name for i in graph.input if i.name not in self.initializers]
        self.outputs = [o.name for o in graph.output]
        self.nodes = self._live([self._node(n) for n in graph.node])
        self._mark()

    def _tensor(self, proto):
        array = self._onnx.numpy_helper.to_array(proto, base_dir=self._folder)
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        value = torch.from_numpy(array if array.dtype == np.float32 else np.array(array))
        return value.to(self.types[1]) if value.dtype == torch.float32 else value

    def _attribute(self, proto):
        value, kinds = self._onnx.helper.get_attribute_value(proto), self._onnx.AttributeProto
        if proto.type == kinds.TENSOR:
            return self._tensor(value)
        if proto.type == kinds.GRAPH:
            return [self._node(n) for n in value.node], [o.name for o in value.output], {i.name: self._tensor(i) for i in value.initializer}
        if proto.type in (kinds.INTS, kinds.FLOATS):
            return list(value)
        return value.decode() if isinstance(value, bytes) else value

    def _node(self, proto):
        call = next((p.value for p in proto.metadata_props if p.key.endswith("fx_node")), "")
        target = re.search(r"target=torch\.ops\.(aten\.detach)\.", call)
        made = re.match(r"%([\w.]+)", call)
        detaches = bool(target) and made is not None and made.group(1) in proto.output
        attributes = {a.name: self._attribute(a) for a in proto.attribute}
        looked_up = re.search(r"target=torch\.ops\.aten\.embedding\.\w+\]\(args = \(%[^,]+, %[\w.]+(?:, (-?\d+))?", call)
        if looked_up and proto.op_type == "Gather":  # padding_idx of this call; may be none
            row = int(looked_up.group(1) or -1)
            attributes["padding"] = row if row >= 0 else None
        return Node(proto.op_type, list(proto.input), list(proto.output), attributes, detaches)

    def _live(self, nodes):
        read, kept = set(self.outputs), []
        for n in reversed(nodes):
            if any(o in read for o in n.outputs):
                kept.append(n)
                read.update(n.inputs)
                for body in n.attributes.values():
                    if isinstance(body, tuple):
                        read.update(i for inner in body[0] for i in inner.inputs)
        return kept[::-1]

    def _mark(self):
        """Applies facts about nodes: padding rows of embeddings, batch norms that train."""
        statistics, padding = set(self.facts.get("statistics", [])), dict(self.facts.get("padding", {}))
        for group in self.facts.get("ties", []):
            padding.update({name: row for name in group for row in [padding[n] for n in group if n in padding][:1]})
        for n in self.nodes:
            if n.op == "BatchNormalization":
                n.attributes["training_mode"] = int(n.inputs[3] in statistics)
            if n.op == "Gather" and n.inputs[0] in padding:
                n.attributes.setdefault("padding", padding[n.inputs[0]])

    def draws(self):
        return sorted({n.op for n in self.nodes} & _DRAWS)

    def constants(self):
        """Numbers that an exporter rounded to f32: all floats except parameters and buffers."""
        known = {*self.facts.get("parameters", {}), *self.facts.get("buffers", {}), *self.facts.get("stored", {})}
        return [*(t for name, t in self.initializers.items() if name not in known),
                *(n.attributes["value"] for n in self.nodes if n.op == "Constant" and "value" in n.attributes)]

    def _constant(self, attributes):
        (key, value), = attributes.items()
        if key == "value":
            return value
        if key in ("value_float", "value_floats"):
            return torch.tensor(value, dtype=self.types[1])
        return torch.tensor(value, dtype=torch.int64)

    def run(self, nodes, values, evaluates=False):
        """Adds the results of `nodes` to `values`."""
        for n in nodes:
            if n.op == "Constant":
                results = [self._constant(n.attributes)]
            elif n.op == "If":
                body, outputs, constants = n.attributes["then_branch" if bool(values[n.inputs[0]]) else "else_branch"]
                inner = {**values, **constants}
                self.run(body, inner, evaluates)
                results = [inner[o] for o in outputs]
            else:
                operands = [values[i] if i else None for i in n.inputs]
                results = _masks.run(n, operands, self.types) if evaluates else None
                if results is None:
                    results = _operators.run(n, operands, self.types)
            for name, value in zip(n.outputs, results):
                values[name] = value.detach() if n.detaches else value

    def evaluated(self, inputs):
        """Evaluation outputs with every mask at its mean, and whether these means equal those
        without a mask. Raises NoMask."""
        trains = [n for n in self.nodes if n.op == "BatchNormalization" and n.attributes["training_mode"]]
        values = {**self.initializers, **inputs}
        try:
            for n in trains:
                n.attributes["training_mode"] = 0
            with torch.no_grad():
                self.run(self.nodes, values, evaluates=True)
        finally:
            for n in trains:
                n.attributes["training_mode"] = 1
        masks = {}
        for n in self.nodes:
            if n.outputs and _masks.is_mask(n, [values.get(i) for i in n.inputs], values[n.outputs[0]]) and values[n.outputs[0]].numel():
                masks[n.outputs[0]] = float(values[n.outputs[0]].flatten()[0])
        return [values[name] for name in self.outputs], _masks.Scales(self.nodes, values).holds(masks)

    def step(self, inputs):
        """The outputs, and the gradients of the first one with respect to every float initializer
        that is or contains a parameter according to the facts."""
        held = {*self.facts.get("parameters", {}), *self.facts.get("stored", {})}
        leaves = {name: t.detach().requires_grad_() for name, t in self.initializers.items() if name in held and t.is_floating_point()}
        values = {**self.initializers, **leaves, **inputs}
        self.run(self.nodes, values)
        for value in values.values():
            if isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf:
                value.retain_grad()
        first = values[self.outputs[0]]
        if first.requires_grad:
            first.sum().backward()
        return values, {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in leaves.items()}


def in_form_of(stored, gradient, shape):
    """Gradient of a parameter that the file stores in another form (metadata.py, `stored`)."""
    form = stored["form"]
    if form == "transpose":
        return gradient.T
    if form == "rows":
        rows = gradient.reshape(-1, *gradient.shape[-2:]).sum(0)
        whole = gradient.new_zeros(shape)
        whole[stored["start"]:stored["start"] + len(rows)] = rows
        return whole
    return gradient.reshape(shape)


def by_parameter(file, gradients, expected):
    """Gradients by parameter name of the module. For equal parameters that an exporter merged: the
    sum, under the name of the first."""
    found, stored = {}, file.facts.get("stored", {})
    first = {name: group[0] for group in file.facts.get("ties", []) for name in group}
    merged = {name: group[0] for group in file.facts.get("equal", []) for name in group if any(n not in gradients for n in group)}
    name_of = lambda name: merged.get(first.get(name, name), first.get(name, name))
    for name, gradient in gradients.items():
        parameter = stored[name]["parameter"] if name in stored else name
        target = first.get(parameter, parameter)
        if target not in expected:  # frozen
            continue
        gradient = in_form_of(stored[name], gradient, expected[target].shape) if name in stored else gradient
        found[name_of(parameter)] = found[name_of(parameter)] + gradient if name_of(parameter) in found else gradient
    wanted = {}
    for name, gradient in expected.items():
        wanted[name_of(name)] = wanted[name_of(name)] + gradient if name_of(name) in wanted else gradient
    return found, wanted


def largest(tensor):
    return max(abs(float(v)) for v in torch.aminmax(tensor)) if tensor.numel() else 0.0


def far(a, b, scale):
    if a.shape != b.shape:
        return float("inf")
    difference = largest(a - b) / scale
    return difference if difference == difference else float("inf")


class Comparison:
    def __init__(self, path, folder, wide):
        self.file, self.folder = File(path, wide), folder
        self.theirs = torch.load(os.path.join(folder, "step.pt"), mmap=True)
        self.inputs = self.theirs["inputs"]

    def _apart(self):
        """Differences of each output and each gradient from the module's, relative to the largest
        of their kind, and parameters without a gradient in the file."""
        values, gradients = self.file.step({n: v for n, v in self.inputs.items() if n in self.file.inputs})
        found, wanted = by_parameter(self.file, gradients, self.theirs["gradients"])
        scale = max([largest(g) for g in wanted.values()] + [1e-300])
        apart = {f"gradient {name}": far(found[name], g, scale) if name in found else largest(g) / scale
                 for name, g in wanted.items()}
        for name, theirs in zip(self.file.outputs, self.theirs["outputs"]):
            apart[f"output {name}"] = far(values[name].detach(), theirs, max(largest(theirs), 1e-12))
        self.values = values
        return apart, [name for name in wanted if name not in found], values[self.file.outputs[0]]

    def compare(self, limit):
        """If the first comparison exceeds `limit`, the effect of perturbing constants by an f32
        rounding shows how much of it is rounding."""
        if self.file.draws():
            return {"draws": self.file.draws()}
        apart, missing, loss = self._apart()
        if max(apart.values(), default=0) > limit and self.file.types[1] == torch.float64:
            limit = max(limit, min(1e-5, 4 * self._rounding(apart)))
        return {"apart": apart, "missing": missing, "limit": limit, "loss": float(loss.detach().sum()), 
                "detaches": sum(n.detaches for n in self.file.nodes)}

    def evaluate(self):
        """Differences of the evaluation outputs from the module's, the loss, and whether masks
        preserve the mean."""
        found, scaled = self.file.evaluated({n: v for n, v in self.inputs.items() if n in self.file.inputs})
        theirs = torch.load(os.path.join(self.folder, "evaluated.pt"))
        return {"apart": {f"output {name}": far(a, b, max(largest(b), 1e-12)) for name, a, b in zip(self.file.outputs, found, theirs)}, "loss": float(found[0].sum()), "scaled": scaled}

    def _rounding(self, apart):
        kept, values = [(t, t.clone()) for t in self.file.constants() if t.is_floating_point()], self.values
        signs = torch.Generator().manual_seed(0)
        for t, _ in kept:
            t.mul_(1 + (torch.randint(0, 2, t.shape, generator=signs) * 2 - 1) * 2.0 ** -24 * (t != t.round()))
        try:
            moved, _, _ = self._apart()
        finally:
            for t, before in kept:
                t.copy_(before)
        self.values = values
        return max((abs(moved[k] - apart[k]) for k in apart if apart[k] < float("inf")), default=0.0)

    def where(self, limit):
        """The first module, in execution order, with an output that equals no value of the file;
        and the last one with an output that is in the file and a gradient that is not."""
        record = torch.load(os.path.join(self.folder, "record.pt"))
        floats = [v for v in self.values.values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
        by_size = {}
        for v in floats:
            by_size.setdefault(v.numel(), []).append(v)

        def equal(a, b):
            b = b.detach().to(a.dtype)
            return far(a.reshape(-1), b.reshape(-1), max(largest(a), 1e-12)) <= limit

        first = gone = None
        for entry in record:
            value, gradient = entry["value"], entry["gradient"]
            if not value.numel():
                continue
            alike = [v for v in by_size.get(value.numel(), []) if equal(value, v)]
            if not alike:
                first = first or entry["module"]
            elif gradient is not None and largest(gradient) > 0:
                if not any(v.grad is not None and equal(gradient, v.grad) for v in alike):
                    gone = entry["module"]
        return {"first": first, "gone": gone}


def serve(requests, answers):
    torch.set_grad_enabled(True)
    comparison = None
    for line in requests:
        request = json.loads(line)
        if request["task"] == "forget":
            comparison = None
            continue
        try:
            if request["task"] == "compare":
                comparison = Comparison(request["file"], request["folder"], request["wide"])
                answer = comparison.compare(request["limit"])
            elif request["task"] == "evaluate":
                answer = comparison.evaluate()
            else:
                answer = comparison.where(request["limit"])
        except NotImplementedError as error:
            answer = {"unknown": str(error)}
        except _masks.NoMask as error:
            answer = {"no_mask": str(error)}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main():
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)  # only answers may be written to the pipe
    import warnings

    warnings.filterwarnings("ignore")
    torch.set_num_threads(max(1, min(torch.get_num_threads(), int(sys.argv[-1]))))
    serve(sys.stdin, answers)
