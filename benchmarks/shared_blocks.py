"""Programs with shared blocks beside the same programs without: `python -m benchmarks.shared_blocks memory`.

`memory` prints the ratio of the bytes of their temporaries. `bounds` prints, for programs in which sharing saves 50 to
1,500 equations, the ratios of the CPU seconds of a compilation and of a run, each the median of alternating
measurements; blocks are shared there however few equations that saves. `pieces` prints the CPU seconds to the result of
a new program of which parts are in the disk cache, and the milliseconds of a run, with `repeats="share"` and
`repeats="pieces"`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks import repeats, transformer
from benchmarks.libraries import OURS
from benchmarks.report import aligned_table
from tracefx import lax, nn
from tracefx.core.backend import BACKEND
from tracefx.repeated_blocks.sharing import share_repeats
from tracefx.xla import lower

ROWS: Final = 32
WIDTH: Final = 64
LAYERS: Final = 24
COMPILATIONS: Final = 3
RUN_SECONDS: Final = 0.02
RUNS: Final = 31
MODES: Final = "share", "pieces"

Case: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function that takes its arguments and a number, and the arguments. Each number makes another program."""
Layer: TypeAlias = Callable[[Any, int, Any], Any]
"""A layer of parameters, its number, and a value."""

f32: Final = repeats.f32


def normalized(x: Any) -> Any:
    centred = x - fnp.mean(x, -1, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred**2, -1, keepdims=True) + 1e-3)


def perceptron(params: Any, number: int, x: Any) -> Any:
    w, b, v = params
    return x + nn.gelu(normalized(x) @ w + b) @ v


def perceptron_parameters(layers: int, width: int = WIDTH) -> list[Any]:
    return [(f32(width, 2 * width), f32(2 * width), f32(2 * width, width)) for _ in range(layers)]


def gradient(layer: Layer, params: Sequence[Any], x: Any) -> Case:
    """Returns the value and the gradient of layers, with the sum of squares as loss."""

    def loss(params: Any, x: Any) -> Any:
        for i, p in enumerate(params):
            x = layer(p, i, x)
        return fnp.sum(x**2)

    return fx.value_and_grad(loss), (params, x)


def layers(count: int, layer: Layer = perceptron) -> Case:
    return gradient(layer, perceptron_parameters(count), f32(ROWS, WIDTH))


def transformers(count: int, width: int = WIDTH) -> Case:
    return fx.grad(transformer.loss_of(OURS)), (transformer.parameters(count, width), *transformer.text())


def runge_kutta(count: int) -> Case:
    return fx.grad(repeats.runge_kutta(OURS, count)), ((f32(WIDTH, WIDTH), f32(WIDTH, WIDTH)), f32(ROWS, WIDTH))


def recurrent(count: int) -> Case:
    weights = f32(WIDTH, WIDTH), f32(WIDTH, WIDTH), f32(WIDTH)
    return fx.grad(repeats.recurrent(OURS)), (weights, f32(count, ROWS, WIDTH))


def memory_cells(count: int) -> Case:
    """Returns the gradient of a network with long short-term memory, without `scan`."""

    def loss(params: Any, xs: Any) -> Any:
        h = c = fnp.zeros((ROWS, WIDTH))
        for x in xs:
            i, g, o, forget = fnp.split(x @ params[0] + h @ params[1] + params[2], 4, 1)
            c = nn.sigmoid(forget) * c + nn.sigmoid(i) * fnp.tanh(g)
            h = nn.sigmoid(o) * fnp.tanh(c)
        return fnp.sum(h**2)

    params = f32(WIDTH, 4 * WIDTH), f32(WIDTH, 4 * WIDTH), f32(4 * WIDTH)
    return fx.grad(loss), (params, f32(count, ROWS, WIDTH))


def convolutions(count: int) -> Case:
    def layer(w: Any, number: int, x: Any) -> Any:
        y = lax.conv_general_dilated(normalized(x), w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x + nn.relu(y)

    return gradient(layer, [0.1 * f32(3, 3, 16, 16) for _ in range(count)], f32(2, 16, 16, 16))


def adam(params: Any, means: Any, squares: Any, gradients: Any) -> Any:
    means = fx.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
    squares = fx.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, squares, gradients)
    return fx.tree.map(lambda p, m, v: p - 1e-3 * m / (fnp.sqrt(v) + 1e-8), params, means, squares), means, squares


def optimizer(count: int) -> Case:
    arrays = [f32(WIDTH, WIDTH) for _ in range(count)]
    return adam, (arrays, arrays, arrays, arrays)


def dropout_step(count: int) -> Case:
    """Returns a step of Adam for layers with dropout."""

    def loss(params: Any, x: Any, seed: Any) -> Any:
        key = fx.random.key(seed)
        for i, p in enumerate(params):
            x = perceptron(p, i, x)
            x = fnp.where(fx.random.bernoulli(fx.random.fold_in(key, i), 0.9, x.shape), x / 0.9, 0)
        return fnp.sum(x**2)

    def step(params: Any, means: Any, squares: Any, x: Any, seed: Any) -> Any:
        return adam(params, means, squares, fx.grad(loss)(params, x, seed))

    params = perceptron_parameters(count)
    return step, (params, params, params, f32(ROWS, WIDTH), 0)


def other_layer(count: int) -> Case:
    """Returns layers of which the one in the middle is another."""
    return layers(count, lambda p, i, x: (3.0 if i == count // 2 else 1.0) * perceptron(p, i, x))


def alternating(count: int) -> Case:
    def layer(params: Any, number: int, x: Any) -> Any:
        y = perceptron(params, number, x)
        return fnp.roll(y, 1, number % 2) if number % 3 else y

    return layers(count, layer)


def callbacks(count: int) -> Case:
    def layer(params: Any, number: int, x: Any) -> Any:
        fx.debug.callback(lambda _: None, x[0, 0])
        return perceptron(params, number, x)

    return layers(count, layer)


def stacked(count: int) -> Case:
    def loss(params: Any, x: Any) -> Any:
        for i in range(count):
            x = perceptron([array[i] for array in params], i, x)
        return fnp.sum(x**2)

    params = fx.tree.map(lambda *arrays: np.stack(arrays), *perceptron_parameters(count))
    return fx.value_and_grad(loss), (params, f32(ROWS, WIDTH))


def encoder_and_decoder(count: int, width: int = WIDTH) -> Case:
    def loss(encoder: Any, decoder: Any, x: Any) -> Any:
        skipped = []
        for p in encoder:
            x = perceptron(p, 0, x)
            skipped.append(x)
        for p, y in zip(decoder, reversed(skipped), strict=True):
            x = perceptron(p, 0, x + y)
        return fnp.sum(x**2)

    params = perceptron_parameters(count, width)
    return fx.value_and_grad(loss), (params, params, f32(ROWS, width))


def custom_rules(count: int) -> Case:
    """Returns layers with an activation that has a custom rule, another in each layer."""

    def activation(number: int) -> Callable[..., Any]:
        def backward(x: Any, g: Any) -> tuple[Any]:
            clipped = fnp.cumsum(g, axis=number % 2) if number % 3 else 2 * fnp.clip(g, -0.5, 0.5)
            return (clipped * fnp.cos(x),)

        sine: Any = fx.custom_vjp(lambda x: fnp.sin(x))
        sine.defvjp(lambda x: (fnp.sin(x), x), backward)
        return sine  # type: ignore[no-any-return]  # a function of arrays

    activations = [activation(i) for i in range(count)]
    return layers(count, lambda p, i, x: activations[i](perceptron(p, i, x)))


def scanned(steps: int, count: int) -> Case:
    def loss(params: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            carry = carry + x
            for i, p in enumerate(params):
                carry = perceptron(p, i, carry)
            return carry, fnp.sum(carry)

        last, sums = lax.scan(step, xs[0], xs)
        return fnp.sum(last**2) + fnp.sum(sums)

    return fx.value_and_grad(loss), (perceptron_parameters(count), f32(steps, ROWS, WIDTH))


Programs: TypeAlias = dict[str, Callable[[], Case]]


def memory_programs() -> Programs:
    return {
        "transformer, 12 layers": lambda: transformers(12),
        "perceptrons": lambda: layers(LAYERS),
        "perceptrons with dropout, step of Adam": lambda: dropout_step(LAYERS),
        "one other layer in the middle": lambda: other_layer(LAYERS),
        "a callback in each layer": lambda: callbacks(LAYERS),
        "`roll` along alternating axes after two of three layers": lambda: alternating(LAYERS),
        "parameters stacked in one array": lambda: stacked(LAYERS),
        "encoder and decoder with skip connections": lambda: encoder_and_decoder(LAYERS),
        "encoder and decoder with skip connections, width 128": lambda: encoder_and_decoder(LAYERS, 128),
        "another custom rule in each layer": lambda: custom_rules(LAYERS),
        "long short-term memory, 64 steps": lambda: memory_cells(64),
        "40 Runge-Kutta steps": lambda: runge_kutta(40),
        "`scan` of 10 steps": lambda: scanned(10, LAYERS),
        "`scan` of 20 steps": lambda: scanned(20, LAYERS),
    }


def bound_programs() -> Programs:
    counts: dict[str, tuple[Callable[[int], Case], Sequence[int]]] = {
        "perceptrons": (layers, (6, 12, 24)),
        "transformer": (transformers, (3, 4, 6)),
        "Runge-Kutta steps": (runge_kutta, (6, 12, 24)),
        "recurrent steps": (recurrent, (16, 32, 64)),
        "convolutions": (convolutions, (6, 12, 24)),
        "updates of Adam": (optimizer, (12, 36, 100)),
        "perceptrons, dropout, Adam": (dropout_step, (3, 6, 12)),
        "encoder and decoder": (encoder_and_decoder, (3, 6, 12)),
    }
    return {
        f"{count} {name}": functools.partial(make, count) for name, (make, all_) in counts.items() for count in all_
    }


def stages(case: Case) -> Iterator[tuple[Any, Any]]:
    """Returns the lowered program with shared blocks and the one without, for a new number each time."""
    f, arguments = case
    for number in itertools.count(1):

        def numbered(*args: Any, number: int = number) -> Any:
            result = f(*args)
            return result, number * fx.tree.leaves(result)[0]

        yield tuple([fx.jit(numbered, repeats=mode).lower(*arguments) for mode in ("share", "inline")])  # type: ignore[misc]  # two


def cpu_seconds(run: Callable[[], object], calls: int = 1) -> float:
    start = time.process_time()
    for _ in range(calls):
        run()
    return time.process_time() - start


def temporaries(case: Case) -> float:
    shared, inline = [stage.compile().memory_analysis().temp_bytes for stage in next(stages(case))]
    return float(shared / inline)


def saved(case: Case) -> int:
    return sum(run.saved for run in next(stages(case))[0].repeats.shared)


def compilation(case: Case) -> tuple[float, float]:
    """Returns the CPU seconds of a compilation with shared blocks and without."""
    pairs = itertools.islice(stages(case), COMPILATIONS)
    times = [[cpu_seconds(stage.compile) for stage in pair] for pair in pairs]
    shared, inline = map(statistics.median, zip(*times, strict=True))
    return shared, inline


def run_ratio(case: Case) -> float:
    """Returns the ratio of the CPU seconds of a run with shared blocks to those of a run without."""
    arguments = fx.device_put(case[1])

    def run_of(stage: Any) -> Callable[[], object]:
        compiled = stage.compile()
        return lambda: fx.block_until_ready(compiled(*arguments))

    runs = [run_of(stage) for stage in next(stages(case))]
    calls = 1 + int(RUN_SECONDS / min([cpu_seconds(run) for run in (*runs, *runs)]))
    times = [[cpu_seconds(run, calls) for run in runs] for _ in range(RUNS)]
    shared, inline = map(statistics.median, zip(*times, strict=True))
    return float(shared / inline)


def first_result(mode: Any, count: int, factor: float) -> float:
    """Returns the CPU seconds from the call of a new function to its result, with nothing in memory."""
    BACKEND.value.executables.clear()  # type: ignore[attr-defined]  # of the backend of this package
    arguments = transformer.parameters(count), *transformer.text()
    loss = transformer.loss_of(OURS)
    gradient = fx.jit(fx.grad(lambda *args: factor * loss(*args)), repeats=mode)
    return cpu_seconds(lambda: fx.block_until_ready(gradient(*arguments)))


def run_milliseconds(case: Case) -> list[float]:
    """Returns the median milliseconds of a run with `repeats="share"` and with `repeats="pieces"`."""
    f, arguments = case[0], fx.device_put(case[1])
    runs = [fx.jit(f, repeats=mode) for mode in MODES]

    def milliseconds(run: Callable[..., object]) -> float:
        start = time.perf_counter()
        fx.block_until_ready(run(*arguments))
        return 1e3 * (time.perf_counter() - start)

    times = [[milliseconds(run) for run in runs] for _ in range(RUNS + 2)]
    return [statistics.median(column[2:]) for column in zip(*times, strict=True)]


def print_pieces() -> None:
    rows: list[tuple[str, ...]] = [("CPU s to the first result", *MODES)]
    for name, count, factor in (
        ("12 layers", 12, 1.0),
        ("then 24 layers", 24, 1.0),
        ("then another loss, 12 layers", 12, 2.0),
    ):
        seconds: list[list[float]] = [[], []]
        for _ in range(COMPILATIONS):
            for of_mode, mode in zip(seconds, MODES, strict=True):
                with tempfile.TemporaryDirectory() as folder, fx.compilation_cache(folder):
                    if count != 12 or factor != 1.0:
                        first_result(mode, 12, 1.0)
                    of_mode.append(first_result(mode, count, factor))
        rows.append((name, *[f"{statistics.median(of_mode):.2f}" for of_mode in seconds]))
    print(aligned_table(rows))
    rows = [("ms of a run", *MODES)]
    for name, case in (
        ("perceptrons of width 6", gradient(perceptron, perceptron_parameters(LAYERS, 6), f32(3, 6))),
        ("perceptrons of width 64", layers(LAYERS)),
        ("transformer, 12 layers of width 128", transformers(12)),
    ):
        rows.append((name, *[f"{t:.2f}" for t in run_milliseconds(case)]))
    print(aligned_table(rows))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.shared_blocks", description=__doc__)
    parser.add_argument("what", choices=("memory", "bounds", "pieces"))
    parser.add_argument("--only", nargs="+", help="parts of the names of programs")
    options = parser.parse_args()
    if options.what == "pieces":
        print_pieces()
        return
    programs = memory_programs() if options.what == "memory" else bound_programs()
    chosen = {n: p for n, p in programs.items() if options.only is None or any(part in n for part in options.only)}
    if options.what == "memory":
        print(aligned_table([("program", "ratio"), *[(name, f"{temporaries(p()):.2f}") for name, p in chosen.items()]]))
        return
    vars(lower)["share_repeats"] = functools.partial(share_repeats, least_saved=1)
    rows = [("program", "equations fewer", "compile, s", "inline, s", "compile", "run")]
    for name, program in chosen.items():
        case = program()
        shared, inline = compilation(case)
        figures = (f"{shared:.2f}", f"{inline:.2f}", f"{shared / inline:.2f}", f"{run_ratio(case):.2f}")
        rows.append((name, f"{saved(case):,}", *figures))
        print(*rows[-1], sep=", ", flush=True)
    print(aligned_table(rows))


if __name__ == "__main__":
    main()
