"""Simulates the loop: warps issue in order, one instruction per clock and partition, when their operands are ready and
the pipe is free.

The bound of the pipes does not include the wait for operands: a warp with a softmax that waits for its products leaves
the tensor cores to the other warps, if there are any. The model assumes that copies into shared memory arrive in time,
that memory has no conflicts, and that instructions are available. Warps are served round-robin, and so are partitions
at shared memory. Hardware that prefers those that have waited longest reaches up to 10 % more.
"""
import heapq

import chips
import throughput

_ITERATIONS, _WARM = 6, 2  # simulated iterations, and those among them that do not count


class _Warp:
    def __init__(self, number, block, start):
        self.number, self.block, self.partition = number, block, number % chips.PARTITIONS
        self.place, self.iteration, self.time = 0, 0, start
        self.ready = {}  # register: clock


def _latency(instruction, chip):
    if instruction.kind == "hmma":
        return chip.hmma_latency
    return chips.LATENCY.get(instruction.kind, chips.LATENCY["other"])


def clocks_of_iteration(body, chip, blocks, warps):
    """Mean clocks between iterations with `blocks` of `warps` warps on a multiprocessor."""
    if not body:
        return 0.0
    steps = [(i, throughput.pipe_clocks(i, chip), throughput.shared_clocks(i), _latency(i, chip)) for i in body]
    issue, held, shared = [0.0] * chips.PARTITIONS, [{} for _ in range(chips.PARTITIONS)], 0.0
    # Blocks start at different times; otherwise they would meet at every barrier.
    queue = []
    for block in range(blocks):
        for w in range(warps):
            warp = _Warp(block * warps + w, block, 37.0 * block)
            heapq.heappush(queue, (warp.time, 0, warp.time, warp.number, warp))
    waiting = {block: [] for block in range(blocks)}
    ends = [0.0] * (_ITERATIONS + 1)

    def earliest(warp):
        instruction, pipe, moved, _ = steps[warp.place]
        when = max([warp.time, issue[warp.partition]] + [warp.ready.get(r, 0.0) for r in instruction.reads])
        if pipe:
            when = max(when, held[warp.partition].get(pipe[0], 0.0))
        return max(when, shared - chips.QUEUE) if moved else when

    running = blocks * warps  # finished warps continue, so that the others do not find empty pipes
    while running:
        *_, warp = heapq.heappop(queue)
        when = earliest(warp)
        # Within a clock, partitions are served round-robin, and in a partition the warp that has waited longest.
        turn = (when, (warp.partition + int(when)) % chips.PARTITIONS, warp.time, warp.number)
        if queue and turn > queue[0][:4]:
            heapq.heappush(queue, (*turn, warp))
            continue
        instruction, pipe, moved, latency = steps[warp.place]
        issue[warp.partition] = when + 1
        arrival = when + latency
        if pipe:
            held[warp.partition][pipe[0]] = when + pipe[1]
        if moved:
            shared = max(shared, when) + moved
            arrival = shared + latency - moved
        for register in instruction.writes:
            warp.ready[register] = arrival
        warp.time, warp.place = when + 1, warp.place + 1
        if warp.place == len(steps):
            warp.place, warp.iteration = 0, warp.iteration + 1
            if warp.iteration <= _ITERATIONS:
                ends[warp.iteration] = max(ends[warp.iteration], warp.time)
            running -= warp.iteration == _ITERATIONS
        if instruction.operation.startswith("BAR"):
            waiting[warp.block].append(warp)
            if len(waiting[warp.block]) < warps:
                continue
            resumed, waiting[warp.block] = waiting[warp.block], []
        else:
            resumed = [warp]
        for other in resumed:
            if len(resumed) > 1 or instruction.operation.startswith("BAR"):
                other.time = max(other.time, when + chips.BARRIER)
            heapq.heappush(queue, (other.time, 0, other.time, other.number, other))
    return (ends[_ITERATIONS] - ends[_WARM]) / (_ITERATIONS - _WARM)
