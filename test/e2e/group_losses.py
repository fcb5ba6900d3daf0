"""Trains losses that combine samples (contrastive losses, functions of sums over samples, balancing of experts, batch statistics) with --group-rows=G: losses of
three steps, parameters and the evaluation are those of PyTorch's mean over groups of G consecutive samples, on one device and under three plans of three devices.
With --families, also SigLIP, CLIP and mixtures of experts of transformers (exit code 77 without PyTorch).
"""
import copy
import os
import sys
import tempfile
import warnings

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

BATCH, STEPS, RATE, LIMIT = 16, 3, 0.2, 1e-6  # files hold constants such as 0.1 in f32


class Towers(nn.Module):
    """Two encoders of inputs x and y."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.bias = nn.Parameter(torch.tensor(-0.5))

    def towers(self, x, y):
        return F.normalize(self.first(x), dim=-1), F.normalize(self.second(y), dim=-1)

    def forward(self, x, y):
        return self.loss(*self.towers(x, y))


class Clip(Towers):
    def loss(self, a, b):
        logits = self.scale.exp() * a @ b.t()
        labels = torch.arange(a.shape[0], device=a.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2 + 0 * self.bias


class SigLip(Towers):
    def loss(self, a, b):
        logits = a @ b.t() * self.scale.exp() + self.bias
        signs = 2 * torch.eye(a.shape[0], device=a.device, dtype=a.dtype) - 1
        return -F.logsigmoid(signs * logits).sum() / a.shape[0]


class InfoNce(Towers):
    def loss(self, a, b):
        logits = a @ b.t() / 0.1
        return (torch.logsumexp(logits, 1) - logits.diagonal()).mean() + 0 * (self.scale + self.bias)


class Barlow(Towers):
    def loss(self, a, b):
        a, b = ((t - t.mean(0)) / (t.var(0, unbiased=False) + 1e-3).sqrt() for t in (a, b))
        c = a.t() @ b / a.shape[0]
        on = (torch.diagonal(c) - 1).pow(2).sum()
        return on + 0.1 * (c.pow(2).sum() - torch.diagonal(c).pow(2).sum()) + 0 * (self.scale + self.bias)


class Triplet(Towers):
    """The hardest negative of every sample in its group."""

    def loss(self, a, b):
        distances = (a[:, None] - b[None]).pow(2).sum(-1)
        same = torch.eye(a.shape[0], device=a.device, dtype=torch.bool)
        hardest = torch.where(same, torch.full_like(distances, 1e3), distances).min(1).values
        return F.relu(distances.diagonal() - hardest + 0.5).mean() + 0 * (self.scale + self.bias)


class Rmse(Towers):
    def loss(self, a, b):
        return torch.sqrt(((a - b) ** 2).mean()) + 0 * (self.scale + self.bias)


class Dice(Towers):
    def loss(self, a, b):
        p, t = torch.sigmoid(a), torch.sigmoid(b)
        return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1) + 0 * (self.scale + self.bias)


class Correlation(Towers):
    def loss(self, a, b):
        a, b = (a - a.mean()).flatten(), (b - b.mean()).flatten()
        return 1 - (a * b).sum() / (a.norm() * b.norm()) + 0 * (self.scale + self.bias)


class Experts(Towers):
    """The load balancing of Switch Transformers next to a separable loss."""

    def loss(self, a, b):
        gates = torch.softmax(a, -1)
        share = F.one_hot(gates.argmax(-1), 4).to(a.dtype).mean(0)
        return ((a - b) ** 2).mean() + 0.1 * 4 * (share * gates.mean(0)).sum() + 0 * (self.scale + self.bias)


class Ignored(Towers):
    """A mean over labels that count, of which groups have different numbers."""

    def forward(self, x, y):
        a, _ = self.towers(x, y)
        labels = torch.where(y[:, 0] > 1.1, -100, (y[:, 1] > 0).long() + 2 * (y[:, 2] > 0).long())
        return F.cross_entropy(a * self.scale, labels) + 0 * self.bias + 0 * self.second(y).sum()


class Separable(Towers):
    """Needs no groups; an evaluation takes all samples."""

    def loss(self, a, b):
        return ((a - b) ** 2).mean() + 0 * (self.scale + self.bias)


class Picked(Towers):
    """Picks samples and columns by numbers that the group computes; a scatter counts them."""

    def loss(self, a, b):
        order = a.detach().sum(1).argsort()
        hard = a[order[: a.shape[0] // 2]]
        column = b.detach().mean(0).argmax()
        counts = torch.zeros(4, dtype=a.dtype, device=a.device).scatter(0, b.detach().mean(0).topk(2).indices, 1.0)
        return (hard ** 2 @ counts).mean() + b.index_select(1, column[None]).square().mean().sqrt() + 0 * (self.scale + self.bias)


LOSSES = (Clip, SigLip, InfoNce, Barlow, Triplet, Rmse, Dice, Correlation, Experts, Ignored, Separable, Picked)


class Clips(nn.Module):
    """CLIPModel or SiglipModel of transformers with its own contrastive loss."""

    def __init__(self, kind):
        super().__init__()
        import transformers

        size = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
        text = dict(vocab_size=60, max_position_embeddings=12, eos_token_id=59, bos_token_id=1, pad_token_id=0, **size)
        config = getattr(transformers, kind + "Config")(text_config=text, vision_config=dict(image_size=16, patch_size=8, **size))
        config._attn_implementation = "eager"
        self.model = getattr(transformers, kind + "Model")(config)

    def forward(self, ids, pixels):
        return self.model(input_ids=ids, pixel_values=pixels, return_loss=True).loss


class Mixture(nn.Module):
    """A language model of transformers with the balancing of its experts."""

    def __init__(self, kind, **more):
        super().__init__()
        import transformers

        config = getattr(transformers, kind + "Config")(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                                        num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.1, max_position_embeddings=32, eos_token_id=1,
                                                        bos_token_id=2, pad_token_id=0, **more)
        self.model = getattr(transformers, kind + "ForCausalLM")(config)
        self.model.set_experts_implementation("eager")

    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss


FAMILIES = {
    "CLIP": (lambda: Clips("CLIP"), ("ids", "pixels")), "SigLIP": (lambda: Clips("Siglip"), ("ids", "pixels")),
    "Mixtral": (lambda: Mixture("Mixtral", num_local_experts=4), ("ids",)), "OLMoE": (lambda: Mixture("Olmoe", num_experts=4), ("ids",)),
    "Qwen2-MoE": (lambda: Mixture("Qwen2Moe", num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=12), ("ids",)),
}


def reference(module, data, group):
    """PyTorch's steps: the mean over groups of consecutive samples."""
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=RATE), []
    for step in range(STEPS):
        batch = [torch.as_tensor(value[step * BATCH:][:BATCH]) for value in data.values()]
        optimizer.zero_grad()
        loss = torch.stack([module(*(t[i:i + group] for t in batch)) for i in range(0, BATCH, group)]).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


class Case:
    """One module: exported once, trained in groups of several sizes under several plans."""

    def __init__(self, folder, name, module, data):
        self.folder, self.name, self.module, self.data = folder, name, module, data
        self.path, self.bundle = os.path.join(folder, name + ".onnx"), os.path.join(folder, "b.zorse")
        self.train = {key: value[:BATCH * STEPS] for key, value in data.items()}
        self.evaluation = {key: value[BATCH * STEPS:] for key, value in data.items()}
        zorse.export(module, self.path, inputs={key: torch.as_tensor(value[:4]) for key, value in data.items()})

    def compile(self, group, devices, plan=None):
        more = {} if group == BATCH else {"group_rows": group}  # without the option, the batch is one group
        if plan:
            more["plan"] = plan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zorse.compile(self.path, self.bundle, global_batch_size=BATCH, cluster=z.cluster(self.folder, ["d0", "d1", "d2"][:devices]), quiet=True, precision="f64",
                          optimizer="sgd", lr=RATE, **more)

    def plans(self, group):
        """Compiles for one device, for two random plans of three devices and for the planner's."""
        self.compile(group, 1)
        yield "one device"
        files = [os.path.join(self.folder, f"random{seed}.json") for seed in (1, 2)]
        for seed, file in enumerate(files):
            z.call("random-plan", os.path.join(self.bundle, "summary.pb"), 3, BATCH, seed + group, file)
        for seed, file in enumerate(files):
            self.compile(group, 3, file)
            yield f"random plan {seed}"
        self.compile(group, 3)
        yield "planned for three devices"

    def evaluated(self, module, group):
        """PyTorch's loss over all whole groups of the evaluation data."""
        data = [torch.as_tensor(value) for value in self.evaluation.values()]
        if isinstance(module, Separable) or (isinstance(module, Ignored) and group == BATCH):  # no group is needed: all samples are one batch
            return float(module(*data))
        count = len(data[0]) // group * group
        with torch.no_grad():
            return float(torch.stack([module(*(t[i:i + group] for t in data)) for i in range(0, count, group)]).mean())

    def check(self, group, results):
        expected = copy.deepcopy(self.module)
        losses = reference(expected, self.train, group)
        evaluation = self.evaluated(expected, group)
        for name in self.plans(group):
            run = zorse.train(zorse.Bundle(self.bundle), self.train, max_steps=STEPS, eval_data=self.evaluation, eval_interval=STEPS)
            errors = [abs(a - b) / abs(b) for a, b in zip([*run.losses, run.evaluations[-1].loss], [*losses, evaluation])]
            for n, p in expected.named_parameters():
                if n in run.weights:  # tied weights are stored once
                    value = p.detach().numpy()
                    errors.append(float(np.linalg.norm(run.weights[n] - value) / max(np.linalg.norm(value), 1e-2)))
            results.append(z.check(f"{self.name}, groups of {group}, {name}: losses, parameters, evaluation", float(np.max(errors)), LIMIT))


def main():
    random = np.random.default_rng(1)
    count = BATCH * STEPS + 27
    data = {"x": random.standard_normal((count, 6)), "y": random.standard_normal((count, 5)), "ids": random.integers(2, 59, (count, 8)),
            "pixels": random.standard_normal((count, 3, 16, 16))}
    data["ids"][:, -1] = 59  # the end of the text
    cases = [(kind.__name__, kind, ("x", "y")) for kind in LOSSES]
    if "--families" in sys.argv:
        cases = [(name, kind, inputs) for name, (kind, inputs) in FAMILIES.items()]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, inputs in cases:
            torch.manual_seed(0)
            case = Case(folder, name, kind().double(), {key: data[key] for key in inputs})
            for group in (4, 8, BATCH) if kind is not Rmse else (1, 4, 8, BATCH):
                case.check(group, results)
    z.finish(results)


if __name__ == "__main__":
    main()
