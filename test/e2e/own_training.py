"""Files that contain their own training (models/small/training, written by models/make_training.py): compares ONNX's
training_info with its definition in numpy, and onnxruntime's training artifacts with the losses of onnxruntime's own
steps.
"""
import json
import os
import shutil
import tempfile

import numpy as np

import harness as z

FOLDER = os.path.join(z.SMALL, "training")
ROWS, WIDTH, CLASSES, STEPS = 8, 6, 5, 12
results = []


def holds(name, good, found=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found}"), flush=True)
    results.append(bool(good))


def gradients(w, b, x, labels):
    """Loss and gradients of a linear classifier under the mean cross-entropy."""
    logits = x @ w + b
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(x)), labels]).mean()
    p[np.arange(len(x)), labels] -= 1
    return loss, [x.T @ p / len(x), p.sum(0) / len(x)]


def adam(weights, state, g, t, rate=0.05, alpha=0.8, beta=0.95, epsilon=0.01, norm=0.02):
    """ONNX's operator Adam: epsilon is added to the root before bias correction."""
    for i in range(2):
        regularized = norm * weights[i] + g[i]
        state[0][i] = alpha * state[0][i] + (1 - alpha) * regularized
        state[1][i] = beta * state[1][i] + (1 - beta) * regularized**2
        weights[i] = weights[i] - rate * np.sqrt(1 - beta**t) / (1 - alpha**t) * state[0][i] / (np.sqrt(state[1][i]) + epsilon)


def momentum(weights, state, g, t, rate=0.05, alpha=0.7, norm=0.02):
    for i in range(2):
        regularized = norm * weights[i] + g[i]
        state[0][i] = alpha * state[0][i] + regularized
        weights[i] = weights[i] - rate * (regularized + alpha * state[0][i])


def sgd(weights, state, g, t, rate=0.05):
    for i in range(2):
        weights[i] = weights[i] - rate * g[i]


def expected(folder, bundle, data, x, labels, update):
    """Losses computed by numpy, from the initial weights of the bundle."""
    path = os.path.join(folder, "first.safetensors")
    z.run(bundle, data, 1, checkpoint=path, extra=("--lr", "0"))
    first = z.safetensors(path)
    weights = [first["w"].astype(np.float64), first["b"].astype(np.float64)]
    state, losses = [[np.zeros_like(w) for w in weights] for _ in range(2)], []
    for step in range(STEPS):
        rows = slice(step % 3 * ROWS, (step % 3 + 1) * ROWS)
        loss, g = gradients(*weights, x[rows], labels[rows])
        losses.append(loss)
        update(weights, state, g, step + 1)
    return losses


def compiled(folder, path, *extra, ok=True, name=None):
    bundle = os.path.join(folder, (name or os.path.basename(path)) + ".zorse")
    return bundle, z.call("zorse-compile", path, "--cluster", z.cluster(folder, ["a", "b"]), "--global-batch-size", ROWS, "-o", bundle, *extra, ok=ok)


def training_info(folder):
    random = np.random.default_rng(3)
    x, labels = random.standard_normal((3 * ROWS, WIDTH)).astype(np.float32), random.integers(0, CLASSES, 3 * ROWS)
    np.save(os.path.join(folder, "x.npy"), x)
    np.save(os.path.join(folder, "labels.npy"), labels)
    data = f"x={folder}/x.npy,labels={folder}/labels.npy"
    for name, update, said in (("adam", adam, "which is adam with betas 0.8,0.95, eps 0.01 (added before the correction), weight decay 0.02 of all parameters, lr 0.05, clip off"),
                               ("momentum", momentum, "which is sgd with momentum 0.7 (Nesterov), weight decay 0.02 of all parameters, lr 0.05, clip off"), ("sgd", sgd, "which is sgd, lr 0.05, clip off")):
        bundle, (_, _, err) = compiled(folder, os.path.join(FOLDER, name + ".onnx"))
        holds(f"{name}: the settings of the file are reported", said in err and "says what is trained (2 parameters)" in err, err)
        losses = [m["loss"] for m in z.run(bundle, data, STEPS)]
        results.append(z.check(f"{name}: losses are those of ONNX's definition", z.relative(losses, expected(folder, bundle, data, x.astype(np.float64), labels, update)), 2e-6))
    bundle, (_, _, err) = compiled(folder, os.path.join(FOLDER, "adam.onnx"), "--optimizer", "sgd", name="replaced")
    holds("options go before the file's optimizer", "options replace the file's optimizer, Adam 'update'" in err, err)
    losses = [m["loss"] for m in z.run(bundle, data, STEPS, extra=("--lr", "0.05"))]
    results.append(z.check("and train by sgd", z.relative(losses, expected(folder, bundle, data, x.astype(np.float64), labels, sgd)), 2e-6))

    # Errors in the file itself, made by replacing names by names of the same length.
    for name, before, after, text in (("an optimizer that is not known", b"Momentum", b"Adagradd", "Adagradd 'update': the optimizer is not supported"),
                                      ("an update that is none", b"next_v_w", b"next_q_w", "expects update_binding 'v_w' to its result 'next_v_w'"),
                                      ("a gradient of something else", b"dw", b"dq", "of 'w' is not a result of Gradient")):
        path = os.path.join(folder, "broken.onnx")
        content = open(os.path.join(FOLDER, "momentum.onnx"), "rb").read()
        with open(path, "wb") as f:
            f.write(content.replace(before, after, 1) if name != "an update that is none" else content[::-1].replace(before[::-1], after[::-1], 1)[::-1])
        _, (code, _, err) = compiled(folder, path, ok=False)
        holds(f"refused: {name}", code == 1 and text in err, err)


def artifact(folder):
    source = os.path.join(FOLDER, "artifact")
    reference = json.load(open(os.path.join(source, "reference.json")))
    data = f"ids={source}/ids.npy,labels={source}/labels.npy"
    bundle, (_, _, err) = compiled(folder, os.path.join(source, "training_model.onnx"), "--lr", reference["lr"])
    holds("the artifact's optimizer", "AdamWOptimizer" in err and "which is adamw with betas 0.9,0.999, eps 1e-06 (added before the correction)" in err, err)
    losses = [m["loss"] for m in z.run(bundle, data, len(reference["losses"]))]
    results.append(z.check("losses are onnxruntime's own", z.relative(losses, reference["losses"]), 2e-5))
    checkpoint = os.path.join(folder, "trained.safetensors")
    z.run(bundle, data, 2, checkpoint=checkpoint)
    names = set(z.safetensors(checkpoint))
    holds("the trained parameters have the artifact's names", {"emb", "g", "b", "w1", "b1", "w2"} <= names, names)

    broken = os.path.join(folder, "artifact")
    for name, file, change, text in (("no checkpoint", "checkpoint", None, "parameters are in the file 'checkpoint' in the same directory"),
                                     ("a checkpoint of something else", "checkpoint", lambda b: b.replace(b"ODTC", b"ODTX", 1), "identifier ODTC"),
                                     ("a truncated checkpoint", "checkpoint", lambda b: b[:900], "is truncated or damaged"),
                                     ("another optimizer", "optimizer_model.onnx", lambda b: b.replace(b"AdamWOptimizer", b"AdamXOptimizer"), ": the optimizer is not supported; AdamWOptimizer and SGDOptimizerV2 are"),
                                     ("an operator of onnxruntime's", "training_model.onnx", lambda b: b.replace(b"\x04Relu", b"\x04Rexu"), "Rexu")):
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(source, broken)
        path = os.path.join(broken, file)
        if change is None:
            os.remove(path)
        else:
            content = open(path, "rb").read()
            with open(path, "wb") as f:
                f.write(change(content))
        _, (code, _, err) = compiled(folder, os.path.join(broken, "training_model.onnx"), ok=False)
        holds(f"refused: {name}", code == 1 and text in err, err)


def main():
    with tempfile.TemporaryDirectory() as folder:
        training_info(folder)
        artifact(folder)
    z.finish(results)


if __name__ == "__main__":
    main()
