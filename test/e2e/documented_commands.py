"""Runs every command of README.md and docs/ unchanged, except for sizes (SMALLER) and input files (Fixtures), and
compares the output that a page shows with the output of the command. If a command cannot run here, the reason is
printed (ONLY_CHECKED) and its options are checked against the tool. Options in prose (`--name`) are checked, too. A
fenced block states its language: bash for commands, text or another language for anything else.

    documented_commands.py [PAGE...]     default: all documents

A text block is the output of the bash block before it in the same section. Comments before a block change this:

    <!-- output of: COMMAND -->    it is the output of this command, which the page does not show
    <!-- example: REASON -->       it cannot be compared, or is no output
    <!-- run: COMMAND -->          the command is run here, to prepare files

Every text block of the user pages is compared or has such a comment. A line `⋮` stands for any lines, `…` for any
text. Numbers of planned and simulated output are compared if the command runs unchanged; elsewhere any number matches.
"""
import dataclasses
import difflib
import functools
import glob
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

import harness as z

# Sizes that are reduced: documented commands train longer than a test should.
SMALLER = [(r"--max-steps \d{3,}", "--max-steps 8"), (r"--save-interval \d+", "--save-interval 2"), (r"--eval-interval \d+", "--eval-interval 4"), (r"--global-batch-size 64", "--global-batch-size 8"), (r"--seq-length 512", "--seq-length 32"),
           (r"--warmup-steps 100", "--warmup-steps 2"), (r"(zorse-profile .*)", r"\1 --batch-sizes 1,2 --max-seconds 0.2"), (r"(zorse-cluster .*--measure)", r"\1 --link-measure-seconds 0.2"),
           (r"(zorse-plan --model-shape .*)--global-batch-size 256(.*)", r"\1--global-batch-size 32\2 --search-budget=1"), (r"--model-shape llama-13b --seq-length 4096", "--model-shape llama-7b --seq-length 512"), (r"num_hidden_layers=4 hidden_size=256", "num_hidden_layers=1 hidden_size=32 intermediate_size=32 num_attention_heads=2 num_key_value_heads=2 vocab_size=96 --sequence 16")]

# Commands that are not run, and why. Options of Zorse's tools in such a command are checked, options of other programs
# are not.
ONLY_CHECKED = [
    (r"^srun ", "needs an allocation of Slurm; e2e-launch-srun runs zorse-run under srun"),
    (r"^mpirun ", "names hosts that are not there; e2e-launch-mpirun runs zorse-run under mpirun"),
    (r"^torchrun .*--nnodes", "names hosts that are not there; e2e-launch-torchrun runs zorse-run under torchrun"),
    (r"^zorse-cluster .*--(all-nodes|hosts)", "needs several machines; e2e-cluster runs zorse-cluster under a launcher"),
    (r"^tools/(quickstart|run-tests|run-sanitizers|run-evidence|python-env|install|build|check-format|check-tidy)\.sh|^\.ci/run", "installs, builds or checks all sources; test/evidence/fresh_machine.sh runs quickstart.sh and run-tests.sh"),
    (r"^pip install ", "builds and installs; test/evidence/wheel_runs_on_a_bare_machine.sh does"),
    (r"^tools/fuzz\.py", "builds under sanitizers and runs for hours"),
    (r"^tools/(ptxas|nvdisasm)\.sh|^python3 -m pip |^export LD_LIBRARY_PATH=", "fetches packages of NVIDIA's"),
    (r"^test/benchmark/sass/", "needs NVIDIA's assembler; e2e-sass-model tries the model"),
    (r"^(podman|kubectl) ", "needs a container engine or a cluster"),
    (r"^test/hardware/|^scp |^tar xf kit", "makes a suite for another machine; e2e-hardware-kit tries it"),
    (r"^(cmake|ctest) |^build/(asan|tsan|ubsan|fuzz)/", "builds with sanitizers, or needs a sanitizer build"),
]

# Options of other programs that occur in prose.
FOREIGN = {"--calculate-per-token-loss", "--gtest_filter", "--no-python", "--nproc-per-node", "--node-rank", "--max-restarts", "--ntasks", "--pty", "--signal", "--requeue", "--from-literal", "--rdzv-endpoint", "--rdzv-id",
           "--master-addr", "--master-port", "--nnodes", "--standalone", "--map-by", "--bind-to", "--host", "--kill-on-bad-exit", "--mpi", "--nodes", "--cpus-per-task", "--preset", "--build", "--target",
           "--test-dir", "--output-on-failure", "--ntasks-per-node", "--no-kill", "--wait", "--gpus"}

VERBOSE = "--verbose" in sys.argv  # prints the whole output that differs

FOUR_DEVICES = """name: documented
nodes:
  - name: here
    devices:
      - {name: big, kind: cpu, flops_per_second: 4e10, memory: 2GiB, threads: 1}
      - {name: small, kind: cpu, flops_per_second: 1e10, memory: 2GiB, threads: 1}
      - {name: t4, kind: cpu, flops_per_second: 1e10, memory: 2GiB, threads: 1, count: 2}
"""

OUTPUTS = ("-o", "--output", "--html", "--trace", "--json", "--save-weights", "--metrics-file", "--checkpoint-dir", "--svg", ">")
OTHER_BUNDLES = {"other.zorse": "ab", "abc.zorse": "abc"}  # and the names of their devices
TWO_DEVICES = """name: two devices
nodes:
  - name: here
    devices:
      - {name: big, kind: cpu, flops_per_second: 40 GFLOP/s, memory: 4 GiB}
      - {name: small, kind: cpu, flops_per_second: 10 GFLOP/s, memory: 2 GiB}
"""


class Fixtures:
    """Input files of commands. A file is created when a command names it and no earlier command has created it.
    A page shows other files below a line such as "Save this as `tune.yaml`:"."""

    def __init__(self, folder, page):
        self.folder = folder
        with open(os.path.join(z.ROOT, page)) as f:
            text = f.read()
        self.shown = {name: block for name, block in re.findall(r"`([\w-]+\.(?:yaml|json|py))`[^`\n]*:\s*\n\n```(?:yaml|json|python)\n(.*?)```", text, re.S)}

    def path(self, name):
        return os.path.join(self.folder, name)

    def need(self, words):
        words = list(words)
        outputs = {words[i + 1] for i, w in enumerate(words[:-1]) if w in OUTPUTS}
        for word in words:
            name = word.rstrip("/")
            if name not in outputs and not os.path.lexists(self.path(name)) and os.path.basename(name) == name:
                self.make(name)

    def make(self, name):
        if name in self.shown:
            with open(self.path(name), "w") as f:
                f.write(self.shown[name])
        elif name == "my-llama":
            self.hub_directory(self.path(name))
        elif name.endswith(".onnx"):
            shutil.copy(os.path.join(z.SMALL, "gpt-bytes.onnx"), self.path(name))
        elif name.endswith(".jsonl"):
            with open(self.path(name), "w") as f:
                f.writelines(json.dumps({"text": f"text {i}, and more of it", "prompt": f"Who wrote book {i}? ", "completion": "Somebody, long ago."}) + "\n" for i in range(60))
        elif name == "base.safetensors":
            self.need(["model.onnx"])
            bundle = self.path("base.zorse")
            z.compile(self.path("model.onnx"), bundle, z.cluster(self.folder, ["a"]), 8, 32, training={})
            z.run(bundle, os.path.join(z.SMALL, "gpt.tokens.bin"), 1, checkpoint=self.path(name))
        elif name.endswith(".bin"):
            shutil.copy(os.path.join(z.SMALL, "gpt.tokens.bin"), self.path(name))
        elif name == "cluster.yaml":
            with open(self.path(name), "w") as f:
                f.write(FOUR_DEVICES)
        elif name.endswith(".zorse"):
            self.need(["model.onnx", "cluster.yaml"])
            devices = z.cluster(self.folder, list(OTHER_BUNDLES[name])) if name in OTHER_BUNDLES else self.path("cluster.yaml")
            model = os.path.join(z.SMALL, "gpt-bytes.onnx") if name == "gpt.zorse" else self.path("model.onnx")  # its name is in the output
            z.compile(model, self.path(name), devices, 8, 32, training={})
        elif name in ("mine.json", "plan.json"):
            self.need(["model.onnx", "cluster.yaml"])
            z.call("zorse-plan", self.path("model.onnx"), "--cluster", self.path("cluster.yaml"), "--global-batch-size", 8, "--seq-length", 32, "-o", self.path(name))
        elif name == "two.yaml":
            with open(self.path(name), "w") as f:
                f.write(TWO_DEVICES)
        elif name == "train.txt":
            shutil.copy(os.path.join(z.ROOT, "LICENSE"), self.path(name))

    def hub_directory(self, path):
        """A checkpoint in the hub's layout: created with transformers if it is installed. Otherwise a substitute for
        the output of the commands that export it, which do not run then either."""
        if torch_python():
            subprocess.run([torch_python(), "-c", "import sys, transformers as t; t.AutoModelForCausalLM.from_config(t.LlamaConfig(num_hidden_layers=1, hidden_size=32, intermediate_size=32, "
                            "num_attention_heads=2, num_key_value_heads=2, vocab_size=256)).save_pretrained(sys.argv[1])", path], check=True, capture_output=True)
            return
        os.mkdir(path)
        with tempfile.TemporaryDirectory() as folder:
            bundle = os.path.join(folder, "m.zorse")
            z.compile(os.path.join(z.SMALL, "gpt-bytes.onnx"), bundle, z.cluster(folder, ["a"]), 8, 32, training={})
            z.run(bundle, os.path.join(z.SMALL, "gpt.tokens.bin"), 1, checkpoint=os.path.join(path, "model.safetensors"))


def python_for_models():
    return os.environ.get("ZORSE_PYTHON", os.path.join(z.ROOT, ".venv", "bin", "python"))


@functools.lru_cache(None)
def torch_python():
    """The Python interpreter with PyTorch, or None."""
    python = python_for_models()
    return python if os.path.exists(python) and subprocess.run([python, "-c", "import torch, transformers, onnxscript"], capture_output=True).returncode == 0 else None


@functools.lru_cache(None)
def options_of(tool):
    """The long options of a Zorse tool; None for other programs. Raises an error for a Zorse tool that does not exist."""
    name = os.path.basename(tool)
    if name.startswith("zorse-") and "/" not in tool:
        path = os.path.join(z.BIN, name)
        if not os.access(path, os.X_OK):
            raise z.Failure(f"there is no tool {name} in {z.BIN}")
        said = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60)
        if said.returncode != 0:
            raise z.Failure(f"{name} --help ends with {said.returncode}")
        return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", said.stdout + said.stderr))
    if re.match(r"(tools|models|test)/.*\.(sh|py)$", tool):
        path = os.path.join(z.ROOT, tool)
        if not os.path.exists(path):
            raise z.Failure(f"there is no {tool}")
        with open(path) as f:
            text = f.read()
        programs = re.findall(r"test/\w+/\w+\.py", text) if tool.endswith(".sh") else [f"python/zorse/{m}.py" for m in re.findall(r"from zorse\.(\w+) import", text)]
        for program in programs:  # programs that it passes its options to
            with open(os.path.join(z.ROOT, program)) as f:
                text += f.read()
        return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) | {"--help"}
    return None


def all_options():
    """Options of every tool, script and test program: prose may name them without their program."""
    found = set()
    for tool in sorted(n for n in os.listdir(z.BIN) if n.startswith("zorse-") and not n.endswith("-test") and n != "zorse-mutate"):
        found |= options_of(tool)
    for pattern in ("tools/*.sh", "tools/*.py", "models/*.py", "python/*/*.py", "test/*/*.sh", "test/*/*.py", "test/*/*.cpp"):
        for path in glob.glob(os.path.join(z.ROOT, pattern)):
            with open(path) as f:
                found |= set(re.findall(r"--[a-z][a-z0-9-]*", f.read()))
    return found


def unknown_options(command):
    """Names in a command that do not exist: tools, options, presets."""
    bad = []
    for part in command.split("|"):
        tool, known = None, None
        for word in shlex.split(part, comments=True):
            if tool is None or known is None:
                try:
                    found = options_of(word)
                except z.Failure as failure:
                    return [str(failure)]
                if found is not None:
                    tool, known = word, found
                    continue
            if known is not None and word.startswith("--") and len(word) > 2 and word.split("=")[0] not in known:
                bad.append(f"{tool} has no option {word.split('=')[0]}")
    with open(os.path.join(z.ROOT, "CMakePresets.json")) as f:
        presets = {p["name"] for p in json.load(f)["configurePresets"]}
    bad += [f"there is no preset {name}" for name in re.findall(r"--preset (\S+)", command) if name not in presets]
    return bad


@dataclasses.dataclass
class Block:
    line: int
    language: str
    lines: list
    notes: list  # (kind, text) of comments since the block before
    heads: bool  # it is the first of its section


def blocks(page):
    """Every fenced block."""
    with open(os.path.join(z.ROOT, page)) as f:
        lines = f.read().split("\n")
    start, between = None, []
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            if start is None:
                start, language = number + 1, line.strip()[3:].strip()
            else:
                notes = re.findall(r"<!-- (output of|example|run): (.*?) -->", "\n".join(between), re.S)
                yield Block(start, language, lines[start:number], notes, any(re.match("#+ ", b) for b in between))
                start, between = None, []
        elif start is None:
            between.append(line)


def is_user_page(page):
    return page in ("README.md", "docs/index.md") or page.startswith(("docs/get-started/", "docs/guides/", "docs/concepts/"))


def is_repeatable(command):
    """Whether the numbers of a command's output are the same on every machine: it plans, simulates or shows a plan."""
    last = re.split(r"&&|;|\n", command.strip())[-1]
    return bool(re.match(r"\s*zorse-(plan|inspect) |\s*zorse-run .*--simulate\b", last)) and "--measure" not in command


def plain(line, exact):
    """A line for comparison: one space in place of several; without what varies from run to run."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).replace(socket.gethostname(), "vm")
    line = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", line)
    line = re.sub(r"\b(sample: ).*", r"\1…", line)
    if not exact:
        line = re.sub(r"^(to change: ).*", r"\1…", line)
        line = re.sub(r"[█▏▎▍▌▋▊▉·]+", "BAR", line)
        line = re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?k?", "N", line)
        line = re.sub(r"N (ns|us|ms|s|min|h)\b", "N s", line)
        line = re.sub(r"N (B|KiB|MiB|GiB)\b", "N B", line)
    return re.sub(r"\s+", " ", line).strip()


def misfit(shown, got, exact):
    """The first shown line that is not in the output, with the line that is most like it; None: the output is as shown."""
    lines = [text for line in got.split("\n") if (text := plain(line, exact))]
    groups, at = [[]], 0
    for line in shown:
        if line.strip() == "⋮":
            groups.append([])
        elif line.strip():
            groups[-1].append((line, re.compile(".*".join(re.escape(part) for part in plain(line, exact).split("…")))))
    for group in filter(None, groups):
        fits = [next((i for i, (_, pattern) in enumerate(group) if start + i >= len(lines) or not pattern.fullmatch(lines[start + i])), len(group)) for start in range(at, len(lines))]
        if len(group) not in fits:
            wrong, start = max(((n, at + i) for i, n in enumerate(fits)), default=(0, at), key=lambda f: (f[0], -f[1]))
            near = [lines[start + wrong]] if wrong and start + wrong < len(lines) else difflib.get_close_matches(plain(group[wrong][0], exact), lines, 1, 0.3)
            return f"the page shows\n        {plain(group[wrong][0], exact)}\n    and the output has\n        {near[0] if near else 'nothing like it'}"
        at += fits.index(len(group)) + len(group)
    return None


def prose(page):
    """Inline code outside of fenced blocks, with its line."""
    inside = False
    with open(os.path.join(z.ROOT, page)) as f:
        for number, line in enumerate(f, 1):
            if line.lstrip().startswith("```"):
                inside = not inside
            elif not inside:
                for code in re.findall(r"`([^`]+)`", line):
                    yield number, code.replace("\\|", "|")


class Check:
    def __init__(self):
        self.results, self.only_checked, self.compared = [], [], 0
        self.python = python_for_models()
        self.everything = all_options()

    def say(self, good, what, why=""):
        self.results.append(bool(good))
        if not good:
            print(f"FAIL {what}: {why}", flush=True)

    def page(self, page):
        ran, before, compared = 0, len(self.results), 0
        with tempfile.TemporaryDirectory() as folder:
            for name in ("models", "docs"):
                os.symlink(os.path.join(z.ROOT, name), os.path.join(folder, name))
            fixtures, last = Fixtures(folder, page), None  # last: the output of the block before, and whether all of it ran and can be compared exactly
            every = list(blocks(page))
            for block, after in zip(every, every[1:] + [None]):
                where, notes = f"{page}:{block.line}", dict(block.notes)
                self.say(block.language, where, "a fenced block without a language; use bash for commands, text for other blocks")
                for text in (text for kind, text in block.notes if kind == "run"):
                    self.hidden(where, text, fixtures)
                shown = after and after.language == "text" and not after.heads and not dict(after.notes)
                if block.language in ("bash", "sh", "console"):
                    count, *last = self.block(page, block, fixtures)
                    ran += count
                elif block.language == "python" and shown and is_user_page(page):
                    last = self.program(where, block, fixtures)
                elif block.language == "text":
                    compared += self.text(page, where, block, notes, last, fixtures)
                else:
                    last = None
            self.inline(page)
        print(f"{'ok  ' if all(self.results[before:]) else 'FAIL'} {page}: {ran} commands ran, {compared} outputs compared", flush=True)
        self.compared += compared

    def text(self, page, where, block, notes, last, fixtures):
        """Compares a text block with the output that it shows. Returns how many were compared."""
        if "example" in notes:
            return 0
        if "output of" in notes:
            fails = any("error:" in line.lower() for line in block.lines)
            self.compare(where, block, self.hidden(where, notes["output of"], fixtures, fails), is_repeatable(notes["output of"]))
            return 1
        if last and not block.heads:
            output, whole, exact = last
            if whole:
                self.compare(where, block, output, exact)
                return 1
            print(f"skipped: {where}: output is not compared: not all commands of the block before ran", flush=True)
        elif is_user_page(page):
            self.say(False, where, "a text block of a user page is output of the block before it, or has a comment: <!-- output of: COMMAND --> or <!-- example: REASON -->")
        return 0

    def compare(self, where, block, output, exact):
        why = misfit(block.lines, output, exact)
        self.say(not why, f"{where}: output", f"{why}\n{output}" if VERBOSE else why)

    def hidden(self, where, text, fixtures, fails=False):
        """Runs a command of a comment, unchanged; returns its output."""
        fixtures.need(shlex.split(text))
        done = self.bash(text, fixtures.folder)
        self.say((done.returncode != 0) == fails, f"{where}: {text}", f"exit {done.returncode}\n{done.stdout[-2000:]}")
        return done.stdout

    def program(self, where, block, fixtures):
        """Runs a Python program whose output the page shows; returns its output, whether it ran, and that it cannot be compared exactly."""
        if not torch_python():
            return "", False, False
        fixtures.need(re.findall(r'"([\w-]+\.txt)"', "\n".join(block.lines)))
        with open(fixtures.path("program.py"), "w") as f:
            f.write("\n".join(block.lines))
        done = self.bash(f"{shlex.quote(self.python)} program.py", fixtures.folder)
        self.say(done.returncode == 0, where, f"exit {done.returncode}\n{done.stdout[-2000:]}")
        return done.stdout, True, False

    def bash(self, text, folder):
        """Runs commands with the tools in the path. A pipeline fails if any of its programs fails."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMIX_"))}
        environment["PATH"] = ":".join([z.BIN, os.path.dirname(sys.executable), os.environ["PATH"], os.path.dirname(self.python)])  # torchrun is installed next to Python
        environment["PYTHONPATH"] = os.path.join(z.ROOT, "python")
        words, limit = ["bash", "-c", "set -o pipefail\n" + text], 300 * z.PATIENCE
        try:
            return subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, f"takes more than {limit:.0f} s")

    def block(self, page, block, fixtures):
        """Runs its commands one by one, each in the current folder of the block. Returns how many ran, their output, whether all of them ran, and whether its numbers are the same on every machine."""
        ran, where, said, whole, exact = 0, fixtures.folder, "", True, True
        for number, text in enumerate(map(str.strip, block.lines), block.line + 1):
            if re.match(r"cd \S+$", text):
                fixtures.need([text.split()[1]])
                where = os.path.join(where, text.split()[1])
            elif text and not text.startswith("#"):
                output, unchanged = self.command(f"{page}:{number}", text, fixtures, where)
                ran, whole = ran + (output is not None), whole and output is not None
                if output:
                    said, exact = said + output, exact and unchanged and is_repeatable(text)
        return ran, said, whole, exact

    def inline(self, page):
        for line, code in prose(page):
            words = code.split()
            if re.match(r"(tools|models|test)/\S+\.(sh|py)$", words[0]) or (words[0].startswith("zorse-") and len(words) > 1):
                try:
                    bad = unknown_options(code.replace("...", "").replace("'", " ").replace('"', " "))
                except ValueError as problem:
                    bad = [str(problem)]
                self.say(not bad, f"{page}:{line}: `{code}`", "; ".join(bad))
            elif words[0].startswith("--"):
                missing = [w for w in re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]*", code) if w not in self.everything | FOREIGN]
                self.say(not missing, f"{page}:{line}: `{code}`", "no tool has the option " + ", ".join(missing))

    def command(self, where, text, fixtures, folder):
        bad = unknown_options(text)
        self.say(not bad, f"{where}: {text}", "; ".join(bad))
        reason = next((why for pattern, why in ONLY_CHECKED if re.search(pattern, text)), None)
        if not reason and re.match("(python|torchrun) ", text) and not torch_python():
            print(f"skipped: {where}: {text}: no Python with PyTorch (tools/python-env.sh makes one, or name one in ZORSE_PYTHON)", flush=True)
            return None, False
        if reason or bad:
            if reason:
                self.only_checked.append((where, text, reason))
            return None, False
        small = re.sub(r"\s+# .*", "", text)
        for pattern, replacement in SMALLER:
            small = re.sub(pattern, replacement, small)
        small = re.sub(r"^python ", shlex.quote(self.python) + " ", small)
        words = shlex.split(small, comments=True)
        fixtures.need(words)
        done = self.bash(small, folder)
        self.say(done.returncode == 0, f"{where}: {small}", f"exit {done.returncode}\n{done.stdout[-2000:]}")
        return done.stdout, small == re.sub(r"\s+# .*", "", text)


def faults_are_noticed(check):
    """Stale output does not pass: another word, a line that is missing, in another place or too much, and another number where numbers repeat."""
    got = "step 1/8  loss 5.45\nstep 2/8  loss 5.40\nplan  0.31 s  12 cells\ndone in 4 ms\n"
    for shown, exact, fits in (("step 1/9  loss 4.1\n⋮\nplan  2 ms  9 cells\ndone …", False, True), ("plan  0.31 s  12 cells", True, True), ("plan  0.31 s  13 cells", True, False), ("plan  0.31 s  12 parts", False, False),
                               ("step 1/8  loss 5.45\ndone in 4 ms", False, False), ("done in 4 ms\n⋮\nplan  0.31 s  12 cells", False, False), ("step 1/8  loss 5.45  lr 1", False, False), ("done in 4 ms\nsaved", False, False)):
        check.say((misfit(shown.split("\n"), got, exact) is None) == fits, "comparison of output", f"{shown!r}, exact: {exact}")


def main():
    pages = [word for word in sys.argv[1:] if not word.startswith("-")] or ["README.md", "CONTRIBUTING.md"] + sorted(os.path.relpath(p, z.ROOT) for p in glob.glob(os.path.join(z.ROOT, "docs", "**", "*.md"), recursive=True))
    check = Check()
    faults_are_noticed(check)
    for page in pages:
        check.page(page)
    print("\nNot run; their options were checked:")
    for where, text, reason in check.only_checked:
        print(f"  {where}: {text.split('  #')[0].strip()}\n      {reason}")
    print("The examples in docs/examples are run by e2e-launch-examples.\n")
    z.finish(check.results, f"{check.compared} outputs were compared, {len(check.only_checked)} commands were only checked for their options")


if __name__ == "__main__":
    main()
