"""zorse-profile on a small model: alone and as processes, its output, its use by the compiler, invalid input."""
import json
import os
import sys
import tempfile

import harness as h


def expect(condition, what):
    if not condition:
        raise h.Failure(what)


def devices_of(path):
    with open(path) as f:
        profile = json.load(f)
    return profile, {d["device"]: d for d in profile["devices"]}


def check_times(device, rows, splits):
    classes = device["unit_classes"]
    expect(set(classes) >= {"block attention", "block mlp", "embedding", "head"}, f"classes {sorted(classes)}")
    for name, degrees in classes.items():
        points = degrees[0]["measurements"]
        expect([p["batch_size"] for p in points] == rows, f"{name} has rows {[p['batch_size'] for p in points]}, expected {rows}")
        for point in points:
            expect(point["forward"] > 0 and point["backward"] > 0, f"{name}: {point}")
            if splits and name.startswith("block"):
                expect(point["input_gradients"] > 0 and point["weight_gradients"] > 0, f"{name} has no parts: {point}")
    mlp = classes["block mlp"][0]["measurements"]
    # Other processes may run during the measurement: on a busy machine (CTest), only large deviations are errors.
    expect(mlp[-1]["forward"] * h.PATIENCE > mlp[0]["forward"], f"{rows[-1]} rows take no longer than {rows[0]}: {mlp}")
    for key in ("update", "norm", "copy", "load"):
        expect(key in device, f"{key} is missing")
    expect(device["update"]["per_element"] > 0 and device["copy"]["per_byte"] > 0, str(device["update"]))


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(h.SMALL, "gpt-bytes.onnx")
        cluster = os.path.join(folder, "cluster.yaml")
        with open(cluster, "w") as f:
            f.write("nodes:\n  - name: n0\n    devices:\n      - {name: a, kind: cpu, flops_per_second: 2e10, memory: 1GiB}\n      - {name: b, kind: cpu, flops_per_second: 1e10, memory: 1GiB}\n"
                    "  - name: n1\n    devices:\n      - {name: c, kind: cpu, flops_per_second: 1e10, memory: 1GiB}\n")
        bundle = os.path.join(folder, "gpt.zorse")
        h.call("zorse-compile", model, "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 64, "--quiet", "--compile-all-functions", "-o", bundle)
        with open(os.path.join(bundle, "functions.pb"), "rb") as f:
            splits = b".backward_inputs" in f.read()
        expect(splits, "--compile-all-functions compiles the parts of backwards")

        alone = os.path.join(folder, "alone.json")
        _, _, said = h.call("zorse-profile", bundle, "-o", alone, "--batch-sizes", "4,1", "--max-seconds", 1)
        expect("block attention: batch sizes 1 4, forward" in said and "round 1:" in said, said)
        profile, devices = devices_of(alone)
        expect(sorted(devices) == ["a", "b", "c"], f"devices {sorted(devices)}")
        check_times(devices["a"], [1, 4], splits)
        expect(devices["a"]["unit_classes"] == devices["c"]["unit_classes"], "equal devices have equal times")

        _, typed, _ = h.call("zorse-profile", bundle, "-o", "-", "--batch-sizes", 1, "--max-seconds", 0, "--device-type", "H900", "--quiet")
        expect([d["device"] for d in json.loads(typed)["devices"]] == ["H900"], typed[:200])

        together = os.path.join(folder, "together.json")
        h.call("zorse-profile", bundle, "-o", together, "--batch-sizes", "1,2", "--max-seconds", 1, "--spawn", "--link-measure-seconds", 0.2)
        profile, devices = devices_of(together)
        expect(sorted(devices) == ["a", "b", "c"], f"devices {sorted(devices)}")
        check_times(devices["b"], [1, 2], splits)
        links = {(link["from"], link["to"]): link for link in profile["links"]}
        expect(set(links) == {("a", "b"), ("n0", "n1")}, f"links {sorted(links)}")
        expect(all(1e6 < link["bandwidth"] < 1e12 and 0 < link["latency"] < 1 for link in links.values()), str(links))

        # The compiler uses these times: devices that are a thousand times slower make the step much longer.
        slow = os.path.join(folder, "slow.json")
        for device in profile["devices"]:
            for degrees in device["unit_classes"].values():
                for point in degrees[0]["measurements"]:
                    for key in point:
                        if key != "batch_size":
                            point[key] *= 1000
        with open(slow, "w") as f:
            json.dump(profile, f)
        help_text = h.call("zorse-compile", "--help")[1]
        if "--profile" in help_text:
            for file, name in ((together, "fast"), (slow, "slow")):
                h.call("zorse-compile", model, "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 64, "--quiet", "--profile", file, "-o", os.path.join(folder, name + ".zorse"))
            code, _, said = h.call("zorse-compile", os.path.join(h.SMALL, "gpt.onnx"), "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 32, "--quiet", "--profile", together,
                                   "-o", os.path.join(folder, "other.zorse"), ok=False)
            expect(code == 1 and "another model" in said, said)
            code, _, said = h.call("zorse-compile", model, "--cluster", cluster, "--global-batch-size", 8, "--seq-length", 64, "--quiet", "--profile", together, "--precision", "bf16",
                                   "-o", os.path.join(folder, "other.zorse"), ok=False)
            expect(code == 1 and "the profile was measured in f32" in said, said)

        for words, text in (
                ([folder], "cannot be read"),
                ([bundle, "--batch-sizes", "0"], "not in range"),
                ([bundle, "--batch-sizes", "many"], "--batch-sizes"),
                ([bundle, "--max-memory", "4096", "--batch-sizes", "1"], "set smaller batch sizes with --batch-sizes or a higher limit with --max-memory"),
                ([bundle, "-o", os.path.join(folder, "none", "p.json")], "cannot be written"),
                ([bundle, "--device-type"], "--device-type"),
                ([], "bundle is required")):
            code, _, said = h.call("zorse-profile", *words, ok=False)
            expect(code == 1 and text in said and said.count("\n") <= 3, f"{words}: exit {code}, {said!r}")
    print("profiles: alone and as processes, all classes, parts of backwards, links; mistakes are named")


if __name__ == "__main__":
    main()
