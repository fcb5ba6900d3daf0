"""Looks at the documentation site and the README in a browser, narrow (390 pixels) and wide (1280), light and dark: no
page is wider than the window, no picture is missing, no script fails, and the text of figures is readable in both
color schemes (exit code 77 where Sphinx cannot be installed or no browser is).

    docs_screens.py [--site DIR] [--out DIR]    --site: a site that tools/docs.py build has written
                                                --out: folder of the screenshots (default: build/docs-screens)
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import docs_search
import harness as z
import pages

import browser  # tools/docs, which docs_search adds to the path

SCREENS = ["README", "index", "get-started/quickstart", "concepts/schedules", "concepts/memory", "guides/what-if", "reference/commands/zorse-run"]
NARROW, WIDE = 390, 1280
CONTRAST = 4.5  # WCAG AA of text; 3 from 18 pixels, or 14 in bold
README_STYLE = """:root{color-scheme:light dark;--fg:#1f2328;--bg:#fff;--line:#d1d9e0;--panel:#f6f8fa;--link:#0969da}
@media(prefers-color-scheme:dark){:root{--fg:#f0f6fc;--bg:#0d1117;--line:#3d444d;--panel:#151b23;--link:#4493f8}}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,"DejaVu Sans",sans-serif}article{max-width:1012px;margin:0 auto;padding:16px;overflow-wrap:break-word}
a{color:var(--link)}img{max-width:100%;box-sizing:content-box}pre{background:var(--panel);padding:16px;overflow:auto;font-size:85%}code{background:var(--panel);font-size:85%;white-space:break-spaces}pre code{font-size:100%;white-space:pre}
table{display:block;width:max-content;max-width:100%;overflow:auto;border-collapse:collapse}th,td{border:1px solid var(--line);padding:6px 13px}"""
# What is wider than the window: the outermost elements that reach over its right edge and do not lie in a box that scrolls.
WIDER = """(() => {
  const inside = (e) => { for (let p = e.parentElement; p; p = p.parentElement) { const o = getComputedStyle(p).overflowX; if (o == "auto" || o == "scroll" || o == "hidden") return true } return false };
  if (document.documentElement.scrollWidth <= innerWidth) return [];
  const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(e).position != "fixed" && !inside(e));
  return [`the page is ${document.documentElement.scrollWidth} pixels wide`].concat(wide.slice(0, 5).map((e) => `${e.tagName.toLowerCase()}.${e.className}: ${e.textContent.trim().slice(0, 60)}`));
})()"""
MISSING = """(async () => {
  const all = [...document.querySelectorAll("article img")];
  all.forEach((i) => i.loading = "eager");
  await Promise.all(all.map((i) => i.decode().catch(() => 0)));
  return all.filter((i) => !i.complete || !i.naturalWidth).map((i) => i.getAttribute("src"));
})()"""
SHOWN = """[...document.querySelectorAll("article img")].filter((i) => i.offsetWidth).map((i) => { const r = i.getBoundingClientRect();
  return {source: i.currentSrc, box: [r.x + scrollX, r.y + scrollY, r.width, r.height]} })"""
# The texts of a figure with less contrast to what is behind them than asked for. The figure is put into the page, so that styles and positions are the browser's.
FAINT = """(async (address) => {
  const box = document.createElement("div");
  box.style = "position:fixed;left:0;top:0;z-index:9999;width:1200px";
  box.innerHTML = await (await fetch(address)).text();
  document.body.append(box);
  const numbers = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b) };
  const over = (top, below) => { const a = top.length > 3 ? top[3] : 1; return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)) };
  let page = [255, 255, 255];
  for (const e of [document.documentElement, document.body, ...[document.querySelector("article")].filter(Boolean)]) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length) page = over(c, page) }
  const shapes = [...box.querySelectorAll("rect, path, circle, text")], faint = [];
  shapes.forEach((t, at) => {
    if (t.tagName != "text" || !t.textContent.trim() || t.closest("defs")) return;
    const r = t.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
    let below = page;
    for (const s of shapes.slice(0, at)) {
      const b = s.getBoundingClientRect(), style = getComputedStyle(s);
      if (s.tagName != "rect" || !style.fill.startsWith("rgb") || b.x > x || b.x + b.width < x || b.y > y || b.y + b.height < y) continue;
      const c = numbers(style.fill); c[3] = (c.length > 3 ? c[3] : 1) * style.fillOpacity * style.opacity;
      below = over(c, below);
    }
    const style = getComputedStyle(t), a = light(over(numbers(style.fill), below)), b = light(below), contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 18 || size >= 14 && style.fontWeight >= 600;
    if (contrast < (large ? 3 : LIMIT)) faint.push(`'${t.textContent.trim()}' ${style.fill} on ${below.map(Math.round)}: ${contrast.toFixed(2)}`);
  });
  box.remove();
  return faint;
})""".replace("LIMIT", str(CONTRAST))


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def readme(site, folder):
    """Writes the README as a page, as the forge shows it, and its pictures. The Python of the site has a reader of Markdown."""
    sys.path.insert(0, os.path.join(z.ROOT, "tools"))
    import docs
    script = "import sys, markdown_it; print(markdown_it.MarkdownIt('commonmark').enable('table').render(sys.stdin.read()))"
    with open(os.path.join(z.ROOT, "README.md")) as f:
        body = subprocess.run([docs.sphinx_python()[0], "-c", script], stdin=f, capture_output=True, text=True, check=True).stdout
    with open(os.path.join(folder, "README.html"), "w") as f:
        f.write(f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{README_STYLE}</style><article>{body}</article>')
    shutil.copytree(os.path.join(z.ROOT, "docs", "figures"), os.path.join(folder, "docs", "figures"), dirs_exist_ok=True)


def luminance(pixels):
    """The mean of the border of a picture, 0 (black) to 255."""
    return float(np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).mean())


def main():
    if not browser.program():
        print("skipped: no browser is installed (tools/install.sh --browser)")
        sys.exit(77)
    out, results = option("--out", os.path.join(z.ROOT, "build", "docs-screens")), []

    def holds(what, good, why=""):
        results.append(bool(good))
        if not good:
            print(f"FAIL {what}: {why}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        site = os.path.join(folder, "all")
        built = docs_search.build(folder)
        shutil.copytree(built, site, dirs_exist_ok=True)
        readme(site, site)
        os.makedirs(out, exist_ok=True)
        names = ["README"] + sorted(os.path.relpath(os.path.join(at, n), built)[:-5] for at, _, files in os.walk(built) for n in files if n.endswith(".html"))
        redirects = {n for n in names if n != "README" and 'http-equiv="refresh"' in open(os.path.join(built, n + ".html")).read()}
        names = [n for n in names if n not in redirects | {"search", "genindex"}]
        with browser.serve(site) as address, browser.Browser(folder, 60 * max(1, z.PATIENCE)) as tab:
            figures = set()
            for width, dark in ((NARROW, False), (NARROW, True), (WIDE, False), (WIDE, True)):
                form = f"{width} {'dark' if dark else 'light'}"
                tab.look(width, dark=dark)
                # Every page is looked at when it is narrow and light: width does not depend on colors.
                for name in names if (width, dark) == (NARROW, False) else SCREENS:
                    tab.open(f"{address}/{name}.html")
                    missing = tab.run(MISSING)
                    holds(f"{name}, {form}: pictures are there", not missing, missing)
                    wider = tab.run(WIDER)
                    holds(f"{name}, {form}: no wider than the window", not wider, "; ".join(wider))
                    holds(f"{name}, {form}: no error in the browser", not tab.problems, tab.problems)
                    figures |= {f["source"] for f in tab.run(SHOWN)}
                    if name in SCREENS:
                        height = min(6000, tab.run("document.documentElement.scrollHeight"))
                        tab.screenshot(os.path.join(out, f"{name.replace('/', '-')}-{width}-{'dark' if dark else 'light'}.png"), (0, 0, width, height))
            # Figures of all pages: text against what is behind it, in both schemes. A picture of one scheme is looked at in that scheme.
            holds("pages have figures", len(figures) > 10, sorted(figures))
            for dark in (False, True):
                tab.look(WIDE, dark=dark)
                for page in ("README", "index"):
                    tab.open(f"{address}/{page}.html")
                    for figure in sorted(figures):
                        if figure.endswith(".svg") and not re.search("-light" if dark else "-dark", figure):
                            faint = tab.run(f"{FAINT}({figure!r})")
                            holds(f"{os.path.basename(figure)} on {page}, {'dark' if dark else 'light'}: text is readable", not faint, "; ".join(faint[:4]) + f" ({len(faint)} texts)")
            # A dark figure is dark where the page shows it, also if the reader chooses dark with the button of the site.
            for name in [n for n in SCREENS if n != "README"]:
                seen = {}
                for way in ("preferred", "chosen"):
                    tab.look(WIDE, dark=way == "preferred")
                    tab.open(f"{address}/{name}.html")
                    tab.run("document.body.dataset.theme = 'dark'" if way == "chosen" else "0")
                    tab.run(MISSING)
                    seen[way] = []
                    for figure in tab.run(SHOWN):
                        tab.screenshot(os.path.join(folder, "figure.png"), figure["box"])
                        seen[way].append((os.path.basename(figure["source"]), pages.read_png(os.path.join(folder, "figure.png")).astype(float)))
                for (figure, preferred), (_, chosen) in zip(seen["preferred"], seen["chosen"]):
                    holds(f"{name}, {figure}: dark where the page is dark", luminance(preferred) < 80 or figure.endswith(".png"), f"its border has the mean {luminance(preferred):.0f}")
                    same = preferred.shape == chosen.shape and np.abs(preferred - chosen).mean() < 2
                    holds(f"{name}, {figure}: the same if dark is chosen with the button", same, f"{preferred.shape} {chosen.shape}")
            # The checks notice a page that is too wide, a picture that is missing, a script that fails and text that cannot be read.
            tab.look(NARROW, dark=True)
            with open(os.path.join(site, "bad.html"), "w") as f:
                f.write('<!doctype html><link rel="icon" href="data:,"><body style="background:#111"><article><p style="width:600px">wide</p><img src="missing.svg"></article><script>missing()</script>')
            with open(os.path.join(site, "bad.svg"), "w") as f:
                f.write('<svg xmlns="http://www.w3.org/2000/svg" width="99" height="40"><text x="4" y="20" fill="#222">dark</text></svg>')
            tab.open(f"{address}/bad.html")
            faults = [tab.run(WIDER), tab.run(MISSING), [p for p in tab.problems if "ReferenceError" in p], tab.run(f"{FAINT}({address + '/bad.svg'!r})")]
            holds("faults are noticed", all(faults), faults)
    print(f"screenshots: {out}")
    z.finish(results)


if __name__ == "__main__":
    main()
