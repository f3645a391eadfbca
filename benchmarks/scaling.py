"""A small GPT on 1 to 8 host devices: time per step and bytes sent, `python -m benchmarks.scaling`.

*Strong* scaling divides one batch among the devices, *weak* scaling gives each device a batch of its own. The devices
are simulated and share the cores of the machine, so the times show the overhead of partitioning, not its gain.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import tracefx as fx
from benchmarks.sharding import DEVICES, set_devices
from demo.parallel.model import Params, Sizes, loss
from demo.parallel.training import ROWS, SPECS, State, batches, new_state, step_of
from tracefx import NamedSharding, P, lax, tree
from tracefx.sharding import AxisType

SIZES: Final = Sizes(blocks=4, heads=8, head=16, hidden=512, context=64)
ROWS_EACH: Final = 8
REPEATS: Final = 7

SpecChange: TypeAlias = Callable[[fx.PartitionSpec], fx.PartitionSpec]


def replicated(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    return P()


def partitioned(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    return spec


def fully_sharded(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    """Shards weights over `data` instead of `model`: each device stores a part of all weights and gathers them."""
    return P(*["data" if part == "model" else part for part in spec])


STRATEGIES: Final[Mapping[str, tuple[Callable[[int], tuple[int, int]], SpecChange]]] = {
    "data": (lambda n: (n, 1), replicated),
    "tensors": (lambda n: (1, n), partitioned),
    "both": (lambda n: (n // 2, 2) if n > 1 else (1, 1), partitioned),
    "fully sharded": (lambda n: (n, 1), fully_sharded),
}
"""The mesh shape for a number of devices, and the partition spec of weights, by strategy."""


def step_on(devices: int, strategy: str, rows: int) -> tuple[float, int]:
    """Returns the seconds per step, and the bytes that each device sends in a step."""
    shape, change = STRATEGIES[strategy]
    mesh = fx.make_mesh(shape(devices), ("data", "model"), (AxisType.Auto,) * 2)
    param_shardings = tree.map(lambda spec: NamedSharding(mesh, change(spec)), SPECS)
    replication = NamedSharding(mesh, P())
    state = fx.device_put(new_state(SIZES, 0), State(param_shardings, param_shardings, param_shardings, replication))  # type: ignore[arg-type]  # shardings in place of arrays
    batch = fx.device_put(next(batches(SIZES, rows, 0)), NamedSharding(mesh, ROWS))

    def gathered(params: Params[fx.Array], text: fx.Array) -> fx.Array:
        return loss(lax.with_sharding_constraint(params, replication), text)

    step = fx.jit(step_of(gathered if change is fully_sharded else loss))
    sent = sum(
        [each.bytes_sent * (each.execution_count or 1) for each in step.lower(state, batch).compile().collectives()]
    )
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        fx.block_until_ready(step(state, batch))
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), sent


def main() -> None:
    set_devices()
    parameters = sum([leaf.size for leaf in tree.leaves(new_state(SIZES, 0).params)])
    print(f"{parameters:,} weights, {4 * parameters / 1e6:.2f} MB; strong: {ROWS_EACH * DEVICES} rows in all; "
          f"weak: {ROWS_EACH} rows a device\n")  # fmt: skip
    print("| strategy | devices | strong: ms | kB sent | weak: ms | kB sent |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for strategy in STRATEGIES:
        for devices in (1, 2, 4, 8):
            strong, sent = step_on(devices, strategy, ROWS_EACH * DEVICES)
            weak, sent_weak = step_on(devices, strategy, ROWS_EACH * devices)
            print(f"| {strategy} | {devices} | {1e3 * strong:.0f} | {sent / 1e3:,.0f} "
                  f"| {1e3 * weak:.0f} | {sent_weak / 1e3:,.0f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
