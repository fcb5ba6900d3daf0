"""Trains modules in forms that PyTorch's exporters refuse or change (custom autograd functions, checkpointing, torch.cond, nn.Transformer, complex rotations,
outputs with a loss): losses of three steps and parameters are PyTorch's (exit code 77 without PyTorch).
"""
import copy
import dataclasses
import os
import sys

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"] = z.BIN
sys.path.insert(0, os.path.join(z.ROOT, "python"))
ensure_torch()
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import zorse  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

VOCABULARY, LENGTH, BATCH, STEPS, LIMIT = 16, 8, 4, 3, 1e-5


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(VOCABULARY, 16), nn.Linear(16, 16), nn.Linear(16, VOCABULARY)

    def features(self, x):
        return torch.tanh(self.inner(x))

    def logits(self, ids):
        return self.head(self.features(self.table(ids)))

    def forward(self, input_ids, labels):
        return F.cross_entropy(self.logits(input_ids).flatten(0, 1), labels.flatten())


class Rounded(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Sign(torch.autograd.Function):
    """The gradient of a clipped identity, with setup_context."""

    @staticmethod
    def forward(x):
        return torch.sign(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0].abs() <= 1)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.factor * gradient, None


class Fused(torch.autograd.Function):
    """A kernel whose backward is its derivative."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.flatten(0, 1).t() @ x.flatten(0, 1)


class StraightThrough(Base):
    def features(self, x):
        return Rounded.apply(self.inner(x) * 4) / 4


class Binary(Base):
    def features(self, x):
        return Sign.apply(self.inner(x))


class ReversedGradient(Base):
    def features(self, x):
        return torch.tanh(Reversed.apply(self.inner(x), 0.3))


class FusedKernel(Base):
    def features(self, x):
        return torch.tanh(Fused.apply(x, self.inner.weight))


class Recomputed(Base):
    def features(self, x):
        return checkpoint(lambda y: torch.tanh(self.inner(y)), x, use_reentrant=True)


class MaskWithoutGradient(Base):
    def features(self, x):
        y = self.inner(x)
        with torch.no_grad():
            large = y.abs() > y.abs().mean(-1, keepdim=True)
        return torch.where(large, y, 0.1 * y)


class ConvertedInside(Base):
    def features(self, x):
        self.inner = self.inner.to(x.dtype)
        return torch.tanh(self.inner(x))


class Rotated(Base):
    """A rotation by complex numbers, as in LLaMA's first code."""

    def features(self, x):
        angles = torch.outer(torch.arange(x.shape[1]).float(), 1 / 10 ** (torch.arange(4).float() / 4))
        turns = torch.polar(torch.ones_like(angles), angles)
        heads = torch.view_as_complex(self.inner(x).reshape(*x.shape[:2], 2, 4, 2))
        return torch.view_as_real(heads * turns[:, None, :].unsqueeze(0)).flatten(2)


class IndexedBySample(Base):
    """A value per sample is picked by the numbers of the samples, as in masks of llama4."""

    def features(self, x):
        weights = x.mean((1, 2))
        return torch.tanh(self.inner(x)) * (1 + weights[torch.arange(x.shape[0])[:, None, None]])


class FullTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(VOCABULARY, 16), nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True), nn.Linear(16, VOCABULARY)

    def forward(self, input_ids, labels):
        x = self.table(input_ids)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return F.cross_entropy(self.head(self.body(x, x, tgt_mask=mask)).flatten(0, 1), labels.flatten())


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class WithOutput(Base):
    def forward(self, input_ids, labels):
        logits = self.logits(input_ids)
        return Output(F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits)


class WithDictionary(Base):
    def forward(self, input_ids, labels):
        return {"loss": super().forward(input_ids, labels)}


FORMS = (StraightThrough, Binary, ReversedGradient, FusedKernel, Recomputed, MaskWithoutGradient, ConvertedInside, Rotated, IndexedBySample, FullTransformer, WithOutput,
         WithDictionary)


def loss_of(result):
    return result["loss"] if isinstance(result, dict) else getattr(result, "loss", result)


def reference(module, tokens):
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.1), []
    for step in range(STEPS):
        rows = np.stack([tokens[(step * BATCH + i) * LENGTH:][:LENGTH + 1] for i in range(BATCH)])
        optimizer.zero_grad()
        loss = loss_of(module(*map(torch.as_tensor, (rows[:, :-1], rows[:, 1:]))))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main():
    tokens, results = np.random.default_rng(0).integers(0, VOCABULARY, 4000), []
    for kind in FORMS:
        torch.manual_seed(0)
        module = kind()
        expected = copy.deepcopy(module)
        run = zorse.train(module, tokens, max_steps=STEPS, global_batch_size=BATCH, seq_length=LENGTH, optimizer="sgd", lr=0.1)
        errors = [abs(a - b) / b for a, b in zip(run.losses, reference(expected, tokens))]
        theirs = dict(expected.named_parameters())
        errors += [float((p - theirs[name]).detach().norm() / theirs[name].detach().norm().clamp_min(1e-6)) for name, p in module.named_parameters()]
        results.append(z.check(f"{kind.__name__}: losses and parameters", np.max(errors), LIMIT))
    z.finish(results)


if __name__ == "__main__":
    main()
