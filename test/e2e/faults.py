"""Injects faults into jobs (docs/reference/faults.md) and checks what the user sees, within which time, and which data is kept.

    faults.py [CASE ...] [--workers N]     default: all cases
"""
import ctypes
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

import harness as z
import jobs
from fault_bench import BATCH, DEVICES, JOIN, LONG, SOON, WORLD, Bench, Case, Skipped, name, take

# --- signals -------------------------------------------------------------------------------------------------------------------------------------------------------------------------


def interrupted(case, number, whom, launcher):
    job = case.job(case.bench.words(LONG, *take(case, 50)), launcher)
    case.training(job, 3)
    targets = [job.head] if whom == "launcher" else [job.processes[1]] if whom == "one rank" else job.all()
    for process in targets:
        process.signal(number)
    case.over(job, 5)
    code, text = (job.head.code(), job.error()) if launcher else ({p.code() for p in job.processes.values()}, job.error(0))
    case.check("exit code 130", code in (130, {130}), f"{code} {text[-300:]}")
    said = re.search(r"interrupted after step (\d+) of", text)
    newest = jobs.snapshots(case.snapshots)[1]
    case.check("a snapshot of the step that the message names", said and newest and newest[0][1] == "complete" and int(newest[0][0][5:13]) == int(said.group(1)), f"{text[-300:]} {newest}")
    case.check("no process is left", not job.left_behind())
    if said:
        case.resumes(int(said.group(1)) + 3, launcher=launcher)


def sigterm_to_the_launcher(case):
    interrupted(case, signal.SIGTERM, "launcher", True)


def sigint_to_all(case):
    interrupted(case, signal.SIGINT, "all", True)


def sigterm_to_one_rank(case):
    interrupted(case, signal.SIGTERM, "one rank", True)


def sigterm_to_one_rank_without_a_launcher(case):
    interrupted(case, signal.SIGTERM, "one rank", False)


def sigterm_to_all_without_a_launcher(case):
    interrupted(case, signal.SIGTERM, "all", False)


def sigterm_twice(case):
    for launcher in (True, False):
        job = case.job(case.bench.words(LONG), launcher, environment={"ZORSE_TEST_DELAYS": "1,2000"})  # slow steps
        case.check("begins", job.until(lambda: any("samples an epoch" in line for line in job.lines), 60 * z.PATIENCE))
        job.spend(0.3)
        for wait in (0.8, 0):  # signals within half a second count as one request
            for process in [job.head] if launcher else job.all():
                process.signal(signal.SIGTERM)
            job.spend(wait)
        case.over(job, 2, "ends immediately")
        codes = {job.head.code()} if launcher else {p.code() for p in job.processes.values()}
        # Without a launcher, a rank reports a neighbor as lost if the neighbor ended before the rank received its own
        # second signal.
        case.check("exit code 130", codes == {130} or (not launcher and codes == {130, 2}), codes)
        case.check("no process is left", not job.left_behind())


# --- disks and files -----------------------------------------------------------------------------------------------------------------------------------------------------------------


def small_disk(case, size):
    path = os.path.join(case.folder, "disk")
    os.mkdir(path)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True).returncode != 0:
        raise Skipped("mounting a separate file system needs root")
    case.mounted = path
    case.snapshots = os.path.join(path, "snapshots")


def goes_on(case, job, cause):
    """After a fault of the snapshots' disk: a warning that names rank, file and cause, and further steps."""
    said = lambda: next((line for line in job.error().splitlines() + job.lines if "warning: the checkpoint of" in line and cause in line), None)
    case.check("a warning names the cause", job.until(lambda: said() or job.over(), 20 * z.PATIENCE) and said(), (job.error() + "\n".join(job.lines[-3:]))[-500:])
    line = said() or ""
    case.check("the warning names rank and file", re.search(r"rank \d( \(\w\))?: ", line) and case.snapshots + "/" in line, line)
    steps = job.steps()
    case.check("training continues", job.until(lambda: job.steps() >= steps + 5, 20 * z.PATIENCE), job.steps())


def full_disk(case):
    small_disk(case, "400k")
    checkpoint = os.path.join(case.folder, "healthy.safetensors")
    job = case.job(case.bench.words(LONG, *take(case, 5), "--save-total-limit", 1000, "--save-weights", checkpoint))
    goes_on(case, job, "No space left on device")
    kept = [folder for folder, state in jobs.snapshots(case.snapshots)[1] if state == "complete"]
    case.check("older snapshots stay", len(kept) >= 1, kept)
    job.head.signal(signal.SIGTERM)
    case.over(job, 10)
    case.check("the end is an error", job.head.code() == 1, job.head.code())
    case.says("the end reports that the last one is missing", job.error(), "the last checkpoint", "is not complete", "No space left on device")
    case.check("the checkpoint on another disk is there", os.path.exists(checkpoint) and len(z.safetensors(checkpoint)) > 0, job.error()[-400:])
    case.check("nothing is left next to it", not glob.glob(checkpoint + ".parts*"))
    case.check("older snapshots are good", all(state == "complete" for folder, state in jobs.snapshots(case.snapshots)[1] if folder in kept))
    subprocess.run(["mount", "-o", "remount,size=20m", case.mounted])
    case.resumes(int(kept[0][5:13]) + 3)


def full_disk_of_a_checkpoint(case):
    """Without snapshots, the error names the checkpoint, and no temporary file is left next to it."""
    small_disk(case, "8k")
    for way in ("--spawn", "--in-process"):
        checkpoint = os.path.join(case.mounted, "ck.safetensors")
        _, err = case.run(case.bench.words(3, "--save-weights", checkpoint), way, code=1)
        case.says(f"the error names the checkpoint and the cause, {way}", err, "ck.safetensors", "No space left on device")
        case.check(f"no training state is spoken of, {way}", "checkpoint of step" not in err and "last checkpoint" not in err, err)
        case.check(f"nothing is left, {way}", os.listdir(case.mounted) == [], os.listdir(case.mounted))


def folder_beside_a_checkpoint(case):
    """Files next to a checkpoint belong to the user and are kept, except files that a killed run has left."""
    checkpoint = os.path.join(case.folder, "m")
    mine, abandoned = checkpoint + ".parts", checkpoint + ".parts.0123456789abcdef"
    for folder in (mine, abandoned):
        os.mkdir(folder)
        with open(os.path.join(folder, "precious"), "w") as f:
            f.write("x")
    case.run(case.bench.words(3, "--save-weights", checkpoint), "--spawn")
    case.check("the folder is still there", os.path.exists(os.path.join(mine, "precious")))
    case.check("and the checkpoint", len(z.safetensors(checkpoint)) > 0)
    case.check("the rest is clean", not [n for n in os.listdir(case.folder) if n.startswith("m.parts.")], os.listdir(case.folder))


def file_size_limit(case):
    limit = 16 << 10
    job = case.job(case.bench.words(40, *take(case, 5)), each=lambda rank: {"prefix": ["prlimit", f"--fsize={limit}"]} if rank == 1 else {}, launcher=False)
    case.over(job, 60)
    case.says("a warning or an error names the cause", "\n".join(job.lines) + job.error(0), "File too large", "step-")
    case.check("no rank dies of SIGXFSZ", all(p.code() == 1 for p in job.processes.values()), [p.code() for p in job.processes.values()])


def read_only_disk(case):
    small_disk(case, "20m")
    job = case.job(case.bench.words(LONG, *take(case, 5)))
    case.training(job, 12)
    done = subprocess.run(["mount", "-o", "remount,ro", case.mounted], capture_output=True, text=True)
    for _ in range(200):
        if done.returncode == 0:
            break
        done = subprocess.run(["mount", "-o", "remount,ro", case.mounted], capture_output=True, text=True)  # busy while a file is open for writing
    case.check("remounted", done.returncode == 0, done.stderr)
    goes_on(case, job, "Read-only file system")
    subprocess.run(["mount", "-o", "remount,rw", case.mounted], check=True)
    newest = jobs.snapshots(case.snapshots)[1][0][0]
    case.check("snapshots go on when the disk is back", job.until(lambda: jobs.snapshots(case.snapshots)[1][0][0] != newest, 20 * z.PATIENCE))
    job.head.signal(signal.SIGTERM)
    case.over(job, 10)
    case.check("exit code 130", job.head.code() == 130, f"{job.head.code()} {job.error()[-400:]}")


def full_disk_threads(case):
    small_disk(case, "400k")
    checkpoint = os.path.join(case.folder, "healthy.safetensors")
    _, err = case.run(case.bench.words(60, *take(case, 5), "--save-total-limit", 1000, "--save-weights", checkpoint), code=1)
    case.says("the end reports that the last one is missing", err, "the last checkpoint", "No space left on device")
    case.check("the checkpoint on another disk is there", os.path.exists(checkpoint) and len(z.safetensors(checkpoint)) > 0)


def directory_removed(case):
    checkpoint = os.path.join(case.folder, "elsewhere.safetensors")
    job = case.job(case.bench.words(LONG, *take(case, 5), "--save-weights", checkpoint))
    case.training(job, 12)
    while os.path.exists(case.snapshots):
        shutil.rmtree(case.snapshots, ignore_errors=True)
    goes_on(case, job, "is gone")
    job.head.signal(signal.SIGTERM)
    case.over(job, 10)
    case.check("the end is an error", job.head.code() == 1, f"{job.head.code()} {job.error()[-400:]}")
    case.check("the checkpoint elsewhere is there", os.path.exists(checkpoint) and len(z.safetensors(checkpoint)) > 0, job.error()[-400:])


def truncated_data(case):
    for launcher, what in ((True, "training"), (False, "training"), (True, "evaluation")):
        data = os.path.join(case.folder, "shrinks.bin")
        shutil.copy(case.bench.data, data)
        more = ["--eval-data", data, "--eval-interval", 5] if what == "evaluation" else []
        job = case.job(case.bench.words(LONG, *more, data=case.bench.data if more else data), launcher)
        case.training(job, 3)
        os.truncate(data, 1000)
        case.over(job, 5)
        code, text = (job.head.code(), job.error()) if launcher else ({p.code() for p in job.processes.values()}, job.error(1))
        case.check("exit code 1", code in (1, {1}), code)
        case.says(f"names the file of the {what} data", text, "shrinks.bin: ends after ", "truncated", "rank ")


def truncated_weights(case):
    """An error, not a signal, for every file that is truncated while the job starts."""
    weights = os.path.join(case.folder, "init.safetensors")
    case.run(case.bench.words(1, "--save-weights", weights))
    whole = jobs.content(weights)
    for wait in (0.0, 0.1, 0.2):
        with open(weights, "wb") as f:
            f.write(whole)
        job = case.job(case.bench.words(3, "--load-weights", weights))
        job.until(lambda: len(job.processes) == WORLD or job.over(), 20 * z.PATIENCE)
        job.spend(wait)
        os.truncate(weights, 2000)
        case.over(job, 30)
        case.check("trained, or an error that names it", job.head.code() == 0 or (job.head.code() == 1 and "init.safetensors" in job.error()), f"{job.head.code()} {job.error()[-400:]}")


def damage(path):
    with open(path, "r+b") as f:
        f.seek(-5, os.SEEK_END)
        byte = f.read(1)
        f.seek(-5, os.SEEK_END)
        f.write(bytes([byte[0] ^ 4]))


def damaged_snapshots(case):
    case.run(case.bench.words(8, *take(case, 2), "--save-total-limit", 3), "--spawn")
    folders = [folder for folder, _ in jobs.snapshots(case.snapshots)[1]]
    victims = [os.path.join(case.snapshots, folder, "1-b.safetensors") for folder in folders]
    damage(victims[0])
    case.resumes(10, "--save-total-limit", 4)
    out, err = case.run(case.bench.words(10, "--checkpoint-dir", case.snapshots, "--resume", "--save-total-limit", 4), "--spawn")
    for folder in os.listdir(case.snapshots):
        for path in glob.glob(os.path.join(case.snapshots, folder, "1-b.safetensors")):
            if path != victims[0]:
                damage(path)
    out, err = case.run(case.bench.words(12, "--checkpoint-dir", case.snapshots, "--resume"), "--spawn", code=1)
    case.says("all damaged", err, "damaged", "1-b.safetensors", "checksum")
    # The previous snapshot is used, with a note.
    shutil.rmtree(case.snapshots)
    case.run(case.bench.words(8, *take(case, 2)), "--spawn")
    damage(os.path.join(case.snapshots, folders[0], "2-c.safetensors"))
    out, err = case.run(case.bench.words(9, "--checkpoint-dir", case.snapshots, "--resume"), "--spawn")
    case.says("falls back with a note", err + out, "passed over", "2-c.safetensors", "checksum", "resumed after step 6")


def snapshots_of_another_model(case):
    llama = os.path.join(case.folder, "llama.zorse")
    z.compile(os.path.join(z.SMALL, "llama.onnx"), llama, z.cluster(case.folder, list(DEVICES)), BATCH, 32)
    case.run([llama, "--data", os.path.join(z.SMALL, "llama.tokens.bin"), "--max-steps", 1, *take(case)], "--spawn")
    _, err = case.run(case.bench.words(4, *take(case), "--resume"), "--spawn", code=1)
    case.says("refused", err, "another model")
    _, err = case.run(case.bench.words(4, *take(case)), "--spawn", code=1)
    case.says("not overwritten without --resume", err, "--resume", case.snapshots)


# --- who takes part ------------------------------------------------------------------------------------------------------------------------------------------------------------------


def wrong_secret(case):
    job = case.job(case.bench.words(4, "--rdzv-timeout", 5 * JOIN), False, each=lambda rank: {"environment": {"ZORSE_SECRET": "quite another secret"}} if rank == 1 else {})
    case.over(job, 9)
    case.check("the stranger ends with 1, the others with 2", [p.code() for p in job.processes.values()] == [2, 1, 2], [p.code() for p in job.processes.values()])
    case.says("the unknown process gets the reason", job.error(1), "secret")
    for rank in (0, 2):
        case.says("the others name who is missing", job.error(rank), name(1), "did not join")
    case.check("no work was done", job.steps() == 0)


def short_secret(case):
    job = case.job(case.bench.words(4, "--rdzv-timeout", 5), False, secret="short")
    case.over(job, 9)
    case.check("all end with 1", all(p.code() == 1 for p in job.processes.values()), [p.code() for p in job.processes.values()])
    case.says("gives the reason", job.error(0), "ZORSE_SECRET", "16")


def two_jobs_at_once(case):
    """Same ports; another job name, or the same name and another secret: each job connects to its own ranks."""
    expected = [case.outcome(case.bench.words(20, bundle=bundle), "--in-process") for bundle in (case.bench.bundle, case.bench.other_plan)]
    for same_name in (True, False):
        store, ended = jobs.Store(), []
        for i, bundle in enumerate((case.bench.bundle, case.bench.other_plan)):
            words = case.bench.words(20, "--metrics-file", os.path.join(case.folder, f"m{i}"), "--save-weights", os.path.join(case.folder, f"c{i}"), bundle=bundle)
            ended.append(case.job(words, False, store=store, job="test/same" if same_name else f"test/{i}", secret=("a" if same_name and i else "b") * 20))
        for i, job in enumerate(ended):
            case.over(job, 60)
            case.check("exit codes", all(p.code() == 0 for p in job.processes.values()), [job.error(r)[-200:] for r in range(WORLD)])
            found = jobs.metrics(os.path.join(case.folder, f"m{i}")), jobs.content(os.path.join(case.folder, f"c{i}"))
            case.check("its own outcome", found == expected[i])


def ranks_that_differ(case):
    b = case.bench
    kinds = {
        "bundle": ({"only": b.words(4, bundle=b.other_plan)}, ("bundle",)),
        "options": ({"words": ["--lr", "0.5"]}, ("lr",)),
        "data": ({"only": b.words(4, data=b.other_data)}, ("data",)),
    }
    for what, (difference, words) in kinds.items():
        job = case.job(b.words(4, "--rdzv-timeout", 10 * JOIN), False, each=lambda rank: difference if rank == 2 else {})
        case.over(job, 15)
        case.check("all end with 1", all(p.code() == 1 for p in job.processes.values()), [p.code() for p in job.processes.values()])
        for rank in range(WORLD):
            case.says(f"another {what}", job.error(rank), "rank 2", *words)
        case.check("no work was done", job.steps() == 0)


def missing_files_on_one_rank(case):
    job = case.job(case.bench.words(4, "--rdzv-timeout", 20 * JOIN), False, each=lambda rank: {"only": case.bench.words(4, data="/nowhere/train.bin")} if rank == 1 else {})
    case.over(job, 5)
    case.check("all end with 1", all(p.code() == 1 for p in job.processes.values()), [p.code() for p in job.processes.values()])
    for rank in range(WORLD):
        case.says("names rank and file", job.error(rank), *([name(1)] if rank != 1 else []), "/nowhere/train.bin")


def a_rank_comes_after_the_failure(case):
    """The rank gets the reason, because the coordinator waits for ranks that have not joined yet; also if the reason
    concerns a rank that joined after the failure."""
    for first in (0, 1):  # order of joining: before or after the other rank's failure
        job = case.job(case.bench.words(4, "--rdzv-timeout", 20 * JOIN), False, ranks=(0, 1),
                       each=lambda rank: {**({"only": case.bench.words(4, data="/nowhere/train.bin")} if rank == 1 else {}),
                                          "prefix": [] if rank == first else ["sh", "-c", 'sleep 0.3; exec "$@"', "sh"]})
        case.check("rank 1 ends", job.until(lambda: job.processes[1].ended is not None, 10 * z.PATIENCE))
        time.sleep(1.5)
        late = case.job(case.bench.words(4, "--rdzv-timeout", 3), False, job=job.job, secret=job.secret, store=job.store, ranks=(2,))
        case.over(late, 5)
        case.over(job, 1, "rank 0 does not stay longer")
        for text in (late.error(2), job.error(0)):
            case.says("names rank and file", text, name(1), "/nowhere/train.bin")


def too_few_ranks(case):
    job = case.job(case.bench.words(4, "--rdzv-timeout", 3 * JOIN), False, ranks=(0, 1))
    case.over(job, 6)
    for rank in (0, 1):
        case.says("names who is missing", job.error(rank), name(2), "did not join within")


def too_many_ranks(case):
    job = case.job(case.bench.words(4, "--rdzv-timeout", 5 * JOIN), False, world=WORLD + 1)
    case.over(job, 9)
    case.check("all end with 1", all(p.code() == 1 for p in job.processes.values()), [p.code() for p in job.processes.values()])
    case.says("gives the numbers", job.error(0), "3 devices", "4 processes")


# --- numbers
# -------------------------------------------------------------------------------------------------------------------------------------------------------------------------


def not_finite(case):
    words = case.bench.words(12, "--lr", "1e30", bundle=case.bench.sgd)
    metrics = os.path.join(case.folder, "m.jsonl")
    checkpoint = os.path.join(case.folder, "c.safetensors")
    for more in (["--on-nonfinite", "skip", "--metrics-file", metrics], ["--save-weights", checkpoint], ["--save-weights", checkpoint, "--in-process"]):
        _, err = case.run([*words, *more], *([] if "--in-process" in more else ["--spawn"]), code=3)
        case.says("gives the first step", err, "every step from 2 to 12 were not finite", "the state after step 1")
        if "--save-weights" in more:
            case.check("the last good state is kept", all(np.isfinite(t).all() for t in z.safetensors(checkpoint).values()))
            os.remove(checkpoint)
    found = jobs.metrics(metrics)
    case.check("skipped steps are counted", len(found) == 12 and sum(m["skipped"] for m in found) >= 10, found[-1:])
    _, err = case.run([*words, "--on-nonfinite", "stop", *take(case)], "--spawn", code=1)
    case.says("stops and gives the reason", err, "not finite", "--on-nonfinite", "step 2")
    # The end of the run may leave an incomplete snapshot: the newest complete one counts.
    complete = [folder for folder, state in jobs.snapshots(case.snapshots)[1] if state == "complete"]
    case.check("the newest is of the step before, or of the one left out", complete and int(complete[0][5:13]) in (1, 2), jobs.snapshots(case.snapshots)[1])
    case.check("no later step was applied", all(int(folder[5:13]) <= 2 for folder, _ in jobs.snapshots(case.snapshots)[1]), jobs.snapshots(case.snapshots)[1])
    finite = all(np.isfinite(a).all() for path in glob.glob(os.path.join(case.snapshots, complete[0], "*.safetensors")) for a in z.safetensors(path).values())
    case.check("their numbers are finite", finite)


def no_labels(case):
    data = case.bench.labelled(case.folder, (2, 3))
    metrics = os.path.join(case.folder, "m.jsonl")
    case.run([*case.bench.words(6, "--on-nonfinite", "skip", "--metrics-file", metrics, data=data)], "--spawn")
    case.check("skipped and counted", [m["step"] for m in jobs.metrics(metrics) if m["skipped"]] == [3, 4], jobs.metrics(metrics))
    _, err = case.run([*case.bench.words(6, "--on-nonfinite", "stop", *take(case), data=data)], "--spawn", code=1)
    case.says("stops and gives the reason", err, "step 3", "1/n0", "n0 = 0")
    # A run in which no sample counts learns nothing: it ends so, and does not write the initial parameters as a
    # checkpoint.
    nothing = case.bench.labelled(case.folder, range(20))
    for way in ("--spawn", "--in-process"):
        checkpoint = os.path.join(case.folder, "nothing.safetensors")
        _, err = case.run([*case.bench.words(4, "--save-weights", checkpoint, data=nothing)], way, code=3)
        case.says(f"nothing to learn from, {way}", err, "no step from 1 to 4", "label", "not written")
        case.check(f"no checkpoint of initial parameters, {way}", not os.path.exists(checkpoint))
    _, err = case.run([case.bench.bundle, "--eval-only", "--data", nothing], "--in-process", code=1)
    case.says("an evaluation without labels is an error", err, "no loss", "label")
    data = case.bench.labelled(case.folder, (2, 3))
    # Groups that are updated in the backward know before the step that no sample counts: no state changes, and the
    # optimizer's step does not advance.
    by_step, by_group = (case.outcome(case.bench.words(6, bundle=b, data=data), "--spawn") for b in (case.bench.by_step, case.bench.by_group))
    case.check("groups on their own skip them, too", [m["step"] for m in by_group[0] if m["skipped"]] == [3, 4], by_group[0])
    case.check("and end with the same parameters", by_group[1] == by_step[1])


# --- processes -----------------------------------------------------------------------------------------------------------------------------------------------------------------------


def too_little_memory(case):
    """Less and less address space for the start of a rank."""
    if z.SANITIZED:
        raise Skipped("a sanitizer needs its own address space")
    outcomes = []
    for megabytes in (200, 100, 60):
        job = case.job(case.bench.words(4, "--rdzv-timeout", 5 * JOIN), False, each=lambda rank: {"prefix": ["prlimit", f"--as={megabytes << 20}"]} if rank == 1 else {})
        case.over(job, 9, f"ends, {megabytes} MB")
        codes = [p.code() for p in job.processes.values()]
        outcomes.append((megabytes, codes, job.error(1)[-200:]))
        if codes != [0, 0, 0]:
            case.check(f"all fail, {megabytes} MB", all(code not in (0, 130) for code in codes), codes)
            for rank in (0, 2):
                case.says("names the rank", job.error(rank), name(1))
    case.check("some of them fail", any(codes != [0, 0, 0] for _, codes, _ in outcomes), outcomes)


def busiest_thread(pid, seconds):
    def read():
        out = {}
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                out[int(thread)] = int(f.read().split()[0])
        return out
    before = read()
    time.sleep(seconds)
    after = read()
    return max(after, key=lambda thread: after[thread] - before.get(thread, 0))


def hung_body(case):
    """One thread of a rank hangs, as in a kernel that never returns: the debugging interface stops only this thread.
    The rank's other threads continue and send heartbeats."""
    stall = 2.0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    job = case.job(case.bench.words(LONG, "--watchdog-timeout", stall, "--heartbeat-timeout", 60))
    case.training(job, 3)
    thread = busiest_thread(job.processes[1].pid, 0.5)
    SEIZE, INTERRUPT = 0x4206, 0x4207
    if libc.ptrace(SEIZE, thread, None, None) != 0:
        raise Skipped(f"ptrace: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(INTERRUPT, thread, None, None)

    def over():  # a thread stopped by ptrace must also be waited for here
        try:
            os.waitpid(thread, 0x40000000 | os.WNOHANG)
        except ChildProcessError:
            pass
        return job.over()

    job.until(over, (stall + SOON + 1) * z.PATIENCE)
    case.over(job, 0.1, "ends within the time of a stall and three seconds")
    case.check("exit code 2", job.head.code() == 2, job.head.code())
    case.says("names instruction and step", job.error(), "instruction ", "step ", "no rank has made progress for 2.0 s")
    # If the thread transfers data, the earliest unfinished instruction may be at the other end.
    case.check("names the rank, or it as the peer", re.search(r"where rank 1 \(device b\) is in|\((receive from|send to) b\)", job.error()), job.error()[-400:])
    case.check("no process is left", not job.left_behind())


def lost_network(case):
    tag = f"zf{os.getpid() % 10000}"
    spaces = [f"{tag}-a", f"{tag}-b"]
    ip = lambda *words: subprocess.run(["ip", *words], capture_output=True, text=True)
    try:
        made = [ip("netns", "add", spaces[0]), ip("netns", "add", spaces[1])]
        made.append(ip("link", "add", "zf0", "netns", spaces[0], "type", "veth", "peer", "name", "zf0", "netns", spaces[1]))
        for i, space in enumerate(spaces):
            made += [ip("-n", space, "address", "add", f"10.214.9.{i + 1}/24", "dev", "zf0"), ip("-n", space, "link", "set", "zf0", "up"), ip("-n", space, "link", "set", "lo", "up")]
    except FileNotFoundError:
        raise Skipped("ip is not installed")
    try:
        if any(done.returncode != 0 for done in made):
            raise Skipped("network namespaces: " + next(done.stderr.strip() for done in made if done.returncode != 0))
        place = lambda rank: 0 if rank == 0 else 1
        each = lambda rank: {"prefix": ["ip", "netns", "exec", spaces[place(rank)]], "words": ["--local-addr", f"10.214.9.{place(rank) + 1}"],
                             "environment": {"ZORSE_LOCAL_WORLD_SIZE": "1" if rank == 0 else "2", "ZORSE_LOCAL_RANK": "0" if rank == 0 else str(rank - 1)}}
        deadline = 2.0
        words = case.bench.words(LONG, *take(case, 5), "--heartbeat-timeout", deadline, "--rdzv-timeout", 20 * JOIN)
        job = case.job(words, False, store="10.214.9.1:21500", each=each)
        case.training(job, 12)
        ip("-n", spaces[1], "link", "set", "zf0", "down")
        case.over(job, deadline + SOON, "all end within the deadline and two seconds")
        case.check("none ends well", all(p.code() not in (0, 130) for p in job.processes.values()), [p.code() for p in job.processes.values()])
        case.check("rank 0 names one of the others", name(1) in job.error(0) or name(2) in job.error(0), job.error(0)[-500:])
        for rank in (1, 2):
            case.says("the others name rank 0", job.error(rank), name(0))
        ip("-n", spaces[1], "link", "set", "zf0", "up")
        newest = next(int(folder[5:13]) for folder, state in jobs.snapshots(case.snapshots)[1] if state == "complete")
        case.resumes(newest + 3)
    finally:
        for job in case.jobs:
            job.close()
        for space in spaces:
            ip("netns", "delete", space)


CASES = [value for key, value in list(globals().items()) if callable(value) and getattr(value, "__code__", None) and value.__code__.co_varnames[:value.__code__.co_argcount] == ("case",)]


def main():
    words = [w for i, w in enumerate(sys.argv[1:]) if not w.startswith("--") and sys.argv[i] != "--workers"]
    workers = int(sys.argv[sys.argv.index("--workers") + 1]) if "--workers" in sys.argv else 3
    chosen = [case for case in CASES if not words or case.__name__ in words]
    results, skipped, lock, begin, queue = [], [], threading.Lock(), time.monotonic(), iter(chosen)
    with tempfile.TemporaryDirectory(prefix="zorse-faults-") as folder:
        bench = Bench(folder)

        def work():
            while True:
                with lock:
                    function = next(queue, None)
                if function is None:
                    return
                case = Case(bench, tempfile.mkdtemp(dir=folder))
                case.mounted = None
                started = time.monotonic()
                try:
                    function(case)
                except Skipped as why:
                    with lock:
                        skipped.append(function)
                        print(f"skipped: {function.__name__.replace('_', ' ')}: {why}", flush=True)
                    continue
                except Exception:
                    case.check("runs", False, traceback.format_exc())
                finally:
                    for job in case.jobs:
                        job.close()
                    if case.mounted:
                        subprocess.run(["umount", "-l", case.mounted])
                bad = [f"{what}: {detail}" for what, good, detail in case.checks if not good]
                with lock:
                    results.append(not bad)
                    print(f"{'FAIL' if bad else 'ok  '} {function.__name__.replace('_', ' ')}, {len(case.checks)} checks, {time.monotonic() - started:.1f} s" + "".join("\n     " + b for b in bad), flush=True)

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{sum(results)} of {len(results)} faults end as documented{f', {len(skipped)} skipped' if skipped else ''}; {time.monotonic() - begin:.0f} s")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
