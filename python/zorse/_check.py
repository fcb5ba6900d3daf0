"""Compares an exported file with the module that it was made from: one training step of each, at another batch size than the example's.

The module computes in this process. The file computes in a separate process (_file_process.py).
"""
import os
import tempfile

import torch

from ._file_process import file_process
from ._functions import observed
from ._module_step import training_step
from ._tools import ZorseError, warn

LARGE = 20_000_000  # parameters above which both compute in f32
LARGEST = 1_000_000_000  # parameters above which there is no comparison
LIMITS = {True: 1e-7, False: 1e-4}  # relative to the largest gradient: in f64, in f32


def _mixed(tensor, rows):
    """Creates `rows` samples from those of `tensor`: integers element by element, floats by
    interpolation between two samples."""
    n = len(tensor)
    first, second = torch.arange(rows) % n, (torch.arange(rows) * 2 + 1) % n
    a, b = tensor[first], tensor[second]
    if tensor.is_floating_point():
        share = ((torch.arange(rows) * 3 + 1) % 7 / 7).to(tensor.dtype).reshape([-1] + [1] * (tensor.dim() - 1))
        return a * (1 - share) + b * share
    return torch.where((torch.arange(a.numel()) * 7919 % 13 < 6).reshape(a.shape), a, b)


def _samples(inputs, rows, mixed):
    """The inputs with `rows` samples."""
    return {name: (_mixed(t, rows) if mixed else t[torch.arange(rows) % len(t)]).contiguous() if t.dim() else t for name, t in inputs.items()}


def _cut(inputs, length, shorter):
    """Token inputs truncated to a shorter sequence."""
    return {name: t[:, :shorter].contiguous() if t.dim() > 1 and t.shape[1] == length else t for name, t in inputs.items()}


class Check:
    """Comparison of one file. dynamic: whether other batch sizes are allowed; length: sequence
    length, if other lengths are allowed."""

    def __init__(self, module, path, inputs, dynamic=True, length=None):
        self.module, self.path, self.dynamic, self.length = module, os.fspath(path), dynamic, length
        self.inputs = {name: t.detach().cpu() for name, t in inputs.items()}
        self.rows = next((len(t) for t in self.inputs.values() if t.dim()), 1)
        self.wide = sum(p.numel() for p in module.parameters()) <= LARGE

    def candidates(self):
        """Inputs to try, the best first: some modules accept only even batch sizes, or samples of a
        form that mixing destroys."""
        if not self.dynamic:
            yield self.inputs
            return
        inputs = self.inputs
        if self.length is not None and self.length > 2:
            inputs = _cut(inputs, self.length, self.length - 1 if self.wide and self.length <= 64 else min(self.length - 1, 17))
        several = (5, 6, 8, 12) if self.wide else (3, 4, 6)
        for mixed in (True, False):
            for rows in (r for r in several if r != self.rows):
                yield _samples(inputs, rows, mixed)
        if inputs is not self.inputs:
            yield _samples(self.inputs, 6, False)
        yield self.inputs

    def module_step(self):
        """Returns the first step that the module accepts, and its inputs."""
        problem = None
        for inputs in self.candidates():
            for wide in (True, False) if self.wide else (False,):
                try:
                    step = training_step(self.module, inputs.values(), wide)
                except Exception as error:
                    problem = error
                    continue
                if all(torch.isfinite(o).all() for o in step.outputs[:1]):
                    self.wide = wide
                    return step, inputs
        if problem is None:
            bad = [f"'{name}'" for name, t in self.inputs.items() if t.is_floating_point() and not torch.isfinite(t).all()]
            raise ZorseError(f"{self.path}: the loss of the module is not finite in a training step" + (f" (the example {', '.join(bad)} contains non-finite numbers)" if bad else "") +
                             f"; nothing can be compared. Export with an example for which it is finite. {_TRUST}")
        lines = " ".join(str(problem).split())[:300].removesuffix(".")
        given = ", ".join(f"'{name}' {str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for name, t in self.inputs.items())
        raise ZorseError(f"{self.path}: the module cannot take a training step: {type(problem).__name__}: {lines}. Its inputs were {given}") from problem

    def begin(self):
        """The module's step. Raises a ZorseError for effects that no file can represent: buffers
        that change, random numbers other than masks."""
        with observed() as self.functions:
            self.step, self.given = self.module_step()
        if self.step.gradients and not self.step.reached:
            raise ZorseError(f"{self.path}: the loss of the module depends on no trained parameter, so there is nothing to train. Look for detach(), no_grad() and "
                             f".data on the way from the parameters to the loss. {_TRUST}")
        self.refuse_changes(self.step)
        self.draws_masks = bool(self.step.drawn) and self.matters()
        if self.draws_masks:
            others = [drawn for drawn in self.step.drawn if drawn[0] not in _OF_MASKS]
            if others or self.step.read:
                self.refuse_draws(*(others or self.step.read)[0])

    def finish(self, process, path):
        """Raises a ZorseError that names the difference in the file at `path`, or returns the
        result of the comparison."""
        self.file = os.fspath(path)
        with tempfile.TemporaryDirectory(prefix="zorse-") as folder:
            answer = self.compare(process, folder, self.step, self.given)
            if "unknown" in answer:
                warn(f"{self.path}: not compared with PyTorch: the operator {answer['unknown']} is not known to the comparison")
                return answer
            if answer.get("draws"):
                self.refuse_draws(*(self.step.drawn[0] if self.step.drawn else (answer["draws"][0], None)))
            if "failed" in answer:
                self.refuse_failure(answer)
            if self.worst(answer) > answer["limit"]:
                self.refuse_difference(process, folder, answer)
            if self.draws_masks:
                self.compare_evaluation(process, folder)
        return answer

    def compare_evaluation(self, process, folder):
        """Compares the file, with masks at their means, with the module in evaluation mode. A
        module that also behaves differently in training is compared only by its mask factors."""
        step = training_step(self.module, self.given.values(), self.wide, trains=False)
        if step.drawn:
            self.refuse_draws(*step.drawn[0], when=" in evaluation too")
        torch.save(step.outputs, os.path.join(folder, "evaluated.pt"))
        answer = process.ask(task="evaluate", file=self.file, folder=folder, wide=self.wide)
        if "no_mask" in answer or "failed" in answer:
            self.refuse_draws(*self.step.drawn[0], when=f", which are not a mask: {answer['no_mask']} reads them" if "no_mask" in answer else f" ({answer['failed']})")
        if "apart" in answer and not answer["scaled"] and self.worst(answer) > 100 * LIMITS[self.wide]:  # a wrong factor is far more
            self.refuse(f"in evaluation the loss is {float(step.outputs[0].sum()):.6g} in PyTorch and {answer['loss']:.6g} in the file, where the masks that {_module(self.step.drawn[0][1])} draws are "
                        "at their mean", "Divide the masked values by the probability that the mask keeps them, as nn.Dropout does.")

    def compare(self, process, folder, step, inputs):
        given = {name: t.double() if self.wide and t.dtype == torch.float32 else t for name, t in inputs.items()}
        torch.save({"inputs": given, "outputs": step.outputs, "gradients": step.gradients}, os.path.join(folder, "step.pt"))
        return process.ask(task="compare", file=self.file, folder=folder, wide=self.wide, limit=LIMITS[self.wide])

    @staticmethod
    def worst(answer):
        return max(answer["apart"].values(), default=0.0)

    # Reasons for refusal

    def refuse(self, what, remedy):
        raise ZorseError(f"{self.path}: the file does not train as the module does: {what}. {remedy} {_TRUST}")

    def refuse_changes(self, step):
        """Buffers that a step changes, except statistics that Zorse trains (metadata.py)."""
        from .metadata import trains_statistics

        trained = {f"{path}.{name}" if path else name for path, m in self.module.named_modules() if trains_statistics(m)
                   for name in ("running_mean", "running_var", "num_batches_tracked")}
        names = [name for name in step.changed if name not in trained]
        if not names:
            return
        parameters = dict(self.module.named_parameters())
        if names[0] in parameters:
            self.refuse(f"the forward changes parameter '{names[0]}'", "Change parameters outside of forward (an embedding: leave max_norm out).")
        owner = names[0].rpartition(".")[0]
        kind = type(dict(self.module.named_modules()).get(owner)).__name__
        self.refuse(f"a training step changes buffer '{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "") + ", and the file holds its first value",
                    _remedy_of_buffer(owner, kind, names[0]))

    def matters(self):
        """Whether the loss depends on numbers that the module draws outside of dropout."""
        others = (0.2, 0.3, 0.4, 0.6, 0.7, 0.8) if any("random" in name for name, _ in self.step.drawn) else ()  # generators other than PyTorch's
        for level in (1e-6, 1 - 1e-6, *others):
            other = training_step(self.module, self.given.values(), self.wide, level=level)
            if any(not torch.equal(a, b) for a, b in zip(self.step.outputs, other.outputs)) or any(not torch.equal(g, other.gradients[k]) for k, g in self.step.gradients.items()):
                return True
        return False

    def refuse_draws(self, operator, where, when=""):
        self.refuse(f"{_module(where) if where else 'it'} draws random numbers ({operator}){when}",
                    "Zorse draws only masks (nn.Dropout, stochastic depth: bernoulli_(p), floor(p + rand())): use these, or set the probability of this module to 0.")

    def is_linear(self):
        """Whether gradients grow with the loss: backward functions and hooks that clip or normalize
        behave differently."""
        for scale in (1e4, 1e-4):
            other = training_step(self.module, self.given.values(), self.wide, scale=scale)
            largest = max([float(g.abs().max()) for g in self.step.gradients.values() if g.numel()] + [1e-300])
            if any(float((other.gradients[name] / scale - g).abs().max()) > LIMITS[self.wide] * largest for name, g in self.step.gradients.items() if g.numel()):
                return False
        return True

    def samples_given(self):
        return next((len(t) for t in self.given.values() if t.dim()), 1)

    def refuse_failure(self, answer):
        rows = self.samples_given()
        if self.rows != rows and "failed" not in self.again(self.inputs):
            self.refuse(f"it fails with {rows} samples ({answer['failed']}), and not with the {self.rows} of the example", _BAKED)
        self.refuse(f"it cannot be evaluated ({answer['failed']})", "Export it with dynamo=True, optimize=False.")

    def again(self, inputs):
        """Runs the comparison with other inputs, in a separate process."""
        with file_process() as process, tempfile.TemporaryDirectory() as folder:
            try:
                step = training_step(self.module, inputs.values(), self.wide)
            except Exception as error:
                return {"failed": str(error)}
            return self.compare(process, folder, step, inputs)

    def refuse_difference(self, process, folder, answer):
        record = training_step(self.module, self.given.values(), self.wide, record=True).record
        torch.save(record, os.path.join(folder, "record.pt"))
        where = process.ask(task="where", folder=folder, limit=max(answer["limit"], 1e-6))
        rows, step = self.samples_given(), self.step
        apart, limit = answer["apart"], answer["limit"]
        outputs = [k for k, v in apart.items() if k.startswith("output ") and v > limit]
        if outputs:
            loss = float(step.outputs[0].sum())
            what = (f"with {rows} samples the loss is {loss:.6g} in PyTorch and {answer['loss']:.6g} in the file" if abs(loss - answer["loss"]) > limit * abs(loss) else
                    f"{outputs[0]} is off by {apart[outputs[0]]:.2g} of its largest number")
            name = where.get("first")
            what += f"; the first module whose output differs is {_module(name)}" if name else "; the modules inside have equal outputs, the loss itself differs"
            again = self.again(self.inputs) if rows != self.rows else answer
            if again is not answer and "apart" in again and self.worst(again) <= again["limit"]:
                self.refuse(what + f". With the {self.rows} samples of the example both are equal", _BAKED)
            self.refuse(what, _LEFT_OUT)
        worst = max((k for k in apart if k.startswith("gradient ")), key=apart.get)
        name = worst.removeprefix("gradient ")
        what = f"the gradient of '{name}' is missing in the file" if name in answer["missing"] else f"the gradient of '{name}' is off by {apart[worst]:.2g} of the largest"
        if where.get("gone"):
            what += f"; the last module whose output's gradient differs is {_module(where['gone'])}"
        self.refuse(what, _MERGED if name in answer["missing"] and not where.get("gone") else _GRADIENTS)


def _module(name):
    return name if name.startswith("the module itself") else f"'{name}'"


_OF_MASKS = {"bernoulli", "bernoulli_", "rand", "rand_like"}  # operators whose results may become a mask (_masks.py)
_TRUST = "trust=True (--trust-export) exports without this comparison."
_BAKED = ("The exporter has written a number of the example's batch: take sizes from x.shape inside tensor operations (no len(), no torch.as_tensor() or int() of a size).")
_LEFT_OUT = "The exporter omitted something (an argument, a branch of the training mode, a hook): write it with operations of tensors in forward."
_GRADIENTS = ("A file cannot represent gradient hooks, no_grad or custom backward functions: stop gradients by detach(), and scale them by operations in forward.")
_MERGED = "The exporter has folded or merged parameters: export with dynamo=True, optimize=False."


def _remedy_of_buffer(owner, kind, name):
    last = name.rpartition(".")[2]
    if last in ("weight_u", "weight_v"):
        return f"Spectral norm changes its vectors in every step: torch.nn.utils.remove_spectral_norm(module.{owner}) keeps the weight as it is."
    if kind == "_SpectralNorm":
        layer = owner.split(".parametrizations.")[0]
        return f"Spectral norm changes its vectors in every step: torch.nn.utils.parametrize.remove_parametrizations(module.{layer}, 'weight') keeps the weight as it is."
    if last in ("running_mean", "running_var", "num_batches_tracked"):
        return "Zorse trains the statistics of BatchNorm1d, 2d and 3d with a momentum; set track_running_stats=False, or use GroupNorm."
    return "Zorse keeps only parameters, optimizer states and batch norm statistics during a run: compute it from parameters and inputs, or update it between runs."


def compare(module, path, inputs, **more):
    """Compares a file that you exported yourself, with its facts (metadata.py), with the module that
    it was made from; see Check for the arguments."""
    check = begun(module, path, inputs, **more)
    if check is not None:
        with file_process(keep=check.wide) as process:
            check.finish(process, path)


def begun(module, path, inputs, **more):
    """Returns the check of an export, or None, with a warning, if there is none."""
    if any(p.device.type == "meta" for p in module.parameters()):
        return None
    count = sum(p.numel() for p in module.parameters())
    if count > LARGEST:
        warn(f"{path}: not compared with PyTorch: the module has {count:,} parameters, and the comparison is limited to {LARGEST:,}; export one of a small configuration to compare its class")
        return None
    check = Check(module, path, inputs, **more)
    check.begin()
    return check
