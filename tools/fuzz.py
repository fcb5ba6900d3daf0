#!/usr/bin/env python3
"""Fuzzes every reader under ASan and UBSan (docs/internals/testing.md): builds the targets and runs each with many mutated inputs.

    tools/fuzz.py [--runs N] [--readers A,B] [--jobs J] [--quick] [--fresh] [--coverage]

--runs      total inputs per reader, including earlier runs of the same program; default 1000000
--jobs      readers to run at a time, default 1
--quick     20,000 inputs per reader, without readers that need MLIR: a few minutes, most of them for the build
--fresh     discard the results of earlier runs
--no-build  use the existing programs; their commit is unknown, so their modification time identifies them
--report    print the inputs and the commit of the last fuzzed programs; run nothing
--coverage  print the coverage of each reader's own files (takes a minute per reader)

Results are stored in out/fuzz: the grown corpus, the tally, and every finding as one input: out/fuzz/findings/READER-crash-... Run
build/fuzz/bin/fuzz-READER on it to reproduce it. Exits with 1 if there are findings or inputs are missing.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "out", "fuzz")
BIN = os.path.join(ROOT, "build", "fuzz", "bin")
CORPUS = os.path.join(ROOT, "test", "fuzz", "corpus")
SLICE = 100000  # inputs per process

# AddressSanitizer quarantines 2 MiB of freed memory instead of 256 MiB and records 2 frames of an
# allocation instead of 30: inputs allocate less, and their memory stays in the caches. Use after
# return is checked in one process of eight, because it costs 20 % of the speed. Leaks are checked
# when a process ends.
ASAN = "quarantine_size_mb=2:thread_local_quarantine_size_kb=128:malloc_context_size=2:intercept_tls_get_addr=0:detect_stack_use_after_return="

# Limits: bytes of an input, MiB of one allocation and of the process (including up to 600 MiB of
# the sanitizer), seconds per input.
READERS = {
    "onnx": dict(length=8192, allocation=512, memory=2048, seconds=20, files="lib/Import/ONNX/(Loader|Graph|Lazy)"),
    "import": dict(length=4096, allocation=256, memory=3072, seconds=20, files="lib/Import/ONNX/", mlir=True),
    "cluster": dict(length=4096, allocation=64, memory=2048, seconds=20, files="lib/Planning/Cluster/|CheckCluster"),
    "profile": dict(length=8192, allocation=64, memory=2048, seconds=20, files="lib/Planning/Costs/"),
    "plan": dict(length=8192, allocation=64, memory=2048, seconds=20, files="lib/Step/(ReadPlan|ValidatePlan|Deal|WritePlan)|Verify/PlanView"),
    "bundle": dict(length=24576, allocation=64, memory=2048, seconds=20, files="runtime/lib/program/(LoadBundle|CheckPrograms|DescribeEntry)|Bundle/BundleReader"),
    "programs": dict(length=24576, allocation=64, memory=2048, seconds=20, files="lib/Verify/|CheckPrograms|CheckSummary"),
    "safetensors": dict(length=8192, allocation=64, memory=2048, seconds=20, files="state/(Safetensors|Elements)"),
    "snapshot": dict(length=8192, allocation=64, memory=2048, seconds=20, files="snapshot/(Index|Identity|Reader|Acknowledgement|Json)"),
    "tokens": dict(length=4096, allocation=64, memory=2048, seconds=20, files="runtime/lib/data/"),
    "npy": dict(length=4096, allocation=64, memory=2048, seconds=20, files="runtime/lib/data/"),
    "control": dict(length=8192, allocation=64, memory=2048, seconds=20, files="control/(Frames|Job|Evidence)|gloo/Handshake"),
    "launch": dict(length=4096, allocation=64, memory=2048, seconds=20, files="runtime/lib/launch/(HostList|Endpoints|Place|NodePlaces|Variables)"),
}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode().strip() or "unknown"


class Reader:
    def __init__(self, name, fresh, built=True):
        self.name, self.limits = name, READERS[name]
        self.program = os.path.join(BIN, "fuzz-" + name)
        self.corpus = os.path.join(OUT, "corpus", name)
        self.findings = os.path.join(OUT, "findings")
        self.record = os.path.join(OUT, name + ".json")
        for folder in (self.corpus, self.findings):
            os.makedirs(folder, exist_ok=True)
        with open(self.program, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        self.tally = dict(program=digest, commit=commit() if built else time.strftime("%F %R", time.localtime(os.path.getmtime(self.program))), inputs=0, executed=0, accepted=0, core_seconds=0.0, findings=[], edges=0, slices=0, peak=0)
        if not fresh and os.path.exists(self.record):
            with open(self.record) as f:
                tally = json.load(f)
            if tally["program"] == digest:
                self.tally = {**self.tally, **tally}

    def command(self, *more):
        l = self.limits
        return [self.program, f"-max_len={l['length']}", f"-malloc_limit_mb={l['allocation']}", f"-rss_limit_mb={l['memory']}", f"-timeout={l['seconds']}", "-mutate_depth=2",
                "-len_control=0", "-detect_leaks=0", "-reload=0", f"-report_slow_units={l['seconds']}", "-print_final_stats=1", f"-artifact_prefix={self.findings}/{self.name}-", *more, self.corpus, os.path.join(CORPUS, self.name)]

    def run(self, command):
        """Returns the output and the CPU seconds used."""
        environment = dict(os.environ, ASAN_SYMBOLIZER_PATH="/usr/lib/llvm-22/bin/llvm-symbolizer", ASAN_OPTIONS=ASAN + ("1" if self.tally["slices"] % 8 == 7 else "0"))
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=OUT)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            return output.read().decode(errors="replace"), used.ru_utime + used.ru_stime

    def is_slow(self, name):
        """Whether an input takes longer than its limit of CPU time."""
        return self.run([self.program, "-timeout=1000", os.path.join(self.findings, name)])[1] > self.limits["seconds"]

    def fuzz(self, runs):
        t = self.tally
        while t["inputs"] < runs and not t["findings"]:
            # -runs includes the corpus, which is read first; the tally counts only mutated inputs.
            known = sum(len(os.listdir(folder)) for folder in (self.corpus, os.path.join(CORPUS, self.name)))
            text, seconds = self.run(self.command(f"-runs={min(SLICE, max(runs - t['inputs'], 1000)) + known + 1}", f"-seed={1000 + t['slices']}"))
            done = re.search(r"stat::number_of_executed_units: (\d+)", text)
            accepted = re.search(r"^accepted (\d+) of (\d+) inputs", text, re.M)
            peak = re.search(r"stat::peak_rss_mb: +(\d+)", text)
            reached = re.findall(r"^#\d+\s+\w+\s+cov: (\d+)", text, re.M)
            read = re.search(r"^#(\d+)\s+INITED", text, re.M)
            t["inputs"] += int(done.group(1)) - (int(read.group(1)) if read else 0) if done else 0
            t["executed"] += int(accepted.group(2)) if accepted else 0
            t["accepted"] += int(accepted.group(1)) if accepted else 0
            t["peak"] = max(t["peak"], int(peak.group(1)) if peak else 0)
            t["edges"] = int(reached[-1]) if reached else t["edges"]
            t["core_seconds"] += seconds
            t["slices"] += 1
            wrong = "Test unit written to" in text or "ERROR:" in text or not done
            waiting = [name for name in os.listdir(self.findings) if name.startswith((self.name + "-slow-unit-", self.name + "-timeout-"))]
            if wrong and not re.search(r"ERROR: (?!libFuzzer: timeout)|runtime error|does not hold", text) and waiting and not any(self.is_slow(name) for name in waiting):
                wrong = False  # libFuzzer measures wall-clock time, also while other processes run
                for name in waiting:
                    os.remove(os.path.join(self.findings, name))
            if wrong:
                what = re.search(r"^.*does not hold: .*$|^.*runtime error: .*$|^ *what\(\): .*$|^.*ERROR: (?!libFuzzer: deadly).*$", text, re.M)
                t["findings"].append((what.group(0).strip() if what else text[-300:]) + f" (out/fuzz/{self.name}.log)")
                with open(os.path.join(OUT, self.name + ".log"), "w") as f:
                    f.write(text)
            with open(self.record, "w") as f:
                json.dump(t, f)
        return self

    def coverage(self):
        """Functions and edges in the reader's own files: reached by the corpus, and total. Many edges are unreachable: they belong to
        sanitizer reports and exception cleanup."""
        text, _ = self.run(self.command("-runs=0", "-print_coverage=1"))
        functions = there = edges_reached = edges_there = 0
        for edges, total, place in re.findall(r"COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .* (\S+):\d+$", text, re.M):
            if re.search(self.limits["files"], place):
                functions, there = functions + (int(edges) > 0), there + 1
                edges_reached, edges_there = edges_reached + int(edges), edges_there + int(total)
        return functions, there, edges_reached, edges_there


def describe(name, t, coverage=None):
    l = READERS[name]
    line = f"{name:12} {t['inputs']:>9,} inputs  {100 * t['accepted'] / max(t['executed'], 1):5.1f} % accepted  {t['edges']:>6} edges"
    if coverage:
        line += "  {}/{} functions and {}/{} edges of this target".format(*coverage)
    if t.get("core_seconds"):
        line += f"  {t['inputs'] / t['core_seconds']:6.0f} per s of a core"
    line += f"  peak {t['peak']} MiB"
    line += f"  limits: {l['length']} bytes, {l['allocation']} MiB at once, {l['memory']} MiB, {l['seconds']} s  at {t['commit']}  {len(t['findings'])} findings"
    print(line, flush=True)
    for finding in t["findings"]:
        print(f"    {finding}", flush=True)


def main():
    parser = argparse.ArgumentParser(add_help=True)
    parser.add_argument("--runs", type=int, default=1000000)
    parser.add_argument("--readers", default="")
    parser.add_argument("--jobs", type=int, default=1)
    for flag in ("--report", "--quick", "--fresh", "--coverage", "--no-build"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    names = options.readers.split(",") if options.readers else [n for n in READERS if not (options.quick and READERS[n].get("mlir"))]
    unknown = [n for n in names if n not in READERS]
    if unknown:
        sys.exit(f"error: unknown readers {', '.join(unknown)}; known readers: {', '.join(READERS)}")
    runs = 20000 if options.quick else options.runs
    if options.report:
        for n in names:
            if os.path.exists(os.path.join(OUT, n + ".json")):
                with open(os.path.join(OUT, n + ".json")) as f:
                    describe(n, json.load(f))
        return
    if not options.no_build:
        subprocess.run([os.path.join(ROOT, "tools", "build.sh"), "fuzz", *("fuzz-" + n for n in names)], check=True, stdout=subprocess.DEVNULL)

    inputs, findings = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in pool.map(lambda n: Reader(n, options.fresh or options.quick, not options.no_build).fuzz(runs), names):
            describe(done.name, done.tally, done.coverage() if options.coverage else None)
            inputs.append(done.tally["inputs"])
            findings += len(done.tally["findings"])
    print(f"{len(inputs)} readers, {sum(inputs)} inputs, at least {min(inputs)} each, {findings} findings")
    sys.exit(findings > 0 or min(inputs) < runs)


if __name__ == "__main__":
    main()
