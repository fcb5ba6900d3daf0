"""A deterministic training step: every PyTorch operator that draws random numbers returns fixed ones.

A dropout mask is a fixed function of the element indices. Two programs that apply the same dropout therefore compute the same result, whatever
the order in which they draw.
"""
import math

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

_FLOAT_MAX = torch.finfo(torch.float32).max
# Constants of the element type: those of f64 are replaced by those of f32, the type of the export.
_OF_F64 = {getattr(torch.finfo(torch.float64), name): getattr(torch.finfo(torch.float32), name) for name in ("eps", "tiny")}


def uniform(shape):
    """Numbers in (0, 1), each a function of its position in row-major order."""
    n = np.arange(math.prod(shape), dtype=np.uint64)  # numpy, because PyTorch's threads would wait for each other
    n = (n * np.uint64(2654435761) + np.uint64(12345)) & np.uint64(0xffffffff)
    n = ((n ^ (n >> np.uint64(15))) * np.uint64(2246822519)) & np.uint64(0xffffffff)
    n ^= n >> np.uint64(13)
    return torch.from_numpy((n.astype(np.float64) + 0.5) / (1 << 32)).reshape(tuple(shape))


def dropped_out(x, ratio):
    """Returns result and mask of dropout. A file stores the ratio in f32, 0.800000012; a module
    computes 1 - 0.8."""
    remains = float(np.float32(1 - float(str(np.float32(ratio)))))
    keep = uniform(x.shape) < remains
    return [x * keep / remains if ratio < 1 else x * 0, keep]


class DropoutCalls(TorchFunctionMode):
    """Tracks whether a call of a PyTorch function with dropout is in progress. (Nested calls are
    not tracked.)"""

    NAMES = {"dropout", "dropout_", "scaled_dot_product_attention", "native_dropout", "multi_head_attention_forward"}

    def __init__(self):
        super().__init__()
        self.depth = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") not in self.NAMES:
            return function(*args, **(kwargs or {}))
        self.depth += 1
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.depth -= 1


class WithoutChance(TorchDispatchMode):
    """Fixes the numbers that operators draw. If `wide`, computes in f64 even if the module specifies f32.

    drawn: operators that drew outside of dropout, each with the module returned by `where`. read: operators with a single drawn number that Python has read.
    level: None for numbers in (0, 1) that differ by position, or the number with which every such draw begins. Python numbers are rounded to f32, as
    exporters write them.
    """

    def __init__(self, wide, where, level=None):
        super().__init__()
        self.wide, self.where, self.level = wide, where, level
        self.calls, self.drawn, self.read = DropoutCalls(), [], []
        self._single = WeakIdKeyDictionary()  # one-element tensors that depend only on a draw

    def __enter__(self):
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        return self.calls.__exit__(*error)

    def _draw(self, function, name, args, kwargs):
        """The numbers that an operator draws, as a function of uniform numbers."""
        in_place = name.split(".")[0].endswith("_")
        result = args[0] if in_place else function(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        numbers = uniform(result.shape)
        if not self.calls.depth:
            self.drawn.append((name.removeprefix("aten::").split(".")[0], self.where()))
            numbers = numbers if self.level is None else torch.full(result.shape, self.level, dtype=torch.float64)
        if "bernoulli" in name:
            p = args[1] if len(args) > 1 else kwargs.get("p", 0.5 if in_place else args[0])
            numbers = (numbers < p).double()
        elif "normal" in name or "randn" in name:
            numbers = 2 * numbers - 1
        elif not result.is_floating_point():
            return result.copy_(self._whole(name, args, result, numbers))
        if result.numel() == 1:
            self._single[result] = self.drawn[-1] if self.drawn else None
        return result.copy_(numbers)

    def _follow(self, name, args, result):
        """The result of an operator on a single drawn number."""
        drawn = next((self._single[a] for a in args if isinstance(a, torch.Tensor) and a in self._single), None)
        if drawn and name == "aten::_local_scalar_dense":
            self.read.append(drawn)
        elif drawn and isinstance(result, torch.Tensor) and result.numel() == 1:
            self._single[result] = drawn

    def _whole(self, name, args, result, numbers):
        """Integers within the bounds of those that the operator draws."""
        if "randperm" in name:
            order = torch.arange(len(result))
            return order.roll(1) if self.level is None else order.flip(0) if self.level > 0.5 else order
        if "multinomial" in name:
            return torch.arange(result.shape[-1]).expand(result.shape) if self.level is None or self.level < 0.5 else args[0].shape[-1] - 1 - torch.arange(result.shape[-1])
        bounds = [a for a in args if isinstance(a, int)][:2]
        low, high = (0, bounds[0]) if len(bounds) == 1 else bounds if len(bounds) == 2 else (0, 2)
        return low + (numbers * (high - low)).long()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), function.name()
        if torch.Tag.nondeterministic_seeded in function.tags:
            if name.startswith("aten::native_dropout"):
                x, p, trains = args
                return tuple(dropped_out(x, p)) if trains else (x.clone(), torch.ones(x.shape, dtype=torch.bool))
            return self._draw(function, name, args, kwargs)
        args = tuple(_rounded(a) for a in args)
        kwargs = {key: _rounded(value) for key, value in kwargs.items()}
        result = self._widened(function, name, args, kwargs) if self.wide else function(*args, **kwargs)
        if len(self._single):
            self._follow(name, args, result)
        return result

    def _widened(self, function, name, args, kwargs):
        if kwargs.get("dtype") == torch.float32:
            kwargs["dtype"] = torch.float64
        if name.startswith("aten::_fused_rms_norm") and len(args) > 3 and args[3] is None:
            args = (*args[:3], torch.finfo(torch.float32).eps)
        in_place = name.split(".")[0].endswith("_") or "out" in kwargs
        if not in_place and any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args):
            args = tuple(_as_wide(a, torch.float32) for a in args)
        result = function(*args, **kwargs)
        if in_place or not isinstance(result, torch.Tensor) or result.dtype != torch.float32:
            return result
        if any(isinstance(a, torch.Tensor) and a.dtype == torch.float32 for a in args):
            return result
        if torch.Tag.pointwise in function.tags:  # integer operands: a quotient or a root
            return function(*[_as_wide(a) for a in args], **kwargs)
        return result.double()


def _rounded(value):
    """A Python number as an exporter writes it: in f32, if that is finite."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if value in _OF_F64:
        return _OF_F64[value]
    if abs(value) >= _FLOAT_MAX:
        return math.copysign(_FLOAT_MAX, value)
    return float(np.float32(value))


def _as_wide(value, only=None):
    if isinstance(value, (list, tuple)):
        return type(value)(_as_wide(v, only) for v in value)
    if not isinstance(value, torch.Tensor) or value.dtype == torch.float64 or (only is not None and value.dtype != only):
        return value
    return value if value.dtype in (torch.float16, torch.bfloat16) else value.double()
