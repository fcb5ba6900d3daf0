#!/usr/bin/env python3
"""Writes the drawings of the documentation: SVG text, light and dark, from the sources in docs/figures.

    tools/docs_figures.py                   writes docs/figures/*.svg and the tables that come from the same simulations
    tools/docs_figures.py --check           writes nothing and compares; exit code 1 if a file differs, or pages and figures do not fit together
    tools/docs_figures.py --only NAME ...   only figures with these names
    tools/docs_figures.py --drawn           only figures that need no tool
    tools/docs_figures.py --bin DIR         folder of the tools (default: $ZORSE_BIN, or build/release/bin)

docs/figures/figures.json lists the figures with data, docs/figures/diagrams.json those without. Kinds:

    tiling         plan.json and cluster.yaml: units down, samples across, one color per device type
    timeline       a plan, compiled with --simulate-only and simulated with --trace: one row per device, idle time hatched
    memory         the counter "memory in use" of the same trace, one line per plan
    live-ranges    buffers of a device from zorse-inspect --memory and --program, over the same time
    efficiency     the key "efficiency" of zorse-plan --json, as a waterfall
    memory-bars    memory of a device by purpose, one bar per plan, from zorse-plan --json
    rate-bars      predicted throughput, one bar per cluster or choice of devices, from zorse-plan --json
    casts          types of values in low precision, from the graph IR of zorse-opt --zorse-insert-rounds
    launches       launches and arguments of functions, from zorse-opt --zorse-compile-functions
    curves         losses of committed metrics files, which are measured once
    token-rows     arrays that zorse.data writes from a few sentences
    attention      blocks and tiles of the attention kernel under a causal mask
    diagram, sequence, decisions, dependencies   drawn as the list describes them

Simulated and predicted times do not depend on the machine. Exit code 77: a figure needs a tool that is not built.
"""
import argparse
import concurrent.futures
import difflib
import json
import os
import pathlib
import re
import sys

from figures import casts, charts, diagrams, launches, memory, runs, tilings, timelines, tokens
from figures.runs import ROOT, SOURCES, Missing, Timeline
from figures.svg import percent

LISTS = [SOURCES / "figures.json", SOURCES / "diagrams.json"]
MOST_BYTES = 60 * 1024
SIMULATED = {"timeline": timelines.timeline, "memory": memory.memory, "live-ranges": memory.live_ranges}
REPORTED = {"efficiency": charts.efficiency, "memory-bars": charts.memory_bars, "rate-bars": charts.rate_bars, "casts": casts.casts, "launches": launches.launches}
LOWERED = {"casts": casts.lower, "launches": launches.compile_functions}
DRAWN = {"tiling": tilings.tiling, "curves": charts.curves, "token-rows": tokens.token_rows, "attention": tokens.attention, **diagrams.KINDS}
OTHER_SCRIPTS = {"readme-tiling-light", "readme-tiling-dark"}  # docs/figures/readme_tiling.py


def plans_of(figure):
    """(plan, cluster) of every simulation of a figure."""
    return [(p["plan"], p.get("cluster", figure["cluster"])) for p in figure.get("panels", figure.get("lines", [figure]))] if figure["kind"] in SIMULATED else []


def reports_of(figure):
    """Name -> options of zorse-plan, of a figure from reports."""
    if figure["kind"] == "efficiency":
        return {"": [*runs.model_options(figure, figure["plan"], figure["cluster"]), "--overlap-comm"]}
    if figure["kind"] not in ("memory-bars", "rate-bars"):
        return {}
    shared = [word.replace("@", str(SOURCES) + "/") for word in figure["options"]]
    return {row["title"]: shared + [word.replace("@", str(SOURCES) + "/") for word in row.get("options", [])] for row in figure["rows"] if "sum" not in row}


def make(figures, tools):
    """Name of every file -> its text; and the simulations by figure."""
    simulations, reports = {}, {}
    with concurrent.futures.ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as pool:
        for figure in figures:
            for plan, cluster in plans_of(figure):
                simulations[figure["name"], plan] = pool.submit(runs.simulate, figure, plan, cluster, tools)
            if figure["kind"] in LOWERED:
                reports[figure["name"], ""] = pool.submit(LOWERED[figure["kind"]], figure, tools)
            for name, options in reports_of(figure).items():
                reports[figure["name"], name] = pool.submit(runs.report, figure, tools, *options)
        simulations = {key: job.result() for key, job in simulations.items()}
        reports = {key: job.result() for key, job in reports.items()}
    files = {}
    for figure in figures:
        kind = figure["kind"]
        data = {key: result for (name, key), result in (simulations if kind in SIMULATED else reports).items() if name == figure["name"]}
        draw = SIMULATED.get(kind) or REPORTED.get(kind) or DRAWN[kind]
        files[f"docs/figures/{figure['name']}.svg"] = draw(figure, data[""] if kind == "efficiency" else data)
    return files, simulations


def tables(figures, simulated):
    """Pages whose tables come from simulations: text between '<!-- timelines -->' and '<!-- end timelines -->'."""
    pages = {}
    for figure in figures:
        if "table" not in figure:
            continue
        rows = ["| schedule | step | bubble | activations of |", "|---|---|---|---|"]
        for name, panel in [(f["name"], p) for f in figures if f.get("page") == figure["table"] and f["kind"] == "timeline" for p in f["panels"]]:
            t = Timeline(*simulated[name, panel["plan"]])
            rows.append(f"| {panel['title']} | {t.end * 1e3:.0f} ms | {percent(t.bubble())} | {t.in_flight():g} micro-batches |")
        text = (ROOT / figure["table"]).read_text()
        new, count = re.subn(r"(<!-- timelines -->\n).*?(<!-- end timelines -->)", lambda m: m[1] + "\n".join(rows) + "\n" + m[2], text, flags=re.S)
        if count == 0:
            raise RuntimeError(f"{figure['table']} has no '<!-- timelines -->'")
        pages[figure["table"]] = new
    return pages


def misfits(figures):
    """Figures that no page shows, pages that show others, images without a description, files that are too large."""
    names, shown, problems = {f["name"] for f in figures} | OTHER_SCRIPTS, set(), []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for tag in re.findall(r"<(?:img|source)\b[^>]*>", page.read_text()):
            found = re.search(r"figures/([\w-]+)\.svg", tag)
            where = f"{page.relative_to(ROOT)}: {found[1] if found else tag}"
            if not found:
                continue
            shown.add(found[1])
            if found[1] not in names:
                problems.append(f"{where}: no list of figures has it")
            if tag.startswith("<img") and not re.search(r'alt="[^"]{20,}"', tag):
                problems.append(f"{where}: has no description (alt)")
    problems += [f"docs/figures/{name}.svg: no page shows it" for name in sorted(names - shown)]
    for path in sorted(SOURCES.glob("*.svg")):
        if path.stem not in names:
            problems.append(f"{path.relative_to(ROOT)}: no list of figures has it")
        if path.stat().st_size > MOST_BYTES:
            problems.append(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, at most {MOST_BYTES}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(os.environ.get("ZORSE_BIN", ROOT / "build" / "release" / "bin")))
    options = parser.parse_args()
    figures = [figure for path in LISTS for figure in json.loads(path.read_text())]
    names = [f["name"] for f in figures]
    unknown = sorted(set(options.only or []) - set(names))
    if unknown:
        print(f"docs_figures.py: no figure is named {', '.join(unknown)}; figures: {', '.join(names)}", file=sys.stderr)
        return 2
    chosen = [f for f in figures if (not options.only or f["name"] in options.only) and (not options.drawn or f["kind"] in DRAWN)]
    try:
        files, simulated = make(chosen, options.bin)
        if len(chosen) == len(figures):
            files.update(tables(figures, simulated))
    except Missing as missing:
        print(f"docs_figures.py: {missing}; build the release preset, or name the tools' folder with --bin", file=sys.stderr)
        return 77
    bad = 0
    for name, text in files.items():
        path = ROOT / name
        before = path.read_text() if path.exists() else ""
        if before == text:
            continue
        if options.check:
            bad += 1
            difference = list(difflib.unified_diff(before.splitlines(), text.splitlines(), name, name + " (new)", lineterm="", n=0))
            print("\n".join(line[:200] for line in difference[:8]))
            print(f"FAIL {name} differs from its source: run tools/docs_figures.py")
        else:
            path.write_text(text)
            print(f"wrote {name}")
    if options.check:
        problems = misfits(figures)
        print("".join(f"FAIL {problem}\n" for problem in problems), end="")
        print(f"{len(files) - bad} of {len(files)} files are as their sources, {len(problems)} problems of pages")
        return 1 if bad or problems else 0
    print(f"{len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
