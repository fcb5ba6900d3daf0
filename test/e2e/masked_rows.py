"""Rows that a mask hides completely: attention queries without a visible key, softmaxes and cross-entropies with all
scores masked.

    masked_rows.py [NAME...]

One sample of a batch has no position that counts, another has some. The test compares two gradients with PyTorch's for
each exporter, in f64: the gradients that the export check computes from the file, and those of a compiled step. Needs
PyTorch (tools/python-env.sh); exit code 77 without it.
"""
import logging
import sys
import tempfile
import warnings

import harness as z
from kinks import LIMIT, apart
from python_package_torch import ensure_torch

LENGTH, WIDTH, HEADS, CLASSES = 6, 8, 2, 5
NAN = {"fused, minus infinity"}  # the derivative of the file itself, through a softmax with an unused result


def functions():
    """{name: function(layer, x, mask)} of x [B, L, WIDTH] and mask [B, L] of 0 and 1; None: the mask hides all classes
    of a cross-entropy."""
    import torch
    import torch.nn.functional as F

    least = torch.finfo(torch.float32).min

    def heads(x):
        return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

    def eager(masked):
        def attend(s, x, mask):
            q, k, v = heads(s.q(x)), heads(s.k(x)), heads(s.v(x))
            scores = masked(q @ k.transpose(-1, -2) * 0.5, mask[:, None, None, :])
            return (F.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        return attend

    def fused(mask_of, **more):
        def attend(s, x, mask):
            q, k, v = heads(s.q(x)), heads(s.k(x)), heads(s.v(x))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(mask[:, None, None, :]).expand(-1, 1, LENGTH, LENGTH), **more).transpose(1, 2).flatten(2)
        return attend

    def added(number):
        return lambda scores, m: scores + (1.0 - m) * number

    def filled(number):
        return lambda scores, m: scores.masked_fill(m == 0, number)

    def causal(m):
        return (m != 0) & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()

    def pooled(s, x, mask):
        weights = F.softmax(s.q(x)[..., 0] + (1.0 - mask) * least, -1)
        return x + (weights[:, None] @ s.v(x))

    def of_classes(function):
        return lambda s, x, mask: function(s.q(x) + (1.0 - mask)[..., None] * least)

    return {
        "eager, least added": eager(added(least)), "eager, -1e9 added": eager(added(-1e9)), "eager, -1e4 added": eager(added(-1e4)), "eager, least filled in": eager(filled(least)),
        "eager, -1e9 filled in": eager(filled(-1e9)), "eager, causal, least added": eager(lambda scores, m: scores + (1.0 - causal(m).to(scores.dtype)) * least),
        "fused, booleans": fused(lambda m: m != 0), "fused, causal booleans": fused(causal), "fused, least": fused(lambda m: (1.0 - m) * least),
        "fused, minus infinity": fused(lambda m: torch.zeros_like(m).masked_fill(m == 0, -torch.inf)), "softmax": of_classes(lambda y: F.softmax(y, -1)),
        "log_softmax": of_classes(lambda y: F.log_softmax(y, -1)), "pooling": pooled, "cross_entropy": None,
    }


def made(function):
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, CLASSES)
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

        def forward(self, input_ids, mask, labels):
            x = self.table(input_ids)
            if function is not None:
                return F.cross_entropy(self.head(function(self, x, mask)).flatten(0, 1), labels.flatten())
            logits = self.head(x) + (1.0 - mask)[..., None] * torch.finfo(torch.float32).min
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    torch.manual_seed(1)
    return Masked()


def main():
    ensure_torch()
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    ids = torch.arange(4 * LENGTH).reshape(4, LENGTH)
    mask = torch.ones(4, LENGTH)
    mask[1], mask[2, 3:] = 0, 0
    inputs = {"input_ids": ids % 11, "mask": mask, "labels": ids * 7 % CLASSES}
    results, every = [], functions()
    with tempfile.TemporaryDirectory() as folder, sdpa_kernel(SDPBackend.MATH):  # other backends lose a logarithm, too
        for name in sys.argv[1:] or every:
            for dynamo in (True, False):
                found = apart(made(every[name]), folder, dynamo, inputs)
                label = f"{name}, {'dynamo' if dynamo else 'TorchScript'}"
                if found is None:
                    print(f"      {label}: PyTorch does not export it", flush=True)
                    continue
                for what, off in list(zip(("file", "program"), found))[name in NAN:]:
                    results.append(z.check(f"{label}: {what}", off, LIMIT))
    z.finish(results, "gradients of masked rows are PyTorch's")


if __name__ == "__main__":
    main()
