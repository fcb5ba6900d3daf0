"""Lists a training step: reads the programs of all devices as text (zorse-compile --emit=exec) and prints one line per instruction, in global order.

A line names the devices and their operation. A transfer is one line, and so is a collective. The queue is named only if it is not the default queue of the
operation. Sizes, arena offsets, times and waits are omitted: other tests check numbers.

  --only F,B,send      only instructions that begin with these words
  --state              first the state that devices keep between steps, and its memory kind
  --calls              below a task, its calls
  --arguments saved,...    the arguments of these kinds, below the calls that have them
"""
import argparse
import re
import sys

REGION = r"(\d+):\d+\+\d+"
USUAL = {"send": "send0", "load_input": "to_device0", "load_scalars": "to_device0", "read_metrics": "to_host0", "compute": "compute0"}


def calls_of(lines):
    """The calls of a task as [(text, arguments)]."""
    calls = []
    for line in lines:
        if call := re.match(r'exec\.call \d+ "(\S+)"(?: unit (\d+) ".*?")? rows (\[\S+\])(.*?) *\($', line):
            name, unit, rows, _ = call.groups()
            calls.append((f"{name} unit {unit} {rows}" if unit else f"{name} {rows}", []))
        else:
            calls[-1][1].append(re.sub(" at " + REGION + "[,)]$", "", line))
    return calls


def task_text(task, of, number, calls):
    """A task of a state group by the group's name, a task of a cell by its units and samples; both are in its calls."""
    if of == "group":
        name = re.search(rf' {number} ".*?"', calls[0][1][0])
        return task + name.group()
    rows = re.search(r" \[\S+\]$", calls[0][0]).group()
    units = sorted(int(unit) for call, _ in calls for unit in re.findall(r" unit (\d+) ", call))
    if not units:
        return task + rows
    return task + (f" unit {units[0]}" if units[0] == units[-1] else f" units {units[0]}-{units[-1]}") + rows


def read(text):
    """Instructions of all devices as (id, device, text, calls), and state as {(device, memory, array): kinds}."""
    instructions, state = [], {}
    device, arenas = "", []
    lines = [line.strip() for line in text.splitlines()]

    def place(text):
        return re.sub(REGION, lambda region: arenas[int(region.group(1))], text)

    for number, line in enumerate(lines):
        if program := re.match(r"exec\.program @(\S+) ", line):
            device, arenas = program.group(1), []
        elif arena := re.match(r"exec\.arena (\S+) ", line):
            arenas.append(arena.group(1))
        elif kept := re.match(r'exec\.state (\w+) (\d+ ".*?")(?: cut \d+)? (\[\S+\]) at ' + REGION, line):
            kind, name, extent, arena = kept.groups()
            state.setdefault((device, arenas[int(arena)], f"{name} {extent}"), {})[kind] = True
        elif instruction := re.match(r"exec\.(\w+) (\d+) (.*) on (\w+) in \w+", line):
            kind, at, what, queue = instruction.groups()
            calls = []
            if kind == "compute":
                calls = calls_of(lines[number + 1 : lines.index("}", number)])
                what = re.sub(r"^(\w+) (cell|group) (\d+)$", lambda task: task_text(*task.groups(), calls), what)
            else:
                what = f"{kind} " + (place(what) if kind == "copy" else re.sub(r" (from|into|at|full|shard) " + REGION, "", what))
            if queue != USUAL.get(kind, "collective0"):
                what += f" on {queue}"
            instructions.append((int(at), device, what, calls))
    return instructions, state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", type=lambda words: words.split(","))
    parser.add_argument("--state", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--arguments", type=lambda words: words.split(","), default=[])
    options = parser.parse_args()
    instructions, state = read(sys.stdin.read())
    for (device, memory, array), kinds in state.items() if options.state else ():
        print(f"{device}: keeps {' and '.join(kinds)} {array} in {memory}")
    lines = {}  # (id, text) -> devices, calls: a collective has the same text on all of its devices
    for at, device, text, calls in sorted(instructions, key=lambda instruction: instruction[0]):
        if not text.startswith("receive ") and (not options.only or text.split()[0] in options.only):  # a receive is the other half of a send
            lines.setdefault((at, text), ([], calls))[0].append(device)
    for (_, text), (devices, calls) in lines.items():
        print(f"{' '.join(devices)}: {text}")
        for call, arguments in calls:
            arguments = [argument for argument in arguments if set(argument.split()) & set(options.arguments)]
            if options.calls or arguments:
                print("\n    ".join([f"  {call}", *arguments]))


main()
