"""One deterministic training step of a PyTorch module: loss, gradients and changes of buffers.
Restores the module afterwards."""
import collections
import contextlib
import random
import warnings
from dataclasses import dataclass, field

import numpy as np
import torch

from ._chance import WithoutChance
from ._rewrites import branch_taken

_CONTAINERS = (list, dict, set, collections.deque)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for part in parts for t in tensors(part)]


def _restore(value, content):
    """The earlier content of a container."""
    if isinstance(value, (dict, set)):
        if len(value) != len(content) or value != content:
            value.clear()
            value.update(content)
    elif list(value) != content:
        value.clear()
        value.extend(content)


def _content(value):
    return dict(value) if isinstance(value, dict) else set(value) if isinstance(value, set) else list(value)


@contextlib.contextmanager
def unchanged(module):
    """Restores modes, buffers, gradients and attributes of the module, and the states of random
    number generators, on exit."""
    modules = list(module.modules())
    attributes = [(m, dict(m.__dict__), {k: _content(v) for k, v in m.__dict__.items() if isinstance(v, _CONTAINERS)}) for m in modules]
    buffers = [(b, b.detach().clone()) for b in module.buffers() if b.device.type != "meta"]
    gradients = [(p, p.grad) for p in module.parameters()]
    states = random.getstate(), np.random.get_state()  # fork_rng restores PyTorch's
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for m, held, contents in attributes:
            m.__dict__.clear()
            m.__dict__.update(held)
            for key, content in contents.items():
                with contextlib.suppress(Exception):  # elements that cannot be compared
                    _restore(held[key], content)
        with torch.no_grad():
            for b, value in buffers:
                if not torch.equal(b, value):
                    b.copy_(value)
        for p, gradient in gradients:
            p.grad = gradient


@contextlib.contextmanager
def _computing_in(module, wide):
    """Inside, parameters, buffers and tensor attributes hold copies on the CPU, in f64 if `wide`. They are the same objects, so all references to them
    (hooks, lists, ties) see these values."""
    held = {id(t): t for t in [*module.parameters(), *module.buffers()]}
    for m in module.modules():
        held.update({id(v): v for v in m.__dict__.values() if isinstance(v, torch.Tensor) and v.is_leaf})
    before = [(t, t.data) for t in held.values()]
    try:
        for t, data in before:
            t.data = data.to("cpu", torch.float64 if wide and data.dtype == torch.float32 else data.dtype, copy=True)
        yield {id(t): data for t, data in before}
    finally:
        for t, data in before:
            t.data = data


@dataclass
class Step:
    outputs: list  #: float outputs
    gradients: dict  #: by the first name of a parameter
    changed: list  #: names of parameters and buffers that the forward has changed
    drawn: list  #: (operator, module) of random numbers outside of dropout
    read: list  #: operators with a single drawn number that Python has read
    reached: bool  #: whether the first output depends on a trained parameter
    record: list = field(default_factory=list)  #: of every module's outputs, in order: module, value, gradient


class _Modules:
    """Tracks the module that is executing and the results of modules, with hooks that `remove`
    removes."""

    def __init__(self, module, record):
        self.names = {m: f"{name} ({type(m).__name__})" if name else f"the module itself ({type(m).__name__})" for name, m in module.named_modules()}
        self.running, self.record, self.removers = [], [], []
        for m in self.names:
            self.removers.append(m.register_forward_pre_hook(lambda m, _: self.running.append(m)))
            self.removers.append(m.register_forward_hook(self._leave, always_call=True))
        self.recording = record

    def _leave(self, m, _, output):
        if self.running:
            self.running.pop()
        for t in tensors(output) if self.recording else ():
            if t.is_floating_point():
                entry = {"module": self.names[m], "value": t.detach().clone(), "gradient": None}
                self.record.append(entry)
                if t.requires_grad:
                    t.register_hook(lambda g, e=entry: e.__setitem__("gradient", g.detach().clone()))

    def where(self):
        return self.names[self.running[-1]] if self.running else "the module itself"

    def remove(self):
        for hook in self.removers:
            hook.remove()


def _states():
    """States of the random number generators of Python and numpy."""
    kind, keys, *rest = np.random.get_state()
    return {"Python's random": random.getstate(), "numpy.random": (kind, keys.tobytes(), *rest)}


def _as_input(value, wide):
    value = value.detach().to("cpu", copy=True)
    return value.double() if wide and value.dtype == torch.float32 else value


def training_step(module, inputs, wide, record=False, level=None, scale=1.0, trains=True):
    """Runs one forward and backward of `module` in training or evaluation mode, starting from
    `scale` times the loss. Raises the module's exceptions."""
    with unchanged(module), _computing_in(module, wide) as values, torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.train(trains)
        modules = _Modules(module, record)
        try:
            parameters = dict(module.named_parameters())
            for p in parameters.values():
                p.grad = None
            buffers = {name: (b, b.detach().clone()) for name, b in module.named_buffers()}
            if level is not None:
                random.seed(level)
                np.random.seed(int(level * 1000))
            states = _states()
            with WithoutChance(wide, modules.where, level) as chance:
                cond, torch.cond = torch.cond, branch_taken(torch.cond)  # it compiles its branches, which the modes of this step do not permit
                try:
                    outputs = tensors([module(*[_as_input(i, wide) for i in inputs])])
                finally:
                    torch.cond = cond
                if not outputs:
                    raise TypeError("the module returns no tensor")
                changed = [name for name, p in parameters.items() if not torch.equal(p.data, values[id(p)].to("cpu", p.dtype))]
                if outputs[0].requires_grad:
                    (outputs[0].sum() * scale).backward()
            chance.drawn += [(name, "the module itself") for name in states if _states()[name] != states[name]]
            now = dict(module.named_buffers())
            changed += [name for name, (b, value) in buffers.items() if name not in now or not torch.equal(now[name], value)]
            gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad.detach() for name, p in parameters.items() if p.requires_grad}
            gradients = {name: g.to_dense() if g.is_sparse else g for name, g in gradients.items()}
        finally:
            modules.remove()
    return Step([o.detach() for o in outputs if o.is_floating_point()], gradients, changed, chance.drawn, chance.read, outputs[0].requires_grad, modules.record)
