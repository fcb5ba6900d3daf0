"""Features around a run: options from YAML files, evaluation alone, TensorBoard files, time breakdown, traces with
arrows and counters, shards, text generation during training, HTML reports.

    runs.py [PART...]    config, evaluate, outputs, shards, sampling; default: all
"""
import glob
import json
import os
import re
import struct
import sys
import tempfile

import numpy as np

import harness as z

GPT, TOKENS = os.path.join(z.SMALL, "gpt.onnx"), os.path.join(z.SMALL, "gpt.tokens.bin")
BATCH, LENGTH = 8, 16
VOCABULARY = 256
results = []


def holds(name, good, found=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found}"), flush=True)
    results.append(bool(good))


def refused(name, text, *words):
    code, _, err = z.call(*words, ok=False)
    holds(f"refused: {name}", code == 1 and text in err and err.count("\n") <= 3, f"exit {code}: {err[:300]}")


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def losses(bundle, *extra, steps=4, data=TOKENS):
    return [m["loss"] for m in z.run(bundle, data, steps, extra=extra)]


def config(folder, one):
    metrics = os.path.join(folder, "config.jsonl")
    file = write(folder, "run.yaml", f"""# of every tool
seed: 7
zorse-run:
  bundle: {one}
  data: {TOKENS}
  max-steps: 3
  shuffle-seed: 5
  eval-data: {TOKENS}
  eval-iters: 2
  metrics-file: {metrics}
  quiet: true
  poison: no
zorse-compile:
  model: {GPT}
  global-batch-size: {BATCH}
  seq-length: {LENGTH}
  betas: [0.9, 0.95]
  cluster: {z.cluster(folder, ["a"])}
  output: {os.path.join(folder, "configured.zorse")}
""")
    z.call("zorse-run", "--config", file)
    lines = [json.loads(line) for line in open(metrics)]
    flags = losses(one, "--shuffle-seed=5", "--seed=7", "--eval-data", TOKENS, "--eval-iters=2", steps=3)
    holds("a run from a file is the run from flags", [m["loss"] for m in lines if "loss" in m] == flags and len(lines) == 4, lines)
    z.call("zorse-run", "--config", file, "--max-steps", 2)
    holds("flags go before the file", sum("loss" in json.loads(line) for line in open(metrics)) == 2)
    z.call("zorse-compile", "--config", file, "--quiet")
    configured = losses(os.path.join(folder, "configured.zorse"), "--lr=3e-4", "--warmup-steps=10", steps=3)
    holds("zorse-compile reads its section", np.allclose(configured, losses(one, steps=3), rtol=1e-6), configured)
    two = write(folder, "two.yaml", f"data: [{TOKENS}, {TOKENS}]\nmax-steps: 2\nin-process: true\n")
    z.call("zorse-run", one, "--config", two, "--quiet")
    holds("lists and flags", True)

    def broken(name, text, expected):
        refused(name, expected, "zorse-run", one, "--config", write(folder, "broken.yaml", text))

    broken("an unknown key", "data: x\n\nstepz: 4\n", "broken.yaml:3: zorse-run has no option 'stepz'; did you mean 'max-steps'?")
    broken("an old key", "data: x\nclip: 1\n", "broken.yaml:2: option 'clip' is now 'max-grad-norm'")
    broken("an unknown key of a section", "zorse-run:\n  save_interval: 4\n", "broken.yaml:2: zorse-run has no option 'save_interval'; did you mean 'save-interval'?")
    broken("an unknown tool", "zorse-rum:\n  max-steps: 4\n", "broken.yaml:1: zorse-run has no option 'zorse-rum'; did you mean 'zorse-run'?")
    broken("a value that is none", f"data: {TOKENS}\nmax-steps: many\n", "(line 2 of ")
    broken("a flag that is no truth", "quiet: perhaps\n", "broken.yaml:1: 'quiet' is on or off: expects true or false, found 'perhaps'")
    broken("a key twice", "max-steps: 1\nmax-steps: 2\n", "broken.yaml:2: 'max-steps' is given a second time")
    broken("no value", "max-steps:\n", "broken.yaml:1: 'max-steps' expects a value, found none")
    broken("no YAML", "max-steps: [1\n", "is not YAML")
    broken("no mapping", "- steps\n", "expects options, NAME: VALUE")
    broken("a file in the file", "config: other.yaml\n", "has no option 'config'")
    refused("a file that is not there", "nothing.yaml", "zorse-run", one, "--config", os.path.join(folder, "nothing.yaml"))


def evaluate(folder, one, two):
    data = os.path.join(folder, "held.bin")
    np.fromfile(TOKENS, np.uint16)[:9 * BATCH * LENGTH + 1].tofile(data)
    checkpoint, snapshots = os.path.join(folder, "e.safetensors"), os.path.join(folder, "e-snapshots")
    metrics = os.path.join(folder, "e.jsonl")
    z.call("zorse-run", one, "--data", TOKENS, "--max-steps", 4, "--eval-data", data, "--eval-iters", 0, "--save-weights", checkpoint, "--checkpoint-dir", snapshots, "--save-interval", 2, "--metrics-file", metrics)
    expected = [json.loads(line)["eval_loss"] for line in open(metrics) if "eval_loss" in line][-1]

    def said(bundle, *words):
        _, out, _ = z.call("zorse-run", bundle, "--eval-only", "--eval-data", data, *words)
        found = re.search(r"^evaluation: loss (\S+), perplexity (\S+), \d+ samples$", out, re.M)
        return (float(found[1]), float(found[2])) if found else (float("nan"),) * 2

    for name, bundle, words in (("a checkpoint", one, ("--load-weights", checkpoint)), ("the newest snapshot, under another plan", two, ("--checkpoint-dir", snapshots)),
                                ("one snapshot", two, ("--checkpoint-dir", sorted(glob.glob(os.path.join(snapshots, "step-*")))[-1])), ("processes", two, ("--checkpoint-dir", snapshots, "--spawn"))):
        loss, perplexity = said(bundle, *words)
        holds(f"--eval-only of {name}", abs(loss - expected) < 2e-6 * expected and abs(perplexity - np.exp(loss)) < 1e-4 * perplexity, f"{loss}, expected {expected}")
    # All samples count, including a short last batch: the mean over 75 samples, in batches of 8 and of 3, and from
    # parts.
    def loss_of(bundle, samples, first=0):
        some = os.path.join(folder, f"some-{first}-{samples}.bin")
        np.fromfile(TOKENS, np.uint16)[first * LENGTH:(first + samples) * LENGTH + 1].tofile(some)
        _, out, _ = z.call("zorse-run", bundle, "--eval-only", "--eval-data", some, "--load-weights", checkpoint)
        found = re.search(r"^evaluation: loss (\S+), perplexity \S+, (\d+) samples$", out, re.M)
        holds(f"{samples} samples are evaluated", found and int(found[2]) == samples, out)
        return float(found[1])

    three = os.path.join(folder, "batch-of-3.zorse")
    z.compile(GPT, three, z.cluster(folder, ["a"]), 3, LENGTH)
    rest, all_of_them = 3, 9 * BATCH + 3
    by_batches, by_threes, parts = loss_of(two, all_of_them), loss_of(three, all_of_them), (9 * BATCH * loss_of(one, 9 * BATCH) + rest * loss_of(one, rest, 9 * BATCH)) / all_of_them
    holds("the remainder of the data is evaluated", abs(by_batches - by_threes) < 2e-6 * by_threes and abs(by_batches - parts) < 2e-6 * parts, (by_batches, by_threes, parts))
    earlier = said(one, "--checkpoint-dir", sorted(glob.glob(os.path.join(snapshots, "step-*")))[0])[0]
    holds("an earlier snapshot is another state", abs(earlier - expected) > 1e-4)
    before = sorted(os.listdir(snapshots)), os.listdir(os.path.join(snapshots, "claims"))
    said(one, "--checkpoint-dir", snapshots)
    holds("evaluating claims nothing", before == (sorted(os.listdir(snapshots)), os.listdir(os.path.join(snapshots, "claims"))))
    refused("training options", "--eval-only does not train and cannot be combined with --max-steps", "zorse-run", one, "--eval-only", "--eval-data", data, "--max-steps", 3)
    refused("no data", "--eval-only needs --eval-data", "zorse-run", one, "--eval-only")
    refused("no snapshot", "expected a checkpoint, or a directory with complete ones, found none", "zorse-run", one, "--eval-only", "--eval-data", data, "--checkpoint-dir", os.path.join(folder, "nowhere"))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def events(path):
    """The messages of an event file; checks lengths and masked checksums."""
    data, at, out = open(path, "rb").read(), 0, []
    mask = lambda crc: ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
    while at < len(data):
        (length,), (length_crc,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        body = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        if mask(crc32c(data[at:at + 8])) != length_crc or mask(crc32c(body)) != crc:
            raise z.Failure(f"{path}: a checksum at byte {at} is wrong")
        out.append(fields(body))
        at += 16 + length
    return out


def fields(body):
    """A protobuf message as {number: [values]}."""
    out, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(body):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 2:
            size = varint()
            value, at = body[at:at + size], at + size
        else:
            form, size = ("<d", 8) if key & 7 == 1 else ("<f", 4)
            (value,), at = struct.unpack_from(form, body, at), at + size
        out.setdefault(key >> 3, []).append(value)
    return out


def outputs(folder, two):
    board, trace, page, metrics = (os.path.join(folder, n) for n in ("board", "trace.json", "page.html", "o.jsonl"))
    _, out, _ = z.call("zorse-run", two, "--data", TOKENS, "--max-steps", 6, "--eval-data", TOKENS, "--eval-iters", 1, "--tensorboard-dir", board, "--trace", trace, "--html-report", page, "--metrics-file", metrics,
                       "--throttle", "b=0.3")
    lines = [json.loads(line) for line in open(metrics)]
    (path,) = glob.glob(os.path.join(board, "events.out.tfevents.*"))
    found = events(path)
    holds("the first event has the version", found[0].get(3) == [b"brain.Event:2"], found[0])
    scalars = [(e[2][0], {fields(v)[1][0].decode(): fields(v)[2][0] for v in fields(e[5][0])[1]}) for e in found if 5 in e]
    expected = [(m["step"], {"eval_loss": m["eval_loss"]} if "eval_loss" in m else {"loss": m["loss"], "gradient_norm": m["grad_norm"], "learning_rate": m["lr"], "tokens_per_second": m["tokens_per_second"]})
                for m in lines]
    same = [s for s, _ in scalars] == [s for s, _ in expected] and all(set(a) == set(b) and all(a[k] == np.float32(b[k]) for k in b) for (_, a), (_, b) in zip(scalars, expected))
    holds("TensorBoard's scalars are those of the metrics", same, (scalars[:2], expected[:2]))
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        accumulator = EventAccumulator(board)
        accumulator.Reload()
        holds("TensorBoard reads them", [s.value for s in accumulator.Scalars("loss")] == [np.float32(m["loss"]) for m in lines if "loss" in m])
    except ImportError:
        print("skipped: TensorBoard itself is not installed; the format was read here", flush=True)

    rows = {m[1]: [float(v) for v in m.groups()[1:]] for m in re.finditer(r"^([abc]) +([\d.]+) % +([\d.]+) % +([\d.]+) % +([\d.]+)$", out, re.M)}
    holds("every device has its shares, which are its whole time", set(rows) == set("abc") and all(abs(sum(r[:3]) - 100) < 0.3 for r in rows.values()), out[-900:])
    holds("a step is compared with the plan's", re.search(r"^a step took \S+ \S+, predicted \S+ \S+ \([\d.]+ times\); of \d+ steps? looked at:$", out, re.M), out[-900:])
    others = [rows[d][3] for d in "ac" if d in rows]
    holds("the throttled device is slower than planned, and the advice names it", rows.get("b") and rows["b"][3] > 2 * max(others) and "to change: the plan divides the work by speeds" in out and "b takes" in out,
          out[-900:])

    everything = json.load(open(trace))["traceEvents"]
    slices = {(e["pid"], e["tid"]): [] for e in everything if e["ph"] == "X"}
    for e in everything:
        if e["ph"] == "X":
            slices[e["pid"], e["tid"]].append(e)
    inside = lambda e, word: any(s["ts"] <= e["ts"] + 1e-3 and e["ts"] <= s["ts"] + s["dur"] + 1e-3 and word in s["name"] for s in slices[e["pid"], e["tid"]])
    starts, ends = ({e["id"]: e for e in everything if e["ph"] == phase} for phase in "sf")
    sends = sum("send" in s["name"] for list_ in slices.values() for s in list_)
    holds("an arrow from every send to its receive", len(starts) == sends > 0 and set(starts) == set(ends) and all(inside(starts[i], "send") and inside(ends[i], "receive") and starts[i]["pid"] != ends[i]["pid"]
                                                                                                       and starts[i]["ts"] <= ends[i]["ts"] for i in starts), f"{len(starts)} arrows, {sends} sends")
    memory = [v for e in everything if e["ph"] == "C" and "memory" in e["name"] for v in e["args"].values()]
    depth = [v for e in everything if e["ph"] == "C" and "could run" in e["name"] for v in e["args"].values()]
    arena = max(m["planned_bytes"] for m in memory_of(folder, two))
    holds("counters of memory stay within the arenas", memory and max(memory) <= arena and max(memory) > min(memory) >= 0, f"{min(memory, default=0)} to {max(memory, default=0)} of {arena}")
    holds("counters of queues", depth and max(depth) >= 1 and min(depth) == 0)
    text = open(page).read()
    data = json.loads(re.search(r"<script>const data=(.*);\n", text)[1])
    holds("the page has the losses", [p[2] for p in data["points"]] == [m["loss"] for m in lines if "loss" in m] and [e[1] for e in data["evaluations"]] == [m["eval_loss"] for m in lines if "eval_loss" in m])
    holds("and where the time went", "Where the time went" in text and "to change:" in text)
    resumed = os.path.join(folder, "board2")
    for extra in ((), ("--resume",)):
        z.call("zorse-run", two, "--data", TOKENS, "--max-steps", 2 if not extra else 3, "--tensorboard-dir", resumed, "--checkpoint-dir", os.path.join(folder, "board-snapshots"), "--quiet", *extra)
    starts = [e[2][0] for p in sorted(glob.glob(os.path.join(resumed, "*"))) for e in events(p) if 7 in e]
    holds("a resumed run voids events after its first step", sorted(starts) == [1, 3], starts)

    # A longer run with a decay that ends at its last step.
    snapshots = os.path.join(folder, "decay")
    z.call("zorse-run", two, "--data", TOKENS, "--max-steps", 2, "--lr-scheduler-type=cosine", "--checkpoint-dir", snapshots, "--quiet")
    _, _, err = z.call("zorse-run", two, "--data", TOKENS, "--max-steps", 4, "--lr-scheduler-type=cosine", "--checkpoint-dir", snapshots, "--resume", "--metrics-file", metrics)
    longer = [json.loads(line)["lr"] for line in open(metrics)]
    holds("a longer run under cosine is explained", "the cosine decay of the learning rate ends with the run, at step 4 now and at step 2 in the checkpoint's run" in err and len(longer) >= 2, err)
    code, _, err = z.call("zorse-run", two, "--data", TOKENS, "--max-steps", 5, "--lr-scheduler-type=linear", "--checkpoint-dir", snapshots, "--resume", ok=False)
    holds("another schedule is still refused", code == 1 and "schedule: cosine in the checkpoint, linear here" in err, err)


def memory_of(folder, bundle):
    path = os.path.join(folder, "memory.json")
    z.call("zorse-run", bundle, "--data", TOKENS, "--max-steps", 1, "--memory-report", path, "--quiet")
    return json.load(open(path))["devices"]


def shards(folder, one):
    ids = np.fromfile(TOKENS, np.uint16)[:6 * BATCH * LENGTH + 1]
    whole = os.path.join(folder, "whole.bin")
    ids.tofile(whole)
    # Each shard holds whole samples and one more label, the next shard's first token.
    for i in range(3):
        ids[2 * i * BATCH * LENGTH:2 * (i + 1) * BATCH * LENGTH + 1].tofile(os.path.join(folder, f"part-{i}.bin"))
    expected = losses(one, data=whole, steps=6)
    pattern = os.path.join(folder, "part-*.bin")
    holds("shards by a pattern are the whole", losses(one, data=pattern, steps=6) == expected)
    holds("shards by name", losses(one, data=",".join(sorted(glob.glob(pattern))), steps=6) == expected)
    holds("shards are shuffled as one", losses(one, "--shuffle-seed=3", data=pattern, steps=8) == losses(one, "--shuffle-seed=3", data=whole, steps=8))
    for name, array in (("ids", ids[:-1]), ("labels", ids[1:])):
        for i, part in enumerate(np.split(array.astype(np.int32).reshape(-1, LENGTH), [10, 31])):
            np.save(os.path.join(folder, f"{name}-{i}.npy"), part)
    holds("shards of arrays", losses(one, data=f"input_ids={folder}/ids-*.npy,labels={folder}/labels-*.npy", steps=6) == expected)
    ids[:5].tofile(os.path.join(folder, "part-3.bin"))
    _, out, _ = z.call("zorse-run", one, "--data", pattern, "--max-steps", 1)
    holds("a shard that is too short is reported", "part-3.bin: uint16 tokens, 5 tokens, too few for a sample: it is not used" in out, out)
    refused("a pattern that nothing matches", "expects files of names that match, found none", "zorse-run", one, "--data", os.path.join(folder, "none-*.bin"), "--max-steps", 1)
    snapshots = os.path.join(folder, "shard-snapshots")
    z.call("zorse-run", one, "--data", pattern, "--max-steps", 1, "--checkpoint-dir", snapshots, "--quiet")
    os.rename(os.path.join(folder, "part-0.bin"), os.path.join(folder, "part-9.bin"))
    refused("other shards on resume", "data: ", "zorse-run", one, "--data", pattern, "--max-steps", 2, "--checkpoint-dir", snapshots, "--resume", "--quiet")


def likeliest(folder, bundle, checkpoint, ids, batch):
    """The most likely token after `ids`, from the losses of every candidate as the label of the last position.
    Independent of the body that computes logits."""
    row = np.zeros((VOCABULARY, LENGTH), np.int64)
    row[:, :len(ids)] = ids
    labels = np.full((VOCABULARY, LENGTH), -100, np.int64)
    labels[:, len(ids) - 1] = np.arange(VOCABULARY)
    np.save(os.path.join(folder, "c-ids.npy"), row)
    np.save(os.path.join(folder, "c-labels.npy"), labels)
    path = os.path.join(folder, "c.json")
    z.call("zorse-run", bundle, "--data", f"input_ids={folder}/c-ids.npy,labels={folder}/c-labels.npy", "--max-steps", 1, "--lr", 0, "--load-weights", checkpoint, "--dump-losses", path, "--quiet")
    return int(np.argmin(json.load(open(path))[0]))


def sampling(folder):
    devices = ["a", "b", "c"]
    plan = z.plan(folder, "s", BATCH, devices, [(0, 3, 0, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 8, "c")])
    one, three, plain = (os.path.join(folder, n + ".zorse") for n in ("s-one", "s-three", "s-plain"))
    z.compile(GPT, one, z.cluster(folder, ["a"]), BATCH, LENGTH, extra=("--with-generation",))
    z.compile(GPT, three, z.cluster(folder, devices), BATCH, LENGTH, plan, extra=("--with-generation",))
    z.compile(GPT, plain, z.cluster(folder, ["a"]), BATCH, LENGTH)
    wide = os.path.join(folder, "s-wide.zorse")
    z.compile(GPT, wide, z.cluster(folder, ["a"]), VOCABULARY, LENGTH)
    checkpoint, metrics = os.path.join(folder, "s.safetensors"), os.path.join(folder, "s.jsonl")

    def samples(bundle, *words):
        z.call("zorse-run", bundle, "--data", TOKENS, "--max-steps", 6, "--lr", "1e-2", "--generate-interval", 3, "--max-new-tokens", 6, "--prompt", "10,20,30", "--metrics-file", metrics, *words)
        return [json.loads(line) for line in open(metrics)]

    lines = samples(one, "--save-weights", checkpoint)
    texts = [m for m in lines if "generated" in m]
    holds("text after steps 3 and 6", [m["step"] for m in texts] == [3, 6] and all(m["prompt"] == [10, 20, 30] and len(m["generated"]) == 6 for m in texts), texts)
    holds("sampling changes no step", [m["loss"] for m in lines if "loss" in m] == losses(plain, "--lr", "1e-2", steps=6))
    ids = [10, 20, 30]
    for _ in range(3):
        ids.append(likeliest(folder, wide, checkpoint, ids, BATCH))
    holds("the tokens are those of the least loss", texts and texts[-1]["generated"][:3] == ids[3:], (texts[-1:], ids))
    holds("the same under another plan", [m["generated"] for m in samples(three) if "generated" in m] == [m["generated"] for m in texts])
    holds("and in processes", [m["generated"] for m in samples(three, "--spawn") if "generated" in m] == [m["generated"] for m in texts])
    warm = [[m["generated"] for m in samples(b, "--temperature", 1.5) if "generated" in m] for b in (one, three)]
    holds("drawn by temperature: another text, the same whatever the plan", warm[0] == warm[1] != [m["generated"] for m in texts], warm)
    _, out, _ = z.call("zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--generate-interval", 1, "--max-new-tokens", 3, "--prompt", "text:Hi")
    holds("bytes are shown as text", re.search(r"step 1  sample: Hi \| ", out), out)
    refused("a bundle without it", "was not compiled for text to be sampled; give zorse-compile --with-generation", "zorse-run", plain, "--data", TOKENS, "--max-steps", 1, "--generate-interval", 1)
    words, tokens, text = os.path.join(folder, "words.zorse"), os.path.join(folder, "words.bin"), write(folder, "words.txt", "Who wrote Faust? " * 200)
    z.compile(os.path.join(z.SMALL, "gpt-words.onnx"), words, z.cluster(folder, ["a"]), BATCH, LENGTH, extra=("--with-generation",))
    np.random.default_rng(1).integers(0, 1000, 5000).astype(np.uint16).tofile(tokens)
    refused("a text prompt for a model with tokens that are not bytes", "found text, but the tokens of this model are not bytes. Print token ids with: python3 -m zorse.data --encode 'Hi'", "zorse-run", words, "--data", tokens,
            "--max-steps", 1, "--generate-interval", 1, "--prompt", "text:Hi")
    refused("and as its data", "expected token ids below 1000, found a text", "zorse-run", words, "--data", text, "--max-steps", 1)
    refused("a prompt that is too long", "expected fewer tokens than the 16 positions of the model, got 16", "zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--generate-interval", 1,
            "--prompt", ",".join(["1"] * 16))
    refused("a token that is none", "expected ids from 0 to", "zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--generate-interval", 1, "--prompt", "70000")
    refused("no ids", "expected token ids separated by commas", "zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--generate-interval", 1, "--prompt", "Hi")
    refused("evaluations without data", "--eval-interval needs --eval-data", "zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--eval-interval", 1)
    refused("options without it", "--max-new-tokens needs --generate-interval", "zorse-run", one, "--data", TOKENS, "--max-steps", 1, "--max-new-tokens", 4)


def main():
    parts = sys.argv[1:] or ["config", "evaluate", "outputs", "shards", "sampling"]
    with tempfile.TemporaryDirectory() as folder:
        one, three = os.path.join(folder, "one.zorse"), os.path.join(folder, "three.zorse")
        z.compile(GPT, one, z.cluster(folder, ["a"]), BATCH, LENGTH)
        if {"evaluate", "outputs"} & set(parts):
            plan = z.plan(folder, "three", BATCH, "abc", [(0, 3, 0, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 8, "c")])
            z.compile(GPT, three, z.cluster(folder, "abc"), BATCH, LENGTH, plan)
        for part in parts:
            {"config": lambda: config(folder, one), "evaluate": lambda: evaluate(folder, one, three), "outputs": lambda: outputs(folder, three), "shards": lambda: shards(folder, one),
             "sampling": lambda: sampling(folder)}[part]()
    z.finish(results)


if __name__ == "__main__":
    main()
