"""What tools/run-evidence.sh does once everything is built: runs the scripts of a folder, keeps what each printed, writes the table.

    evidence.py [--quick] [--list] [--table] [--scripts FOLDER] [--docs FOLDER] [NAME...]
"""
import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = ("Claim", "Topic", "Quick")
TOPICS = ["Getting started", "Mathematics", "Exports", "Compiler", "Verifier", "Planner", "Predictions", "Speed", "Snapshots", "Jobs", "Robustness"]  # in this order; others behind them
QUICK_LIMIT, WHOLE_LIMIT = 600, 6 * 3600  # seconds of one script
SKIPPED = 77
STATES = {"passed": "passed", "failed": "**FAILED**", "not run": "**not run**"}


class Script:
    """A script of test/evidence and what its header says (test/evidence/README.md)."""

    def __init__(self, path):
        self.path, self.file = path, os.path.basename(path)
        self.name = self.file[: -len(".sh")]
        self.header = dict.fromkeys(KEYS, "")
        key = None
        with open(path) as f:
            for line in f.read().splitlines()[1:]:
                if not line.startswith("#"):
                    break
                found = re.match(r"# (\w+): +(.*)", line)
                if found and found.group(1) in KEYS:
                    key = found.group(1)
                    self.header[key] = found.group(2)
                elif line.strip() == "#":
                    key = None
                elif key:
                    self.header[key] += " " + line[1:].strip()
        self.claim, self.topic, self.quick = (self.header[k].strip() for k in KEYS)

    def faults(self):
        """What its header lacks."""
        lacks = [f"has no line '# {key}: ...' at its top" for key in KEYS if not self.header[key].strip()]
        if not os.access(self.path, os.X_OK):
            lacks.append("is not executable")
        return lacks

    def without_quick(self):
        return self.quick.startswith("none")

    def form(self, quick):
        return "quick" if quick and not self.quick.startswith("whole") else "whole"


def scripts_in(folder):
    return [Script(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".sh")]


def commit():
    """The commit that is measured; what this program writes is no change of it."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/evidence.md", ":!docs/evidence.jsonl")
    return (git("rev-parse", "--short=7", "HEAD") or "unknown") + ("+changes" if changed else "")


def processor():
    """Generation, vector instructions and number of cores: what figures of speed depend on."""
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
    """Processor time that everybody on this machine has used."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, *_ = map(int, f.readline().split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    used = os.times()
    return used.children_user + used.children_system


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]) if lines else ""


def run(script, quick, logs):
    """Runs it; the record of what happened."""
    form = script.form(quick)
    limit = QUICK_LIMIT if quick else WHOLE_LIMIT
    log = os.path.join(logs, f"{script.name}.{form}.log")
    begin, busy, own = time.monotonic(), busy_seconds(), own_seconds()
    late = False
    with open(log, "w+") as out, open(log + ".errors", "w+") as errors:
        # A session of its own: what is left of it when its time is over can be ended together.
        child = subprocess.Popen([script.path, *(["--quick"] if quick else [])], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd=ROOT, start_new_session=True)
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
            end(child)
        out.seek(0)
        errors.seek(0)
        said, complained = out.read(), errors.read()
    seconds = time.monotonic() - begin
    code = child.returncode
    state = "passed" if code == 0 else "not run" if code == SKIPPED else "failed"
    figure = last_line(said) or last_line(complained)
    if state == "failed":
        why = f"ended after its limit of {limit} s" if late else f"exit {code}" if code > 0 else f"ended by signal {-code}"
        error = last_line(complained)
        figure = "; ".join(dict.fromkeys(part for part in (why, figure, error) if part))
    others = max(0.0, (busy_seconds() - busy) - (own_seconds() - own)) / max(seconds, 0.1)
    return {"script": script.file, "form": form, "state": state, "figure": figure, "commit": commit(), "processor": processor(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": round(seconds, 1), "others": round(others, 1)}


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
    """docs/evidence.jsonl: the last record of every form of every script, one a line."""

    def __init__(self, path):
        self.path, self.records = path, {}
        if os.path.exists(path):
            with open(path) as f:
                for record in map(json.loads, filter(str.strip, f)):
                    self.records[record["script"], record["form"]] = record

    def put(self, record):
        self.records[record["script"], record["form"]] = record
        with open(self.path + ".new", "w") as f:
            for key in sorted(self.records):
                f.write(json.dumps(self.records[key], ensure_ascii=False) + "\n")
        os.replace(self.path + ".new", self.path)

    def of(self, script):
        return [self.records[script.file, form] for form in ("whole", "quick") if (script.file, form) in self.records]


def cell(text):
    return text.replace("|", "\\|")


def origin(record):
    beside = f", beside {record['others']:g} cores of other work" if record.get("others", 0) >= 0.2 else ""
    return f"{record['form']}, `{record['commit']}`, {record['date']}, {record['processor']}, {record['seconds']:.0f} s{beside}"


def remarks_of(docs):
    path = os.path.join(docs, "evidence-remarks.md")
    if not os.path.exists(path):
        return set()
    with open(path) as f:
        return set(re.findall(r"^## (\S+)$", f.read(), re.M))


def row(script, store, remarks):
    records = store.of(script) or [None]
    results = "<br>".join(f"{STATES[r['state']]}: {origin(r)}" if r else "**not run** yet" for r in records)
    # Where the whole and the quick form have figures, each says which it is.
    figures = "<br>".join((f"{r['form']}: " if len(records) > 1 else "") + cell(r["figure"]) if r else "" for r in records)
    if script.name in remarks:
        figures += f" ([remarks](evidence-remarks.md#{script.name}))"
    return f"| {cell(script.claim)} | `{script.file}` | {results} | {figures} |"


def write_table(scripts, store, docs):
    topics = TOPICS + sorted({s.topic for s in scripts} - set(TOPICS))
    remarks = remarks_of(docs)
    lines = ["# Evidence", "",
             "What is claimed, the script in `test/evidence/` that shows it, and what it printed last. `tools/run-evidence.sh` writes this page from what the scripts print: a change by hand does not stay.",
             "Every result says whether the whole script ran or its quick form, at which commit, when, on which processor, how long it took, and how many cores others kept busy meanwhile, which figures of",
             "speed suffer from. What figures mean beyond a script's last line, and figures of earlier states: [remarks](evidence-remarks.md). How to add a script: [test/evidence](../test/evidence/README.md)."]
    for topic in topics:
        rows = [row(s, store, remarks) for s in scripts if s.topic == topic]
        if rows:
            lines += ["", f"## {topic}", "", "| claim | script | result | figure |", "|---|---|---|---|", *rows]
    with open(os.path.join(docs, "evidence.md"), "w") as f:
        f.write("\n".join(lines) + "\n")


def chosen(scripts, names):
    known = {s.name: s for s in scripts}
    wanted = [os.path.basename(n)[:-3] if n.endswith(".sh") else n for n in names]
    unknown = [n for n in wanted if n not in known]
    if unknown:
        sys.exit(f"run-evidence: there is no script '{unknown[0]}' in test/evidence; tools/run-evidence.sh --list says what there is")
    return [known[n] for n in wanted] if wanted else scripts


def summarize(records, left_out, faulty):
    print()
    for state in ("failed", "not run"):
        for r in records:
            if r["state"] == state:
                print(f"{state}: {r['script']} ({r['form']}): {r['figure']}")
    for script in faulty:
        print(f"failed: {script.file}: {' and '.join(script.faults())}")
    for script in left_out:
        print(f"left out: {script.file}: quick form: {script.quick}")
    counts = {state: sum(r["state"] == state for r in records) for state in STATES}
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} cannot run here, {len(left_out)} without a quick form, in {sum(r['seconds'] for r in records) / 60:.1f} minutes")
    return 1 if counts["failed"] or faulty else 3 if counts["not run"] else 0


def main():
    parser = argparse.ArgumentParser(prog="run-evidence.sh", usage="tools/run-evidence.sh [--quick] [--list] [--table] [--no-build] [NAME...]")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the quick forms, at most half an hour together")
    parser.add_argument("--list", action="store_true", help="say what there is; run nothing")
    parser.add_argument("--table", action="store_true", help="write docs/evidence.md anew; run nothing")
    parser.add_argument("--scripts", default=os.path.join(ROOT, "test", "evidence"), help=argparse.SUPPRESS)
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    scripts = scripts_in(options.scripts)
    wanted = chosen(scripts, options.names)
    faulty = [s for s in wanted if s.faults()]
    for s in faulty:
        print(f"run-evidence: {s.file} {' and '.join(s.faults())}; test/evidence/README.md says what a script looks like")
    wanted = [s for s in wanted if s not in faulty]
    store = Store(os.path.join(options.docs, "evidence.jsonl"))
    if options.list:
        for s in wanted:
            print(f"{s.file}\n    {s.claim}\n    quick: {s.quick}")
        return 0
    if options.table:
        write_table(scripts, store, options.docs)
        return 0
    logs = os.path.join(ROOT, "out", "evidence")
    os.makedirs(logs, exist_ok=True)
    records, left_out = [], [s for s in wanted if options.quick and s.without_quick()]
    for s in wanted:
        if s in left_out:
            continue
        print(f"{s.name} ... ", end="", flush=True)
        record = run(s, options.quick, logs)
        records.append(record)
        print(f"{record['state']}, {record['seconds']:.0f} s: {record['figure']}", flush=True)
        store.put(record)
        write_table(scripts, store, options.docs)
    return summarize(records, left_out, faulty)


if __name__ == "__main__":
    sys.exit(main())
