"""Modules for export_check.py: things that training changes and exporters lose, each with the expected result of its
export.

KINDS: by name, the methods that make a module of Base, and `says`: words of the refusal, or EQUAL if the export must
succeed. `fixed`: methods that apply the fix named by the refusal; the result must be exported. FOREIGN: the same for
files that PyTorch's exporters wrote in evaluation mode, without zorse.export.
"""
import random

import torch
import torch.nn.functional as F
from torch import nn

EQUAL = "equal"
VOCABULARY, LENGTH = 16, 6


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.a, self.o = nn.Embedding(VOCABULARY, 8), nn.Linear(8, 8), nn.Linear(8, VOCABULARY)
        self.init()

    def init(self):
        pass

    def mid(self, x):
        return torch.tanh(self.a(x))

    def loss(self, logits, y):
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    def forward(self, input_ids, labels):
        return self.loss(self.o(self.mid(self.e(input_ids))), labels)


class DropPath(nn.Module):
    """Stochastic depth as in timm; with `floor` as in transformers; `scaled` by the probability."""

    def __init__(self, floor=False, scaled=True):
        super().__init__()
        self.floor, self.scaled = floor, scaled

    def forward(self, x):
        if not self.training:
            return x
        shape = (x.shape[0], 1, 1)
        mask = (0.7 + torch.rand(shape, dtype=x.dtype)).floor_() if self.floor else x.new_empty(shape).bernoulli_(0.7)
        return x.div(0.7 if self.scaled else 1.0) * mask


def trained(function):
    """A module that applies a function to x in training and is the identity in evaluation."""
    return inner(lambda s, x: function(x) if s.training else x)


class Layer(nn.Module):
    """A module that applies a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(self, *x)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx, g):
        return g


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1e-4, 1e-4)


def inner(function):
    """Inserts a module 'd' with this function after the middle."""
    return dict(init=lambda s: setattr(s, "d", Layer(function)), mid=lambda s, x: s.d(Base.mid(s, x)))


def before(function):
    """Runs a function at the beginning of the middle."""
    return dict(mid=lambda s, x: (function(s, x), Base.mid(s, x))[1])


def set_(name, make):
    return dict(init=lambda s: setattr(s, name, make(s)))


def call_(function):
    return dict(init=lambda s: function(s) and None)


def loss_(function):
    return dict(loss=lambda s, l, y: function(F.cross_entropy(l.flatten(0, 1), y.flatten(), reduction="sum"), l, y))


def hooked(x, function):
    if x.requires_grad:
        x.register_hook(function)
    return x


def buffer(name, value, mid):
    return dict(init=lambda s: s.register_buffer(name, value.clone()), mid=mid)


def with_norm(make):
    return dict(init=lambda s: setattr(s, "b", make()), mid=lambda s, x: s.b(Base.mid(s, x).transpose(1, 2)).transpose(1, 2))


def parametrized(function):
    return dict(init=lambda s: setattr(s, "a", function(s.a)))


def attention(s, x):
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], dropout_p=0.3 if s.training else 0.0, is_causal=True)[:, 0]


def codebook(s, x):
    flat = x.flatten(0, 1)
    with torch.no_grad():
        s.book.mul_(0.9).add_(0.1 * flat.detach()[:4])
    return x + s.book.mean(0)


DRAWS, BUFFER, STOPS, BAKED = "draws random numbers", "changes buffer", "detach()", "example's batch"
KINDS = {
    # random numbers
    "drop_path": dict(init=lambda s: setattr(s, "d", DropPath()), mid=lambda s, x: x + s.d(Base.mid(s, x)), says=EQUAL),
    "drop_path_by_floor": dict(init=lambda s: setattr(s, "d", DropPath(floor=True)), mid=lambda s, x: x + s.d(Base.mid(s, x)), says=EQUAL),
    "unscaled_drop_path": dict(init=lambda s: setattr(s, "d", DropPath(scaled=False)), mid=lambda s, x: x + s.d(Base.mid(s, x)), says=("in evaluation the loss is", "'d (DropPath)'", "as nn.Dropout does")),
    "drop_path_and_branch": dict(init=lambda s: (setattr(s, "d", DropPath()), setattr(s, "b", Layer(lambda m, x: x + x.cos() if m.training else x)))[0],
                                 mid=lambda s, x: x + s.d(s.b(Base.mid(s, x))), says=EQUAL),
    "unscaled_drop_path_and_branch": dict(init=lambda s: (setattr(s, "d", DropPath(floor=True, scaled=False)), setattr(s, "b", Layer(lambda m, x: x + x.cos() if m.training else x)))[0],
                                          mid=lambda s, x: x + s.d(s.b(Base.mid(s, x))), says=("in evaluation the loss is",)),
    "mask_of_rand": dict(trained(lambda x: x * (torch.rand_like(x) < 0.7).to(x.dtype) / 0.7), says=EQUAL),
    "mask_of_like": dict(trained(lambda x: x * (torch.rand_like(x[:, :1]) > 0.3).to(x.dtype) / 0.7), says=EQUAL),
    "rand_as_noise": dict(trained(lambda x: x * (0.9 + 0.2 * torch.rand_like(x))), says=("'d (Layer)'", DRAWS, "not a mask")),
    "mask_as_branch": dict(trained(lambda x: torch.where(torch.rand_like(x) < 0.7, x / 0.7, 0.0)), says=("'d (Layer)'", DRAWS, "not a mask: Where")),
    "noise": dict(inner(lambda s, x: x + 0.1 * torch.randn_like(x)), says=("'d (Layer)'", DRAWS, "randn_like")),
    "bernoulli_by_hand": dict(inner(lambda s, x: x * torch.bernoulli(torch.full_like(x, 0.7))), says=("'d (Layer)'", DRAWS, "in evaluation too")),
    "layer_drop": dict(inner(lambda s, x: x if float(torch.rand(())) > 0.1 else x * 0), says=("'d (Layer)'", DRAWS, "rand")),
    "pythons_random": dict(inner(lambda s, x: x if random.random() > 0.5 else x * 2), says=(DRAWS, "Python's random")),
    "gumbel": dict(inner(lambda s, x: F.gumbel_softmax(x, dim=-1)), says=("'d (Layer)'", DRAWS)),
    "mixup": dict(inner(lambda s, x: 0.7 * x + 0.3 * x[torch.randperm(x.shape[0])]), says=("'d (Layer)'", DRAWS, "randperm")),
    "rrelu": dict(inner(lambda s, x: F.rrelu(x, training=True)), says=("'d (Layer)'", DRAWS)),
    "dropout2d": dict(init=lambda s: setattr(s, "d", nn.Dropout1d(0.3)), mid=lambda s, x: s.d(Base.mid(s, x)), says=EQUAL),
    "dropout3d": dict(init=lambda s: setattr(s, "d", nn.Dropout3d(0.3)), mid=lambda s, x: s.d(Base.mid(s, x)[:, :, None, None, :])[:, :, 0, 0], says=EQUAL),
    "alpha_dropout": dict(init=lambda s: setattr(s, "d", nn.AlphaDropout(0.3)), mid=lambda s, x: s.d(Base.mid(s, x)), exporters=(True,), says=("in evaluation the loss is", "'d (AlphaDropout)'")),
    "random_crop": dict(inner(lambda s, x: x.roll(int(torch.randint(0, 4, ())), 1)), says=("'d (Layer)'", DRAWS)),
    "inert_draw": dict(inner(lambda s, x: x if torch.rand(()).item() >= 0.0 else x * 0), says=EQUAL, exporters=(False,)),
    # state that a step changes
    "counter": dict(buffer("n", torch.zeros(()), lambda s, x: (s.n.add_(1), Base.mid(s, x))[1]), says=(BUFFER, "'n'")),
    "replaced_buffer": dict(buffer("n", torch.zeros(()), lambda s, x: (setattr(s, "n", s.n + 1), Base.mid(s, x) + s.n)[1]), says=(BUFFER, "'n'")),
    "moving_mean": dict(buffer("mean", torch.zeros(8), lambda s, x: (s.mean.mul_(0.9).add_(0.1 * x.detach().mean((0, 1))), Base.mid(s, x) - s.mean)[1]), says=(BUFFER, "'mean'")),
    "codebook": dict(buffer("book", torch.randn(4, 8), lambda s, x: codebook(s, Base.mid(s, x))), says=(BUFFER, "'book'")),
    "spectral_norm": dict(parametrized(nn.utils.parametrizations.spectral_norm), says=(BUFFER, "'a.parametrizations.weight.0._u'", "remove_parametrizations(module.a"),
                          fixed=parametrized(lambda a: nn.utils.parametrize.remove_parametrizations(nn.utils.parametrizations.spectral_norm(a), "weight"))),
    "spectral_norm_old": dict(parametrized(nn.utils.spectral_norm), says=(BUFFER, "'a.weight_u'", "remove_spectral_norm(module.a)"),
                              fixed=parametrized(lambda a: nn.utils.remove_spectral_norm(nn.utils.spectral_norm(a)))),
    "instance_norm": dict(with_norm(lambda: nn.InstanceNorm1d(8, track_running_stats=True)), says=(BUFFER, "'b.running_mean'", "track_running_stats=False"),
                          fixed=with_norm(lambda: nn.InstanceNorm1d(8))),
    "cumulative_norm": dict(with_norm(lambda: nn.BatchNorm1d(8, momentum=None)), says=(BUFFER, "'b.running_mean'")),
    "max_norm": dict(set_("e", lambda s: nn.Embedding(VOCABULARY, 8, max_norm=0.5)), says=("changes parameter 'e.weight'", "max_norm")),
    "weight_clamp": dict(before(lambda s, x: s.a.weight.data.clamp_(-0.01, 0.01)), says=("a.weight",)),
    # gradients
    "tensor_hook": dict(inner(lambda s, x: hooked(x, lambda g: g * 0.01)), says=("gradient of 'a.weight'", "(L", STOPS)),
    "module_hook": dict(call_(lambda s: s.a.register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))), says=("gradient", "'e (Embedding)'")),
    "backward_pre_hook": dict(call_(lambda s: s.a.register_full_backward_pre_hook(lambda m, go: (go[0] * 0.5,))), says=("gradient", "'a (Linear)'")),
    "parameter_hook": dict(call_(lambda s: s.a.weight.register_hook(lambda g: g * 2)), says=("gradient of 'a.weight'",)),
    "gradient_reversal": dict(inner(lambda s, x: Reversed.apply(x)), says=EQUAL, exporters=(True,)),
    "straight_through": dict(inner(lambda s, x: Rounded.apply(x)), says=EQUAL, exporters=(True,)),
    "clipped_gradient": dict(inner(lambda s, x: Clipped.apply(x)), says=("gradient", "'a (Linear)'"), exporters=(True,)),
    "straight_through_detach": dict(inner(lambda s, x: x + ((x * 8).round() / 8 - x).detach()), says=EQUAL, exporters=(True,)),
    "no_grad": dict(mid=lambda s, x: Base.mid(s, x) + torch.no_grad()(s.a)(x), says=("gradient of 'a.weight'", STOPS), fixed=dict(mid=lambda s, x: Base.mid(s, x) + s.a(x).detach())),
    "no_grad_half": dict(inner(lambda s, x: x * torch.no_grad()(torch.sigmoid)(x)), says=("gradient", "'a (Linear)'", STOPS)),
    "detach_dropped": dict(mid=lambda s, x: Base.mid(s, x) + s.a(x).detach(), says=("gradient of 'a.weight'", STOPS), exporters=(False,)),
    "no_grad_compared": dict(inner(lambda s, x: x * (torch.no_grad()(torch.abs)(x) > 0.3)), says=EQUAL),
    "by_frequency": dict(set_("e", lambda s: nn.Embedding(VOCABULARY, 8, scale_grad_by_freq=True)), says=("gradient of 'e.weight'",), exporters=(True,)),
    # sizes of the example's batch
    "len": dict(loss_(lambda total, l, y: total / len(y)), says=EQUAL),
    "as_tensor": dict(loss_(lambda total, l, y: total / torch.as_tensor(float(y.shape[0]) ** 0.5)), says=(BAKED,)),
    "int_of_size": dict(loss_(lambda total, l, y: total / int(y.shape[0])), says=(BAKED,), exporters=(False,)),
    "tensor_of_size": dict(loss_(lambda total, l, y: total / torch.tensor(y.numel())), says=EQUAL),
    "min_of_size": dict(loss_(lambda total, l, y: total / min(y.shape[0], 4)), says=(BAKED,), exporters=(False,)),
    "float_of_size": dict(loss_(lambda total, l, y: total * (1.0 / float(y.numel()))), says=(BAKED,), exporters=(False,)),
    "branch_of_size": dict(loss_(lambda total, l, y: total / 2 if y.shape[0] > 2 else total), says=(BAKED,), exporters=(False,)),
    "loop_over_samples": dict(loss_(lambda total, l, y: sum(F.cross_entropy(l[i], y[i]) for i in range(y.shape[0]))), says=(BAKED,), exporters=(False,)),
    "size": dict(loss_(lambda total, l, y: total / y.shape[0]), says=EQUAL),
    "length_baked": dict(loss_(lambda total, l, y: total / int(y.shape[1])), says=("length",), exporters=(False,)),
    # supported by exporters, or decomposed by Zorse
    "plain": dict(says=EQUAL),
    "dropout": dict(set_("d", lambda s: nn.Dropout(0.3)), mid=lambda s, x: s.d(Base.mid(s, x)), says=EQUAL),
    "functional_dropout": dict(inner(lambda s, x: F.dropout(x, 0.3, s.training)), says=EQUAL),
    "attention_dropout": dict(inner(attention), says=EQUAL),
    "multihead_dropout": dict(init=lambda s: setattr(s, "d", nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)), mid=lambda s, x: s.d(x, x, x, need_weights=False)[0], says=EQUAL, exporters=(True,)),
    "multihead": dict(init=lambda s: setattr(s, "d", nn.MultiheadAttention(8, 2, batch_first=True)), mid=lambda s, x: s.d(x, x, x, need_weights=False)[0], says=(BAKED,), exporters=(False,)),
    "training_branch": dict(inner(lambda s, x: x + x.sin() if s.training else x), says=EQUAL),
    "training_parameters": dict(init=lambda s: setattr(s, "x", nn.Linear(8, 8)), mid=lambda s, x: Base.mid(s, x) + (s.x(x) if s.training else 0), says=EQUAL),
    "label_smoothing": dict(loss=lambda s, l, y: F.cross_entropy(l.flatten(0, 1), y.flatten(), label_smoothing=0.1), says=EQUAL),
    "label_smoothing_of_all": dict(init=lambda s: setattr(s, "c", nn.CrossEntropyLoss(weight=torch.rand(VOCABULARY), ignore_index=3, label_smoothing=0.2)),
                                   loss=lambda s, l, y: s.c(l.transpose(1, 2), y), says=EQUAL),
    "probabilities": dict(loss=lambda s, l, y: F.cross_entropy(l.flatten(0, 1), F.softmax(s.e(y).sum(-1, True) * torch.arange(16.0), -1).flatten(0, 1)), says=EQUAL),
    "half_cast": dict(inner(lambda s, x: x.half().to(x.dtype)), says=EQUAL),
    "bf16_cast": dict(inner(lambda s, x: x.bfloat16().to(x.dtype)), says=EQUAL),
    "weight_norm": dict(parametrized(nn.utils.parametrizations.weight_norm), says=EQUAL),
    "weight_norm_old": dict(parametrized(nn.utils.weight_norm), says=EQUAL),
    "tied": dict(set_("ignored", lambda s: setattr(s.o, "weight", s.e.weight)), says=EQUAL),
    "checkpoint": dict(mid=lambda s, x: torch.utils.checkpoint.checkpoint(lambda v: Base.mid(s, v), x, use_reentrant=False), says=EQUAL),
    "reentrant_checkpoint": dict(mid=lambda s, x: torch.utils.checkpoint.checkpoint(lambda v: Base.mid(s, v), x, use_reentrant=True), says=EQUAL, exporters=(True,)),
    "batch_norm": dict(with_norm(lambda: nn.BatchNorm1d(8)), says=EQUAL),
    "frozen": dict(call_(lambda s: s.a.requires_grad_(False)), says=EQUAL),
    "forward_hook": dict(call_(lambda s: s.a.register_forward_hook(lambda m, i, o: o * s.o.bias.mean())), says=EQUAL),
    "padding": dict(set_("e", lambda s: nn.Embedding(VOCABULARY, 8, padding_idx=3)), says=EQUAL),
    "detach": dict(mid=lambda s, x: Base.mid(s, x) + s.a(x).detach(), says=EQUAL, exporters=(True,)),
    "list_of_parameters": dict(init=lambda s: setattr(s, "held", [s.a.weight]), mid=lambda s, x: torch.tanh(x @ s.held[0]), says=EQUAL),
    "casts_to_float": dict(inner(lambda s, x: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, True) + 1e-6)).to(x.dtype)), says=EQUAL),
    "rotary": dict(inner(lambda s, x: x * torch.cos(torch.arange(x.shape[1], dtype=torch.float32)[:, None] * (1 / 1000 ** (torch.arange(8) / 8)))), says=EQUAL),
    "called_as_inputs": dict(init=lambda s: (setattr(s, "labels", nn.Parameter(torch.zeros(8))), s.register_buffer("loss_", torch.ones(8)))[1],
                             mid=lambda s, x: Base.mid(s, x) * s.loss_ + s.labels, says=EQUAL),
    "dropped_constant": dict(mid=lambda s, x: Base.mid(s, x) * F.dropout(torch.ones(8), 0.3, s.training), says=EQUAL),
    **{f"bag_{mode}": dict(init=lambda s, mode=mode: setattr(s, "bag", nn.EmbeddingBag(VOCABULARY, VOCABULARY, mode=mode, padding_idx=3)),
                           loss=lambda s, l, y: Base.loss(s, l + s.bag(y)[:, None], y), says=EQUAL) for mode in ("sum", "mean", "max")},
    "bag_weighted": dict(init=lambda s: setattr(s, "bag", nn.EmbeddingBag(VOCABULARY, VOCABULARY, mode="sum")),
                         loss=lambda s, l, y: Base.loss(s, l + s.bag(y, per_sample_weights=torch.sigmoid(l[..., 0]))[:, None], y), says=EQUAL),
    "bag_of_offsets": dict(init=lambda s: setattr(s, "bag", nn.EmbeddingBag(VOCABULARY, VOCABULARY)),
                           loss=lambda s, l, y: Base.loss(s, l + s.bag(y.flatten(), torch.arange(0, y.numel(), y.shape[1]))[:, None], y), says=("with offsets", "(samples, length)")),
    # losses without a gradient
    "loss_of_data": dict(loss=lambda s, l, y: (y.to(l.dtype) ** 2).mean() + 0 * y.sum(), says=("depends on no trained parameter",)),
    "loss_detached": dict(loss=lambda s, l, y: Base.loss(s, l.detach(), y), says=("depends on no trained parameter", "detach()")),
    "loss_not_finite": dict(loss_(lambda total, l, y: total / (y < 0).sum()), says=("not finite", "Export with an example")),
    "counts": dict(loss_(lambda total, l, y: total / (y != 3).sum()), says=EQUAL),
}

# Exported in evaluation mode and without zorse.export: the module that differs is named.
FOREIGN = {
    "functional_dropout": ("'d (Layer)'",), "dropout": ("'d (Dropout)'",), "attention_dropout": ("'d (Layer)'",), "training_branch": ("the loss is", "'d (Layer)'"), "label_smoothing": ("the loss is", "the module itself"),
    "label_smoothing_of_all": ("'c (CrossEntropyLoss)'",), "drop_path": ("'d (DropPath)'",), "plain": EQUAL, "weight_norm": EQUAL,
}


def made(name, methods=None):
    torch.manual_seed(0)
    given = {key: value for key, value in (methods or KINDS[name]).items() if key in ("init", "mid", "loss")}
    return type(name, (Base,), given)()
