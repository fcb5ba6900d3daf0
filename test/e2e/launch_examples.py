"""Runs the files in docs/examples unchanged, except for paths, numbers of steps and CPUs: the Slurm job script on a
cluster on loopback, and the commands of the Kubernetes manifests with the variables that Kubernetes and the
manifests set.

    launch_examples.py
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness as z

running = []  # pods
EXAMPLES = os.path.join(z.ROOT, "docs", "examples")


def example(name, folder, steps):
    with open(os.path.join(EXAMPLES, name)) as f:
        text = f.read()
    text = text.replace("/shared/", folder + "/").replace("zorse-run ", os.path.join(z.BIN, "zorse-run") + " ").replace("[zorse-run,", f"[{z.BIN}/zorse-run,")
    text = text.replace("--max-steps 100000 ", f"--max-steps {steps} ").replace('--max-steps, "100000"', f'--max-steps, "{steps}"').replace("--cpus-per-task=4", "--cpus-per-task=1")
    return text.replace("--save-interval 200", "--save-interval 5").replace('--save-interval, "200"', '--save-interval, "5"')


def checkpoints(folder):
    return sorted(name for name in os.listdir(os.path.join(folder, "checkpoints")) if name.startswith("step-"))


def slurm(folder):
    script = os.path.join(folder, "train.sbatch")
    with open(script, "w") as f:
        f.write(example("train.sbatch", folder, 12))
    done = subprocess.run(["sbatch", "--parsable", "--output=" + os.path.join(folder, "out"), script], env={**os.environ, "HOME": folder}, capture_output=True, text=True)
    end = time.monotonic() + 60 * z.PATIENCE
    while time.monotonic() < end and subprocess.run(["squeue", "-h", "-t", "PD,R,CG", "-j", done.stdout.strip()], capture_output=True, text=True).stdout.strip():
        time.sleep(0.2)
    with open(os.path.join(folder, "out")) as f:
        text = f.read()
    good = done.returncode == 0 and "4 ranks on" in text and "started by Slurm" in text and "step 12/12" in text and checkpoints(folder)[-1].startswith("step-00000012")
    secret = os.path.join(folder, ".config", "zorse", "secret")
    return good and os.stat(secret).st_mode & 0o077 == 0, done.stderr + text


def pods(folder, command, environments):
    """Runs the command as the two pods of a set."""
    secret = os.urandom(16).hex()
    start = ["sh", "-c", command] if isinstance(command, str) else command
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZORSE_", "SLURM"))}
    started = [subprocess.Popen(start, env={**clean, **e, "ZORSE_SECRET": secret}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                start_new_session=True) for e in environments]
    running.extend(started)
    return started


def end_all():
    """Kills the processes that a failed test has left."""
    for p in running:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    running.clear()


def jobset(folder):
    text = example("jobset.yaml", folder, 12)
    command = [w.strip().strip('"') for w in re.search(r"command: \[(.*?)\]", text, re.DOTALL).group(1).split(",")]
    nodes = re.search(r'name: NNODES, value: "(\d)"', text).group(1)
    names = re.findall(r"- name: (\w+)\n\s+valueFrom: \{fieldRef", text)
    values = {"JOBSET_NAME": "gpt", "REPLICATED_JOB_NAME": "nodes", "JOBSET_RESTART_ATTEMPT": "0"}
    if sorted(names) != sorted(values):
        return False, f"the manifest sets {names}"
    port = z.Ports()
    both = pods(folder, command, [{**values, "NNODES": nodes, "JOB_COMPLETION_INDEX": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for n in range(int(nodes))])
    out = [p.communicate(timeout=60 * z.PATIENCE)[0] for p in both]
    return all(p.returncode == 0 for p in both) and "step 12/12" in out[0] and "by JobSet" in out[0], "\n".join(out)


def leader_worker_set(folder):
    text = example("leaderworkerset.yaml", folder, 12)
    lines = text[text.index("- |\n") + 4:].split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    command = "\n".join(line[indent:] for line in lines[:next(i for i, line in enumerate(lines) if line.strip() and len(line) - len(line.lstrip()) < indent)])
    size = int(re.search(r"size: (\d)", text).group(1))
    both = pods(folder, command, [{"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(n)} for n in range(size)])
    # A container that has finished training waits for a signal.
    line = ""
    for line in both[0].stdout:
        if line.startswith("step 12/12"):
            break
    end = time.monotonic() + 30 * z.PATIENCE
    while time.monotonic() < end and not (os.path.exists(os.path.join(folder, "checkpoints")) and checkpoints(folder) and checkpoints(folder)[-1].startswith("step-00000012")):
        time.sleep(0.05)
    time.sleep(1)
    alive = [p.poll() is None for p in both]
    for p in both:
        p.send_signal(signal.SIGTERM)
    out = [p.communicate(timeout=30 * z.PATIENCE)[0] for p in both]
    codes = [p.returncode for p in both]
    # A container that receives a signal just as its training ends does not wait for a second one.
    ending = pods(folder, command.replace("--max-steps 12 ", "--max-steps 24 "), [{"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(n)} for n in range(size)])
    for line in ending[0].stdout:
        if line.startswith("step 24/24"):
            break
    for p in ending:
        p.send_signal(signal.SIGTERM)
    out += [p.communicate(timeout=60 * z.PATIENCE)[0] for p in ending]
    ends = [p.returncode for p in ending]
    stopped = pods(folder, command.replace("--max-steps 12 ", "--max-steps 100000000 "), [{"LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(n)} for n in range(size)])
    for line in stopped[0].stdout:
        if line.startswith("step 40/"):
            break
    stopped[1].send_signal(signal.SIGTERM)
    out += [p.communicate(timeout=60 * z.PATIENCE)[0] for p in stopped]
    stops = [p.returncode for p in stopped]
    return all(alive) and codes == [0, 0] and set(ends) <= {0, 130} and stops == [130, 130], f"alive {alive}, codes {codes}, {ends}, {stops}\n" + "\n".join(out)


def main():
    slurm_there = shutil.which("sbatch") and shutil.which("munged", path=os.defpath + ":/usr/sbin")
    if slurm_there and "SLURM_CONF" not in os.environ:
        os.execv("/bin/bash", ["bash", os.path.join(z.ROOT, "test", "support", "slurm-on-loopback.sh"), sys.executable, *sys.argv])
    results = []
    if not slurm_there:
        print("skipped: the Slurm job script: Slurm or munge are not installed (tools/install.sh --launchers)", flush=True)
    for test in ([slurm] if slurm_there else []) + [jobset, leader_worker_set]:
        with tempfile.TemporaryDirectory() as folder:
            cluster, bundle = os.path.join(folder, "two.yaml"), os.path.join(folder, "gpt.zorse")
            with open(cluster, "w") as f:
                device = "{{name: {}, kind: cpu, flops_per_second: 1e10, memory: 2GiB}}"
                f.write("name: two\nnodes:\n" + "".join(f"  - name: {n}\n    devices: [{device.format(a)}, {device.format(b)}]\n" for n, a, b in (("n0", "a", "b"), ("n1", "c", "d"))))
            z.compile(os.path.join(z.SMALL, "gpt.onnx"), bundle, cluster, 8, 32)
            os.symlink(os.path.join(z.SMALL, "gpt.tokens.bin"), os.path.join(folder, "train.bin"))
            try:
                good, said = test(folder)
            except subprocess.TimeoutExpired as late:
                good, said = False, str(late)
            finally:
                end_all()
            print(f"{'ok  ' if good else 'FAIL'} {test.__name__}" + ("" if good else ":\n" + said), flush=True)
            results.append(good)
    z.finish(results)


if __name__ == "__main__":
    main()
