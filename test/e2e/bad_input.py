"""Checks that every invalid input gives an error that names the location, the expected value and the fix: exit code 1,
no crash, no output left behind.
"""
import hashlib
import json
import os
import shutil
import tempfile

import numpy as np

import harness as z

GPT = os.path.join(z.SMALL, "gpt.onnx")
DATA = os.path.join(z.SMALL, "gpt.tokens.bin")


class Cases:
    def __init__(self, folder):
        self.folder, self.results = folder, []
        self.one = z.cluster(folder, ["a"])
        self.two = z.cluster(folder, ["a", "b"])

    def expect(self, name, done, *words):
        """The call must end with exit code 1 and print every one of `words` (ignoring case)."""
        code, out, err = done
        text = (out + err).lower()
        missing = [w for w in words if w.lower() not in text]
        good = code == 1 and not missing and "error" in text
        line = next((l for l in (err + out).splitlines() if "error" in l.lower()), "(no error line)")
        print(f"{'ok  ' if good else 'FAIL'} {name}: exit {code}{', does not say ' + str(missing) if missing else ''}\n       {line[:220]}", flush=True)
        self.results.append(good)

    def file(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def compile(self, model=GPT, cluster=None, batch=8, plan=None, sequence=32, training=z.ADAMW, precision="f32", extra=()):
        return z.compile(model, os.path.join(self.folder, "bad.zorse"), cluster or self.one, batch, sequence, plan, training, precision, ok=False, extra=extra)


def memory(c):
    """Plans with invalid memory settings."""
    def plan(**more):
        return z.plan(c.folder, "memory", 8, ["a"], [(0, 8, 0, 8, "a")], **more)

    c.expect("a tier that does not exist", c.compile(plan=plan(offload=[{"optimizer_states": "disk"}])), "offload[0].optimizer_states", "device", "host", "disk")
    c.expect("an update on an unknown device", c.compile(plan=plan(offload=[{"optimizer": "disk"}])), "offload[0].optimizer", "device", "host", "disk")
    c.expect("an update on the host of state on the device", c.compile(plan=plan(offload=[{"optimizer": "host", "optimizer_states": "host"}])), "device a", "updated on the host", "parameters", "keep")
    c.expect("a commit that does not exist", c.compile(plan=plan(state={"optimizer_in_backward": "chunk"})), "state.optimizer_in_backward", "true or false", "chunk")
    c.expect("clipping where groups commit", c.compile(plan=plan(state={"optimizer_in_backward": True})), "state.optimizer_in_backward", "clipped", "--max-grad-norm=0", "false")
    c.expect("loss scaling where groups commit", c.compile(plan=plan(state={"optimizer_in_backward": True}), training={**z.ADAMW, "max-grad-norm": "0"}, precision="f16"), "state.optimizer_in_backward", "scaled", "bf16")
    small = os.path.join(c.folder, "small-host.yaml")
    with open(small, "w") as f:
        f.write("name: test\nnodes:\n  - name: here\n    host_memory: 1 MiB\n    devices:\n      - { name: a, kind: cpu, threads: 1, flops_per_second: 1e10 }\n")
    c.expect("too little memory of the host", c.compile(cluster=small, plan=plan(offload=[{"optimizer_states": "host"}])), "node here", "host memory", "1.0 MiB", "fewer")
    bundle = os.path.join(c.folder, "group.zorse")
    z.compile(GPT, bundle, c.one, 8, 32, plan(state={"optimizer_in_backward": True}), {**z.ADAMW, "max-grad-norm": "0"})
    run = lambda *words, steps=2: z.call("zorse-run", bundle, "--data", DATA, "--max-steps", steps, *words, ok=False)
    c.expect("clipping turned on for a run", run("--max-grad-norm=1"), "--max-grad-norm=1", "optimizer_in_backward", "false")
    c.expect("skipping asked of a run", run("--on-nonfinite=skip"), "--on-nonfinite=skip", "optimizer_in_backward", "false")
    c.expect("a step that is not finite and has been applied", run("--lr=1e38", steps=6), "not finite", "has been applied", "checkpoint")


def models(c):
    with open(GPT, "rb") as f:
        good = f.read()
    c.expect("truncated ONNX", c.compile(c.file("truncated.onnx", good[:len(good) // 2])), "truncated.onnx")
    c.expect("empty ONNX", c.compile(c.file("empty.onnx", b"")), "empty.onnx")
    c.expect("noise", c.compile(c.file("noise.onnx", np.random.default_rng(0).bytes(4096))), "noise.onnx")
    c.expect("missing file", c.compile(os.path.join(c.folder, "nowhere.onnx")), "nowhere.onnx")
    for change in range(12):  # corrupted bytes: an error or a model that is still valid, never a crash
        bad = bytearray(good)
        rng = np.random.default_rng(change)
        for _ in range(20):
            bad[int(rng.integers(0, min(len(bad), 60000)))] = int(rng.integers(0, 256))
        code, out, err = c.compile(c.file(f"corrupt-{change}.onnx", bytes(bad)))
        good_end = code in (0, 1)
        c.results.append(good_end)
        print(f"{'ok  ' if good_end else 'FAIL'} corrupted bytes {change}: exit {code}")
    operator = good.replace(b"SoftmaxCrossEntropyLoss", b"SoftmaxCrossEntropyLuck").replace(b"LayerNormalization", b"LayerAbnormalization"[:18])
    c.expect("unknown operators, all in one error", c.compile(c.file("operators.onnx", operator)), "SoftmaxCrossEntropyLuck", "LayerAbnormalizati", "not supported")
    c.expect("sequence longer than the position table", c.compile(sequence=65), "wpe")
    for option, *words in (("--freeze=wpe.wieght", "wpe.wieght", "'wpe.weight'"), ("--train=nothing", "nothing"), ("--dim=sequenze=3", "sequenze", "'sequence'"),
                           ("--lr=nan", "--lr", "finite"), ("--max-grad-norm=nan", "--max-grad-norm", "finite"), ("--min-lr-ratio=inf", "--min-lr-ratio", "finite"), ("--seed=18446744073709551616", "--seed", "18446744073709551616"),
                           ("--weight-decay-params=names:ln_1,nothing", "nothing"), ("--cpu-arch=pentium9", "pentium9", "x86-64-v3"), ("--lr-decay-steps=5", "--warmup-steps"),
                           ("--momentum=0.9", "sgd"), ("--centered", "--optimizer=rmsprop; adamw has none"), ("--alpha=0.9", "rmsprop, adadelta"), ("--clip-grad-value=1", "remove --max-grad-norm"),
                           ("--ema-decay=1", "[0, 1)"), ("--lr-cycles=2", "belongs to --lr-scheduler-type=cosine_with_restarts", "cosine"), ("--lr-wsd-decay-steps=2", "warmup_stable_decay"),
                           ("--lr-schedule-file=nothing", "remove --lr-scheduler-type"), ("--param-group=nothing.*:lr=1e-3", "no parameter's name matches 'nothing.*'"),
                           ("--param-group=wpe.weight:rate=1", "there is no option 'rate'", "lr_scale"), ("--param-group=wpe.weight", "such as"), ("--param-group=wpe.weight:lr=fast", "finite number", "fast")):  # an unknown name must not be ignored: the run would train something else
        c.expect(f"option {option}", c.compile(extra=(option, "--lr-scheduler-type=cosine")), *words)


def plans(c):
    def plan(name, cells, devices=("a", "b"), batch=8, **more):
        return c.compile(cluster=c.two, plan=z.plan(c.folder, name, batch, devices, cells, **more))

    u = 8
    c.expect("plan: overlap", plan("overlap", [(0, u, 0, 5, "a"), (0, u, 4, 8, "b")]), "overlap")
    c.expect("plan: gap", plan("gap", [(0, u, 0, 4, "a"), (0, u, 5, 8, "b")]), "gap")
    c.expect("plan: unknown device", plan("device", [(0, u, 0, 4, "a"), (0, u, 4, 8, "z")], devices=("a", "z")), "z")
    c.expect("plan: units beyond the model", plan("units", [(0, u + 3, 0, 4, "a"), (0, u + 3, 4, 8, "b")]), "units")
    c.expect("plan: another batch", plan("batch", [(0, u, 0, 4, "a"), (0, u, 4, 6, "b")], batch=6), "batch")
    c.expect("plan: empty range", plan("empty", [(0, u, 0, 8, "a"), (0, u, 8, 8, "b")]), "empty")
    c.expect("plan: order that cannot run",
             plan("order", [(0, 4, 0, 8, "a"), (4, u, 0, 8, "b")], schedule={"order": {"a": ["B0", "F0"], "b": ["F1", "B1"]}}), "cycle")
    c.expect("plan: not JSON", c.compile(cluster=c.two, plan=c.file("broken.plan.json", b'{"format": 1, ')), "broken.plan.json")
    small = c.file("small.yaml", b"name: small\nnodes:\n  - name: here\n    devices:\n      - { name: a, kind: cpu, flops_per_second: 1e10, memory: 1MiB, threads: 1 }\n")
    c.expect("plan: too little memory", c.compile(cluster=small, plan=z.plan(c.folder, "memory", 8, ["a"], [(0, u, 0, 8, "a")])), "memory", "a")
    c.expect("cluster: not YAML", c.compile(cluster=c.file("broken.yaml", b"nodes: [")), "broken.yaml")
    c.expect("cluster: no devices", c.compile(cluster=c.file("none.yaml", b"name: none\nnodes: []\n")), "device")


def bundles(c):
    good = os.path.join(c.folder, "good.zorse")
    z.compile(GPT, good, c.two, 8, 32)

    def broken(name, change):
        path = os.path.join(c.folder, name + ".zorse")
        shutil.copytree(good, path)
        change(path)
        return z.call("zorse-run", path, "--data", DATA, "--max-steps", 1, ok=False)

    def flip(file):
        def change(path):
            with open(os.path.join(path, file), "r+b") as f:
                f.seek(os.path.getsize(f.name) // 2)
                byte = f.read(1)
                f.seek(-1, 1)
                f.write(bytes([byte[0] ^ 0xFF]))
        return change

    def version(path):
        manifest = os.path.join(path, "manifest.json")
        with open(manifest) as f:
            m = json.load(f)
        m["format_version"] = 2
        with open(manifest, "w") as f:
            json.dump(m, f)

    c.expect("bundle: a damaged program", broken("program", flip("programs/0.pb")), "its SHA-256 is", "programs/0.pb")
    c.expect("bundle: damaged bodies", broken("bodies", flip("functions.pb")), "its SHA-256 is", "functions.pb")
    c.expect("bundle: a damaged manifest", broken("digest", flip("manifest.json")), "its SHA-256 is", "manifest.json")
    c.expect("bundle: missing file", broken("missing", lambda p: os.remove(os.path.join(p, "summary.pb"))), "summary.pb")
    c.expect("bundle: manifest not JSON", broken("manifest", lambda p: open(os.path.join(p, "manifest.json"), "w").close()), "manifest.json")
    c.expect("bundle: another format version", broken("version", version), "format version 9, got 2", "compile it again: zorse-compile", "--global-batch-size 8 --seq-length 32")
    with open(os.path.join(good, "manifest.sha256")) as f:
        digest = f.read().split()[0]
    code, _, err = z.call("zorse-run", good, "--data", DATA, "--max-steps", 1, "--quiet", "--expect-digest", digest, ok=False)
    c.results.append(code == 0)
    c.expect("bundle: not the one that is expected", z.call("zorse-run", good, "--data", DATA, "--max-steps", 1, "--expect-digest", digest[1:] + digest[0], ok=False), digest, "--expect-digest")
    c.expect("bundle: no digest", z.call("zorse-run", good, "--data", DATA, "--max-steps", 1, "--expect-digest", "abc", ok=False), "64 hexadecimal digits")
    _, shown, _ = z.call("zorse-inspect", good)
    again = os.path.join(c.folder, "again.zorse")
    _, _, said = z.call("zorse-compile", GPT, "--cluster", c.two, "--global-batch-size", 8, "--seq-length", 32, "-o", again)
    with open(os.path.join(again, "manifest.sha256")) as f:
        made = f.read().split()[0]
    print(f"{'ok  ' if digest in shown and made in said else 'FAIL'} the digest is printed by zorse-compile and zorse-inspect")
    c.results.append(digest in shown and made in said)
    c.expect("bundle: not there", z.call("zorse-run", os.path.join(c.folder, "none.zorse"), "--data", DATA, "--max-steps", 1, ok=False), "none.zorse")

    def run(data, *more):
        return z.call("zorse-run", good, "--data", data, "--max-steps", 1, *more, ok=False)

    for option in ("metrics-file", "trace", "save-weights", "dump-gradients", "dump-losses", "memory-report"):  # refused before training, not after it
        done = run(DATA, f"--{option}", os.path.join(c.folder, "nowhere", "file"))
        c.expect(f"output: --{option} in no folder", done, f"--{option}", "cannot be written", "nowhere")
        c.results.append("step 1" not in done[1])
    c.expect("output: a folder", run(DATA, "--save-weights", c.folder), "directory")
    c.expect("output: one file for two", run(DATA, "--save-weights", "both", "--trace", "both"), "both", "--trace", "--save-weights")
    overwrites(c, good)
    c.expect("data: shorter than a batch", run(c.file("short.bin", b"\x01\x00" * 20)), "short.bin")
    c.expect("data: missing", run(os.path.join(c.folder, "none.bin")), "none.bin")
    ids = np.full(4000, 7, np.uint16)
    ids[137] = 300
    c.expect("data: id out of range", run(c.file("range.bin", ids.tobytes())), "300", "256", "137")
    c.expect("data: wrong input name", run("nothing=" + c.file("x.npy", b"\x93NUMPY")), "nothing")
    c.expect("checkpoint: truncated", run(DATA, "--load-weights", c.file("t.safetensors", b"\xff\xff\xff\xff\xff\xff\xff\x7f{}")), "t.safetensors")
    for option in ("--lr=nan", "--lr=inf", "--min-lr-ratio=nan", "--max-grad-norm=nan", "--max-grad-norm=-1", "--seed=18446744073709551616", "--shuffle-seed=18446744073709551616", "--seed=-1", "--shuffle-seed=1e3",
                   "--warmup-steps=9223372036854775808", "--heartbeat-timeout=nan", "--max-steps=18446744073709551617"):
        c.expect(f"run option {option}", run(DATA, option), *option.split("="))
    pipe = os.path.join(c.folder, "pipe")
    os.mkfifo(pipe)  # has no writer
    for name, done in (("--data", lambda: run(pipe)), ("--load-weights", lambda: run(DATA, "--load-weights", pipe)), ("--eval-data", lambda: run(DATA, "--eval-data", pipe)),
                       ("--cluster", lambda: run(DATA, "--cluster", pipe)), ("--load-weights of ranks", lambda: run(DATA, "--spawn", "--load-weights", pipe))):
        c.expect(f"a pipe for {name}", done(), "pipe", "file")
    for file in ("manifest.json", "programs/0.pb", "summary.pb"):
        def replace(path):
            os.remove(os.path.join(path, file))
            os.mkfifo(os.path.join(path, file))
        c.expect(f"bundle: a pipe for {file}", broken("pipe-" + file.replace("/", "-"), replace), file)
    c.expect("cluster at run time differs", run(DATA, "--cluster", c.one), "device")


def options(c):
    """Options of other frameworks are answered with the corresponding option of Zorse. Cheap checks run before the
    model is read."""
    def said(tool, option, *words):
        c.expect(f"{tool} {option}", z.call(tool, *(["x.onnx"] if tool == "zorse-compile" else ["x.zorse"] if tool == "zorse-run" else []), option, ok=False), option.split("=")[0], *words)

    for option, ours in (("--learning-rate=1e-3", "--lr"), ("--learning_rate=1e-3", "--lr"), ("--train-steps=9", "--max-steps"), ("--num-epochs=9", "--max-steps"), ("--clip-grad=1", "--max-grad-norm"), ("--max_grad_norm=1", "--max-grad-norm"), ("--dataset=x", "--data"),
                         ("--save-steps=9", "--save-interval"), ("--resume-from-checkpoint=x", "--resume"), ("--nproc-per-node=2", "--spawn"), ("--warmup-iters=3", "--warmup-steps"), ("--stepz=4", "--max-steps")):
        said("zorse-run", option, f"did you mean {ours} ")
    for option, ours in (("--batchsize=8", "--global-batch-size"), ("--batch-size=8", "--global-batch-size"), ("--bf16", "--precision"), ("--seq-len=64", "--seq-length"), ("--max-seq-length=64", "--seq-length"), ("--optim=adam", "--optimizer"),
                         ("--wd=0.1", "--weight-decay"), ("--gradient-checkpointing", "--recompute"), ("--output-dir=x", "--output")):
        said("zorse-compile", option, f"did you mean {ours} ")
    said("zorse-run", "--batch-size=8", "--global-batch-size is an option of zorse-compile")
    said("zorse-compile", "--context-parallel-size=2", "context and expert parallelism are not supported")
    said("zorse-compile", "--tensor-model-parallel-size=2", "did you mean --tensor-parallel-size ")
    said("zorse-run", "--tensor-parallel-size=2", "of zorse-compile and zorse-plan searches for plans with tensor parallelism")
    said("zorse-compile", "--micro-batch-size=2", "the planner decides this")
    said("zorse-plan", "--pipeline-model-parallel-size=2", "did you mean --pipeline-stages ")
    said("zorse-compile", "--zero-stage=3", "the planner shards and offloads")
    said("zorse-plan", "--sequence-length=8", "did you mean --seq-length ")

    # The model does not exist; errors in the other arguments are reported first.
    out, cluster, notes = os.path.join(c.folder, "early.zorse"), c.one, os.path.join(c.folder, "notes")
    os.mkdir(notes)
    todo = c.file("notes/todo", b"x")
    early = lambda *words: z.call("zorse-compile", os.path.join(c.folder, "none.onnx"), "--quiet", *words, ok=False)
    c.expect("early: missing cluster", early("--cluster", "none.yaml", "--global-batch-size", 8, "-o", out), "none.yaml")
    c.expect("early: missing profile", early("--cluster", cluster, "--profile", "none.json", "--global-batch-size", 8, "-o", out), "none.json")
    c.expect("early: a plan of another batch", early("--cluster", cluster, "--plan", z.plan(c.folder, "six", 6, ["a"], [(0, 8, 0, 6, "a")]), "--global-batch-size", 8, "-o", out), "six.plan.json", "batch of 6", "--global-batch-size is 8")
    c.expect("early: a plan for other devices", early("--cluster", cluster, "--plan", z.plan(c.folder, "other", 8, ["z"], [(0, 8, 0, 8, "z")]), "--global-batch-size", 8, "-o", out), "other.plan.json", "device 'z'", "not in the cluster")
    c.expect("early: the output is no bundle", early("--cluster", cluster, "--global-batch-size", 8, "-o", notes), "is not a bundle", "-o")
    c.expect("early: the output is below a file", early("--cluster", cluster, "--global-batch-size", 8, "-o", os.path.join(todo, "out.zorse")), "is not a directory")
    closed = os.path.join(c.folder, "closed")
    os.mkdir(closed, 0o555)
    if not os.access(closed, os.W_OK):  # root may write there
        c.expect("early: the output cannot be written", early("--cluster", cluster, "--global-batch-size", 8, "-o", os.path.join(closed, "out.zorse")), "cannot be created", "closed")
    for option in ("-o", "--html", "--json"):
        c.expect(f"early: zorse-plan {option}", z.call("zorse-plan", os.path.join(c.folder, "none.onnx"), "--cluster", cluster, "--global-batch-size", 8, option, os.path.join(c.folder, "nowhere", "x"), ok=False), "nowhere", "cannot be written")


def overwrites(c, good):
    """Outputs that are inputs under another name: nothing is written, and the input is unchanged."""
    def keeps(name, files, done, *words):
        c.expect(name, done, *words)
        for path, before in files.items():
            with open(path, "rb") as f:
                c.results.append(f.read() == before)

    with open(DATA, "rb") as f:
        tokens = f.read()
    data, link = c.file("train.bin", tokens), os.path.join(c.folder, "link.bin")
    os.symlink("train.bin", link)
    weights = os.path.join(good, "weights.safetensors")
    with open(weights, "rb") as f:
        files = {data: tokens, weights: f.read()}
    for option in ("metrics-file", "trace", "save-weights", "dump-gradients", "dump-losses", "memory-report", "checkpoint-dir"):
        for words in ([data, link], [link, data], [data, weights], [f"bytes:{data}", link]):
            keeps(f"output: --{option} {os.path.basename(words[1])}", files, z.call("zorse-run", good, "--data", words[0], "--max-steps", 1, f"--{option}", words[1], ok=False), f"--{option}", "nothing was written")
    keeps("output: the evaluation's data", files, z.call("zorse-run", good, "--data", DATA, "--eval-data", data, "--max-steps", 1, "--save-weights", link, ok=False), "--save-weights", "--eval-data")
    keeps("output: a simulation's", files, z.call("zorse-run", good, "--simulate", "--json", weights, ok=False), "--json", "the bundle")

    with open(GPT, "rb") as f:
        model = c.file("model.onnx", f.read())
    with open(model, "rb") as f:
        files[model] = f.read()
    folder = os.path.join(c.folder, "holds.zorse")
    shutil.copytree(good, folder)
    inside = os.path.join(folder, "model.onnx")
    shutil.copyfile(model, inside)
    files[inside] = files[model]
    keeps("zorse-compile -o: the model", files, z.call("zorse-compile", model, "--cluster", c.one, "--global-batch-size", 8, "--seq-length", 32, "-o", model, ok=False), "--output", "the model")
    keeps("zorse-compile -o: a bundle that holds the model", files, z.call("zorse-compile", inside, "--cluster", c.one, "--global-batch-size", 8, "--seq-length", 32, "-o", folder, ok=False), "is replaced", "the model")
    keeps("zorse-compile -o: a bundle that holds another file", files, z.call("zorse-compile", model, "--cluster", c.one, "--global-batch-size", 8, "--seq-length", 32, "-o", folder, ok=False), "contains 'model.onnx'", "not overwritten")
    os.remove(inside)
    plan, cluster = os.path.join(folder, "plan.json"), os.path.join(folder, "cluster.yaml")
    code, _, err = z.call("zorse-compile", model, "--cluster", cluster, "--plan", plan, "--global-batch-size", 8, "--seq-length", 32, "--quiet", "-o", folder, ok=False)
    print(f"{'ok  ' if code == 0 else 'FAIL'} zorse-compile makes a bundle again in its place {err}")
    c.results.append(code == 0)
    del files[inside]  # the bundle that contained it was rebuilt
    with open(plan, "rb") as f:
        copy = c.file("plan.json", f.read())
    with open(copy, "rb") as f:
        files[copy] = f.read()
    for option in ("-o", "--html", "--json"):
        keeps(f"zorse-plan {option}: the plan", files, z.call("zorse-plan", good, "--cluster", c.two, "--global-batch-size", 8, "--plan", copy, option, copy, ok=False), "same file", "--plan")
    keeps("zorse-profile -o: the bundle", files, z.call("zorse-profile", good, "-o", weights, ok=False), "lies in the bundle")
    keeps("zorse-inspect --svg: the bundle", files, z.call("zorse-inspect", good, "--memory", "a", "--svg", weights, ok=False), "lies in the bundle")

    snapshots = os.path.join(c.folder, "kept")
    z.call("zorse-run", good, "--data", DATA, "--max-steps", 1, "--quiet", "--checkpoint-dir", snapshots)
    index = os.path.join(snapshots, os.listdir(snapshots)[0] if os.listdir(snapshots)[0].startswith("step") else os.listdir(snapshots)[1], "index.json")
    with open(index, "rb") as f:
        files[index] = f.read()
    keeps("zorse-export -o: the snapshot", files, z.call("zorse-export", snapshots, "-o", index, ok=False), "lies in the checkpoint")
    keeps("zorse-export -o: the original", files, z.call("zorse-export", snapshots, "--onnx", model, "-o", model, ok=False), "same file")


def rebuilt(c):
    """--rebuild-kernels: a bundle with changed machine code is rebuilt; a bundle of another model is refused."""
    good, foreign, mine = (os.path.join(c.folder, name + ".zorse") for name in ("own", "foreign", "mine"))
    z.compile(GPT, good, c.one, 8, 32, training={**z.ADAMW, "betas": "0.8,0.9"})
    shutil.copytree(good, foreign)
    arch = os.listdir(os.path.join(foreign, "kernels"))[0]
    kernels = os.path.join(foreign, "kernels", arch, "kernels.so")
    with open(kernels, "ab") as f:
        f.write(b"unknown code")
    with open(os.path.join(foreign, "manifest.json")) as f:
        manifest = json.load(f)
    with open(kernels, "rb") as f:
        manifest["files"][f"kernels/{arch}/kernels.so"] = hashlib.sha256(f.read()).hexdigest()
    text = json.dumps(manifest).encode()
    for name, data in (("manifest.json", text), ("manifest.sha256", f"{hashlib.sha256(text).hexdigest()}  manifest.json\n".encode())):
        with open(os.path.join(foreign, name), "wb") as f:
            f.write(data)
    z.call("zorse-compile", GPT, "--rebuild-kernels", foreign, "--quiet", "-o", mine)
    same = True
    for name in ("plan.json", "summary.pb", "functions.pb", "programs/0.pb", f"kernels/{arch}/kernels.so"):
        with open(os.path.join(mine, name), "rb") as a, open(os.path.join(good, name), "rb") as b:
            same = same and a.read() == b.read()
    losses = [z.run(bundle, DATA, 3) for bundle in (good, mine)]
    same = same and [m["loss"] for m in losses[0]] == [m["loss"] for m in losses[1]]
    print(f"{'ok  ' if same else 'FAIL'} --rebuild-kernels gives the bundle before its machine code was changed")
    c.results.append(same)
    llama = os.path.join(z.SMALL, "llama.onnx")
    c.expect("--rebuild-kernels: another model", z.call("zorse-compile", llama, "--rebuild-kernels", foreign, "--quiet", "-o", mine, ok=False), "error")
    c.expect("--rebuild-kernels: other options", z.call("zorse-compile", GPT, "--rebuild-kernels", foreign, "--weight-decay-params=none", "--quiet", "-o", mine, ok=False), "its summary differs from the one that this compiler generates")
    c.expect("--rebuild-kernels: in its place", z.call("zorse-compile", GPT, "--rebuild-kernels", foreign, "--quiet", "-o", foreign, ok=False), "same file")


def main():
    with tempfile.TemporaryDirectory() as folder:
        c = Cases(folder)
        for part in (models, plans, options, memory, bundles, rebuilt):
            part(c)
        z.finish(c.results)


if __name__ == "__main__":
    main()
