"""Make models/small/zoo: models other than language models, with data and ten steps of PyTorch in double precision, which test/e2e/zoo.py compares
with. Run again only to change them:

    python models/make_zoo.py

For each model: NAME.onnx (symbolic batch dimension), one NAME.INPUT.npy per input, and its losses in reference.json.
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

SAMPLES, BATCH, STEPS = 21, 7, 10


class Regression(nn.Module):
    """Float inputs and outputs, squared error."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(13, 24), nn.Linear(24, 24), nn.Linear(24, 3)

    def forward(self, x, y):
        return F.mse_loss(self.last(torch.tanh(self.second(torch.relu(self.first(x))))), y)


class Ratings(nn.Module):
    """Several inputs of different types; one number per sample."""

    def __init__(self):
        super().__init__()
        self.user, self.item, self.features = nn.Embedding(50, 8), nn.Embedding(70, 8), nn.Linear(5, 8)
        self.hidden, self.out = nn.Linear(24, 16), nn.Linear(16, 1)

    def forward(self, user, item, features, rating):
        x = torch.cat([self.user(user), self.item(item), self.features(features)], -1)
        return F.mse_loss(self.out(F.relu(self.hidden(x))).squeeze(-1), rating)


def layers(width, activation, norm_first):
    return nn.ModuleList([nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first)
                          for _ in range(2)])


class Patches(nn.Module):
    """A vision transformer: a convolution embeds patches, a class token is prepended and classified."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, (8, 4), (8, 4))
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 16) * 0.1), nn.Parameter(torch.randn(1, 9, 16) * 0.1)
        self.layers, self.norm, self.head = layers(16, "gelu", True), nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, pixels, label):
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), label)


class Sentences(nn.Module):
    """An encoder with a padding mask per sample, mean pooling, and logits as a second output."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(60, 16), nn.Embedding(12, 16)
        self.layers, self.head = layers(16, "relu", False), nn.Linear(16, 5)

    def forward(self, ids, mask, label):
        x = self.words(ids) + self.places.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask == 0)
        m = mask.unsqueeze(-1).to(x.dtype)
        logits = self.head((x * m).sum(1) / m.sum(1))
        return F.cross_entropy(logits, label), logits


class Weighted(nn.Module):
    """A weight per position: the loss divides by the sum of weights over the whole batch."""

    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.out = nn.Embedding(40, 16), nn.Linear(16, 16), nn.Linear(16, 40)

    def forward(self, ids, labels, weights):
        logits = self.out(F.silu(self.hidden(self.embed(ids))))
        losses, w = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none"), weights.flatten()
        return (losses * w).sum() / w.sum()


class TwoTerms(nn.Module):
    """Class weights in one loss term, a penalty on activations in another."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(12, 24), nn.Linear(24, 4)
        self.register_buffer("rarity", torch.tensor([1.0, 2.0, 0.5, 3.0]))

    def forward(self, x, label):
        h = F.gelu(self.hidden(x))
        return 0.5 * F.cross_entropy(self.out(h), label, weight=self.rarity) + 1e-2 * (h ** 2).mean()


def models():
    floats, ids = torch.randn, lambda limit, *shape: torch.randint(0, limit, shape)
    n = SAMPLES
    lengths = torch.randint(3, 13, (n, 1))
    return {
        "regression": (Regression, {"x": floats(n, 13), "y": floats(n, 3)}),
        "ratings": (Ratings, {"user": ids(50, n), "item": ids(70, n), "features": floats(n, 5), "rating": floats(n)}),
        "patches": (Patches, {"pixels": floats(n, 3, 16, 16), "label": ids(10, n)}),
        "sentences": (Sentences, {"ids": ids(60, n, 12), "mask": (torch.arange(12)[None] < lengths).long(), "label": ids(5, n)}),
        "weighted": (Weighted, {"ids": ids(40, n, 6), "labels": ids(40, n, 6), "weights": torch.rand(n, 6)}),
        "two-terms": (TwoTerms, {"x": floats(n, 12), "label": ids(4, n)}),
    }


def train(model, inputs):
    """AdamW with the defaults of zorse-compile and --lr 1e-2."""
    model.double().train()
    decay, plain = [p for p in model.parameters() if p.dim() >= 2], [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        begin = step * BATCH % SAMPLES
        batch = [t[begin:begin + BATCH] for t in inputs.values()]
        optimizer.zero_grad()
        loss = model(*[t.double() if t.is_floating_point() else t for t in batch])
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main():
    torch.manual_seed(3)
    folder = os.path.join(here, "small", "zoo")
    os.makedirs(folder, exist_ok=True)
    reference = {"torch": torch.__version__.split("+")[0], "batch": BATCH, "steps": STEPS, "models": {}}
    for name, (kind, inputs) in models().items():
        model = kind()
        export(model, os.path.join(folder, name + ".onnx"), inputs={k: t[:2] for k, t in inputs.items()},
               outputs=("loss", "logits") if name == "sentences" else ("loss",), external_data=False)
        for key, tensor in inputs.items():
            np.save(os.path.join(folder, f"{name}.{key}.npy"), tensor.numpy().astype(np.int32 if not tensor.is_floating_point() else np.float32))
        reference["models"][name] = {"inputs": list(inputs), "loss": train(model, inputs)}
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump(reference, f, indent=1)


if __name__ == "__main__":
    main()
