"""Damaged inputs of every kind: each run ends without a signal, with exit code 0, 1 or 3 (3: non-finite numbers), in bounded
time and memory; never by a crash, a sanitizer report or an uncaught exception.

    damaged_files.py [COUNT] [FIRST SEED] [KIND]     default 200 from 0, all kinds in rotation

Kinds: onnx, data (external data), plan, cluster, bundle (detected by its digest), program, summary, bodies, manifest,
weights (with the digest corrected), safetensors, tokens, npy. Bytes are flipped, removed and repeated. Protobufs, JSON
and YAML are also changed structurally, so that the damage passes the parsers. A failing input is kept and its name is
printed.

flipped_bundles.py flips single bits of whole bundles and checks their effect on results.
"""
import copy
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

import harness as z

MODEL = os.path.join(z.SMALL, "gpt-tiny-dropout.onnx")
EXTERNAL = os.path.join(z.SMALL, "gpt-fixed-1.onnx")
SECONDS, MIB = 60 * max(1, z.PATIENCE / 4), 1500
LENGTH, BATCH = 8, 4
WORSE = ("internal error", "Sanitizer", "runtime error:", "terminate called", "LLVM ERROR", "Assertion", "PLEASE submit a bug report")
NUMBERS = (0, 1, 2, 3, 7, 127, 128, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


# Damage -------------------------------------------------------------------------------------------------------------------------------

def damage_bytes(data, rng):
    data = bytearray(data)
    kind = rng.randrange(6)
    if not data or kind == 0:  # cut
        return bytes(data[:rng.randrange(len(data) + 1)])
    at = rng.randrange(len(data))
    if kind == 1:  # repeat or remove a chunk
        size = rng.randrange(1, 200)
        return bytes(data[:at] + (data[at:at + size] * 2 if rng.random() < 0.5 else b"") + data[at + size:])
    if kind == 2:  # overwrite by another chunk
        size, other = rng.randrange(1, 64), rng.randrange(len(data))
        piece = data[other:other + size]
        data[at:at + len(piece)] = piece
        return bytes(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(data))
        data[at] = data[at] ^ (1 << rng.randrange(8)) if kind == 3 else rng.randrange(256)
    return bytes(data)


def varint(data, at):
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7
    raise ValueError


def parse(data, depth=0):
    """Fields of a message, parsed without its schema: [number, wire type, value]. A value that parses as a message is
    one."""
    fields, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise ValueError
        if wire == 0:
            value, at = varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at:at + size], at + size
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                raise ValueError
            if 0 < size < 200000 and depth < 12:
                try:
                    value = parse(value, depth + 1)
                except ValueError:
                    pass
        else:
            raise ValueError
        if at > len(data):
            raise ValueError
        fields.append([number, wire, value])
    return fields


def put(value):
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def unparse(fields):
    out = bytearray()
    for number, wire, value in fields:
        out += put(number << 3 | wire)
        if wire == 0:
            out += put(value)
        elif wire == 2:
            body = unparse(value) if isinstance(value, list) else value
            out += put(len(body)) + body
        else:
            out += value
    return bytes(out)


def lists(fields):
    yield fields
    for _, _, value in fields:
        if isinstance(value, list):
            yield from lists(value)


def damage_message(data, rng):
    """Changes a protobuf's fields; the result parses."""
    try:
        fields = parse(data)
    except ValueError:
        return damage_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        every = [l for l in lists(fields) if l]
        if not every:
            break
        where = rng.choice(every)
        i = rng.randrange(len(where))
        number, wire, value = where[i]
        kind = rng.randrange(8)
        if kind == 0:
            del where[i]
        elif kind == 1:
            where.insert(i, copy.deepcopy(where[i]))
        elif kind == 2:
            other = rng.choice(rng.choice(every))
            where[i] = copy.deepcopy([number, other[1], other[2]])
        elif kind == 3:
            j = rng.randrange(len(where))
            where[i], where[j] = where[j], where[i]
        elif wire == 0:
            where[i][2] = rng.choice((rng.choice(NUMBERS), value + 1, value - 1, value * 2, -value))
        elif wire == 2 and isinstance(value, bytes):
            where[i][2] = damage_bytes(value, rng)
        elif wire in (1, 5):
            where[i][2] = rng.randbytes(len(value))
        else:
            rng.shuffle(value)
    return unparse(fields)


def leaves(tree, path=()):
    yield path
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from leaves(value, path + (key,))


def damage_json(data, rng):
    if rng.random() < 0.25:
        return damage_bytes(data, rng)
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        paths = list(leaves(tree))[1:]
        if not paths:
            break
        path = rng.choice(paths)
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        kind = rng.randrange(4)
        if kind == 0:
            del parent[path[-1]]
        elif kind == 1:
            source = tree
            for key in rng.choice(paths):
                source = source[key]
            parent[path[-1]] = copy.deepcopy(source)
        else:
            parent[path[-1]] = rng.choice((None, True, "", "x", [], {}, -1, 1.5, 1e308, -1e-300, "nan", [[[]]], *NUMBERS, *(-n for n in NUMBERS)))
    return json.dumps(tree).encode()


def damage_text(data, rng):
    """YAML and other text: swaps numbers and words."""
    if rng.random() < 0.3:
        return damage_bytes(data, rng)
    words = re.split(r"(\W+)", data.decode())
    for _ in range(rng.choice((1, 1, 2, 3))):
        i = rng.randrange(len(words))
        words[i] = rng.choice((str(rng.choice(NUMBERS)), "-1", "1e308", "", "[", "{", "&a", "*a", "- ", "\n", ": ", "~", rng.choice(words), words[i] * 2))
    return "".join(words).encode()


# Running ------------------------------------------------------------------------------------------------------------------------------

class Outcome:
    def __init__(self, words, folder):
        out = os.path.join(folder, "output")
        begin = time.monotonic()
        with open(out, "wb") as f:
            child = subprocess.Popen([os.path.join(z.BIN, words[0])] + [str(w) for w in words[1:]], stdout=f, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            timer = begin + SECONDS
            pid = 0
            while not pid:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if not pid:
                    if time.monotonic() > timer:
                        child.kill()
                        _, status, usage = os.wait4(child.pid, 0)
                        break
                    time.sleep(0.005)
        child.returncode = self.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.seconds, self.mib = time.monotonic() - begin, usage.ru_maxrss / 1024
        with open(out, "rb") as f:
            self.text = f.read().decode(errors="replace")

    def problem(self):
        if self.seconds > SECONDS:
            return f"takes more than {SECONDS} s"
        if self.code not in (0, 1) and not (self.code == 3 and "were not finite" in self.text):
            return f"exit code {self.code}"
        if self.mib > MIB:
            return f"takes {self.mib:.0f} MiB of memory"
        if self.code == 1 and "error" not in self.text:
            return "says nothing"
        return next((f"says '{w}'" for w in WORSE if w in self.text), None)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def seal(manifest):
    """manifest.sha256 of these bytes: the digest of the bundle."""
    return f"{sha256(manifest)}  manifest.json\n".encode()


class Inputs:
    def __init__(self, folder):
        self.folder = folder
        self.cluster = z.cluster(folder, ["a", "b"])
        self.plan = z.plan(folder, "good", BATCH, ["a", "b"], [(0, 3, 0, 3, "a"), (0, 3, 3, 4, "b"), (3, 6, 0, 4, "b")])
        self.bundle = os.path.join(folder, "good.zorse")
        z.compile(MODEL, self.bundle, self.cluster, BATCH, LENGTH, self.plan)
        for name in os.listdir(z.SMALL):
            if name.endswith(".onnx.data"):
                os.symlink(os.path.join(z.SMALL, name), os.path.join(folder, name))
        self.checkpoint = os.path.join(folder, "good.safetensors")
        rng = np.random.default_rng(0)
        ids = rng.integers(0, 32, (4 * BATCH, LENGTH)).astype(np.int64)
        self.ids, self.labels = os.path.join(folder, "ids.npy"), os.path.join(folder, "labels.npy")
        np.save(self.ids, ids)
        np.save(self.labels, ids)
        self.data = f"input_ids={self.ids},labels={self.labels}"
        self.tokens = os.path.join(folder, "good-tokens.bin")
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, 400
        with open(self.tokens, "wb") as f:
            f.write(header.tobytes() + rng.integers(0, 32, 400).astype(np.uint16).tobytes())
        z.run(self.bundle, self.data, 1, checkpoint=self.checkpoint)

    def compile(self, model=MODEL, cluster=None, plan=None, *more):
        return ["zorse-compile", model, "--cluster", cluster or self.cluster, "--global-batch-size", BATCH, "--seq-length", LENGTH, "--quiet", "-o", os.path.join(self.folder, "bad.out")] + \
            (["--plan", plan] if plan else []) + list(more)

    def train(self, bundle=None, data=None, *more):
        return ["zorse-run", bundle or self.bundle, "--data", data or self.data, "--max-steps", 2, "--watchdog-timeout", 5, *more]

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def damaged_bundle(self, file, damage, rng, correct=True):
        path = os.path.join(self.folder, "bad.zorse")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.bundle, path)
        data = damage(read(os.path.join(path, file)), rng)
        self.write(os.path.join(path, file), data)
        if correct:
            manifest = read(os.path.join(path, "manifest.json"))
            if file != "manifest.json":
                tree = json.loads(manifest)
                tree["files"][file] = sha256(data)
                manifest = json.dumps(tree).encode()
                self.write(os.path.join(path, "manifest.json"), manifest)
            self.write(os.path.join(path, "manifest.sha256"), seal(manifest))
        return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def inspect(bundle, rng):
    return ["zorse-inspect", bundle] + rng.choice(([], ["--plan"], ["--program", "0"], ["--program", "b"], ["--memory", "0"], ["--memory", "b"], ["--timeline"], ["--functions"]))


def cases():
    """{kind: function of the inputs and a random generator that damages a file and returns (damaged file, call)}."""
    def onnx(i, rng):
        source = rng.choice((MODEL, MODEL, EXTERNAL))
        damage = rng.choice((damage_bytes, damage_message, damage_message))
        path = i.write("bad.onnx", damage(read(source), rng))
        stop = ["--compile-to", rng.choice(("import", "units", "backward", "step", "bundle"))]
        return path, i.compile(path, None, None, *stop)

    def data(i, rng):
        path = os.path.join(i.folder, "gpt.onnx.data")
        os.unlink(path)
        i.write("gpt.onnx.data", damage_bytes(read(os.path.join(z.SMALL, "gpt.onnx.data")), rng))
        return path, i.compile(shutil.copy(EXTERNAL, os.path.join(i.folder, "external.onnx")), None, None, "--compile-to", "bundle")

    def plan(i, rng):
        path = i.write("bad.plan.json", damage_json(read(i.plan), rng))
        return path, i.compile(MODEL, None, path, "--compile-to", "verify")

    def cluster(i, rng):
        path = i.write("bad.yaml", damage_text(read(i.cluster), rng))
        if rng.random() < 0.3:
            return path, i.train(None, None, "--cluster", path)
        return path, i.compile(MODEL, path, None, "--compile-to", "verify")

    def bundle(i, rng):
        files = [os.path.relpath(os.path.join(f, n), i.bundle) for f, _, names in os.walk(i.bundle) for n in names]
        path = i.damaged_bundle(rng.choice(sorted(files)), damage_bytes, rng, correct=False)
        return path, rng.choice((inspect(path, rng), i.train(path)))

    def inside(file, damage):
        def case(i, rng):
            path = i.damaged_bundle(file(rng) if callable(file) else file, damage, rng)
            return path, i.train(path, None, *rng.choice(([], ["--dump-gradients", os.path.join(i.folder, "g")], ["--save-weights", os.path.join(i.folder, "c")]))) \
                if rng.random() < 0.6 else inspect(path, rng)
        return case

    def safetensors(i, rng):
        whole = read(i.checkpoint)
        length = int.from_bytes(whole[:8], "little")
        if rng.random() < 0.6:
            header = damage_json(whole[8:8 + length], rng)
            path = i.write("bad.safetensors", len(header).to_bytes(8, "little") + header + whole[8 + length:])
        else:
            head = damage_bytes(whole[:8 + length], rng) if rng.random() < 0.7 else damage_bytes(whole, rng)
            path = i.write("bad.safetensors", head + (whole[8 + length:] if len(head) < len(whole) // 2 else b""))
        return path, i.train(None, None, "--load-weights", path)

    def tokens(i, rng):
        path = i.write(rng.choice(("bad.bin", "bad.txt")), damage_bytes(read(i.tokens), rng))
        return path, i.train(None, path, *rng.choice(([], ["--shuffle-seed", 3], ["--eval-data", path])))

    def npy(i, rng):
        whole = read(i.ids)
        path = i.write("bad.npy", rng.choice((lambda: damage_bytes(whole, rng), lambda: damage_bytes(whole[:128], rng) + whole[128:],
                                              lambda: damage_text(whole[10:128].replace(b"\n", b" "), rng).join((whole[:10], whole[128:]))))())
        return path, i.train(None, f"input_ids={path},labels={i.labels}")

    return {"onnx": onnx, "data": data, "plan": plan, "cluster": cluster, "bundle": bundle,
            "program": inside(lambda rng: rng.choice(("programs/0.pb", "programs/1.pb")), damage_message),
            "summary": inside("summary.pb", damage_message), "bodies": inside("functions.pb", damage_message), "manifest": inside("manifest.json", damage_json),
            "weights": inside("weights.json", damage_json), "safetensors": safetensors, "tokens": tokens, "npy": npy}


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    table = cases()
    kinds = sys.argv[3].split(",") if len(sys.argv) > 3 else list(table)
    accepted, bad, longest, most = 0, 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(folder)
        for seed in range(first, first + count):
            kind = kinds[seed % len(kinds)]
            path, words = table[kind](inputs, random.Random(seed))
            done = Outcome(words, folder)
            longest, most = max(longest, done.seconds), max(most, done.mib)
            accepted += done.code == 0
            problem = done.problem()
            if problem:
                bad += 1
                keep = os.path.join(tempfile.gettempdir(), f"zorse-damaged-{seed}-{os.path.basename(path)}")
                shutil.rmtree(keep, ignore_errors=True)
                (shutil.copytree if os.path.isdir(path) else shutil.copyfile)(path, keep)
                tail = "\n       ".join([l for l in done.text.splitlines() if l.strip()][-8:])
                print(f"FAIL seed {seed} ({kind}): {problem}; kept as {keep}\n       {' '.join(str(w) for w in words)}\n       {tail[-1500:]}", flush=True)
    print(f"{count} damaged inputs: {accepted} accepted, {count - accepted - bad} refused, {bad} ended badly; at most {longest:.1f} s and {most:.0f} MiB")
    z.finish([bad == 0])


if __name__ == "__main__":
    main()
