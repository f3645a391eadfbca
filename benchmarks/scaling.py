"""A small GPT on 1 to 8 host devices: how long a step takes and what devices send, `python -m benchmarks.scaling`.

*Strong* scaling divides one batch among the devices, *weak* scaling gives each device a batch of its own. The devices
are pretended: they share the cores of this machine, so times tell what cutting a program up costs, not what it gains.
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

SIZES: Final = Sizes(blocks=4, heads=8, head=16, hidden=512, context=64)
ROWS_EACH: Final = 8
REPEATS: Final = 7

Where: TypeAlias = Callable[[fx.PartitionSpec], fx.PartitionSpec]


def whole(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    return P()


def cut(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    return spec


def spread(spec: fx.PartitionSpec) -> fx.PartitionSpec:
    """The axis that `model` would cut is cut along `data`: a device keeps a part of all weights, and gathers them."""
    return P(*["data" if part == "model" else part for part in spec])


STRATEGIES: Final[Mapping[str, tuple[Callable[[int], tuple[int, int]], Where]]] = {
    "data": (lambda n: (n, 1), whole),
    "tensors": (lambda n: (1, n), cut),
    "both": (lambda n: (n // 2, 2) if n > 1 else (1, 1), cut),
    "fully sharded": (lambda n: (n, 1), spread),
}
"""The shape of the mesh for so many devices, and how weights lie on it."""


def step_on(devices: int, strategy: str, rows: int) -> tuple[float, int]:
    """Seconds a step, and the bytes that each device sends in one."""
    shape, where = STRATEGIES[strategy]
    mesh = fx.make_mesh(shape(devices), ("data", "model"))
    of_params = tree.map(lambda spec: NamedSharding(mesh, where(spec)), SPECS)
    alike = NamedSharding(mesh, P())
    state = fx.device_put(new_state(SIZES, 0), State(of_params, of_params, of_params, alike))  # type: ignore[arg-type]  # where arrays lie
    batch = fx.device_put(next(batches(SIZES, rows, 0)), NamedSharding(mesh, ROWS))

    def gathered(params: Params[fx.Array], text: fx.Array) -> fx.Array:
        return loss(lax.with_sharding_constraint(params, alike), text)

    step = fx.jit(step_of(gathered if where is spread else loss))
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
