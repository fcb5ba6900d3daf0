"""Rewrites PyTorch calls that its exporters write without some of their arguments into a form that they write completely. Results and gradients are the same.

- cross_entropy with label_smoothing, or with probabilities as labels: the exporters' SoftmaxCrossEntropyLoss supports neither.
- scaled_dot_product_attention with dropout_p: the exporters write a Dropout that never trains. With a mask: they write -3.4e38 for hidden keys, and a query
  that sees no key gets the mean of all values instead of 0.
- in-place dropout (nn.Dropout(p, inplace=True)): the exporters write random numbers and a comparison instead of a Dropout.
- channel dropout (nn.Dropout2d): the same, or nothing at all.
- embedding_bag of ids of one length: the exporters write a loop over samples.
- new axes of complex tensors (rotary embeddings): the exporters have no operator for them.
- Module.to inside forward, to the type that the module has: it cannot replace parameters while a graph is recorded.
- torch.cond on a constant: it becomes the branch that it takes.
- len(tensor), which must be an int: the exporters write the number of the example.
- checks of values in torch.distributions, and nn.Transformer's comparison of its masks with causal ones: they depend on data.
"""
import builtins

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ._export_process import executing
from ._tools import ZorseError


def smoothed_cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """cross_entropy with class indices as labels, written out."""
    axis = 1 if input.dim() > 1 else 0
    logs, classes = F.log_softmax(input, axis), input.shape[axis]
    counted = target != ignore_index
    labels = torch.where(counted, target, torch.zeros_like(target))
    of_label = logs.gather(axis, labels.unsqueeze(axis)).squeeze(axis)
    factors = counted.to(logs.dtype)
    if weight is None:
        of_all = logs.sum(axis)
        losses = -((1 - label_smoothing) * of_label + label_smoothing / classes * of_all) * factors
    else:
        like = [1] * input.dim()
        like[axis] = classes
        of_all = (logs * weight.reshape(like)).sum(axis)
        of_class = weight[labels]
        losses = -((1 - label_smoothing) * of_label * of_class + label_smoothing / classes * of_all) * factors
        factors = factors * of_class
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / factors.sum()


def cross_entropy_of_probabilities(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """cross_entropy with distributions as labels, written out."""
    axis = 1 if input.dim() > 1 else 0
    logs, classes = F.log_softmax(input, axis), input.shape[axis]
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = target * logs
    if weight is not None:
        like = [1] * input.dim()
        like[axis] = classes
        products = products * weight.reshape(like)
    losses = -products.sum(axis)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


def attention_in_parts(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention, written out."""
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        allowed = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        scores = torch.where(allowed, scores, torch.full((), -torch.inf, dtype=scores.dtype, device=query.device))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = torch.where(attn_mask, scores, torch.full((), -torch.inf, dtype=scores.dtype, device=query.device))
    elif attn_mask is not None:
        scores = scores + attn_mask
    probabilities = torch.softmax(scores, -1)
    if attn_mask is not None:  # 0 for a query that sees no key
        probabilities = torch.where(probabilities.isnan(), torch.zeros((), dtype=scores.dtype, device=query.device), probabilities)
    dropped = F.dropout(probabilities, dropout_p, True) if dropout_p > 0 else probabilities
    return dropped @ value


def dropout_of_channels(input, p=0.5, training=True, inplace=False):
    """dropout1d, dropout2d and dropout3d, written out: one mask value per channel and sample."""
    if not training or p == 0:
        return input
    of_channels = input[(slice(None), slice(None), *[slice(0, 1)] * (input.dim() - 2))]
    return input * F.dropout(torch.ones_like(of_channels), p, True)


def bag_of_rows(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False, per_sample_weights=None,
                include_last_offset=False, padding_idx=None):
    """embedding_bag of ids (samples, length), written out."""
    if input.dim() != 2:
        raise ZorseError("embedding_bag with offsets: samples of several lengths cannot be trained. Use ids of shape (samples, length), padded with padding_idx.")
    rows = F.embedding(input, weight)
    counted = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx % weight.shape[0]
    if mode == "max":
        least = torch.full((), -torch.inf, dtype=rows.dtype, device=rows.device)
        largest = torch.where(counted.unsqueeze(-1), rows, least).amax(1)
        return torch.where(counted.any(1, keepdim=True), largest, torch.zeros((), dtype=rows.dtype, device=rows.device))
    factors = counted.to(rows.dtype) if per_sample_weights is None else per_sample_weights * counted.to(rows.dtype)
    total = (rows * factors.unsqueeze(-1)).sum(1)
    return total if mode == "sum" else total / factors.sum(1, keepdim=True).clamp(min=1)


def with_index(input, index):
    """input[index] of a complex tensor, by its real and imaginary parts."""
    index = index if isinstance(index, tuple) else (index,)
    if any(i is Ellipsis for i in index):
        index += (slice(None),)
    return torch.view_as_complex(torch.view_as_real(input)[index].contiguous())


def with_new_axis(input, dim):
    """unsqueeze of a complex tensor, by its real and imaginary parts."""
    return torch.view_as_complex(torch.view_as_real(input).unsqueeze(dim if dim >= 0 else dim - 1))


def branch_taken(cond):
    """torch.cond that calls the branch of a predicate whose value is known."""

    def taken(pred, true_fn, false_fn, operands=()):
        known = isinstance(pred, bool) or isinstance(pred, torch.Tensor) and (type(pred) is torch.Tensor or getattr(pred, "constant", None) is not None)
        return (true_fn if bool(pred) else false_fn)(*operands) if known else cond(pred, true_fn, false_fn, operands)

    return taken


def _conversion(to):
    """Module.to without effect if every parameter has the type already."""

    def converted(self, *args, **kwargs):
        asked = [*args, *kwargs.values()]
        types = {p.dtype for p in self.parameters() if p.is_floating_point()}
        if len(asked) == 1 and isinstance(asked[0], torch.dtype) and types <= {asked[0]}:
            return self
        return to(self, *args, **kwargs)

    return converted


def _length(length):
    """len() that keeps symbolic sizes symbolic."""
    return lambda value: value.shape[0] if isinstance(value, torch.Tensor) and value.dim() > 0 else length(value)


def _arguments(names, args, kwargs):
    return {**dict(zip(names, args)), **kwargs}


_CROSS_ENTROPY = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
_DROPOUT = ("input", "p", "training", "inplace")
_CHANNELS = {F.dropout1d: (3,), F.dropout2d: (3, 4), F.dropout3d: (5,)}  # number of dimensions of batched inputs
_BAG = ("input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights", "include_last_offset", "padding_idx")
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def _cross_entropy(given):
    """Returns the function that writes this call out, or None if the exporters support it."""
    if given.get("size_average") is not None or given.get("reduce") is not None or not isinstance(given.get("target"), torch.Tensor):
        return None
    if given["target"].is_floating_point():
        return cross_entropy_of_probabilities
    return smoothed_cross_entropy if given.get("label_smoothing", 0.0) > 0 else None


class WrittenOut(TorchFunctionMode):
    """Inside, these calls are written out, however a module refers to the functions."""

    def __init__(self):
        super().__init__()
        self._cross_entropy, self._attention, self._bag = F.cross_entropy, F.scaled_dot_product_attention, F.embedding_bag
        self._to, self._checks = torch.nn.Module.to, torch.distributions.Distribution._validate_args
        self._cond, self._len = torch.cond, builtins.len
        self._is_causal = torch.nn.modules.transformer._detect_is_causal_mask

    def __enter__(self):
        # PyTorch's own functions call them inside of calls that a mode has intercepted:
        # multi_head_attention_forward.
        F.cross_entropy = lambda *args, **kwargs: self.call(self._cross_entropy, args, kwargs)
        F.scaled_dot_product_attention = lambda *args, **kwargs: self.call(self._attention, args, kwargs)
        torch.nn.Module.to, torch.cond = _conversion(self._to), branch_taken(self._cond)
        builtins.len = _length(self._len)
        torch.distributions.Distribution.set_default_validate_args(False)
        torch.nn.modules.transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)  # the mask is applied anyway
        return super().__enter__()

    def __exit__(self, *error):
        builtins.len = self._len
        F.cross_entropy, F.scaled_dot_product_attention, torch.nn.Module.to = self._cross_entropy, self._attention, self._to
        torch.distributions.Distribution.set_default_validate_args(self._checks)
        torch.nn.modules.transformer._detect_is_causal_mask, torch.cond = self._is_causal, self._cond
        return super().__exit__(*error)

    def call(self, function, args, kwargs):
        if function is self._cross_entropy:
            given = _arguments(_CROSS_ENTROPY, args, kwargs)
            written = _cross_entropy(given)
            if written is not None:
                return written(**given)
        elif function is self._attention:
            given = _arguments(_ATTENTION, args, kwargs)
            if given.get("dropout_p", 0.0) > 0 or given.get("attn_mask") is not None:
                return attention_in_parts(**given)
        elif function is F.dropout:
            return function(**{**_arguments(_DROPOUT, args, kwargs), "inplace": False})
        elif function in _CHANNELS:
            given = _arguments(_DROPOUT, args, kwargs)
            if given["input"].dim() in _CHANNELS[function]:
                return dropout_of_channels(**given)
        elif function is self._bag:
            given = _arguments(_BAG, args, kwargs)
            if given.get("max_norm") is None and not given.get("scale_grad_by_freq"):
                return bag_of_rows(**given)
        elif function is torch.Tensor.__getitem__ and args[0].is_complex():
            return with_index(*args)
        elif function in (torch.unsqueeze, torch.Tensor.unsqueeze) and args[0].is_complex():
            return with_new_axis(args[0], *args[1:], **kwargs)
        return function(*args, **kwargs)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        with executing(function):
            return self.call(function, args, kwargs or {})
