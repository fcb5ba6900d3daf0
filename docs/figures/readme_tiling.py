#!/usr/bin/env python3
"""Draws the tiling of docs/figures/readme.plan.json for the README: units down, samples across, one color per device type.

    docs/figures/readme_tiling.py           writes readme-tiling-light.svg and readme-tiling-dark.svg
    docs/figures/readme_tiling.py --check   fails if the files in the folder differ from what the plan gives

The plan was written by:

    zorse-plan --model-shape layers=24,hidden=2048,ffn=5632,heads=16,kv_heads=16,vocabulary=32000,precision=f16 --seq-length 1024 \\
        --global-batch-size 32 --search-budget 3000 --cluster docs/figures/readme.cluster.yaml -o docs/figures/readme.plan.json
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 840, 400
LEFT, TOP, RIGHT, BOTTOM = 56, 40, 676, 372
THEMES = {
    "light": {"text": "#1f2328", "soft": "#59636e", "edge": "#ffffff", "fills": {"h100": ["#0f62a8"], "a100": ["#0a8465", "#4fb79b"], "v100": ["#c2680b", "#e8a95b"]}},
    "dark": {"text": "#f0f6fc", "soft": "#9198a1", "edge": "#0d1117", "fills": {"h100": ["#5aa9ef"], "a100": ["#2fb08c", "#8fdcc4"], "v100": ["#e08a2e", "#f5c98f"]}},
}
TYPES = {"h100": "H100", "a100": "A100 40 GB", "v100": "V100 32 GB"}


def ordered(cells):
    """Cells of the plan as (device, units, samples), by units and samples."""
    return sorted(((c["device"], c["units"], c["samples"]) for c in cells), key=lambda c: (c[1], c[2]))


def fill_of(theme, device):
    kind, _, number = device.partition(":")
    shades = theme["fills"][kind]
    return shades[int(number or 0) % len(shades)]


def label_on(fill):
    """Black or white, whichever has more contrast on `fill`."""
    red, green, blue = (int(fill[i:i + 2], 16) for i in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 128 else "#0d1117"


def draw(plan, theme):
    samples = plan["global_batch_size"]
    units = max(c["units"][1] for c in plan["cells"])
    x = lambda sample: LEFT + (RIGHT - LEFT) * sample / samples
    y = lambda unit: TOP + (BOTTOM - TOP) * unit / units
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13" '
           f'role="img" aria-label="Tiling of {units} units and {samples} samples over five GPUs of three types">']
    text = lambda px, py, words, color, more="": out.append(f'<text x="{px:.1f}" y="{py:.1f}" fill="{color}" {more}>{words}</text>')
    for device, (first, last), (begin, end) in ordered(plan["cells"]):
        left, top, width, height = x(begin), y(first), x(end) - x(begin), y(last) - y(first)
        out.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill_of(theme, device)}" stroke="{theme["edge"]}" stroke-width="1.5"/>')
        if width > 40 and height > 30:
            text(left + width / 2, top + height / 2 + 4, device, label_on(fill_of(theme, device)), 'text-anchor="middle"')
    text(LEFT, 16, f"samples of one step (global batch size {samples})", theme["text"])
    for sample in range(0, samples + 1, samples // 4):
        text(x(sample), TOP - 6, sample, theme["soft"], 'text-anchor="middle" font-size="11"')
    for unit in (0, units):
        text(LEFT - 6, y(unit) + (10 if unit == 0 else 0), unit, theme["soft"], 'text-anchor="end" font-size="11"')
    middle = (TOP + BOTTOM) / 2
    text(18, middle, "units of the model", theme["text"], f'text-anchor="middle" transform="rotate(-90 18 {middle:.1f})"')
    text(LEFT, HEIGHT - 8, "Each rectangle is one micro-batch of one device. Percentages are shares of units × samples.", theme["soft"], 'font-size="12"')
    line, work = TOP + 12, {}
    for device, (first, last), (begin, end) in ordered(plan["cells"]):
        work[device] = work.get(device, 0) + (last - first) * (end - begin)
    for device in sorted(work, key=lambda d: list(TYPES).index(d.partition(":")[0])):
        out.append(f'<rect x="{RIGHT + 20}" y="{line - 11}" width="14" height="14" rx="2" fill="{fill_of(theme, device)}"/>')
        text(RIGHT + 42, line, device, theme["text"])
        text(RIGHT + 42, line + 15, f'{TYPES[device.partition(":")[0]]}, {100 * work[device] / (units * samples):.0f} %', theme["soft"], 'font-size="11"')
        line += 42
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    plan = json.loads((HERE / "readme.plan.json").read_text())
    stale = []
    for name, theme in THEMES.items():
        path, drawing = HERE / f"readme-tiling-{name}.svg", draw(plan, theme)
        if "--check" not in sys.argv:
            path.write_text(drawing)
        elif not path.exists() or path.read_text() != drawing:
            stale.append(path.name)
    if stale:
        print("differs from the plan: " + ", ".join(stale) + "; run docs/figures/readme_tiling.py")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
