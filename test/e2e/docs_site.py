"""The documentation site: links and anchors resolve, generated pages are up to date, schemas have every key that the readers take and every key has a description, pages keep to their budget of
words, every figure is shown and as its source, reports and metrics are as their schemas say. And the site builds without a warning, with search and redirects (exit code 77 where Sphinx cannot be installed).

    docs_site.py [--build | --figures]     --build: only the build. --figures: only figures, those from simulations too
"""
import ast
import json
import os
import re
import subprocess
import sys
import tempfile

import harness as z

TOOL = os.path.join(z.ROOT, "tools", "docs.py")
DOCS = os.path.join(z.ROOT, "docs")
# Schema -> readers.
READERS = {
    "schemas/cluster.schema.json": ["lib/Planning/Cluster/ReadCluster.cpp", "lib/Planning/Cluster/ReadDevices.cpp"],
    "plan.schema.json": ["lib/Step/ReadPlan.cpp"],
    "profile.schema.json": ["lib/Planning/Costs/ReadProfile.cpp"],
    "layers.schema.json": ["lib/Planning/Costs/ReadLayers.cpp"],
}
# Lists of a reader that are no object of the schema, each with the reason.
OTHERS = [
    {"units", "samples", "device", "devices", "activations"},  # "devices" of a cell is refused with a message
    {"device", "fraction", "elements"},  # an owner has one of the two
    {"fixed"},  # the other key is a variable
    {"site", "device_link", "nic", "bus", "host_memory", "pcie", "nvme", "price", "devices"},  # templates: the schema describes them in words
    {"kind", "type", "flops_per_second", "memory", "reserved_memory", "memory_bandwidth", "half_peak_rows", "slowdown", "launch_overhead", "threads", "count", "price", "device_to_device"},
]
results = []


def holds(what, good, why=""):
    results.append(bool(good))
    print(f"{'ok  ' if good else 'FAIL'} {what}" + ("" if good else f":\n{why}"), flush=True)


def call(*words):
    done = subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, cwd=z.ROOT)
    return done.returncode, done.stdout + done.stderr


def objects(node, found=None):
    """Every object of a schema: its keys, with their values."""
    found = [] if found is None else found
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            found.append(node["properties"])
        for value in node.values():
            objects(value, found)
    elif isinstance(node, list):
        for value in node:
            objects(value, found)
    return found


def load(name):
    with open(os.path.join(DOCS, name)) as f:
        return json.load(f)


def described(name):
    """Keys without a description, neither there nor where they refer to."""
    schema = load(name)
    bare = []
    for keys in objects(schema):
        for key, value in keys.items():
            target = value
            while "$ref" in target and "description" not in target and target["$ref"].startswith("#/"):
                target = schema
                for part in value["$ref"][2:].split("/"):
                    target = target[part]
            if "description" not in target and "const" not in target:
                bare.append(key)
    return bare


def key_lists(paths):
    """The lists of keys that readers check for: {"name", "kind", ...}."""
    found = []
    for path in paths:
        with open(os.path.join(z.ROOT, path)) as f:
            text = f.read()
        for call_of in re.findall(r"checkKeys\((?:[^;{]*?)(\{[^}]*\})", text, re.S):
            found.append(frozenset(re.findall(r'"(\w+)"', call_of)))
    return {keys for keys in found if keys}


def schemas():
    for name, paths in READERS.items():
        read = key_lists(paths)
        written = {frozenset(keys) for keys in objects(load(name))}
        holds(f"{name}: the reader has key lists", len(read) > 1, str(paths))
        for keys in sorted(read, key=sorted):
            near = max(written, key=lambda w: len(w & keys) / len(w | keys))
            holds(f"{name}: {', '.join(sorted(keys)[:4])}, ...: the same keys", keys in written or keys in OTHERS, f"only the reader: {sorted(keys - near)}; only the schema: {sorted(near - keys)}")
    for name in sorted([*READERS, "schemas/report.schema.json", "schemas/metrics.schema.json", "schemas/simulation.schema.json"]):
        bare = described(name)
        holds(f"{name}: every key has a description", not bare, ", ".join(bare))


def misfits(value, schema, root, path="$"):
    """Where a value is not as its schema says: types, unknown and missing keys, choices."""
    while "$ref" in schema:
        target = root
        for part in schema["$ref"][2:].split("/"):
            target = target[part]
        schema = target
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_kind = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    fits = not kinds or any((kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool)) or (kind == "integer" and isinstance(value, (int, float)) and value == int(value))
                            or (kind in is_kind and isinstance(value, is_kind[kind])) for kind in kinds)
    if not fits:
        return [f"{path}: {value!r} is not {' or '.join(kinds)}"]
    found = []
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r}")
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{path}: unknown key {key}" for key in value if key not in schema["properties"]] + [f"{path}: no {key}" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            if key in schema["properties"]:
                found += misfits(item, schema["properties"][key], root, f"{path}.{key}")
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value[:50]):
            found += misfits(item, schema["items"], root, f"{path}[{i}]")
    return found


def outputs():
    """Real reports, metrics and simulations are as their schemas say."""
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        model, cluster, bundle = os.path.join(z.SMALL, "gpt-bytes.onnx"), z.cluster(folder, ["a", "b"]), path("m.zorse")
        z.call("zorse-plan", model, "--cluster", cluster, "--global-batch-size", 4, "--seq-length", 16, "--search-budget", 50, "--quiet", "--json", path("report.json"))
        z.compile(model, bundle, cluster, 4, 16, training={})
        z.call("zorse-run", bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--eval-data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--eval-iters", 1, "--max-steps", 2, "--metrics-file", path("metrics.jsonl"), "--quiet")
        z.call("zorse-run", bundle, "--simulate", "--simulate-steps", 2, "--json", path("simulation.json"), "--quiet")
        for name in ("report", "metrics", "simulation"):
            schema = load(f"schemas/{name}.schema.json")
            with open(path("metrics.jsonl" if name == "metrics" else name + ".json")) as f:
                values = [json.loads(line) for line in f] if name == "metrics" else [json.load(f)]
            found = [text for value in values for text in misfits(value, schema, schema)]
            holds(f"{name}: real output is as the schema says", not found and values, "\n".join(found[:10]))


def option_types():
    """The keyword options of the Python package are options of the tools."""
    with open(os.path.join(z.ROOT, "python", "zorse", "options.py")) as f:
        body = ast.parse(f.read())
    for name, tools in (("ModelOptions", ["compile", "plan"]), ("StateOptions", ["compile", "plan"]), ("CompileOptions", ["compile"]), ("RunOptions", ["run"]), ("PlanOptions", ["plan"])):
        node = next(n for n in body.body if isinstance(n, ast.ClassDef) and n.name == name)
        keys = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
        for tool in tools:
            _, said, _ = z.call(f"zorse-{tool}", "--help")
            missing = [k for k in keys if f"--{k.replace('_', '-')}" not in re.findall(r"--[a-z][a-z0-9-]*", said)]
            holds(f"options.{name}: options of zorse-{tool}", not missing, ", ".join(missing))


def statements():
    """Statements of pages that repeat a definition agree with it."""
    read = lambda name: open(os.path.join(DOCS, name)).read()
    _, said, _ = z.call("zorse-plan", "--help")
    chosen = set(re.search(r"--pipeline-schedule.*?\{([\w,]+)\}", said, re.S)[1].split(","))
    table = re.search(r"\n## Who chooses the schedule\n+(.*?)\n\n", read("concepts/schedules.md"), re.S)[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")[2:]]
    listed = {re.sub(r"\W", "_", row[0].lower()) for row in rows if row[3] == "yes"}
    holds("schedules.md: --pipeline-schedule accepts what the table says", listed == chosen, f"{sorted(listed)} {sorted(chosen)}")
    codes = set(re.findall(r"^\| ([\dn+, ]+) \|", read("reference/exit-codes.md"), re.M))
    other = set(re.findall(r"^\| ([\dn+, ]+) \|", read("guides/failing-run.md"), re.M))
    holds("failing-run.md: exit codes as in exit-codes.md", codes - other == {"0"} and other <= codes, f"{sorted(codes)} {sorted(other)}")
    # Names of pages in messages, comments and scripts.
    tracked = subprocess.run(["git", "-C", z.ROOT, "grep", "-hoE", r"\bdocs/[A-Za-z0-9_/-]+\.md\b", "--", ":!docs/data/pages.toml", ":!docs/*.md", ":!test/e2e/docs_site.py"], capture_output=True, text=True).stdout.split()
    missing = sorted({name for name in tracked if not os.path.exists(os.path.join(z.ROOT, name))} - {"docs/PAGE.md"})
    holds(f"{len(set(tracked))} pages that sources name exist", not missing and tracked, ", ".join(missing))


def build():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "site")
        code, said = call("build", "-o", out)
        if code == 77:
            print(said.strip())
            sys.exit(77)
        holds("the site builds without a warning", code == 0, said[-3000:])
        if code:
            return
        names = {os.path.relpath(os.path.join(at, n), out) for at, _, files in os.walk(out) for n in files}
        holds("it has a search index", "searchindex.js" in names and "search.html" in names)
        with open(os.path.join(DOCS, "redirects.txt")) as f:
            moved = [line.split() for line in f if line.strip() and not line.startswith("#")]
        missing = [old for old, _ in moved if re.sub(r"\.md$", ".html", old) not in names]
        holds(f"{len(moved)} earlier addresses lead to their pages", not missing, ", ".join(missing))
        figures = [n for n in names if n.startswith("figures" + os.sep)]
        holds("figures of pages are there", bool(figures) == os.path.isdir(os.path.join(DOCS, "figures")))
        elsewhere = set()
        for name in names:
            if name.endswith(".html"):
                with open(os.path.join(out, name)) as f:
                    elsewhere |= set(re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)\"", f.read()))
        holds("pages load nothing from elsewhere", not elsewhere, ", ".join(sorted(elsewhere)[:5]))
        with open(os.path.join(out, "index.html")) as f:
            page = f.read()
        holds("there are a light and a dark form, and contents", "theme-toggle" in page and "reference/commands/index.html" in page)


def figures(*words):
    """Figures are as their sources, and pages show them all, with a description."""
    tool = os.path.join(z.ROOT, "tools", "docs_figures.py")
    done = subprocess.run([sys.executable, tool, "--check", "--bin", z.BIN, *words], capture_output=True, text=True, cwd=z.ROOT)
    holds("figures are as their sources, and pages show them", done.returncode == 0, (done.stdout + done.stderr)[-4000:])
    done = subprocess.run([sys.executable, os.path.join(DOCS, "figures", "readme_tiling.py"), "--check"], capture_output=True, text=True)
    holds("the figure of the README is as its source", done.returncode == 0, done.stdout + done.stderr)


def main():
    if "--build" in sys.argv:
        build()
    elif "--figures" in sys.argv:
        figures()
    else:
        for words, what in ((["links"], "links and anchors lead somewhere"), (["generate", "--check", "--bin", z.BIN], "generated pages are up to date"), (["words", "--quiet"], "pages keep to their budget")):
            code, said = call(*words)
            holds(what, code == 0, said[-4000:])
        figures("--drawn")
        schemas()
        option_types()
        statements()
        outputs()
    z.finish(results)


if __name__ == "__main__":
    main()
