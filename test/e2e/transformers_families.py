"""Compares families of transformers with PyTorch: one small model of every model type (models/hub_families.py),
exported in training mode and trained for three steps (exit code 77 without PyTorch and transformers).

    transformers_families.py [NAME…] [--quick] [--variants] [--save FILE] [--again OUTCOME,…] [--limit SECONDS] [--least N] [--list]

Each family has two checks, in a separate process with a time limit.
- export: zorse.export of the model with the random parts of its configuration, compared as every export is.
  Skipped if the configuration has none.
- train: without random parts, in f64, with SGD, three steps over three batches, one of which has a fully masked
  sample, on one device, under a random plan for three and under one for groups (tensor parallelism). Losses, first gradients, and parameters and trained buffers
  after the steps are PyTorch's, or an error refuses the model.

--save FILE stores outcomes and resumes an interrupted run; --again repeats families with these outcomes.
tools/families_page.py generates docs/reference/models.md from the file.
"""
import argparse
import contextlib
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import warnings

import numpy as np

import harness as z
from python_package_torch import ensure_torch

os.environ["ZORSE_BIN"], os.environ["TRANSFORMERS_VERBOSITY"], os.environ["HF_HUB_OFFLINE"] = z.BIN, "error", "1"
sys.path[:0] = [os.path.join(z.ROOT, "models"), os.path.join(z.ROOT, "python")]
STEPS, DEVICES = 3, 3
KINDS = "on one device", "under a random plan", "with groups"  # the last: a random plan whose cells groups of one or two devices divide
LOSS, GRADIENT, STATE = 1e-6, 1e-5, 1e-5  # relative
MEMORY = 12 << 30  # address space of a family's process, in bytes
QUICK = ("aimv2", "dpt", "llama", "gpt2", "bert", "opt", "t5", "bart", "vit", "resnet", "mobilenet_v1", "swin", "wav2vec2", "mixtral", "mamba")
BAD = ("wrong", "crash")
CHECKS = ("train", "export")


class Refused(Exception):
    """`by`: PyTorch (its exporter), export (the comparison or the package), compiler."""

    def __init__(self, by, text):
        super().__init__(text)
        self.by = by


def said(text):
    """The error message, without file names and colors."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(text))
    lines = [line for line in text.splitlines() if "error:" in line] or text.splitlines() or [""]
    return re.sub(r"(error: )?\S*/(\S+\.onnx)", r"\2", lines[0].strip())


def export(module, inputs, path):
    """Writes the file, or raises Refused."""
    import zorse

    try:
        zorse.export(module, path, inputs={key: t[:2] for key, t in inputs.items()}, external_data=False)
    except zorse.ZorseError as problem:
        text = said(problem)
        raise Refused("PyTorch" if "PyTorch cannot export" in text else "export", text) from None


def chances(module):
    """Names of the settings that make this model draw random numbers in training."""
    from configurations import random_parts

    def of(config):
        return set(random_parts(config)).union(*(of(part) for part in vars(config).values() if hasattr(part, "to_dict")))

    config = getattr(getattr(module, "model", None), "config", None)
    return sorted(of(config)) if hasattr(config, "to_dict") else []


# ---------------------------------------------------------------------------------------------------------------------------------- PyTorch's three steps


def batches_of(inputs):
    """Three batches of different samples: floats are mixed and shifted, integers are taken from other positions."""
    import torch

    found = [inputs]
    for step in range(1, STEPS):
        found.append({k: (t.flip(0) * (1 + 0.1 * step) + 0.05 * step if t.is_floating_point() else
                          t.roll(step, 0) if k.endswith(("mask", "bbox")) or t.dim() < 2 else t.roll((step, step), (0, 1)) if "attention_mask" not in inputs else t.roll(step, 0))
                      for k, t in inputs.items()})
    return [{k: torch.as_tensor(t).contiguous() for k, t in b.items()} for b in found]


def with_a_masked_sample(batches):
    """The same, but no position of the last sample of the second batch counts; None if the model has no such mask."""
    mask = batches[0].get("attention_mask")
    if mask is None or mask.dim() != 2:
        return None
    masked = batches[1]["attention_mask"].clone()
    masked[-1] = 0
    return [batches[0], {**batches[1], "attention_mask": masked}, *batches[2:]]


def steps_of(module, inputs):
    """(batches, PyTorch's steps), with a fully masked sample if PyTorch trains it: its fused kernels lose a logarithm
    next to large masks, its plain ones do not."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batches = batches_of(inputs)
    with sdpa_kernel(SDPBackend.MATH):
        masked = with_a_masked_sample(batches)
        if masked:
            found = reference(module, masked)
            if np.isfinite(found["losses"]).all() and all(np.isfinite(a).all() for a in found["after"].values()):
                return masked, found
        return batches, reference(module, batches)


def reference(module, batches, rate=None):
    """PyTorch's steps in f64: {losses, gradients, before, after, rate}. Computations that a model explicitly does in
    f32 are done in f64."""
    import torch
    from zorse._chance import WithoutChance
    from zorse._module_step import _computing_in

    module.train()
    found = {"losses": []}
    with _computing_in(module, True):
        parameters = dict(module.named_parameters())
        states = {**parameters, **{n: b for n, b in module.named_buffers() if b.is_floating_point()}}
        found["before"] = {n: p.detach().double().numpy().copy() for n, p in states.items()}
        for step, batch in enumerate(batches):
            for p in parameters.values():
                p.grad = None
            with WithoutChance(True, lambda: "", None):
                loss = module(*[t.double() if t.is_floating_point() else t for t in batch.values()])
                loss.backward()
            if step == 0:
                found["gradients"] = {n: p.grad.detach().numpy().copy() for n, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}
                found["rate"] = rate or chosen_rate(parameters)
            found["losses"].append(float(loss.detach()))
            with torch.no_grad():
                for p in parameters.values():
                    if p.grad is not None:
                        p -= found["rate"] * p.grad
        found["after"] = {n: p.detach().double().numpy().copy() for n, p in states.items()}
    found["statistics"] = any(not np.array_equal(found["before"][n], found["after"][n]) for n in found["before"] if n.endswith("running_mean"))
    return found


def sensitivity(module, batches, found):
    """The change of PyTorch's steps if parameters are changed by 3e-8 of their magnitude, as rounding to f32 changes
    the constants of a file."""
    import copy

    import torch

    other, numbers = copy.deepcopy(module).double(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1 + 3e-8 * torch.randn(p.shape, generator=numbers, dtype=torch.float64))
    moved = reference(other, batches, found["rate"])
    changes = [{n: f["after"][n] - f["before"][n] for n in f["after"]} for f in (moved, found)]
    return {"loss": z.relative(moved["losses"], found["losses"]), "gradients": z.gradient_error(moved["gradients"], found["gradients"])[0], "state": z.gradient_error(*changes)[0]}


def chosen_rate(parameters):
    """A learning rate that moves the parameters by 2 % of their norm in the first step: three such steps change the
    loss."""
    moved = [p for p in parameters.values() if p.grad is not None]
    size, slope = (float(sum((t.double() ** 2).sum() for t in ts)) ** 0.5 for ts in ([p.detach() for p in moved], [p.grad for p in moved]))
    return float(f"{0.02 * size / max(slope, 1e-30):.2g}")


# ------------------------------------------------------------------------------------------------------------------------------------------- Zorse's steps


def compiled(path, folder, batch, found, kind):
    """A bundle of a kind of plan (KINDS)."""
    bundle, plan, devices = os.path.join(folder, f"{KINDS.index(kind)}.zorse"), [], ["d0"]
    if kind != "on one device":
        plan, devices = ["--plan", os.path.join(folder, "plan.json")], [f"d{i}" for i in range(DEVICES)]
        seed = sum(map(ord, os.path.basename(path)))
        place = os.path.join(folder, "0.zorse", "summary.pb"), DEVICES, batch, seed, plan[1]
        z.random_groups(*place) if kind == "with groups" else z.call("random-plan", *place)
        if kind == "with groups":
            devices = [d + half for d in devices for half in "ab"]
    cluster = z.cluster(folder, devices)
    words = ["--global-batch-size", batch, "--precision", "f64", "--optimizer", "sgd", "--momentum", "0", "--lr", repr(found["rate"]), "--warmup-steps", "0", "--max-grad-norm", "0", "--weight-decay", "0", "--quiet"]
    words += ["--group-rows", batch] * found["statistics"]
    code, out, err = z.call("zorse-compile", path, "--cluster", cluster, *words, *plan, "-o", bundle, ok=False)
    while kind == "with groups" and z.remedied(plan[1], err):
        code, out, err = z.call("zorse-compile", path, "--cluster", cluster, *words, *plan, "-o", bundle, ok=False)
    if code < 0 or code > 127:
        raise z.Failure(f"zorse-compile ended with {code}")
    if code:
        raise Refused("compiler", said(err or out))
    return bundle


def errors(found, state, dumped, trained):
    """Worst relative errors of losses, gradients and state changes of three steps, each with its location. Raises
    Failure for missing tensors."""
    gradients = found["gradients"]
    moved = {n: found["after"][n] - found["before"][n] for n in found["after"]}
    changed = {n for n, m in moved.items() if np.abs(m).max(initial=0) > 0}
    lost = {n for n in changed - set(state) if n not in gradients}  # buffers; parameters are in `state` or tied
    if lost:
        raise z.Failure(f"training changes '{sorted(lost)[0]}', and the checkpoint has it not")
    of_state = z.gradient_error({n: state[n].astype(np.float64) - found["before"][n] for n in state if n in moved}, moved) if changed & set(state) else (0.0, "")
    return {"loss": (z.relative(trained, found["losses"]), ""), "gradients": z.all_gradients_error(dumped, gradients, GRADIENT), "state": of_state}


def trained(path, module, batches, folder, found):
    """The worst errors under all plans. Errors above a limit may be 4 times the effect of rounding to f32, because
    steps of some models amplify it."""
    names, rows = list(batches[0]), len(next(iter(batches[0].values())))
    data = []
    for key in names:
        whole = np.concatenate([b[key].numpy() for b in batches])
        np.save(os.path.join(folder, key + ".npy"), whole.astype(np.float32 if whole.dtype.kind == "f" else np.int32))
        data.append(f"{key}={os.path.join(folder, key + '.npy')}")
    worst, rounding = {}, None
    for kind in KINDS:
        bundle = compiled(path, folder, rows, found, kind)
        gradients, checkpoint = os.path.join(folder, "gradients.safetensors"), os.path.join(folder, "trained.safetensors")
        losses = [m["loss"] for m in z.run(bundle, ",".join(data), STEPS, gradients=gradients, checkpoint=checkpoint)]
        for what, (error, where) in errors(found, z.safetensors(checkpoint), z.safetensors(gradients), losses).items():
            limit = {"loss": LOSS, "gradients": GRADIENT, "state": STATE}[what]
            if not error <= limit:
                rounding = rounding or sensitivity(module, batches, found)
                limit = min(4 * rounding[what], 1e-2)
            if not error <= limit:
                raise z.Failure(f"{kind}: {what} off by {error:.1e} {where} (limit {limit:g}; losses {losses}, PyTorch's {found['losses']})")
            worst[what] = max(worst.get(what, 0.0), error)
    return worst


# ----------------------------------------------------------------------------------------------------------------------------------------------- A family


def checked(name, checks, tell):
    """Runs the checks and reports the outcome of each: tell(check, outcome, remark, by)."""
    import configurations
    import hub_families as families

    family = families.family(name)
    try:
        module, inputs = family.build()
        with configurations.by_chance():
            lively, _ = family.build()
    except families.NotBuilt as problem:
        for check in checks:
            tell(check, "not built", str(problem))
        return
    with tempfile.TemporaryDirectory(prefix="zorse-family-") as folder:
        path = os.path.join(folder, re.sub(r"[^\w*-]+", "-", name) + ".onnx")
        if "train" in checks:
            tell("train", *attempt(lambda: three_steps(module, inputs, path, folder), family.mixes))
        if "export" in checks:
            drawn = chances(lively)
            outcome, remark, by = attempt(lambda: as_it_is(lively, inputs, path), family.mixes) if drawn else ("same", "", "")
            tell("export", outcome, remark, by, drawn)


def three_steps(module, inputs, path, folder):
    export(module, inputs, path)
    batches, found = steps_of(module, inputs)
    worst = trained(path, module, batches, folder, found)
    return ", ".join(f"{what} {error:.0e}" for what, error in worst.items())


def as_it_is(module, inputs, path):
    export(module, inputs, path)
    code, _, err = z.call("zorse-import", path, "--quiet", ok=False)
    if code < 0 or code > 127:
        raise z.Failure(f"zorse-import ended with {code}")
    if code:
        raise Refused("compiler", said(err))
    return ""


def attempt(check, mixes):
    """(outcome, remark, by)"""
    try:
        return "equal", check(), ""
    except Refused as problem:
        text = str(problem)
        return ("not exported" if problem.by == "PyTorch" else "mixes" if mixes and mixes in text else "refused"), text[:400], problem.by
    except z.Failure as problem:
        if "zorse-run" in str(problem).split("\n")[0] and "\nexit 1\n" in str(problem):
            return "refused", said(problem)[:400], "run"
        return ("crash" if "ended with" in str(problem) else "wrong"), " ".join(str(problem).split())[-600:], ""
    except Exception as problem:
        return "crash", f"{type(problem).__name__}: {' '.join(str(problem).split())[:400]}", ""


def tell(writer, check, **found):
    os.write(writer, (json.dumps([check, {key: value for key, value in found.items() if value != ()}]) + "\n").encode())


def in_a_process(name, checks, limit):
    """{check: {outcome, remark, by}} of a family, computed by a child process, which is ended after `limit` seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            os.close(reader)
            checked(name, checks, lambda check, outcome, remark="", by="", random=(): tell(writer, check, outcome=outcome, remark=remark, by=by, random=random))
        except BaseException as problem:
            tell(writer, checks[0], outcome="crash", remark=f"{type(problem).__name__}: {str(problem)[:400]}", by="")
        finally:
            os._exit(0)
    os.close(writer)
    told, end = b"", time.monotonic() + limit
    while (left := end - time.monotonic()) > 0 and select.select([reader], [], [], left)[0]:
        part = os.read(reader, 65536)
        if not part:
            break
        told += part
    late = time.monotonic() >= end
    for stop in (lambda: os.killpg(child, signal.SIGKILL), lambda: os.kill(child, signal.SIGKILL)):
        with contextlib.suppress(OSError):
            stop()
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    found = dict(json.loads(line) for line in told.decode().splitlines() if line.endswith("}]"))
    left = next((check for check in checks if check not in found), None)
    if left:
        found[left] = {"outcome": "late", "remark": f"not finished after {limit:g} s", "by": ""} if late else {"outcome": "crash", "remark": f"the process ended with {status}", "by": ""}
    return found


def outcome_of(found):
    """One word for all checks: the worst outcome."""
    order = ("crash", "wrong", "late", "not built", "not exported", "refused", "mixes", "equal", "same")
    return min((found[check]["outcome"] for check in CHECKS if check in found), key=order.index)


def load():
    """Common initialization of every family's process."""
    import logging

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(1)
    import hub_families as families
    import onnx  # noqa: F401
    import zorse  # noqa: F401
    from forked_check import Forked
    from zorse import _file_process, torch_export, torch_modules  # noqa: F401

    _file_process.FileProcess = Forked

    module, inputs = families.family("llama").build()
    module(*inputs.values()).backward()
    with tempfile.TemporaryDirectory() as folder:
        torch_export.export(torch.nn.Linear(2, 2), os.path.join(folder, "first.onnx"), inputs={"x": torch.ones(2, 2)}, trust=True)
    return families


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help=f"{len(QUICK)} families")
    parser.add_argument("--variants", action="store_true", help="the further configurations of models/variants.py; with --quick every sixth")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--checks", default=",".join(CHECKS), metavar="CHECK,…", help="of the two (with --save, one can follow the other)")
    parser.add_argument("--again", default="", metavar="OUTCOME,…")
    parser.add_argument("--limit", type=float, default=120 * z.PATIENCE, help="seconds for a family")
    parser.add_argument("--least", type=int, default=0, help="fail where fewer are equal")
    given = parser.parse_args()
    ensure_torch()
    families = load()
    names = given.names or ([*families.variants.variants()][::6 if given.quick else 1] if given.variants else QUICK if given.quick else families.names())
    if given.list:
        return print(*names, sep="\n")
    kept = {}
    if given.save and os.path.exists(given.save):
        with open(given.save) as f:
            kept = json.load(f)
    for name in names:
        before = kept.get(name, {})
        again = bool(given.names) or before.get("outcome") in given.again.split(",")
        checks = [check for check in given.checks.split(",") if again or check not in before]
        if not checks:
            continue
        began = time.monotonic()
        family, found = families.family(name), {**{c: before[c] for c in CHECKS if c in before}, **in_a_process(name, checks, given.limit)}
        kept[name] = {"kind": family.kind, "class": family.class_name, "outcome": outcome_of(found), **found}
        remark = next((f"{check}: {(part['by'] + ': ') * bool(part['by'])}{part['remark']}" for check, part in found.items() if part["outcome"] == kept[name]["outcome"]), "")
        print(f"{kept[name]['outcome']:12} {name} ({family.class_name}, {time.monotonic() - began:.0f} s) {remark}", flush=True)
        if given.save:
            with open(given.save + ".part", "w") as f:
                json.dump(kept, f, indent=1, ensure_ascii=False)
            os.replace(given.save + ".part", given.save)
    return judged({n: kept[n] for n in names if n in kept}, given.least)


def judged(found, least):
    count = {kind: sum(f["outcome"] == kind for f in found.values()) for kind in ("equal", "mixes", "refused", "not exported", "not built", "late", *BAD)}
    without = sum(f.get("train", {}).get("outcome") == "equal" and f["outcome"] in ("refused", "not exported", "mixes") for f in found.values())
    print(f"{count['equal']} of {len(found)} families of transformers train to PyTorch's losses (limit {LOSS:g}), first gradients ({GRADIENT:g}) and state after {STEPS} steps ({STATE:g}) on one device and "
          f"under a random plan (at least {least}); {count['refused'] + count['mixes']} are refused by name, {without} of them or of those not exported only for their random parts; PyTorch exports {count['not exported']} "
          f"not, {count['not built']} are not built, {count['late']} take too long, {sum(count[b] for b in BAD)} are wrong or crash")
    return 1 if any(count[b] for b in BAD) or count["equal"] < least else 0


if __name__ == "__main__":
    sys.exit(main())
