"""Implements tools/run-evidence.sh after the build: runs the claims of a file, stores their output, writes the table.

    evidence.py [--quick] [--list] [--show] [--table] [--claims FILE] [--docs FOLDER] [NAME...]
"""
import argparse
import fcntl
import datetime
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import claims as c
from tested import Tested, commit

ROOT = c.ROOT
sys.path.insert(0, os.path.join(ROOT, "tools", "docs"))
from generated_pages import results_file  # noqa: E402

QUICK_LIMIT, WHOLE_LIMIT = 600, 6 * 3600  # time limits of one claim, in seconds
SKIPPED = 77
STATES = ("passed", "failed", "not run")


def processor():
    """CPU generation, vector instructions and number of cores, on which measured speeds depend."""
    with open("/proc/cpuinfo") as f:
        text = f.read()
    def field(name):
        found = re.search(rf"^{name}\s*: (.*)$", text, re.M)
        return found.group(1).strip() if found else ""
    name, family, model = field("model name") or os.uname().machine, field("cpu family"), int(field("model") or 0)
    if "AMD" in name:
        zen4 = 0x10 <= model < 0x20 or 0x60 <= model < 0x80 or 0xA0 <= model < 0xB0
        generation = {"23": "Zen 2" if model >= 0x30 else "Zen", "25": "Zen 4" if zen4 else "Zen 3", "26": "Zen 5"}.get(family)
        name = f"AMD {generation}" if generation else name
    flags = set(field("flags").split())
    vectors = next((shown for flag, shown in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "no AVX2")
    return f"{name}, {vectors}, {len(os.sched_getaffinity(0))} cores"


def busy_seconds():
    """CPU time that all processes of this machine have used."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, *_ = map(int, f.readline().split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = os.times()
    return used.children_user + used.children_system


class Late(Exception):
    pass


class Log:
    """Runs commands sequentially within one time limit and stores their output. Uses the output of
    CTest for commands that passed there (`tested`)."""

    def __init__(self, path, limit, tested):
        self.path, self.limit, self.end = path, limit, time.monotonic() + limit
        self.tested, self.seconds_by_tests = tested, 0.0
        for name in (path, path + ".errors"):
            open(name, "w").close()

    def run(self, command):
        """Exit code, output and errors of a command."""
        if self.tested and (found := self.tested.of(command.words)):
            self.seconds_by_tests += found[0]
            with open(self.path, "a") as out:
                out.write(found[1])
            return 0, found[1], ""
        with open(self.path, "a+") as out, open(self.path + ".errors", "a+") as errors:
            begin = out.tell(), errors.tell()
            # A separate session, so that all remaining processes can be killed at the time limit.
            # `env` accepts assignments before the program and reports a missing program.
            child = subprocess.Popen(["env", *command.words], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=ROOT, start_new_session=True)
            try:
                child.wait(max(0, self.end - time.monotonic()))
            except subprocess.TimeoutExpired:
                end(child)
                raise Late(f"ended after its limit of {self.limit} s")
            for file, at in zip((out, errors), begin):
                file.seek(at)
            return child.returncode, out.read(), errors.read()


prepared = set()  # setup shared by all claims, such as the Python environment


def prepare(command, log):
    """Runs the prerequisites. Returns None, or the exit code and the message."""
    key = tuple(command.words)
    shared = log.folder not in " ".join(key)
    if not command.needed() or (shared and key in prepared):
        return None
    code, said, complained = log.run(command)
    if code == 0:
        prepared.update([key] if shared else [])
        return None
    if command.makes and os.path.exists(os.path.join(ROOT, command.makes)):
        os.remove(os.path.join(ROOT, command.makes))
    said = command.message or c.last_line(complained) or c.last_line(said)
    return (SKIPPED, said, []) if command.kind == "need" else (code, "", [exit_of(code), said])


def exit_of(code):
    return f"exit {code}" if code > 0 else f"ended by signal {-code}"


def attempt(claim, form, log):
    """Exit code, figure and failure reasons of all commands of a claim. A command that fails does
    not stop the others."""
    status, figures, reasons, output = 0, [], [], ""
    for command in claim.commands(form, log.folder):
        if command.kind != "figure":
            if ended := prepare(command, log):
                return ended
            continue
        code, said, complained = log.run(command)
        code = 0 if command.any_exit else code
        figure, broken = command.figure.of(said)
        if code == 0 and not figure and not claim.figure(form):
            broken = "prints no figure"
        # Commands that cannot run here do not hide failures, and the results of the others count.
        if code and (code != SKIPPED or status == 0):
            status = code
        if code not in (0, SKIPPED):
            reasons += [exit_of(code), c.last_line(complained)]
        elif code == 0 and broken:
            status, reasons = 1, reasons + [broken]
        figures.append((f"{command.label}: " if command.label else "") + (figure or (c.last_line(complained) if code else "")))
        output += said
    together = claim.figure(form)
    if together and status != SKIPPED:
        figure, broken = together.of(output)
        figures, reasons, status = [figure], reasons + [broken] * bool(broken), status or int(bool(broken))
    return status, "; ".join(figures), reasons


def run(claim, quick, logs, tested=None):
    """Runs a claim and returns the record of the result."""
    form = claim.form(quick)
    begin, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    log = Log(os.path.join(logs, f"{claim.name}.{form}.log"), QUICK_LIMIT if quick else WHOLE_LIMIT, tested)
    with tempfile.TemporaryDirectory(prefix="zorse-evidence-") as log.folder:
        try:
            status, figure, reasons = attempt(claim, form, log)
        except Late as late:
            with open(log.path) as f:
                status, figure, reasons = 1, c.last_line(f.read()), [str(late)]
    seconds = time.monotonic() - begin
    state = "passed" if status == 0 else "not run" if status == SKIPPED else "failed"
    if state == "failed":
        figure = "; ".join(dict.fromkeys(part for part in (*reasons[:1], figure, *reasons[1:]) if part))
    others = max(0.0, (busy_seconds() - busy) - (own_seconds() - own)) / max(seconds, 0.1)
    tests = {"tests": True} if log.seconds_by_tests else {}
    return tests | {"script": claim.name, "form": form, "state": state, "figure": figure, "commit": commit(), "processor": processor(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": round(seconds + log.seconds_by_tests, 1), "others": round(others, 1)}


def end(child):
    for sign, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            pass
        try:
            child.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


class Store:
    """docs/evidence.jsonl: the latest record of every form of every claim, one per line. `script`
    is the claim's name; it had an extension when claims were scripts. Several processes may add
    records at the same time."""

    def __init__(self, path):
        self.path, self.records = path, {}
        self.read()

    def read(self):
        if os.path.exists(self.path):
            with open(self.path) as f:
                for record in map(json.loads, filter(str.strip, f)):
                    self.keep(record | {"script": record["script"].removesuffix(".sh")})

    def keep(self, record):
        self.records[record["script"], record["form"]] = record

    def put(self, record):
        folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            self.read()  # another process may have added records
            self.keep(record)
            with open(self.path + ".new", "w") as f:
                for key in sorted(self.records):
                    f.write(json.dumps(self.records[key], ensure_ascii=False) + "\n")
            os.replace(self.path + ".new", self.path)
        finally:
            os.close(folder)


def write_table(options):
    """Writes the page of results from the claims and their records."""
    path = os.path.join(options.docs, "internals", "results.md")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    text = results_file(options.claims, os.path.join(options.docs, "evidence.jsonl"))
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as f:
        f.write(text)
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)


def show(claim, forms):
    """Prints the commands of a claim, for running them by hand from the root of the repository."""
    folder = f"out/evidence/{claim.name}"
    print(f"# {claim.name}: {claim.claim}")
    for form in forms:
        print("# whole and quick" if claim.form(True) == "whole" else f"# quick: {claim.quick}" if form == "quick" else "# whole")
        commands = claim.commands(form, folder)
        if any(folder in word for command in commands for word in command.words):
            print(f"mkdir -p {folder}")
        for command in commands:
            # Keep an assignment before the program an assignment.
            words = [re.sub(r"^(\w+=)(.*)", lambda m: m[1] + shlex.quote(m[2]), w) if re.match(r"[A-Z_]+=", w) else shlex.quote(w.removeprefix(ROOT + "/")) for w in command.words]
            said = [command.label] * bool(command.label) + [f"makes {command.makes}"] * bool(command.makes) + ["if this fails, the claim cannot be tried here"] * (command.kind == "need")
            print(" ".join(words) + (f"  # {', '.join(said)}" if said else ""))
            print_figure(command.figure)
        print_figure(claim.figure(form))


def print_figure(figure):
    if figure and not figure.plain:
        print("".join(f"#   finds {f.pattern}\n" for f in figure.find) + f"#   says {figure.say}" + "".join(f"\n#   holds if {limit[0]}" for limit in figure.limits))


def chosen(claims, names):
    known = {claim.name: claim for claim in claims}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"run-evidence: there is no claim '{unknown[0]}' in test/evidence; tools/run-evidence.sh --list lists all claims")
    return [known[name] for name in names] if names else claims


def summarize(records, left_out, faulty):
    print()
    for state in ("failed", "not run"):
        for r in records:
            if r["state"] == state:
                print(f"{state}: {r['script']} ({r['form']}): {r['figure']}")
    for claim in faulty:
        print(f"failed: {claim.name}: {' and '.join(claim.faults())}")
    for claim in left_out:
        print(f"left out: {claim.name}: quick form: {claim.quick}")
    counts = {state: sum(r["state"] == state for r in records) for state in STATES}
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} cannot run here, {len(left_out)} without a quick form, in {sum(r['seconds'] for r in records) / 60:.1f} minutes")
    return 1 if counts["failed"] or faulty else 3 if counts["not run"] else 0


def run_all(wanted, store, options):
    """Runs the selected claims. Returns their records, and the claims without a quick form."""
    logs = os.path.join(ROOT, "out", "evidence")
    os.makedirs(logs, exist_ok=True)
    tested = Tested(options.tests) if options.quick and not options.names else None
    records, left_out = [], [claim for claim in wanted if options.quick and claim.without_quick()]
    for claim in wanted:
        if claim in left_out:
            continue
        print(f"{claim.name} ... ", end="", flush=True)
        record = run(claim, options.quick, logs, tested)
        records.append(record)
        print(f"{record['state']}, {record['seconds']:.0f} s{' of CTest' if record.get('tests') else ''}: {record['figure']}", flush=True)
        store.put(record)
        write_table(options)
    return records, left_out


def main():
    parser = argparse.ArgumentParser(prog="run-evidence.sh", usage="tools/run-evidence.sh [--quick] [--list] [--show] [--table] [--no-build] [NAME...]")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="run the quick forms")
    parser.add_argument("--list", action="store_true", help="list all claims; run nothing")
    parser.add_argument("--show", action="store_true", help="print the commands; run nothing")
    parser.add_argument("--table", action="store_true", help="rewrite docs/internals/results.md; run nothing")
    parser.add_argument("--claims", default=os.path.join(ROOT, "test", "evidence", "claims.toml"), help=argparse.SUPPRESS)
    parser.add_argument("--tests", default=os.path.join(ROOT, "build", "release"), help=argparse.SUPPRESS)
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        claims = c.read(options.claims)
    except (c.Fault, ValueError) as problem:
        sys.exit(f"run-evidence: {options.claims} {problem}")
    wanted = chosen(claims, options.names)
    faulty = [claim for claim in wanted if claim.faults()]
    for claim in faulty:
        print(f"run-evidence: {claim.name} {' and '.join(claim.faults())}; test/evidence/README.md describes the format")
    wanted = [claim for claim in wanted if claim not in faulty]
    store = Store(os.path.join(options.docs, "evidence.jsonl"))
    if options.list or options.show:
        for claim in wanted:
            if options.show:
                show(claim, ["quick"] if options.quick else ["whole"] if claim.form(True) == "whole" or claim.without_quick() else ["whole", "quick"])
            else:
                print(f"{claim.name}\n    {claim.claim}\n    quick: {claim.quick}")
        return 1 if faulty else 0
    if options.table:
        write_table(options)
        return 0
    return summarize(*run_all(wanted, store, options), faulty)


if __name__ == "__main__":
    sys.exit(main())
