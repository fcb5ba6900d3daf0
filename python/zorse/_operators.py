"""ONNX operators as PyTorch functions, so that autograd computes the gradients of a file: run(node, operands, types) -> results.

A node has `op`, `attributes` (a dict) and `outputs`. `types` maps ONNX element types to those of the evaluation. An unsupported operator raises
NotImplementedError with its name.
"""
import math

import torch
import torch.nn.functional as F

from . import _masks
from ._chance import dropped_out, uniform

_TABLE = {}


def _is(*names):
    def enter(function):
        _TABLE.update(dict.fromkeys(names, function))
        return function
    return enter


def _ints(tensor):
    return [int(i) for i in tensor.flatten().tolist()]


def _given(operands, index):
    return operands[index] if index < len(operands) else None


def run(node, operands, types):
    function = _TABLE.get(node.op)
    if function is None:
        raise NotImplementedError(node.op)
    result = function(node, operands, types)
    return result if isinstance(result, list) else [result]


def _unary(names, function):
    _TABLE.update(dict.fromkeys(names.split(), lambda node, operands, types: function(operands[0])))


def _binary(names, function):
    _TABLE.update(dict.fromkeys(names.split(), lambda node, operands, types: function(*operands)))


for _name in ("neg exp log sqrt tanh sigmoid relu abs reciprocal erf sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil round sign").split():
    _unary(_name.capitalize(), getattr(torch, _name))
_unary("Not", torch.logical_not)
_unary("IsNaN", torch.isnan)
_unary("Identity", lambda x: x)
_unary("Softplus", F.softplus)
_unary("Softsign", F.softsign)
_unary("Mish", F.mish)
_unary("HardSwish", F.hardswish)
_unary("Size", lambda x: torch.tensor(x.numel()))
_unary("Det", torch.linalg.det)
_binary("Add", torch.add)
_binary("Sub", torch.sub)
_binary("Mul", torch.mul)
_binary("Equal", torch.eq)
_binary("Less", torch.lt)
_binary("LessOrEqual", torch.le)
_binary("Greater", torch.gt)
_binary("GreaterOrEqual", torch.ge)
_binary("And", torch.logical_and)
_binary("Or", torch.logical_or)
_binary("Xor", torch.logical_xor)
_binary("BitwiseAnd", torch.bitwise_and)
_binary("BitwiseOr", torch.bitwise_or)
_binary("BitwiseXor", torch.bitwise_xor)
_unary("BitwiseNot", torch.bitwise_not)
_binary("PRelu", lambda x, slope: torch.where(x > 0, x, x * slope))  # gradient at 0 as in PyTorch: the slope
_binary("MatMul", torch.matmul)
_binary("Where", lambda condition, x, y: torch.where(condition, x, y))


@_is("IsInf")
def _is_inf(node, operands, types):
    x = operands[0]
    return (torch.isposinf(x) & bool(node.attributes.get("detect_positive", 1))) | (torch.isneginf(x) & bool(node.attributes.get("detect_negative", 1)))


def _bounded(x, low=None, high=None):
    """PyTorch's clamp, relu6 and hardtanh: the gradient is 0 at the bounds (clamp: from 2.15 on)."""
    y = torch.clamp(x, low, high)
    if not x.is_floating_point() or any(isinstance(b, torch.Tensor) and b.requires_grad for b in (low, high)):
        return y
    inside = torch.ones_like(x, dtype=torch.bool)
    if low is not None:
        inside &= x > low
    if high is not None:
        inside &= x < high
    return torch.where(inside, x, y.detach())


@_is("LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "HardSigmoid", "ThresholdedRelu", "Shrink")
def _activation(node, operands, types):
    x, a = operands[0], node.attributes
    alpha = a.get("alpha")
    return {"LeakyRelu": lambda: F.leaky_relu(x, 0.01 if alpha is None else alpha),
            "Elu": lambda: F.elu(x, 1.0 if alpha is None else alpha),
            "Celu": lambda: F.celu(x, 1.0 if alpha is None else alpha),
            "Selu": lambda: F.selu(x),
            "Gelu": lambda: F.gelu(x, approximate=a.get("approximate", "none")),
            "HardSigmoid": lambda: _bounded((0.2 if alpha is None else alpha) * x + a.get("beta", 0.5), 0, 1),
            "ThresholdedRelu": lambda: torch.where(x > (1.0 if alpha is None else alpha), x, torch.zeros_like(x)),
            "Shrink": lambda: torch.where(x < -a.get("lambd", 0.5), x + a.get("bias", 0.0),
                                          torch.where(x > a.get("lambd", 0.5), x - a.get("bias", 0.0), torch.zeros_like(x)))}[node.op]()


@_is("BiasGelu", "FastGelu", "QuickGelu")
def _runtime_gelu(node, operands, types):
    """GELU operators of the domain com.microsoft."""
    x = operands[0] if _given(operands, 1) is None else operands[0] + operands[1]
    if node.op == "QuickGelu":
        return x * torch.sigmoid(node.attributes.get("alpha", 1.702) * x)
    return F.gelu(x, approximate="tanh" if node.op == "FastGelu" else "none")


@_is("Div")
def _div(node, operands, types):
    a, b = operands
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@_is("Mod")
def _mod(node, operands, types):
    return torch.fmod(*operands) if node.attributes.get("fmod") else torch.remainder(*operands)


@_is("Pow")
def _pow(node, operands, types):
    a, b = operands
    if a.is_floating_point() and b.numel() == 1 and not b.requires_grad and float(b) == int(float(b)):
        return (a ** int(float(b))).expand(torch.broadcast_shapes(a.shape, b.shape))
    return torch.pow(a, b.to(a.dtype)) if a.is_floating_point() else torch.pow(a, b).to(a.dtype)


@_is("Max", "Min", "Sum", "Mean")
def _variadic(node, operands, types):
    y = operands[0]
    for x in operands[1:]:
        number = next((t for t in (x, y) if t.dim() == 0 and not t.requires_grad and t.is_floating_point()), None)
        if node.op in ("Max", "Min") and number is not None and x.dim() + y.dim() > 0:
            y = _bounded(y if number is x else x, **{"low" if node.op == "Max" else "high": number})  # clamp; the maximum of two tensors splits the gradient
        else:
            y = {"Max": torch.maximum, "Min": torch.minimum}.get(node.op, torch.add)(*torch.broadcast_tensors(y, x))
    return y / len(operands) if node.op == "Mean" else y


@_is("Clip")
def _clip(node, operands, types):
    low, high = (_given(operands, 1), _given(operands, 2)) if len(operands) > 1 else (node.attributes.get("min"), node.attributes.get("max"))
    bounds = [b if b is None or not isinstance(b, torch.Tensor) else b.to(operands[0].dtype) for b in (low, high)]
    return operands[0] if bounds == [None, None] else _bounded(operands[0], *bounds)


_REDUCE = {"ReduceSum": lambda x, d, k: x.sum(d, k), "ReduceMean": lambda x, d, k: x.mean(d, k), "ReduceMax": lambda x, d, k: x.amax(d, k),
           "ReduceMin": lambda x, d, k: x.amin(d, k), "ReduceL1": lambda x, d, k: x.abs().sum(d, k),
           "ReduceL2": lambda x, d, k: torch.linalg.vector_norm(x, 2, d, k), "ReduceSumSquare": lambda x, d, k: (x * x).sum(d, k),
           "ReduceLogSumExp": lambda x, d, k: torch.logsumexp(x, d, k), "ReduceLogSum": lambda x, d, k: x.sum(d, k).log()}


@_is("ReduceProd", *_REDUCE)
def _reduce(node, operands, types):
    x, axes = operands[0], _given(operands, 1)
    axes = node.attributes.get("axes", _ints(axes) if axes is not None else None)
    keep = bool(node.attributes.get("keepdims", 1))
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        return x
    axes = sorted({a % x.dim() for a in axes} if axes else range(x.dim()))
    if node.op == "ReduceProd":
        for a in reversed(axes):
            x = x.prod(a, keep)
        return x
    return _REDUCE[node.op](x, axes, keep) if axes else _REDUCE[node.op](x.reshape(1), [0], False).reshape(())


@_is("Cast")
def _cast(node, operands, types):
    if node.attributes["to"] not in types:
        raise NotImplementedError(f"Cast to element type {node.attributes['to']}")
    return operands[0].to(types[node.attributes["to"]])


@_is("CastLike")
def _cast_like(node, operands, types):
    return operands[0].to(operands[1].dtype)


@_is("ConstantOfShape")
def _constant_of_shape(node, operands, types):
    value = node.attributes.get("value")
    value = torch.zeros((), dtype=types[1]) if value is None else value.flatten()[0]
    return value.expand(_ints(operands[0])).clone()


@_is("Shape")
def _shape(node, operands, types):
    return torch.tensor(operands[0].shape, dtype=torch.int64)[slice(node.attributes.get("start", 0), node.attributes.get("end"))]


@_is("Range")
def _range(node, operands, types):
    return torch.arange(*(o.item() for o in operands), dtype=operands[0].dtype)


@_is("EyeLike")
def _eye_like(node, operands, types):
    kind = types[node.attributes["dtype"]] if "dtype" in node.attributes else operands[0].dtype
    eye = torch.zeros(operands[0].shape, dtype=kind)
    eye.diagonal(node.attributes.get("k", 0)).fill_(1)
    return eye


@_is("Reshape")
def _reshape(node, operands, types):
    x, shape = operands[0], _ints(operands[1])
    return x.reshape(shape if node.attributes.get("allowzero", 0) else [x.shape[i] if s == 0 else s for i, s in enumerate(shape)])


@_is("Flatten")
def _flatten(node, operands, types):
    x, k = operands[0], node.attributes.get("axis", 1)
    return x.reshape(math.prod(x.shape[:k if k >= 0 else k + x.dim()]), -1)


@_is("Transpose")
def _transpose(node, operands, types):
    return operands[0].permute(node.attributes.get("perm", list(range(operands[0].dim()))[::-1]))


@_is("Squeeze")
def _squeeze(node, operands, types):
    x, axes = operands[0], _given(operands, 1)
    axes = node.attributes.get("axes", _ints(axes) if axes is not None else [i for i, n in enumerate(x.shape) if n == 1])
    for k in sorted((k % x.dim() for k in axes), reverse=True):
        x = x.squeeze(k)
    return x


@_is("Unsqueeze")
def _unsqueeze(node, operands, types):
    x, axes = operands[0], node.attributes.get("axes") or _ints(operands[1])
    rank = x.dim() + len(axes)
    for k in sorted(k % rank for k in axes):
        x = x.unsqueeze(k)
    return x


@_is("Expand")
def _expand(node, operands, types):
    return operands[0].expand(torch.broadcast_shapes(operands[0].shape, _ints(operands[1])))


@_is("Tile")
def _tile(node, operands, types):
    return operands[0].repeat(_ints(operands[1]))


@_is("Concat")
def _concat(node, operands, types):
    return torch.cat(operands, node.attributes["axis"])


@_is("Slice")
def _slice(node, operands, types):
    x = operands[0]
    if len(operands) == 1:  # before opset 10
        starts, ends, axes = (node.attributes.get(k) for k in ("starts", "ends", "axes"))
    else:
        starts, ends, axes = _ints(operands[1]), _ints(operands[2]), None if _given(operands, 3) is None else _ints(operands[3])
    steps = _ints(operands[4]) if _given(operands, 4) is not None else [1] * len(starts)
    for begin, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps):
        n = x.shape[axis]
        if step > 0:
            x = x[(slice(None),) * (axis % x.dim()) + (slice(*slice(begin, end, step).indices(n)),)]
        else:
            index = list(range(*slice(begin, end if end > -(1 << 60) else None, step).indices(n)))
            x = x.index_select(axis, torch.tensor(index, dtype=torch.int64))
    return x


@_is("Split")
def _split(node, operands, types):
    x, axis, parts, sizes = operands[0], node.attributes.get("axis", 0), len(node.outputs), _given(operands, 1)
    sizes = node.attributes.get("split") or (_ints(sizes) if sizes is not None else None)
    if sizes is None:
        each = -(-x.shape[axis] // parts)
        sizes = [min(each, x.shape[axis] - i * each) for i in range(parts)]
    return list(x.split(sizes, axis))


@_is("SplitToSequence")
def _split_to_sequence(node, operands, types):
    x, axis, split = operands[0], node.attributes.get("axis", 0), _given(operands, 1)
    if split is None:
        return [[p if node.attributes.get("keepdims", 1) else p.squeeze(axis) for p in x.split(1, axis)]]
    return [list(x.split(int(split) if split.dim() == 0 else _ints(split), axis))]


@_is("SequenceConstruct")
def _sequence_construct(node, operands, types):
    return [list(operands)]


@_is("SequenceAt")
def _sequence_at(node, operands, types):
    return operands[0][int(operands[1])]


@_is("ConcatFromSequence")
def _concat_from_sequence(node, operands, types):
    return (torch.stack if node.attributes.get("new_axis", 0) else torch.cat)(operands[0], node.attributes["axis"])


@_is("Gather")
def _gather(node, operands, types):
    x, ids, axis = operands[0], operands[1], node.attributes.get("axis", 0) % operands[0].dim()
    flat = ids.flatten().long()
    flat = torch.where(flat < 0, flat + x.shape[axis], flat)
    padding = node.attributes.get("padding")  # row without a gradient; not part of ONNX (_file_step.py)
    if padding is not None and axis == 0:
        return F.embedding(flat, x, padding_idx=padding).reshape([*ids.shape, *x.shape[1:]])
    return x.index_select(axis, flat).reshape([*x.shape[:axis], *ids.shape, *x.shape[axis + 1:]])


@_is("GatherElements")
def _gather_elements(node, operands, types):
    x, ids, axis = operands[0], operands[1].long(), node.attributes.get("axis", 0)
    return x.gather(axis, torch.where(ids < 0, ids + x.shape[axis], ids))


@_is("GatherND")
def _gather_nd(node, operands, types):
    x, ids, batch = operands[0], operands[1].long(), node.attributes.get("batch_dims", 0)
    ids = torch.where(ids < 0, ids + torch.tensor(x.shape[batch:batch + ids.shape[-1]]), ids)
    lead = [torch.arange(x.shape[i]).reshape([-1 if k == i else 1 for k in range(ids.dim() - 1)]) for i in range(batch)]
    return x[tuple(lead) + tuple(ids.unbind(-1))]


@_is("ScatterElements", "Scatter")
def _scatter_elements(node, operands, types):
    x, ids, updates = operands[0], operands[1].long(), operands[2]
    axis, how = node.attributes.get("axis", 0), node.attributes.get("reduction", "none")
    ids = torch.where(ids < 0, ids + x.shape[axis], ids)
    if how == "none":
        return x.scatter(axis, ids, updates)
    return x.scatter_reduce(axis, ids, updates, {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[how])


@_is("ScatterND")
def _scatter_nd(node, operands, types):
    how = node.attributes.get("reduction", "none")
    if how not in ("none", "add"):
        raise NotImplementedError(f"ScatterND with reduction {how}")
    return operands[0].index_put(tuple(operands[1].long().unbind(-1)), operands[2], accumulate=how == "add")


@_is("OneHot")
def _one_hot(node, operands, types):
    n = int(operands[1])
    ids = torch.where(operands[0] < 0, operands[0] + n, operands[0]).long()
    hot = torch.arange(n) == ids.unsqueeze(-1)
    return torch.where(hot, operands[2][1], operands[2][0]).movedim(-1, node.attributes.get("axis", -1))


@_is("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node, operands, types):
    x, axis = operands[0], node.attributes.get("axis", -1)
    if node.op == "Hardmax":
        return torch.zeros_like(x).scatter(axis, x.argmax(axis, True), 1.0)
    return (F.softmax if node.op == "Softmax" else F.log_softmax)(x, axis)


@_is("Dropout")
def _dropout(node, operands, types):
    x, trains = operands[0], _given(operands, 2)
    ratio = float(operands[1]) if _given(operands, 1) is not None else node.attributes.get("ratio", 0.5)
    if trains is None or not bool(trains):
        return [x, torch.ones(x.shape, dtype=torch.bool)][:len(node.outputs)]
    return dropped_out(x, ratio)[:len(node.outputs)]


@_is("Col2Im")
def _col2im(node, operands, types):
    a = node.attributes
    pads = a.get("pads", [0, 0, 0, 0])
    if len(pads) != 4 or pads[:2] != pads[2:]:
        raise NotImplementedError("Col2Im of other than two dimensions, or with pads that differ at both ends")
    return F.fold(operands[0], _ints(operands[1]), _ints(operands[2]), a.get("dilations", 1), pads[:2], a.get("strides", 1))


@_is("RandomUniform", "RandomUniformLike")
def _random_uniform(node, operands, types):
    drawn = _masks.draw(node, operands, types)
    return (drawn.low + (drawn.high - drawn.low) * uniform(drawn.shape)).to(drawn.type)


@_is("Bernoulli")
def _bernoulli(node, operands, types):
    p = operands[0]
    return (uniform(p.shape) < p).to(types[node.attributes["dtype"]] if "dtype" in node.attributes else p.dtype)


@_is("Gemm")
def _gemm(node, operands, types):
    a = node.attributes
    x, w = (operands[0].T if a.get("transA") else operands[0]), (operands[1].T if a.get("transB") else operands[1])
    y = a.get("alpha", 1.0) * (x @ w)
    return y + a.get("beta", 1.0) * operands[2] if _given(operands, 2) is not None else y


@_is("Einsum")
def _einsum(node, operands, types):
    return torch.einsum(node.attributes["equation"], *operands)


@_is("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(node, operands, types):
    x, epsilon = operands[0], node.attributes.get("epsilon", 1e-5)
    axis = node.attributes.get("axis", -1) % x.dim()
    if node.op == "LayerNormalization":
        y = F.layer_norm(x, x.shape[axis:], None, None, epsilon)
    else:
        y = x * torch.rsqrt((x * x).mean(list(range(axis, x.dim())), True) + epsilon)
    y = y * operands[1]
    return y + operands[2] if _given(operands, 2) is not None else y


@_is("GroupNormalization", "InstanceNormalization")
def _group_norm(node, operands, types):
    x, scale, bias = operands
    groups = node.attributes.get("num_groups", x.shape[1])
    like = [1, -1] + [1] * (x.dim() - 2)
    if scale.numel() != x.shape[1]:  # before opset 21: one number per group
        scale, bias = (t.repeat_interleave(x.shape[1] // groups) for t in (scale, bias))
    return F.group_norm(x, groups, None, None, node.attributes.get("epsilon", 1e-5)) * scale.reshape(like) + bias.reshape(like)


@_is("BatchNormalization")
def _batch_norm(node, operands, types):
    x, scale, bias, mean, var = operands
    like, over = [1, -1] + [1] * (x.dim() - 2), [i for i in range(x.dim()) if i != 1]
    if node.attributes.get("training_mode", 0):
        mean, var = x.mean(over), x.var(over, unbiased=False)
    y = (x - mean.reshape(like)) * torch.rsqrt(var.reshape(like) + node.attributes.get("epsilon", 1e-5))
    return [y * scale.reshape(like) + bias.reshape(like)] + [None] * (len(node.outputs) - 1)


@_is("LpNormalization")
def _lp_norm(node, operands, types):
    x, axis = operands[0], node.attributes.get("axis", -1)
    return x / torch.linalg.vector_norm(x, node.attributes.get("p", 2), axis, True)


@_is("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def _cross_entropy(node, operands, types):
    a = node.attributes
    logs = F.log_softmax(operands[0], 1) if node.op == "SoftmaxCrossEntropyLoss" else operands[0]
    if operands[1].is_floating_point():
        raise ValueError(f"{node.op} has probabilities as labels")
    loss = F.nll_loss(logs, operands[1].long(), _given(operands, 2), ignore_index=a.get("ignore_index", -100), reduction=a.get("reduction", "mean"))
    return [loss, logs][:len(node.outputs)]


@_is("CumSum", "CumProd")
def _running(node, operands, types):
    x, axis = operands[0], int(operands[1])
    back, without = node.attributes.get("reverse", 0), node.attributes.get("exclusive", 0)
    y = x.flip(axis) if back else x
    y = y.cumsum(axis) if node.op == "CumSum" else y.cumprod(axis)
    if without:
        first = torch.full_like(y.narrow(axis, 0, 1), 0 if node.op == "CumSum" else 1)
        y = torch.cat([first, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if back else y


@_is("ArgMax", "ArgMin")
def _arg(node, operands, types):
    x, axis = operands[0], node.attributes.get("axis", 0)
    return (x.argmax if node.op == "ArgMax" else x.argmin)(axis, bool(node.attributes.get("keepdims", 1)))


@_is("TopK")
def _top_k(node, operands, types):
    a = node.attributes
    return list(operands[0].topk(int(operands[1].flatten()[0]), a.get("axis", -1), bool(a.get("largest", 1)), True))


@_is("Trilu")
def _trilu(node, operands, types):
    k = int(operands[1]) if _given(operands, 1) is not None else 0
    return (torch.triu if node.attributes.get("upper", 1) else torch.tril)(operands[0], k)


@_is("NonZero")
def _non_zero(node, operands, types):
    return operands[0].nonzero().T


def _pads(node, x, kernel, strides, dilations):
    """Padding before and after every spatial axis."""
    a, n = node.attributes, x.dim() - 2
    if a.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        pads = a.get("pads", [0] * (2 * n)) if a.get("auto_pad", "NOTSET") == "NOTSET" else [0] * (2 * n)
        return [(pads[i], pads[n + i]) for i in range(n)]
    totals = [max(0, (-(-x.shape[2 + i] // strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - x.shape[2 + i]) for i in range(n)]
    return [(t // 2, t - t // 2) if a["auto_pad"] == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]


@_is("Conv")
def _conv(node, operands, types):
    x, w, a = operands[0], operands[1], node.attributes
    n = x.dim() - 2
    strides, dilations = a.get("strides", [1] * n), a.get("dilations", [1] * n)
    pads = _pads(node, x, list(w.shape[2:]), strides, dilations)
    x = F.pad(x, [p for pair in reversed(pads) for p in pair])
    return (F.conv1d, F.conv2d, F.conv3d)[n - 1](x, w, _given(operands, 2), strides, 0, dilations, a.get("group", 1))


@_is("ConvTranspose")
def _conv_transpose(node, operands, types):
    x, w, a = operands[0], operands[1], node.attributes
    n = x.dim() - 2
    if "output_shape" in a or a.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotImplementedError("ConvTranspose with output_shape or auto_pad")
    pads, more = a.get("pads", [0] * (2 * n)), a.get("output_padding", [0] * n)
    y = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1](x, w, None, a.get("strides", [1] * n), 0, more, a.get("group", 1),
                                                                          a.get("dilations", [1] * n))
    for i in range(n):
        y = y.narrow(2 + i, pads[i], y.shape[2 + i] - pads[i] - pads[n + i])
    return y + operands[2].reshape([1, -1] + [1] * n) if _given(operands, 2) is not None else y


@_is("MaxPool", "AveragePool")
def _pool(node, operands, types):
    x, a = operands[0], node.attributes
    kernel, n = a["kernel_shape"], operands[0].dim() - 2
    strides, dilations = a.get("strides", [1] * n), a.get("dilations", [1] * n)
    if a.get("ceil_mode", 0) or len(node.outputs) > 1:
        raise NotImplementedError(f"{node.op} with ceil_mode or positions")
    pads = [p for pair in reversed(_pads(node, x, kernel, strides, dilations)) for p in pair]
    if node.op == "MaxPool":
        return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](F.pad(x, pads, value=-math.inf), kernel, strides, 0, dilations)
    if dilations != [1] * n:
        raise NotImplementedError("AveragePool with dilations")
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
    y = average(F.pad(x, pads), kernel, strides)
    return y if a.get("count_include_pad", 0) else y / average(F.pad(torch.ones_like(x), pads), kernel, strides)


@_is("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node, operands, types):
    over = list(range(2, operands[0].dim()))
    return operands[0].mean(over, True) if node.op == "GlobalAveragePool" else operands[0].amax(over, True)


@_is("LRN")
def _local_response_norm(node, operands, types):
    x, a = operands[0], node.attributes
    size, channels = a["size"], x.shape[1]
    squares = F.pad(x * x, [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size // 2])
    total = sum(squares.narrow(1, k, channels) for k in range(size))
    return x / (a.get("bias", 1.0) + a.get("alpha", 1e-4) / size * total) ** a.get("beta", 0.75)


@_is("Pad")
def _pad(node, operands, types):
    x, n, mode = operands[0], operands[0].dim(), node.attributes.get("mode", "constant")
    pads = node.attributes["pads"] if len(operands) == 1 else _ints(operands[1])
    axes = _ints(operands[3]) if _given(operands, 3) is not None else list(range(n))
    value = float(operands[2]) if _given(operands, 2) is not None else node.attributes.get("value", 0.0)
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[len(axes) + i]
        if before < 0 or after < 0:
            x = x.narrow(axis, max(0, -before), x.shape[axis] + min(0, before) + min(0, after))
            before, after = max(0, before), max(0, after)
        if mode == "constant":
            shapes = [[*x.shape[:axis % n], k, *x.shape[axis % n + 1:]] for k in (before, after)]
            x = torch.cat([x.new_full(shapes[0], value), x, x.new_full(shapes[1], value)], axis)
        else:
            at, size = torch.arange(-before, x.shape[axis] + after), x.shape[axis]
            if mode == "reflect":
                at = at.abs() % (2 * size - 2) if size > 1 else at * 0
                at = torch.where(at >= size, 2 * size - 2 - at, at)
            x = x.index_select(axis, at % size if mode == "wrap" else at.clamp(0, size - 1))
    return x


@_is("SpaceToDepth", "DepthToSpace")
def _depth(node, operands, types):
    x, block = operands[0], node.attributes["blocksize"]
    b, c, h, w = x.shape
    if node.op == "SpaceToDepth":
        return x.reshape(b, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4).reshape(b, c * block * block, h // block, w // block)
    if node.attributes.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    return x.reshape(b, block, block, c // block ** 2, h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // block ** 2, h * block, w * block)


@_is("Attention")
def _attention(node, operands, types):
    """Attention of opset 23: [B, H, T, D], without a KV cache."""
    a, mask = node.attributes, _given(operands, 3)
    q, k, v = operands[:3]
    if len(operands) > 4 or len(node.outputs) > 1 or a.get("softcap", 0.0) or q.dim() != 4:
        raise NotImplementedError("Attention with more than a mask")
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=bool(a.get("is_causal", 0)), scale=a.get("scale"), enable_gqa=q.shape[1] != k.shape[1])
