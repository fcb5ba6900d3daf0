"""Pages of lists: status, limits, environment, device types, operators, models and results. Their data is in docs/data, in sources and in docs/evidence.jsonl."""
import collections
import json
import os
import re
import subprocess
import sys
import tomllib

import site_tree as tree

sys.path.insert(0, os.path.join(tree.ROOT, "tools"))
import claims as claim_files  # noqa: E402


def source(path):
    with open(os.path.join(tree.ROOT, path), encoding="utf-8") as f:
        return f.read()


def data(name):
    if name.endswith(".json"):
        return json.loads(source(f"docs/data/{name}"))
    return tomllib.loads(source(f"docs/data/{name}"))


def fail(text):
    raise SystemExit(f"tools/docs.py: {text}")


def cell(text):
    return text.replace("|", "\\|")


def status_page():
    states = {"measured": "trained and measured", "tested": "supported", "emulated": "emulated", "none": "not supported"}
    out = ["# Status", "", "What Zorse supports, and on what it was tried.", "",
           "- **trained and measured**: runs on this hardware; figures are in [Results](../internals/results.md).", "- **supported**: covered by tests.",
           "- **emulated**: compiled code runs on an emulator and was not yet run on hardware.", "- **not supported**: there is no implementation, or no test of it.", "", "| what | state | details |", "|---|---|---|"]
    out += [f"| {row['what']} | {states[row['state']]} | {row['detail']} |" for row in data("status.toml")["row"]]
    return "\n".join(out + ["", "Numbers of devices, samples and files are limited: [Limits](limits.md).", ""])


def limits_page():
    out = ["# Limits", "", "Files above these limits are refused with a message. Ranges of single values are on the page of each file: [cluster.yaml](cluster-yaml.md), [plan.json](plan-json.md), "
           "[profile.json](profile-json.md), [layers.json](layers-json.md). What is not supported at all is on the page [Status](status.md).", ""]
    for group in data("limits.toml")["group"]:
        out += [f"## {group['title']}", "", "| what | limit |", "|---|---|"]
        for row in group["limits"]:
            if "".join(row["text"].split()) not in "".join(source(row["source"]).split()):
                fail(f"docs/data/limits.toml: {row['what']}: {row['source']} has no '{row['text']}'")
            out.append(f"| {row['what']} | {row['limit']} |")
        out.append("")
    return "\n".join(out)


def environment_page():
    table = data("environment.toml")
    names = [v["name"] for group in table["group"] for v in group["variables"]]
    folders = ("lib", "tools", "runtime", "python")
    found = subprocess.run(["git", "-C", tree.ROOT, "grep", "-hoE", r"\"[A-Z][A-Z0-9_]+\"", "--", *(f"{f}/*.{e}" for f in folders for e in ("cpp", "h", "py"))], capture_output=True, text=True).stdout
    in_sources = set(re.findall(r"\"([A-Z0-9_]+)\"", found))
    if missing := [n for n in names if n not in in_sources]:
        fail(f"docs/data/environment.toml: no source names {missing[0]}")
    known = set(names) | {"ZORSE_PYTHON", "ZORSE_DOCS_PYTHON"}
    if extra := sorted(n for n in in_sources if n.startswith("ZORSE_") and n != "ZORSE_" and n not in known):
        fail(f"docs/data/environment.toml: {extra[0]} is missing, which sources name")
    out = ["# Environment variables", "", "All are optional.", ""]
    for group in table["group"]:
        out += [f"## {group['title']}", ""] + ([group["text"], ""] if "text" in group else []) + ["| variable | meaning | default | read by |", "|---|---|---|---|"]
        out += [f"| `{v['name']}` | {v['meaning']} | {v['default']} | {v['read_by']} |" for v in group["variables"]] + [""]
    out += ["## Launchers", "", "`zorse-run` uses the first row whose variables are set; variables behind a semicolon are optional. A variable without its partners, or with a value out of range, is an error. "
            "Setup for each launcher: [Slurm, Kubernetes, torchrun, MPI](../guides/clusters.md).", "", "| launcher | variables | address of rank 0 |", "|---|---|---|"]
    out += [f"| {row['name']} | {row['variables']} | {row['store']} |" for row in table["launcher"]]
    return "\n".join(out + ["", "`ZORSE_STORE` and `ZORSE_JOB` override the address and the job name of every launcher.", ""])


def device_types_page():
    text = source("lib/Planning/Cluster/DeviceTypes.cpp")
    out = ["# Device types", "", "Values of `type` in [cluster.yaml](cluster-yaml.md), with the defaults that they give. Names are also recognized as people and drivers spell them: `RTX 4090`, `4090`, `NVIDIA A100-SXM4-80GB`. "
           "Measured [profiles](profile-json.md) take precedence.", "",
           "`cpu-thread` is a CPU device of 50 GFLOP/s and 10 GB/s per thread.", "",
           "Speeds are those of large matrix products: f32 is 90 % of the data sheet; f16 is a published measurement, or 75 % of the data sheet (marked ~). bf16 is as fast as f16, or missing. 2 GB of the memory are reserved.", "",
           "| type | architecture | f32 TFLOP/s | f16 TFLOP/s | bf16 | SMs | memory GB | GB/s | device link GB/s | PCIe GB/s | source |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    groups = {"kNoBfloat": "no", "kBfloat": "yes", "kPlannedOnly": "yes, simulated only"}
    count = 0
    for name, bfloat in groups.items():
        block = re.search(rf"constexpr Row {name}\[\] = \{{(.*?)\n\}};", text, re.S)
        if not block:
            fail(f"lib/Planning/Cluster/DeviceTypes.cpp has no table {name}")
        for row in re.findall(r"\{\"([^\"]+)\", \"([^\"]*)\", ([^\"]*), \"([^\"]*)\"\}", block[1]):
            f32, f16, reached, sms, bandwidth, memory, port, pcie = (float(v) for v in row[2].split(","))
            fast = f"{reached:g}" if reached else f"~{0.75 * f16:.3g}"
            out.append(f"| `{row[0]}` | {f'`{row[1]}`' if row[1] else '–'} | {0.9 * f32:.3g} | {fast} | {bfloat} | {sms:g} | {memory:g} | {bandwidth:g} | {port:g} | {pcie:g} | {row[3]} |")
            count += 1
    if count < 40:
        fail(f"lib/Planning/Cluster/DeviceTypes.cpp: read {count} types only")
    return "\n".join(out + [""])


def registered_operators():
    """Names of operators that the importer takes, from its tables; functions of other domains have a dot."""
    found = set()
    folder = os.path.join(tree.ROOT, "lib", "Import", "ONNX")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".cpp"):
            for call in re.findall(r"registry\.add\(\{(.*?)\n  \}\);", source(f"lib/Import/ONNX/{name}"), re.S):
                for names in re.findall(r"\{\{((?:\"[\w.]+\",?\s*)+)\},", call):
                    found |= set(re.findall(r"\"([\w.]+)\"", names))
    return found


def operators_page():
    registry = registered_operators()
    table = data("operators.json")
    outcomes = table["operators"]
    default = sorted(n for n in registry if "." not in n)
    if len(default) < 100:
        fail(f"lib/Import/ONNX: found {len(default)} operators only")
    partial = []
    for name in default:
        row = outcomes.get(name)
        if row and row["imported"] and row["imported"][0] < row["imported"][1] and "IR version" not in row["remark"] and row["remark"] != "is not supported":
            remark = row["remark"].rstrip() if len(row["remark"]) < 158 else row["remark"].rsplit(" ", 1)[0].rstrip(";,.") + " …"
            partial.append((name, row, remark))
    fine = [n for n in default if n not in {p[0] for p in partial}]
    refused = sorted(n for n in outcomes if n not in registry)
    out = ["# Operators", "", f"ONNX operators that the importer supports, in opsets 13 to 26. Outcomes are those of ONNX's own node tests at commit `{table['commit']}` ({table['date']}): "
           f"{table['cases'][0]:,} of {table['cases'][1]:,} cases that fit into a model with a loss are imported and give ONNX's results. Gradients match finite differences in {table['gradients'][0]:,} of {table['gradients'][1]:,} cases.", "",
           "An operator whose operands are all constants is computed during import. An unsupported operator or attribute is an error that names the node.", "",
           f"## Supported ({len(fine)})", "", ", ".join(f"`{n}`" for n in fine), "",
           f"## Supported with restrictions ({len(partial)})", "", "| operator | cases imported | first restriction |", "|---|---|---|"]
    out += [f"| `{name}` | {row['imported'][0]} of {row['imported'][1]} | {remark} |" for name, row, remark in partial]
    out += ["", f"## Not supported ({len(refused)})", "", "Operators with a node test in ONNX that the importer has no rule for: " + ", ".join(f"`{n}`" for n in refused), ""]
    if others := sorted(n for n in registry if "." in n):
        out += ["## Other domains", "", ", ".join(f"`{n}`" for n in others), ""]
    return "\n".join(out + ["How to add an operator: [Extending](../internals/extending.md). Whole models: [Models](models.md).", ""])


def models_page():
    table = data("models.json")
    models = table["models"]
    count = collections.Counter(m["outcome"] for m in models)
    equal = sum(n for outcome, n in count.items() if outcome.startswith("equal"))
    own = [m for m in models if m["kind"] == "Modules of our own"]
    out = ["# Models", "", f"One small model of each model type of transformers {table['transformers']}, with random weights, was exported and trained for three steps on one device and under a random plan of three devices ({table['date']}{', ' + table['updated'] if 'updated' in table else ''}).", "",
           f"- **{equal} of {len(models)}** train to PyTorch's losses, gradients and parameters.", f"- **{count['refused']}** are refused: the export or the compiler says what it cannot train.",
           f"- **{count['not exported']}** are not exported: PyTorch's exporter fails.", f"- {sum(map(len, table['not_built'].values()))} further types were not tried.", "",
           "Models with batch norm were trained with all samples of a step as one group. Models of text and pictures were tried with text alone where they accept it.", "", "## Supported", ""]
    for kind in dict.fromkeys(m["kind"] for m in models):
        names = [m["family"] for m in models if m["kind"] == kind and m["outcome"].startswith("equal")]
        if names and kind != "Modules of our own":
            out += [f"**{kind}** ({len(names)}): " + ", ".join(names).replace("_", "\\_"), ""]
    if own:
        out += [f"**Other modules** ({sum(m['outcome'].startswith('equal') for m in own)}): " + ", ".join(m["family"].removeprefix("own-") for m in own if m["outcome"].startswith("equal")), ""]
    out += ["## Not supported", "", "| type | outcome | reason |", "|---|---|---|"]
    for m in models:
        if not m["outcome"].startswith("equal"):
            reason = m["remark"].replace("_", "\\_") if "`" not in m["remark"] else m["remark"]
            reason = reason if len(reason) <= 110 else reason[:110].rsplit(" ", 1)[0] + " …"
            reason = reason + "`" if reason.count("`") % 2 else reason
            out.append(f"| {m['family'].replace('_', chr(92) + '_')} | {m['outcome']} | {cell(reason.replace('<', '&lt;'))} |")
    return "\n".join(out + [""])


def shortened(text, words):
    """The first sentence, if it is short enough; otherwise its first words."""
    text = re.split(r"(?<=[a-z)])\. (?=[A-Z])", text)[0]
    parts = text.split()
    return text if len(parts) <= words else " ".join(parts[:words]).rstrip(",;:.") + " …"


def results_page(path=None, records=None):
    """Claims with their last result. `path`, `records`: other files, for tests."""
    claims = claim_files.read(path or os.path.join(tree.ROOT, "test", "evidence", "claims.toml"))
    found = {}
    records = records or os.path.join(tree.DOCS, "evidence.jsonl")
    if os.path.exists(records):
        with open(records) as f:
            for record in map(json.loads, filter(str.strip, f)):
                found[record["script"].removesuffix(".sh"), record["form"]] = record
    latest = {c.name: found.get((c.name, "whole")) or found.get((c.name, "quick")) for c in claims}
    states = collections.Counter(r["state"] if r else "never run" for r in latest.values())
    words = {"passed": "passed", "failed": "**FAILED**", "not run": "cannot run here"}
    out = ["# Results", "", f"{len(claims)} claims, each with the commands that show it. Last results: " + ", ".join(f"{states[s]} {s}" for s in ("passed", "failed", "not run", "never run") if states[s]) + ".", "",
           "`tools/run-evidence.sh NAME` runs a claim; `tools/run-evidence.sh --show NAME` prints its commands. A result in italics is that of a quick form with fewer cases. All results with their figures, processors and times are in "
           "[evidence.jsonl](../evidence.jsonl). How to add a claim: [test/evidence](../../test/evidence/README.md).", ""]
    for topic in dict.fromkeys(c.topic for c in claims):
        out += [f"## {topic}", "", "| claim | name | result | figure |", "|---|---|---|---|"]
        for c in claims:
            if c.topic != topic:
                continue
            record = latest[c.name]
            result, figure = "never run", ""
            if record:
                result = f"{words[record['state']]}, {record['date']}, {record['processor'].split(',')[0]}"
                result = f"*{result}*" if record["form"] == "quick" and record["state"] == "passed" else result
                figure = cell(shortened(record["figure"], 10)).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
            out.append(f"| {cell(shortened(c.claim, 22)).replace('<', '&lt;')} | `{c.name}` | {result} | {figure} |")
        out.append("")
    return "\n".join(out)


def write():
    yield "reference/status.md", "docs/data/status.toml", status_page()
    yield "reference/limits.md", "docs/data/limits.toml", limits_page()
    yield "reference/environment.md", "docs/data/environment.toml", environment_page()
    yield "reference/device-types.md", "lib/Planning/Cluster/DeviceTypes.cpp", device_types_page()
    yield "reference/operators.md", "lib/Import/ONNX and docs/data/operators.json", operators_page()
    yield "reference/models.md", "docs/data/models.json", models_page()
    yield "internals/results.md", "test/evidence/claims.toml and docs/evidence.jsonl", results_page()
