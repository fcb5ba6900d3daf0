"""Evaluates a file with dropout and batch norms in evaluation mode, and every mask that the file draws at its mean. lib/Import/ONNX/DrawnMasks.cpp supports the same
forms; other forms raise NoMask here and are an error there.
"""
from dataclasses import dataclass, replace

import torch


class NoMask(Exception):
    """Raised for random numbers that do not become a mask; the message names the operator that
    reads them."""


@dataclass
class _Drawn:
    """Uniform numbers, and the probability of True after they have been compared."""
    shape: tuple
    low: float
    high: float
    type: torch.dtype
    kept: float | None = None

    def floor(self):
        if 0 <= self.low and self.high <= 1:
            return torch.zeros(self.shape, dtype=self.type)
        if 0 <= self.low < 1 < self.high <= 2:
            return torch.full(self.shape, (self.high - 1) / (self.high - self.low), dtype=self.type)
        raise NoMask("Floor")

    def compared(self, number, keeps_small):
        below = min(max((number - self.low) / (self.high - self.low), 0.0), 1.0)
        return replace(self, kept=below if keeps_small else 1 - below)


def draw(node, operands, types):
    a = node.attributes
    shape = tuple(a["shape"]) if node.op == "RandomUniform" else tuple(operands[0].shape)
    like = operands[0].dtype if operands and operands[0].is_floating_point() else types[1]
    return _Drawn(shape, a.get("low", 0.0), a.get("high", 1.0), types[a["dtype"]] if "dtype" in a else like)


def _of_drawn(node, operands, types):
    op, which = node.op, next(i for i, o in enumerate(operands) if isinstance(o, _Drawn))
    x = operands[which]
    if op == "Identity":
        return x
    if op in ("Shape", "Size"):
        return torch.tensor(x.shape if op == "Shape" else torch.Size(x.shape).numel(), dtype=torch.int64)
    if op == "CastLike" and which == 1:
        return operands[0].to(torch.bool if x.kept is not None else x.type)
    if op in ("Cast", "CastLike"):
        target = types[node.attributes["to"]] if op == "Cast" else operands[1].dtype
        if target.is_floating_point:
            return replace(x, type=target) if x.kept is None else torch.full(x.shape, x.kept, dtype=target)
    if x.kept is None and op == "Floor":
        return x.floor()
    other = operands[1 - which] if len(operands) == 2 else None
    if x.kept is not None or not isinstance(other, torch.Tensor) or other.numel() != 1:
        raise NoMask(op)
    number = float(other)
    if op == "Add" or op == "Sub" and which == 0:
        shift = number if op == "Add" else -number
        return replace(x, low=x.low + shift, high=x.high + shift)
    if (op == "Mul" or op == "Div" and which == 0) and number > 0:
        factor = number if op == "Mul" else 1 / number
        return replace(x, low=x.low * factor, high=x.high * factor)
    if op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        return x.compared(number, op.startswith("Less") == (which == 0))
    raise NoMask(op)


def is_mask(node, operands, result):
    """Whether a node turns random numbers into a mask."""
    return (node.op == "Bernoulli" or operands and isinstance(operands[0], _Drawn)) and isinstance(result, torch.Tensor) and result.is_floating_point()


class Scales:
    """Whether masked values are divided by the keep probability, so that the mean is the same as
    without a mask."""

    _MOVES = {"Identity", "Cast", "CastLike", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose"}

    def __init__(self, nodes, values):
        self._values, self._readers, self._makers = values, {}, {}
        for n in nodes:
            for name in n.inputs:
                self._readers.setdefault(name, []).append(n)
            self._makers.update(dict.fromkeys(n.outputs, n))

    def _factor(self, node, name):
        """The number that a product or quotient multiplies `name` by, or None."""
        if node.op not in ("Mul", "Div") or node.op == "Div" and node.inputs[0] != name:
            return None
        number = self._values.get(node.inputs[1] if node.inputs[0] == name else node.inputs[0])
        if not isinstance(number, torch.Tensor) or number.numel() != 1 or float(number) == 0:
            return None
        return float(number) if node.op == "Mul" else 1 / float(number)

    def _reach(self, name, mean):
        """Whether every reader of `name`, which has `mean` times the mean without a mask, scales it
        back to 1."""
        if abs(mean - 1) < 1e-6:
            return True
        readers = self._readers.get(name, [])
        return bool(readers) and all(self._reads(n, name, mean) for n in readers)

    def _reads(self, node, name, mean):
        if node.op in self._MOVES and node.inputs[0] == name:
            return self._reach(node.outputs[0], mean)
        factor = self._factor(node, name)
        if factor is None and node.op == "Mul":  # multiplied with a value that may already be divided
            maker = self._makers.get(node.inputs[1] if node.inputs[0] == name else node.inputs[0])
            factor = next((f for f in (self._factor(maker, i) for i in maker.inputs) if f is not None), 1.0) if maker else 1.0
            if abs(mean * factor - 1) >= 1e-6:
                factor = 1.0
        return factor is not None and self._reach(node.outputs[0], mean * factor)

    def holds(self, masks):
        """masks: keep probability by name."""
        return all(self._reach(name, kept) for name, kept in masks.items())


def run(node, operands, types):
    """The results of a node in evaluation, or None if they equal those in training."""
    if node.op == "Dropout":
        return [operands[0], torch.ones(operands[0].shape, dtype=torch.bool)][:len(node.outputs)]
    if node.op == "Bernoulli":
        return [operands[0].to(types[node.attributes["dtype"]]) if "dtype" in node.attributes else operands[0]]
    if node.op in ("RandomUniform", "RandomUniformLike"):
        return [draw(node, operands, types)]
    return [_of_drawn(node, operands, types)] if any(isinstance(o, _Drawn) for o in operands) else None
