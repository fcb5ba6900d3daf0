"""Renders HTML reports in a browser: the reports of a plan and of a run draw the expected content, without script
errors, and look as before (exit code 77 without a browser; Debian's chromium-headless-shell or chromium works).

    pages.py [--update]    --update writes the reference images (test/e2e/pages)

Images are compared as means over blocks of 16 pixels, so that shapes and colors matter, but fonts and their smoothing
do not.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np

import harness as z

REFERENCE = os.path.join(z.ROOT, "test", "e2e", "pages")
WIDTH, BLOCK = 1008, 16
results = []


def holds(name, good, found=""):
    print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found}"), flush=True)
    results.append(bool(good))


def browser():
    return next((p for n in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


def chromium(folder, page, *words):
    done = subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1", "--blink-settings=preferredColorScheme=1",                            f"--user-data-dir={os.path.join(folder, 'profile')}", "--virtual-time-budget=2000", "--enable-logging=stderr", *words, "file://" + page], capture_output=True, text=True, timeout=120)
    return done.stdout, done.stderr


def read_png(path):
    """8-bit RGB or RGBA without interlacing, as [height, width, 3]."""
    data, at, header, body = open(path, "rb").read(), 8, None, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunk = data[at + 8:at + 8 + length]
        header = struct.unpack(">IIBBBBB", chunk) if kind == b"IHDR" else header
        body += chunk if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, colour, *_ = header
    channels = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, stride = zlib.decompress(body), width * channels
    out, above = np.zeros((height, stride), np.uint8), bytearray(stride)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        if kind == 2:
            line = bytearray(((np.frombuffer(line, np.uint8) + np.frombuffer(above, np.uint8))).tobytes())
        elif kind:
            for i in range(stride):
                a, up = (line[i - channels], above[i]) if i >= channels else (0, above[i])
                if kind == 1:
                    line[i] = line[i] + a & 255
                elif kind == 3:
                    line[i] = line[i] + (a + up >> 1) & 255
                else:
                    c = above[i - channels] if i >= channels else 0
                    pa, pb, pc = abs(up - c), abs(a - c), abs(a + up - 2 * c)
                    line[i] = line[i] + (a if pa <= pb and pa <= pc else up if pb <= pc else c) & 255
        out[y] = np.frombuffer(line, np.uint8)
        above = line
    return out.reshape(height, width, channels)[:, :, :3]


def write_png(path, pixels):
    height, width, _ = pixels.shape
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y].tobytes() for y in range(height))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def blocks(pixels):
    h, w = pixels.shape[0] // BLOCK * BLOCK, pixels.shape[1] // BLOCK * BLOCK
    return pixels[:h, :w].reshape(h // BLOCK, BLOCK, w // BLOCK, BLOCK, 3).mean((1, 3))


def look(folder, name, page, rows, update):
    """Compares the first `rows` pixel rows of the rendered report."""
    picture = os.path.join(folder, name + ".png")
    _, err = chromium(folder, page, "--screenshot=" + picture, f"--window-size={WIDTH},{rows}")
    errors = [line for line in err.splitlines() if "CONSOLE" in line]
    holds(f"{name}: no script fails", not errors and os.path.exists(picture), errors or err[-500:])
    means = blocks(read_png(picture))[:rows // BLOCK]
    reference = os.path.join(REFERENCE, name + ".png")
    if update:
        os.makedirs(REFERENCE, exist_ok=True)
        write_png(reference, np.round(means).astype(np.uint8))
        return
    expected = read_png(reference).astype(float)
    if expected.shape != means.shape:
        holds(f"{name}: looks as it did", False, f"{means.shape} blocks, expected {expected.shape}")
        return
    apart = np.abs(means - expected).max(2)
    results.append(z.check(f"{name}: share of blocks that look other than they did", float((apart > 24).mean()), 0.03))


def html_text(text):
    return text.replace("&quot;", '"').replace("&amp;", "&")


def dom(folder, page):
    return chromium(folder, page, "--dump-dom")[0]


def main():
    if not browser():
        print("skipped: no browser is installed (Debian: chromium-headless-shell)")
        sys.exit(77)
    update = "--update" in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        cluster = z.cluster(folder, [("a", 4e10), ("b", 1e10), "c"])
        gpt = os.path.join(z.SMALL, "gpt.onnx")
        plan = z.plan(folder, "p", 8, "abc", [(0, 3, 0, 8, "a"), (3, 8, 0, 3, "b"), (3, 8, 3, 8, "c")])
        page = os.path.join(folder, "plan.html")
        z.call("zorse-plan", gpt, "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 16, "--plan", plan, "--html", page, "--quiet")
        html = dom(folder, page)
        legends = re.findall(r'<div[^>]*class="legend"[^>]*>(.*?)</div>', html, re.S)
        words = re.sub(r"<[^>]*>", " ", " ".join(legends))
        holds("the plan's page has legends of time, memory and tiling", all(w in words for w in ("forward", "backward", "send", "receive", "state", "activations", "workspace", "what the device has", "a ", "b ", "c ")), words)
        holds("and a picture of memory for every device, and why", html.count("<figure>") == 3 and "Why, and what would change it" in html, html.count("<figure>"))
        look(folder, "plan", page, 960, update)
        # An error in the script of the same report must be detected.
        broken = os.path.join(folder, "broken.html")
        with open(page) as f, open(broken, "w") as g:
            g.write(f.read().replace("x.fillStyle=c0[e[0]]", "x.fillStyle=c1[e[0]]"))
        _, err = chromium(folder, broken, "--screenshot=" + os.path.join(folder, "broken.png"))
        holds("a script that fails is noticed", "CONSOLE" in err)

        bundle, page = os.path.join(folder, "m.zorse"), os.path.join(folder, "run.html")
        z.compile(gpt, bundle, z.cluster(folder, ["a"]), 8, 16)
        z.call("zorse-run", bundle, "--data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--max-steps", 30, "--lr", "1e-2", "--eval-data", os.path.join(z.SMALL, "gpt.tokens.bin"), "--eval-interval", 10, "--eval-iters", 1, "--html-report", page,
               "--quiet")
        html = dom(folder, page)
        holds("the run's page has its legend and the table of time", "loss of training" in html and "loss on held-out data" in html and "Where the time went" in html)
        holds("and the result, how long it took, and the hyper-parameters", all(w in html for w in ("loss on held-out data", "duration", "learning rate", "weight decay", " at step 30, ")), html[:1500])
        # Axis labels are round numbers, and not negative for quantities that are never negative.
        spy = os.path.join(folder, "spy.html")
        with open(page) as f, open(spy, "w") as g:
            g.write(f.read().replace("<script>const data=", "<script>const said={};const write=CanvasRenderingContext2D.prototype.fillText;CanvasRenderingContext2D.prototype.fillText=function(t,x,y){"
                                     "(said[this.canvas.id]=said[this.canvas.id]||[]).push(String(t));write.call(this,t,x,y)};"
                                     "addEventListener('load',()=>{document.title=JSON.stringify(said)});</script><script>const data=", 1))
        said = json.loads(html_text(re.search(r"<title>(.*?)</title>", dom(folder, spy), re.S)[1]))
        numbers = {name: [float(t) for t in texts] for name, texts in said.items()}
        holds("every plot has ticks", set(numbers) == {"loss", "norm", "lr", "rate"} and all(len(n) >= 6 for n in numbers.values()), said)
        holds("no tick is below zero", all(n >= 0 for texts in numbers.values() for n in texts), said)
        holds("ticks are round numbers", all(len(t.split("e")[0].strip("0").replace(".", "").lstrip("0")) <= 3 for texts in said.values() for t in texts), said)
        look(folder, "run", page, 440, update)
        with open(page) as f:
            data = json.loads(re.search(r"<script>const data=(.*);\n", f.read())[1])
        holds("and its data are the run's", len(data["points"]) == 30 and len(data["evaluations"]) == 3)
    z.finish(results)


if __name__ == "__main__":
    main()
