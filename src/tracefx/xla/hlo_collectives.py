"""The collectives of a compiled program, parsed from its HLO text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final, TypeAlias

import numpy as np

from tracefx.core import DType, NDArray, ShapedArray
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.core.dtypes import as_dtype

PartitionGroups: TypeAlias = tuple[tuple[int, ...], ...]

_KINDS: Final = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)
_COLLECTIVE: Final = re.compile(rf"= (\(.*?\)|\S+) ({'|'.join(_KINDS)})(-start)?\(")
_COMPUTATION: Final = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_TYPE: Final = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLED: Final = re.compile(r"(?:to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES: Final = re.compile(r"branch_computations=\{([^}]*)\}")
_WHILE: Final = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_TRIP_COUNT: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_EXPLICIT_GROUPS: Final = re.compile(r"(?:replica_groups|source_target_pairs)=\{((?:\{[\d,]*\},?)*)\}")
_IOTA_GROUPS: Final = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH_GROUPS: Final = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)
_AXIS: Final = re.compile(r"'([^']+)'(?:=(\d+))?(?::\((\d+)\)(\d+))?")
_OP_NAME: Final = re.compile(r'op_name="([^"]*)"')


def parse_collectives(text: str, ids: Sequence[int]) -> tuple[CompiledCollective, ...]:
    """Parses the collectives of an HLO text in program order; `ids` are the device ids of the partitions."""
    computations, entry = _parse_computations(text)
    run_counts = _execution_counts(computations, entry)
    collectives = []
    for computation, lines in computations.items():
        if computation in run_counts:
            collectives += [
                _parse_collective(line, match, run_counts[computation], ids) for line, match in _collective_lines(lines)
            ]
    return tuple(collectives)


def _parse_computations(text: str) -> tuple[dict[str, list[str]], str]:
    computations: dict[str, list[str]] = {}
    entry, lines = "", []
    for line in text.splitlines():
        start = _COMPUTATION.match(line)
        if start:
            lines = computations[start[2]] = []
            entry = start[2] if start[1] else entry
        else:
            lines.append(line)
    return computations, entry


def _execution_counts(computations: Mapping[str, list[str]], entry: str) -> dict[str, int | None]:
    """Returns how often each computation runs in one execution of the program; None if that is unknown."""
    run_counts: dict[str, int | None] = {}
    stack: list[tuple[str, int | None]] = [(entry, 1)]
    while stack:
        name, times = stack.pop()
        if name not in computations:
            continue
        previous = run_counts.get(name, 0)
        run_counts[name] = None if times is None or previous is None else previous + times
        for line in computations[name]:
            stack += _called_computations(line, times)
    return run_counts


def _called_computations(line: str, times: int | None) -> Iterator[tuple[str, int | None]]:
    """Yields the computations that an instruction calls, with run counts, if the instruction runs `times` times."""
    loop = _WHILE.search(line)
    if loop:
        trips = _TRIP_COUNT.search(line)
        count = None if trips is None else int(trips[1])
        yield loop[1], None if count is None or times is None else times * (count + 1)
        yield loop[2], None if count is None or times is None else times * count
        return
    for name in _CALLED.findall(line):
        yield name, None if "_computation=" in line and " conditional(" in line else times
    branches = _BRANCHES.search(line)
    if branches:
        for name in branches[1].split(","):
            yield name.strip().removeprefix("%"), None


def _collective_lines(lines: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    for line in lines:
        match = _COLLECTIVE.search(line)
        if match:
            yield line, match


def _parse_collective(line: str, match: re.Match[str], times: int | None, ids: Sequence[int]) -> CompiledCollective:
    kind = match[2]
    types = [
        ShapedArray(tuple(map(int, dims.split(","))) if dims else (), _parse_dtype(name))
        for name, dims in _TYPE.findall(match[1])
    ]
    if match[3] and kind in ("all-gather", "collective-permute"):
        types = types[len(types) // 2 :][:1]  # a start operation lists its operand first, and may list state last
    name = _OP_NAME.search(line)
    groups = tuple([tuple([ids[i] for i in group]) for group in _parse_replica_groups(line, len(ids))])
    return CompiledCollective(kind, tuple(types), groups, times, "" if name is None else name[1])


def _parse_replica_groups(line: str, count: int) -> PartitionGroups:
    """Parses the replica groups; without any listed, all partitions form one group."""
    explicit = _EXPLICIT_GROUPS.search(line)
    if explicit:
        groups = tuple([tuple(map(int, part.split(","))) for part in re.findall(r"\{([\d,]+)\}", explicit[1])])
        return groups or (tuple(range(count)),)
    iota = _IOTA_GROUPS.search(line)
    if iota:
        return _rows_as_groups(_iota_devices(iota[2], iota[3]).reshape(_parse_ints(iota[1])))
    mesh = _MESH_GROUPS.search(line)
    if mesh:
        return _groups_along_mesh_axes(mesh[1], mesh[4], None if mesh[2] is None else _iota_devices(mesh[2], mesh[3]))
    return (tuple(range(count)),)


def _groups_along_mesh_axes(axes: str, chosen: str, order: NDArray | None) -> PartitionGroups:
    """Returns the groups along chosen axes of a mesh, or along factors of axes."""
    sizes = {name: int(size) for name, size, _, _ in _AXIS.findall(axes)}
    devices = np.arange(prod(sizes.values())) if order is None else order
    names = list(sizes)
    parts = {name: [sizes[name]] for name in names}
    chosen_factors: list[tuple[str, int]] = []
    for name, _, outer, size in _AXIS.findall(chosen):
        if outer:
            outer_size, factor_size = int(outer), int(size)
            parts[name] = [outer_size, factor_size, sizes[name] // (outer_size * factor_size)]
            chosen_factors.append((name, 1))
        else:
            chosen_factors.append((name, 0))
    factors = [(name, k) for name in names for k in range(len(parts[name]))]
    array = devices.reshape([parts[name][k] for name, k in factors])
    chosen_dims = [factors.index(part) for part in chosen_factors]
    other_dims = [i for i in range(len(factors)) if i not in chosen_dims]
    width = prod([array.shape[i] for i in chosen_dims])
    return _rows_as_groups(array.transpose([*other_dims, *chosen_dims]).reshape(-1, width))


def _iota_devices(shape: str, axes: str | None) -> NDArray:
    dims = _parse_ints(shape)
    array = np.arange(prod(dims)).reshape(dims)
    return array if not axes else array.transpose(_parse_ints(axes))


def _rows_as_groups(array: NDArray) -> PartitionGroups:
    return tuple([tuple(map(int, row)) for row in array])


def _parse_ints(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


_DTYPE_PREFIXES: Final = {"s": "int", "u": "uint", "f": "float", "c": "complex", "bf": "bfloat"}


def _parse_dtype(name: str) -> DType:
    """Converts XLA's name of a dtype, such as `s32`, `pred` or `f8e4m3fn`."""
    if name == "pred":
        return as_dtype("bool")
    parts = re.fullmatch(r"([a-z]+)(\d+)(\w*)", name)
    if parts is None:
        raise ValueError(f"XLA's name of a dtype is unknown: {name!r}")
    letters, bits, suffix = parts.groups()
    return as_dtype(f"{_DTYPE_PREFIXES[letters]}{bits}{'_' + suffix if suffix else ''}")
