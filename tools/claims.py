"""Claims of test/evidence/claims.toml: the claim, the commands that verify it, and how their output
becomes its figure (test/evidence/README.md)."""
import glob
import operator
import os
import re
import shlex
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPICS = ["Getting started", "Mathematics", "Exports", "Compiler", "Verifier", "Planner", "Predictions", "Speed", "Snapshots", "Jobs", "Robustness", "GPUs", "Memory"]
FIGURE_KEYS = {"find", "say", "limits"}
COMMAND_KEYS = FIGURE_KEYS | {"run", "label", "form", "any_exit"}
CLAIM_KEYS = FIGURE_KEYS | {"claim", "quick", "needs", "setup", "run"}
CHOICE = re.compile(r"\{((?:[^{}|]|\{[^{}]*\})*)\|((?:[^{}|]|\{[^{}]*\})*)\}")
NAME = re.compile(r"\{(\w+)(?::([\w.-]+))?\}")
LIMIT = re.compile(r"(\w+) (<=|>=|<|>|==) (\S+)")
NUMBER = re.compile(r"-?[\d.]+(e-?\d+)?")
HOLDS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq}


class Fault(Exception):
    """A claim does not follow test/evidence/README.md, or its output contains no figure."""


def choose(text, form):
    """Replaces {A|B} by A in the whole form and by B in the quick form."""
    return CHOICE.sub(lambda m: m.group(2 if form == "quick" else 1), text)


class Figure:
    """How output becomes a figure: by default its last line; with `find` the matches of these
    expressions, formatted by `say` and checked against `limits`."""

    def __init__(self, table, form):
        find = table.get("find", [])
        self.find = [re.compile(f, re.M) for f in ([find] if isinstance(find, str) else find)]
        self.say = choose(table.get("say", "{found}"), form)
        self.limits = [LIMIT.fullmatch(l) for l in table.get("limits", [])]
        self.plain = not FIGURE_KEYS & set(table)
        groups = {name for f in self.find for name in f.groupindex}
        if any(m is None or m[3] not in groups and not NUMBER.fullmatch(m[3]) for m in self.limits):
            raise Fault(f"has a limit that is not 'GROUP OPERATOR NUMBER': {table['limits']}")
        unknown = sorted(set(re.findall(r"\{(\w*)\}", self.say)) - groups - {"found"} | {m[1] for m in self.limits} - groups)
        if unknown:
            raise Fault(f"has no group '{unknown[0]}' in what it finds")

    def of(self, text):
        """Returns the figure of an output, and the reason why the claim fails (or None)."""
        if self.plain:
            return last_line(text), None
        values, found = {}, []
        for expression in self.find:
            matches = list(expression.finditer(text))
            if not matches:
                return last_line(text), f"nothing in the output matches {expression.pattern!r}"
            found += [m.group(0).strip() for m in matches]
            values |= {name: gathered(name, [m[name] for m in matches]) for name in expression.groupindex}
        broken = next((m for m in self.limits if not HOLDS[m[2]](number(values[m[1]]), number(values.get(m[3], m[3])))), None)
        return self.say.format(**({"found": "; ".join(found)} | values)), broken and f"{broken[0]} does not hold"


def number(text):
    """Converts text to a number. Text that is not a number becomes NaN, which satisfies no limit."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def gathered(name, texts):
    """Combines several matches into one number: their maximum if the group is named worst,
    otherwise their sum."""
    return texts[0] if len(texts) == 1 else f"{(max if name == 'worst' else sum)(map(number, texts)):.12g}"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]) if lines else ""


class Command:
    """A command line and its purpose: 'need' (if it fails, the claim cannot be tested here),
    'setup' or 'figure'."""

    def __init__(self, kind, words, table, form):
        self.kind, self.words, self.table = kind, words, table
        self.label, self.message, self.any_exit, self.makes = table.get("label", ""), table.get("message", ""), table.get("any_exit", False), table.get("makes")
        self.figure = Figure(table, form)

    def needed(self):
        """Whether the command must run. A command that makes a file is skipped if the file is newer
        than the programs that make it."""
        if not self.makes or not os.path.exists(os.path.join(ROOT, self.makes)):
            return True
        programs = glob.glob(os.path.join(ROOT, "models", "*.py")) + glob.glob(os.path.join(ROOT, "models", "modules", "*.py"))
        return os.path.getmtime(os.path.join(ROOT, self.makes)) < max(map(os.path.getmtime, programs))


class Places:
    """Expands {bin} and the other names in commands. Collects prerequisites in `before`."""

    def __init__(self, folder):
        self.folder, self.before = folder, []
        self.bin = os.environ.get("ZORSE_BIN", "build/release/bin")

    def first(self, kind, *words, **table):
        if words not in [tuple(c.words) for c in self.before]:
            self.before.append(Command(kind, list(words), table, "whole"))

    def value(self, match):
        name, argument = match.groups()
        if name == "torch":
            if "ZORSE_PYTHON" not in os.environ:
                self.first("setup", "tools/python-env.sh")
            return os.environ.get("ZORSE_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
        if name == "model" and argument:
            path = f"out/{argument}.onnx"
            self.first("setup", self.fill("{torch}"), "models/make_benchmark.py", argument, path, makes=path)
            return path
        known = {"bin": self.bin, "python": "/usr/bin/python3", "root": ROOT, "folder": self.folder, "cores": str(len(os.sched_getaffinity(0)))}
        if name not in known or argument:
            raise Fault(f"uses {match.group(0)}, which is not defined")
        return known[name]

    def fill(self, text):
        return NAME.sub(self.value, text)


class Claim:
    def __init__(self, topic, name, table):
        self.topic, self.name, self.table = topic, name, table
        self.claim, self.quick = table.get("claim", ""), table.get("quick", "")

    def without_quick(self):
        return self.quick.startswith("none")

    def form(self, quick):
        return "quick" if quick and not self.quick.startswith("whole") else "whole"

    def figure(self, form):
        """The figure of the combined output of all commands, or None if each command has its own."""
        return Figure(self.table, form) if FIGURE_KEYS & set(self.table) else None

    def commands(self, form, folder):
        """Returns all commands in order of execution."""
        places, listed = Places(folder), []
        for kind, key in (("need", "needs"), ("setup", "setup"), ("figure", "run")):
            entries = self.table.get(key, [])
            for entry in [entries] if isinstance(entries, (str, dict)) else entries:
                table = {"run": entry} if isinstance(entry, str) else entry
                if table.get("form", form) == form:
                    listed.append(Command(kind, shlex.split(places.fill(choose(table["run"], form))), table, form))
        needs = [c for c in listed if c.kind == "need"]
        return needs + places.before + listed[len(needs):]

    def faults(self):
        """Returns the defects of the claim's definition."""
        found = [f"has no {key}" for key in ("claim", "quick", "run") if not self.table.get(key)]
        if self.topic not in TOPICS:
            found.append(f"has an unknown topic '{self.topic}'")
        found += [f"has an unknown key '{key}'" for key in self.table if key not in CLAIM_KEYS]
        runs = self.table.get("run", [])
        found += [f"has an unknown key '{key}'" for c in (runs if isinstance(runs, list) else [runs]) if isinstance(c, dict) for key in c if key not in COMMAND_KEYS]
        try:
            whole, quick = ([c.words for c in self.commands(form, "FOLDER")] for form in ("whole", "quick"))
            self.figure("whole")
        except (Fault, KeyError, ValueError, re.error) as problem:
            return found + [str(problem)]
        if self.quick and (whole == quick) != self.quick.startswith(("whole", "none")):
            found.append("declares a different quick form, but both forms are the same" if whole == quick else f"declares '{self.quick.split(',')[0]}' as its quick form, but has a different one")
        files = {w for words in whole + quick for w in words if re.match(r"(test|tools|models)/[^*{}]*\.\w+$", w)}
        return found + [f"refers to {w}, which does not exist" for w in sorted(files) if not os.path.exists(os.path.join(ROOT, w))]


def read(path):
    """Returns all claims of a file, by topic and name."""
    with open(path, "rb") as f:
        tables = tomllib.load(f)
    order = {topic: i for i, topic in enumerate(TOPICS)}
    claims = [Claim(topic, name, table if isinstance(table, dict) else {}) for topic, of in tables.items() for name, table in (of if isinstance(of, dict) else {"": {}}).items()]
    twice = [c.name for i, c in enumerate(claims) if c.name in {d.name for d in claims[:i]}]
    if twice:
        raise Fault(f"two claims are called '{twice[0]}'")
    return sorted(claims, key=lambda c: (order.get(c.topic, len(order)), c.topic, c.name))
