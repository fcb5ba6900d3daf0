"""report.json and report.html of the validation kit."""
import html
import json

STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#1a1a1a;background:#fff}
h1{font-size:1.4em}h2{font-size:1.05em;margin:1.6em 0 .3em}table{border-collapse:collapse;width:100%}td{padding:.15em .6em;border-top:1px solid #ddd;vertical-align:top}
td:first-child{width:1.5em;font-weight:600}td:nth-child(2){width:45%}.good td:first-child{color:#176b2c}.bad td{background:#fdeaea}.bad td:first-child{color:#a61b1b}.out td{color:#666}
.summary{font-size:1.1em}small{color:#666;font-weight:400}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181b}td{border-color:#333}.bad td{background:#3a1d1d}.good td:first-child{color:#6fce85}.bad td:first-child{color:#ff8f8f}.out td,small{color:#999}}"""
MARKS = {True: ("good", "✓"), False: ("bad", "✗"), None: ("out", "–")}


def page(kit, steps, seconds):
    checks = [c for step in steps for c in step["checks"]]
    held, counted = sum(c["good"] is True for c in checks), sum(c["good"] is not None for c in checks)
    parts = [f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Zorse on this GPU</title><style>{STYLE}</style><h1>Zorse on this GPU</h1>",
             f"<p class=summary>{held} of {counted} checks hold. Bundles for {html.escape(kit['arch'])}, Zorse {html.escape(kit['version'])}, {len(steps)} steps in {seconds:.0f} s.</p>"]
    for step in steps:
        parts.append(f"<h2>{html.escape(step['step'])} <small>{html.escape(step['about'])}, {step['seconds']:g} s</small></h2><table>")
        for check in step["checks"]:
            name, mark = MARKS[check["good"]]
            parts.append(f"<tr class={name}><td>{mark}<td>{html.escape(check['check'])}<td>{html.escape(check['figure'])}")
        parts.append("</table>")
    return "\n".join(parts) + "\n"


def write(kit, steps, seconds):
    with open("report.json", "w") as f:
        json.dump({"arch": kit["arch"], "version": kit["version"], "seconds": round(seconds, 1), "steps": steps}, f, indent=1)
    with open("report.html", "w") as f:
        f.write(page(kit, steps, seconds))
