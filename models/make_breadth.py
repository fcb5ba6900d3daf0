"""Make models/small/breadth: modules with operators that the importer decomposes (convolutions, pooling, norms, gathers, sums along an axis),
with data and ten steps of PyTorch in double precision, which test/e2e/breadth.py compares with. Run again only to change them:

    python models/make_breadth.py [NAME…]

The files have the format of models/make_zoo.py.
"""
import json
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from export import export
from make_zoo import BATCH, SAMPLES, STEPS, train


class Activations(nn.Module):
    """One layer per activation; PReLU has a slope per channel. Numbers are exact in single
    precision, in which ONNX stores them."""

    def __init__(self):
        super().__init__()
        self.kinds = nn.ModuleList([nn.ELU(0.75), nn.SELU(), nn.CELU(1.25), nn.Hardsigmoid(), nn.Hardswish(), nn.Mish(), nn.Softsign(), nn.PReLU(10), nn.LeakyReLU(0.25),
                                    nn.Softplus(), nn.Hardshrink(0.25), nn.Softshrink(0.125), nn.Tanhshrink(), nn.Threshold(0.125, 0.25), nn.LogSigmoid(), nn.ReLU6(), nn.Hardtanh()])
        self.first = nn.Linear(9, 10)
        self.layers = nn.ModuleList([nn.Linear(10, 10) for _ in self.kinds])
        self.last = nn.Linear(10, 3)

    def forward(self, x, y):
        x = self.first(x)
        for layer, kind in zip(self.layers, self.kinds):
            x = x + kind(layer(x))
        return F.mse_loss(self.last(x), y)


class Frozen(nn.BatchNorm2d):
    """Uses only its running statistics."""

    def train(self, mode=True):
        return super().train(False)


class Images(nn.Module):
    """Convolutions with overlaps, pads, strides, dilations, groups, and depthwise; both kinds of
    pooling; group, instance and frozen batch norms."""

    def __init__(self):
        super().__init__()
        self.stem, self.groups = nn.Conv2d(3, 12, 3, padding=1), nn.GroupNorm(4, 12)
        self.apart, self.mix = nn.Conv2d(12, 12, 3, stride=2, padding=1, groups=12, bias=False), nn.Conv2d(12, 12, 1)
        self.grouped, self.instance = nn.Conv2d(12, 18, (3, 2), padding=(2, 1), dilation=(2, 1), groups=3), nn.InstanceNorm2d(18, affine=True)
        self.frozen = Frozen(18)
        self.frozen.running_mean.uniform_(-0.5, 0.5)
        self.frozen.running_var.uniform_(0.5, 2)
        self.up, self.shuffled = nn.ConvTranspose2d(18, 8, 3, stride=2, padding=1, output_padding=1, groups=2), nn.Conv2d(2, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, pixels, label):
        x = F.max_pool2d(F.silu(self.groups(self.stem(pixels))), 3, 2, 1)
        x = F.gelu(self.mix(self.apart(x)))
        x = F.relu(self.frozen(self.instance(self.grouped(x))))
        x = F.avg_pool2d(self.up(x), 2, 1, 1, count_include_pad=False)
        x = self.shuffled(F.pixel_shuffle(x, 2))
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), label)


class Lines(nn.Module):
    """Convolutions and pooling in one and three dimensions."""

    def __init__(self):
        super().__init__()
        self.one, self.back, self.three = nn.Conv1d(4, 6, 5, stride=2, padding=2), nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), nn.Conv3d(1, 4, 2, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x, y):
        x = self.back(F.elu(F.max_pool1d(self.one(x), 2, 1)))
        x = F.avg_pool1d(x, 3, 2, ceil_mode=True)
        x = F.max_pool3d(self.three(x.reshape(-1, 1, 4, 2, 4)), 2)
        return F.mse_loss(self.head(x.mean((2, 3, 4))), y)


class Experts(nn.Module):
    """A router selects the best two of six experts for every position (top-k, gather, scatter);
    positions are summed, selected and weighted by einsum."""

    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Embedding(40, 12), nn.Linear(12, 6)
        self.up, self.down = nn.Parameter(torch.randn(6, 12, 16) * 0.3), nn.Parameter(torch.randn(6, 16, 12) * 0.3)
        self.bilinear = nn.Parameter(torch.randn(12, 12, 4) * 0.2)
        self.register_buffer("order", torch.tensor([7, 0, 5, 5, 2, 1]))
        self.head = nn.Linear(12, 40)

    def forward(self, ids, places, labels):
        x = self.embed(ids)
        scores = self.router(x)
        best, which = torch.topk(scores, 2, dim=-1)
        gates = torch.zeros_like(scores).scatter(-1, which, torch.softmax(best, -1))
        h = torch.einsum("nsd,edh->nseh", x, self.up)
        y = torch.einsum("nseh,ehd,nse->nsd", F.gelu(h), self.down, gates)
        x = x + y
        picked = torch.gather(x, 1, places[:, :, None].expand(-1, -1, 12))
        x = x + torch.cumsum(x, 1) * 0.1
        x = x[:, self.order] + torch.zeros_like(picked).scatter_add(1, places[:, :, None].expand(-1, -1, 12) % 6, picked)
        x = F.normalize(x, dim=-1) * torch.linalg.vector_norm(x, 1, dim=-1, keepdim=True)
        pairs = torch.einsum("nid,de,nje->nij", x, self.bilinear.mean(-1), x).logsumexp(-1)
        best = F.one_hot(scores.argmax(-1), 6).to(x.dtype).mean(1)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten()) + 1e-2 * pairs.mean() + (best * torch.softmax(scores, -1).mean(1)).sum(-1).mean()


class Recurrent(nn.Module):
    """A bidirectional two-layer LSTM, a GRU and an RNN with ReLU, and the LSTM's last state."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(12, 7, batch_first=True), nn.RNN(7, 4, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(4 + 6, 3)

    def forward(self, x, y):
        x, (hidden, _) = self.lstm(x)
        x = self.rnn(self.gru(x)[0])[0]
        return F.mse_loss(self.head(torch.cat([x[:, -1], hidden[-1]], dim=1)), y)


class Resized(nn.Module):
    """A small U-Net: two pooling layers, linear and nearest resizing, a part with cubic resizing
    and one with aligned corners."""

    def __init__(self):
        super().__init__()
        self.down, self.deep, self.up, self.last = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(14, 6, 3, padding=1), nn.Conv2d(10, 1, 1)

    def forward(self, x, y):
        high = F.relu(self.down(x))
        low = F.relu(self.deep(F.max_pool2d(high, 2)))
        low = torch.cat([F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False), high], dim=1)
        low = F.relu(self.up(low))
        other = F.interpolate(F.interpolate(x, size=(5, 7), mode="bicubic", align_corners=False), size=(8, 8), mode="bilinear", align_corners=True)
        near = F.interpolate(F.avg_pool2d(x, 4), scale_factor=4, mode="nearest")
        return F.mse_loss(self.last(torch.cat([low, other, near], dim=1)), y)


class Exported(nn.Module):
    """A function that is exported as one ONNX operator, which PyTorch's exporter does not write."""

    def __init__(self, operator, function, **attributes):
        super().__init__()
        self.operator, self.function, self.attributes = operator, function, attributes

    def forward(self, x, *others):
        if torch.onnx.is_in_onnx_export():
            return torch.onnx.ops.symbolic(self.operator, (x, *others), self.attributes, dtype=x.dtype, shape=x.shape, version=1 if "::" in self.operator else None)
        return self.function(x, *others)


def neighbors_norm(size, alpha, beta, bias):
    """LRN. F.local_response_norm is the same for an odd size."""
    def apply(x):
        squares = F.pad(x * x, (0, 0, 0, 0, (size - 1) // 2, size // 2))
        return x / (bias + alpha / size * squares.unfold(1, size, 1).sum(-1)) ** beta
    return Exported("LRN", apply, size=size, alpha=alpha, beta=beta, bias=bias)


class Operators(nn.Module):
    """LRN of an odd and an even number of channels, and of more channels than there are; Gelus of onnxruntime."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 7, 3), nn.Conv2d(7, 4, 3)
        self.odd, self.even, self.all = neighbors_norm(5, 0.5, 0.75, 1.0), neighbors_norm(4, 1.5, 0.5, 2.0), neighbors_norm(11, 0.25, 0.625, 1.0)
        self.quick = Exported("com.microsoft::QuickGelu", lambda x: x * torch.sigmoid(1.75 * x), alpha=1.75)
        self.biased = Exported("com.microsoft::BiasGelu", lambda x, bias: F.gelu(x + bias))
        self.fast = Exported("com.microsoft::FastGelu", lambda x, bias: F.gelu(x + bias, approximate="tanh"))
        self.layers, self.biases = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)]), nn.ParameterList([torch.randn(16) for _ in range(2)])
        self.head = nn.Linear(16, 3)

    def forward(self, pixels, label):
        x = self.even(self.second(self.odd(self.first(pixels))))
        x = self.all(x).flatten(1)
        x = x + self.quick(self.layers[0](x))
        x = x + self.biased(self.layers[1](x), self.biases[0])
        x = x + self.fast(self.layers[2](x), self.biases[1])
        return F.cross_entropy(self.head(x), label)


def models():
    floats, ids = torch.randn, lambda limit, *shape: torch.randint(0, limit, shape)
    n = SAMPLES
    return {
        "activations": (Activations, {"x": floats(n, 9), "y": floats(n, 3)}),
        "images": (Images, {"pixels": floats(n, 3, 14, 13), "label": ids(5, n)}),
        "lines": (Lines, {"x": floats(n, 4, 18), "y": floats(n, 2)}),
        "experts": (Experts, {"ids": ids(40, n, 8), "places": ids(8, n, 6), "labels": ids(40, n, 6)}),
        "recurrent": (Recurrent, {"x": floats(n, 6, 5), "y": floats(n, 3)}),
        "resized": (Resized, {"x": floats(n, 2, 8, 8), "y": floats(n, 1, 8, 8)}),
        "operators": (Operators, {"pixels": floats(n, 3, 6, 6), "label": ids(3, n)}),
    }


def main():
    torch.manual_seed(5)
    folder = os.path.join(here, "small", "breadth")
    os.makedirs(folder, exist_ok=True)
    known = {}
    if sys.argv[1:]:
        with open(os.path.join(folder, "reference.json")) as f:
            known = json.load(f)["models"]
    reference = {"torch": torch.__version__.split("+")[0], "batch": BATCH, "steps": STEPS, "models": known}
    for name, (kind, inputs) in models().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        model = kind()
        export(model, os.path.join(folder, name + ".onnx"), inputs={k: t[:2] for k, t in inputs.items()}, external_data=False)
        for key, tensor in inputs.items():
            np.save(os.path.join(folder, f"{name}.{key}.npy"), tensor.numpy().astype(np.int32 if not tensor.is_floating_point() else np.float32))
        reference["models"][name] = {"inputs": list(inputs), "loss": train(model, inputs)}
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


if __name__ == "__main__":
    main()
