"""Custom autograd functions whose backward is not the derivative of their forward: straight-through estimators, reversed or scaled gradients.

A graph has only the forward. Where backward multiplies every gradient by a number that does not depend on the gradient, y = f(x) is written as
detach(f(x)) + (x - detach(x)) * detach(backward(1)), which has the same value and gradient. Functions whose backward is the derivative (fused kernels) are written as
their forward; others are left, and the comparison of a training step refuses them.
"""
import contextlib

import torch
from torch.utils._python_dispatch import _disable_current_modes

Function = torch.autograd.Function


class _Context:
    """The ctx of a forward and a backward."""
    materialize_grads = True

    def __init__(self, count):
        self.saved_tensors, self.needs_input_grad = (), (True,) * count

    def save_for_backward(self, *saved):
        self.saved_tensors = saved

    save_for_forward = save_for_backward

    def mark_dirty(self, *_):
        raise NotImplementedError("changes its inputs")

    def mark_non_differentiable(self, *_):
        pass

    def set_materialize_grads(self, value):
        self.materialize_grads = value


def _is_custom(cls):
    return not cls.__module__.startswith("torch.")


def _forward(cls, args):
    """(ctx, result) of the forward, which may have a separate setup_context."""
    ctx = _Context(len(args))
    if cls.setup_context is Function.setup_context:
        return ctx, cls.forward(ctx, *args)
    result = cls.forward(*args)
    cls.setup_context(ctx, args, result)
    return ctx, result


def _backward(cls, ctx, gradient, count):
    found = cls.backward(ctx, gradient)
    found = found if isinstance(found, tuple) else (found,)
    return [*found, *[None] * (count - len(found))]


def _needs_surrogate(cls, args):
    """Whether backward multiplies gradients by numbers that are not the derivative."""
    xs = [a.detach().clone().requires_grad_(True) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    with torch.enable_grad():
        ctx, result = _forward(cls, xs)
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return False
        gradient = torch.cos(torch.arange(result.numel(), dtype=result.dtype)).reshape(result.shape)
        floats = [x for x in xs if isinstance(x, torch.Tensor) and x.requires_grad]
        if result.requires_grad:
            true = iter(torch.autograd.grad(result, floats, gradient, retain_graph=True, allow_unused=True))
        else:
            true = iter([None] * len(floats))
    with torch.no_grad():
        given, of_ones = _backward(cls, ctx, gradient, len(args)), _backward(cls, ctx, torch.ones_like(result), len(args))
        same = True
        for x, g, one in zip(xs, given, of_ones):
            if not isinstance(x, torch.Tensor) or not x.requires_grad:
                continue
            derivative = next(true)
            zero = torch.zeros_like(x)
            g = zero if g is None else g
            same &= torch.allclose(g, zero if derivative is None else derivative, rtol=1e-5, atol=1e-7)
            if one is not None and (one.shape != result.shape or x.shape != result.shape or not torch.allclose(g, gradient * one, rtol=1e-5, atol=1e-7)):
                return False
    return not same


@contextlib.contextmanager
def observed():
    """Inside, calls of custom functions are examined. Yields the classes that need a surrogate."""
    decided, apply = {}, Function.__dict__["apply"]

    def examining(cls, *args, **kwargs):
        if _is_custom(cls) and cls not in decided and not kwargs:
            decided[cls] = False
            with contextlib.suppress(Exception), _disable_current_modes(), torch.random.fork_rng(devices=[]):
                decided[cls] = _needs_surrogate(cls, args)
        return apply.__get__(None, cls)(*args, **kwargs)

    Function.apply = classmethod(examining)
    try:
        yield decided
    finally:
        Function.apply = apply


@contextlib.contextmanager
def written(decided):
    """Inside, functions that need it are written with their surrogate. decided: of `observed`."""
    apply = Function.__dict__["apply"]

    def surrogate(cls, *args, **kwargs):
        if not decided.get(cls):
            return apply.__get__(None, cls)(*args, **kwargs)
        ctx, result = _forward(cls, args)
        factors = _backward(cls, ctx, torch.ones_like(result), len(args))
        result = result.detach()
        for x, factor in zip(args, factors):
            if isinstance(x, torch.Tensor) and x.is_floating_point() and factor is not None:
                result = result + (x - x.detach()) * factor.detach()
        return result

    Function.apply = classmethod(surrogate)
    try:
        yield
    finally:
        Function.apply = apply
