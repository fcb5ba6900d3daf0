#!/usr/bin/env python3
"""Test models that contain their own training: models/small/training.

    make_training.py FOLDER              adam.onnx, momentum.onnx, sgd.onnx: ONNX's training_info. Needs the package onnx.
    make_training.py FOLDER --artifact   training_model.onnx, optimizer_model.onnx, checkpoint and reference.json: onnxruntime's training artifacts, and the losses of nine
                                         of their steps on ids.npy and labels.npy. Needs onnxruntime-training 1.19 (CPython 3.8 to 3.11).
"""
import importlib.machinery
import json
import os
import sys
from unittest.mock import MagicMock

import numpy as np
from onnx import TensorProto, helper as h, numpy_helper, save

CLASSES, WIDTH, BATCH = 5, 6, 8


def tensor(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def training_info(folder):
    """A linear classifier: the graph computes logits; the algorithm adds the loss, gradients and an
    optimizer."""
    random = np.random.default_rng(1)
    weights = {"w": (random.standard_normal((WIDTH, CLASSES)) * 0.3).astype(np.float32), "b": np.zeros(CLASSES, np.float32)}
    state = {f"{kind}_{name}": np.zeros_like(value) for kind in "vh" for name, value in weights.items()}
    gradient = h.make_node("Gradient", ["w", "b"], ["dw", "db"], name="gradient", domain="ai.onnx.preview.training", xs=["w", "b"], y="loss")
    one, count, rate = tensor("one", np.int64(1)), tensor("t", np.int64(1)), tensor("rate", np.float32(0.05))
    advance = h.make_node("Add", ["t", "one"], ["next_t"], name="advance")
    optimizers = {
        "adam": ([h.make_node("Adam", ["rate", "t", "w", "b", "dw", "db", "v_w", "v_b", "h_w", "h_b"], ["next_w", "next_b", "next_v_w", "next_v_b", "next_h_w", "next_h_b"],
                              name="update", domain="ai.onnx.preview.training", alpha=0.8, beta=0.95, epsilon=0.01, norm_coefficient=0.02), advance], ["v", "h"]),
        "momentum": ([h.make_node("Momentum", ["rate", "t", "w", "b", "dw", "db", "v_w", "v_b"], ["next_w", "next_b", "next_v_w", "next_v_b"], name="update",
                                  domain="ai.onnx.preview.training", alpha=0.7, beta=1.0, norm_coefficient=0.02, mode="nesterov"), advance], ["v"]),
        "sgd": ([h.make_node("Mul", ["rate", "d" + x], ["step_" + x]) for x in "wb"] + [h.make_node("Sub", [x, "step_" + x], ["next_" + x]) for x in "wb"], []),
    }
    for name, (nodes, kinds) in optimizers.items():
        graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["p"], name="product"), h.make_node("Add", ["p", "b"], ["logits"], name="bias")], name,
                             [h.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTH])], [h.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", CLASSES])],
                             [tensor(k, v) for k, v in weights.items()])
        held = [k for k in state if k[0] in kinds]
        algorithm = h.make_graph([h.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"], name="loss", reduction="mean"), gradient, *nodes], "step",
                                 [h.make_tensor_value_info("labels", TensorProto.INT64, ["rows"])], [h.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
                                 [rate] + ([one, count] if kinds else []) + [tensor(k, state[k]) for k in held])
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("ai.onnx.preview.training", 1)], ir_version=8)
        info = model.training_info.add()
        info.algorithm.CopyFrom(algorithm)
        for key in [*weights, *held, *(["t"] if kinds else [])]:
            binding = info.update_binding.add()
            binding.key, binding.value = key, "next_" + key
        save(model, os.path.join(folder, name + ".onnx"))


def without_torch():
    """onnxruntime's artifacts module imports PyTorch but does not use it."""
    for name in ("torch", "torch.onnx", "torch.nn", "torch.cuda", "torch.utils", "torch.utils.data", "torch.utils.dlpack", "torch.utils.cpp_extension", "torch.nn.parallel",
                 "torch.optim", "torch.autograd", "torch._C"):
        module = sys.modules[name] = MagicMock()
        module.__spec__, module.__version__ = importlib.machinery.ModuleSpec(name, None), "2.1.0"


def artifact(folder):
    without_torch()
    from onnxruntime.training import artifacts
    from onnxruntime.training.api import CheckpointState, Module, Optimizer
    random = np.random.default_rng(0)
    make = lambda name, *shape: tensor(name, (random.standard_normal(shape) * 0.2).astype(np.float32))
    nodes = [h.make_node("Gather", ["emb", "ids"], ["e"], name="embed"), h.make_node("LayerNormalization", ["e", "g", "b"], ["n", "mean", "istd"], name="norm", epsilon=1e-5),
             h.make_node("Reshape", ["n", "shape"], ["f"], name="flat"), h.make_node("MatMul", ["f", "w1"], ["p1"], name="fc1"), h.make_node("Add", ["p1", "b1"], ["a1"], name="fc1.bias"),
             h.make_node("Relu", ["a1"], ["r"], name="act"), h.make_node("Gemm", ["r", "w2", "b2"], ["logits"], name="fc2", transB=1)]
    graph = h.make_graph(nodes, "small", [h.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 4])], [h.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 11])],
                         [make("emb", 16, 8), tensor("g", np.ones(8, np.float32)), tensor("b", np.zeros(8, np.float32)), make("w1", 32, 24), make("b1", 24), make("w2", 11, 24),
                          make("b2", 11), tensor("shape", np.array([-1, 32], np.int64))])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    artifacts.generate_artifacts(model, requires_grad=["emb", "g", "b", "w1", "b1", "w2"], frozen_params=["b2"], loss=artifacts.LossType.CrossEntropyLoss,
                                 optimizer=artifacts.OptimType.AdamW, artifact_directory=folder)
    path = lambda name: os.path.join(folder, name)
    trained = Module(path("training_model.onnx"), CheckpointState.load_checkpoint(path("checkpoint")), path("eval_model.onnx"))
    optimizer = Optimizer(path("optimizer_model.onnx"), trained)
    optimizer.set_learning_rate(0.01)
    random = np.random.default_rng(5)
    ids, labels = random.integers(0, 16, (3 * BATCH, 4)), random.integers(0, 11, 3 * BATCH)
    losses = []
    trained.train()
    for step in range(9):
        rows = slice(BATCH * (step % 3), BATCH * (step % 3 + 1))
        losses.append(float(trained(ids[rows], labels[rows])))
        optimizer.step()
        trained.lazy_reset_grad()
    np.save(path("ids.npy"), ids)
    np.save(path("labels.npy"), labels)
    os.remove(path("eval_model.onnx"))
    with open(path("reference.json"), "w") as f:
        json.dump({"batch": BATCH, "lr": 0.01, "losses": losses}, f)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    (artifact if "--artifact" in sys.argv else training_info)(sys.argv[1])
