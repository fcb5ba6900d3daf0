"""Runs jobs of several processes for tests that disturb them. A job is started by zorse-run --spawn or rank by
rank; its output, its files and the end time of each process are recorded.
"""
import contextlib
import ctypes
import json
import os
import re
import select
import signal
import struct
import subprocess
import threading
import time
import uuid

import harness as z

CREATE, MOVED_TO = 0x100, 0x80
_libc = ctypes.CDLL(None, use_errno=True)


class Store(str):
    """Four ports for a job with rank 0 as coordinator, reserved while the object lives."""

    def __new__(cls):
        ports = z.Ports(4)
        self = super().__new__(cls, f"127.0.0.1:{ports.first}-{ports.last}")
        self.ports = ports
        return self


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", errors="replace") as f:
            return dict(e.split("=", 1) for e in f.read().split("\0") if "=" in e)
    except OSError:
        return {}


def children_of(pid):
    """Processes that the main thread of a process has started."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


@contextlib.contextmanager
def slowed(find):
    """Lets the process that `find` returns (None: there is none now) share one core with three others that always compute."""
    core = {max(os.sched_getaffinity(0))}
    over = threading.Event()

    def hold():
        while not over.is_set():
            pid = find()
            for thread in os.listdir(f"/proc/{pid}/task") if pid and os.path.exists(f"/proc/{pid}/task") else ():
                try:
                    os.sched_setaffinity(int(thread), core)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)

    others = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(3)]
    thread = threading.Thread(target=hold)
    try:
        for other in others:
            os.sched_setaffinity(other.pid, core)
        thread.start()
        yield
    finally:
        over.set()
        thread.join()
        for other in others:
            other.kill()
            other.wait()


def state_of(pid):
    """The state as in ps; "" if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


class Watch:
    """Files that appear in a directory of snapshots and in its folders, reported by inotify."""

    def __init__(self, directory):
        self.fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.paths = {}
        self.add(directory)

    def add(self, path):
        number = _libc.inotify_add_watch(self.fd, path.encode(), CREATE | MOVED_TO)
        if number >= 0:
            self.paths[number] = path

    def events(self):
        """[(created or moved, path)]"""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        found, at = [], 0
        while at < len(data):
            number, mask, _, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16:at + 16 + length].rstrip(b"\0").decode()
            at += 16 + length
            path = os.path.join(self.paths.get(number, ""), name)
            found.append(("moved" if mask & MOVED_TO else "created", path))
            if os.path.isdir(path):
                self.add(path)
        return found

    def close(self):
        os.close(self.fd)


class Process:
    """A watched process. Its end time is recorded even if another process waits for it."""

    def __init__(self, pid, rank=None, popen=None):
        self.pid, self.rank, self.popen = pid, rank, popen
        self.ended = None
        try:
            self.fd = os.pidfd_open(pid)
        except OSError:  # already ended
            self.fd, self.ended = -1, time.monotonic()

    def signal(self, number):
        if self.fd >= 0 and self.ended is None:
            try:
                signal.pidfd_send_signal(self.fd, number)
                return True
            except ProcessLookupError:
                pass
        return False

    def code(self):
        """The exit code; None if the process has not ended, or if another process waits for it."""
        return self.popen.wait() if self.popen and self.ended is not None else None

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Job:
    """A job of `world` ranks.

    :param words: arguments of zorse-run, without --spawn
    :param world: number of ranks
    :param launcher: True: started with --spawn. False: the test starts every rank; rank 0 hosts the coordinator.
    :param watch: a directory of snapshots
    :param each: settings that differ between ranks: rank -> {"prefix": words before the program,
        "only": words instead of `words`, "words": words after them, "environment": variables}
    """

    def __init__(self, folder, words, world, launcher=True, watch=None, environment=None, job=None, secret=None, store=None, each=None, ranks=None, attempt=0):
        self.folder, self.world, self.launcher = folder, world, launcher
        self.words = [os.path.join(z.BIN, "zorse-run")] + [str(w) for w in words] + (["--spawn"] if launcher else [])
        self.tag = uuid.uuid4().hex
        self.job, self.secret, self.store = job or "test/" + self.tag, secret or self.tag, store or Store()
        self.watch = Watch(watch) if watch else None
        self.processes, self.head, self.lines, self.events, self.logs = {}, None, [], [], {}
        self._partial = b""
        base = {k: v for k, v in os.environ.items() if not k.startswith("ZORSE_")}
        base.update({k: v for k, v in os.environ.items() if k.startswith("ZORSE_TEST") or k == "ZORSE_GEMM"})
        base.update(environment or {}, ZORSE_TEST_TAG=self.tag)
        out, inner = os.pipe()
        os.set_blocking(out, False)
        self.out = out
        self.start = time.monotonic()
        if launcher:
            self.head = Process(self._spawn("launcher", self.words, base, inner).pid, popen=self._last)
        else:
            for rank in range(world) if ranks is None else ranks:
                place = {"ZORSE_RANK": rank, "ZORSE_WORLD_SIZE": world, "ZORSE_LOCAL_RANK": rank, "ZORSE_LOCAL_WORLD_SIZE": world, "ZORSE_STORE": self.store,
                         "ZORSE_JOB": self.job, "ZORSE_SECRET": self.secret, "ZORSE_RESTARTS": attempt}
                own = each(rank) if each else {}
                words_here = own.get("prefix", []) + [self.words[0]] + [str(w) for w in own.get("only", self.words[1:])] + [str(w) for w in own.get("words", [])]
                self._spawn(rank, words_here, {**base, **{k: str(v) for k, v in place.items()}, **own.get("environment", {})}, inner if rank == 0 else None)
                self.processes[rank] = Process(self._last.pid, rank, self._last)
        os.close(inner)

    def _spawn(self, name, words, environment, out):
        self.logs[name] = os.path.join(self.folder, f"{self.tag}.{name}.err")
        with open(self.logs[name], "wb") as err:
            self._last = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out if out is not None else subprocess.DEVNULL, stderr=err, env=environment)
        return self._last

    def find_ranks(self, attempt=0):
        """The processes that Zorse's launcher has started so far, of its start number `attempt`."""
        if not self.launcher or len(self.processes) == self.world:
            return self.processes
        known = {process.pid for process in self.processes.values()}
        for pid in children_of(self.head.pid):
            if pid not in known:
                environment = environment_of(pid)
                if environment.get("ZORSE_TEST_TAG") == self.tag and "ZORSE_RANK" in environment and environment.get("ZORSE_RESTARTS") == str(attempt):
                    rank = int(environment["ZORSE_RANK"])
                    self.processes[rank] = Process(pid, rank)
        return self.processes

    def all(self):
        return list(self.processes.values()) + ([self.head] if self.head else [])

    def turn(self, seconds):
        """Waits at most `seconds` for an event, and records it in `lines`, `events` and the `ended` times of processes."""
        if self.launcher and len(self.processes) < self.world:
            self.find_ranks()
            seconds = min(seconds, 0.003)
        poller, by_fd = select.poll(), {}
        for process in self.all():
            if process.ended is None and process.fd >= 0:
                poller.register(process.fd, select.POLLIN)
                by_fd[process.fd] = process
        for fd in ([self.out] if self.out is not None else []) + ([self.watch.fd] if self.watch else []):
            poller.register(fd, select.POLLIN)
        ready = poller.poll(max(0, seconds * 1000))
        now = time.monotonic()
        for fd, _ in ready:
            if fd in by_fd:
                by_fd[fd].ended = now
            elif fd == self.out:
                self._read()
            else:
                self.events += self.watch.events()

    def _read(self):
        try:
            data = os.read(self.out, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            os.close(self.out)
            self.out = None
        *whole, self._partial = (self._partial + data).split(b"\n")
        self.lines += [line.decode(errors="replace") for line in whole]

    def until(self, condition, seconds):
        """Waits until `condition()` is true; returns whether it is."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.turn(min(left, 0.1))
        return True

    def spend(self, seconds):
        self.until(lambda: False, seconds)

    def over(self):
        return all(process.ended is not None for process in self.all()) and (not self.launcher or self.head.ended is not None)

    def steps(self):
        """The highest step that the job has printed."""
        numbers = [int(m.group(1)) for m in (re.match(r"step (\d+)/", line) for line in self.lines) if m]
        return max(numbers, default=0)

    def error(self, name="launcher"):
        with open(self.logs[name], errors="replace") as f:
            return f.read()

    def errors_of(self, rank, device):
        """The standard error of a rank."""
        if not self.launcher:
            return self.error(rank)
        return "\n".join(line.split("]", 1)[1] for line in self.error().splitlines() if re.match(r"\[" + re.escape(device) + r"\]", line))

    def left_behind(self):
        """Processes of this job that still run."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if environment_of(pid).get("ZORSE_TEST_TAG") == self.tag and state_of(pid) not in ("", "Z"):
                found.append(int(pid))
        return found

    def close(self):
        """Ends all remaining processes."""
        for process in self.all():
            process.signal(signal.SIGKILL)
            if process.popen:
                process.popen.wait()
            process.close()
        if self.out is not None:
            os.close(self.out)
            self.out = None
        if self.watch:
            self.watch.close()
            self.watch = None


SEEN = ("step", "loss", "eval_loss", "grad_norm", "lr", "skipped")


def metrics(path):
    """The complete lines of a metrics file, without values that depend on time."""
    found = []
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                try:
                    found.append({k: v for k, v in json.loads(line).items() if k in SEEN})
                except ValueError:
                    break
    return found


def content(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def snapshots(directory):
    """[(folder, "complete", "incomplete" or "damaged: ...")], newest first. zorse-export reads and verifies each of
    them."""
    code, out, err = z.call("zorse-export", directory, "--list", ok=False, timeout=60 * z.PATIENCE)
    found = []
    for line in out.splitlines():
        m = re.match(r"(step-\S+) +\d+ +\d+ +\d+  (.*)", line)
        if m:
            found.append((os.path.basename(m.group(1)), m.group(2)))
    return code, found, out + err
