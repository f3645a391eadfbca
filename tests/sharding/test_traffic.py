"""The collectives of compiled programs: kinds, groups, bytes sent and execution counts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.sharding.both import TRACEFX
from tests.sharding.test_arrays import put
from tests.sharding.test_meshes import on
from tracefx import P, lax
from tracefx.core.compiled_collectives import CompiledCollective
from tracefx.xla.hlo_collectives import parse_collectives

X: Final = np.arange(32, dtype=np.float32).reshape(8, 4)
ROWS: Final = ((0, 1), (2, 3), (4, 5), (6, 7))
COLUMNS: Final = ((0, 2, 4, 6), (1, 3, 5, 7))


def collectives(f: Any, *args: Any, **options: Any) -> tuple[CompiledCollective, ...]:
    return fx.jit(f, **options).lower(*args).compile().collectives()


def shard_mapped(f: Any) -> Any:
    return fx.shard_map(f, mesh=TRACEFX.mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)


def test_matmul_over_a_sharded_axis_needs_one_all_reduce() -> None:
    x, w = put(TRACEFX, "x", "y", x=X), put(TRACEFX, "y", x=np.ones((4, 6), np.float32))
    (collective,) = collectives(lambda x, w: x @ w, x, w)
    assert (collective.kind, collective.groups, collective.execution_count) == ("all-reduce", ROWS, 1)
    assert [str(aval) for aval in collective.types] == ["f32[2,6]"]
    assert (collective.nbytes, collective.bytes_sent) == (48, 48)
    assert collective.name == "dot_general"
    assert str(collective) == "all-reduce f32[2,6] over 4 groups of 2, 48 bytes sent by each device, once: dot_general"


def test_programs_without_collectives() -> None:
    assert collectives(lambda x: fnp.sin(x) * 2, put(TRACEFX, "x", "y", x=X)) == ()
    assert collectives(lambda x: x @ x.T, X) == ()


def test_replicating_needs_one_all_gather() -> None:
    (collective,) = collectives(lambda x: x, put(TRACEFX, "x", x=X), out_shardings=on(TRACEFX))
    assert (collective.kind, collective.groups) == ("all-gather", COLUMNS)
    assert (collective.nbytes, collective.bytes_sent) == (128, 96)


@pytest.mark.parametrize(
    ("f", "kind", "groups", "types", "bytes_sent"),
    [
        (lambda x: lax.psum(x, "x"), "all-reduce", COLUMNS, "f32[2,2]", 24),
        (lambda x: lax.psum(x, ("x", "y")), "all-reduce", (tuple(range(8)),), "f32[2,2]", 28),
        (lambda x: lax.all_gather(x, "x"), "all-gather", COLUMNS, "f32[4,2,2]", 48),
        (lambda x: lax.psum_scatter(x, "y", tiled=True), "reduce-scatter", ROWS, "f32[1,2]", 8),
        (lambda x: lax.ppermute(x, "y", [(0, 1)]), "collective-permute", ROWS, "f32[2,2]", 16),
    ],
    ids=["sum", "sum over both", "gather", "scatter", "permute"],
)
def test_collective_kinds(f: Any, kind: str, groups: Any, types: str, bytes_sent: int) -> None:
    (collective,) = collectives(shard_mapped(f), X)
    assert (collective.kind, collective.bytes_sent, ", ".join(map(str, collective.types))) == (kind, bytes_sent, types)
    assert tuple(sorted(collective.groups)) == groups
    assert collective.name.startswith("shard_map")


def test_all_to_all() -> None:
    (collective,) = collectives(shard_mapped(lambda x: lax.all_to_all(x, "y", 0, 1, tiled=True)), X)
    assert (collective.kind, collective.groups, collective.nbytes, collective.bytes_sent) == ("all-to-all", ROWS, 16, 8)


def test_execution_counts_in_loops_and_branches() -> None:
    x = put(TRACEFX, "x", x=X)

    def fori(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: lax.fori_loop(0, 3, lambda j, d: d + lax.psum(d, "x") * i, c), x)

    assert {c.execution_count for c in collectives(shard_mapped(fori), X)} == {15}
    in_while = collectives(lambda x: lax.while_loop(lambda c: fnp.sum(c) < 1000, lambda c: c * 2, x), x)
    assert [c.execution_count for c in in_while] == [None]
    assert "unknown how often" in str(in_while[0])
    branches = collectives(shard_mapped(lambda x: lax.cond(x[0, 0] > 0, lambda x: lax.psum(x, "x"), lambda x: x, x)), X)
    assert [c.execution_count for c in branches] == [None]


def test_groups_contain_device_ids() -> None:
    mesh = fx.Mesh(fx.devices()[:3:-1], "z")
    x = fx.device_put(X, fx.NamedSharding(mesh, P("z")))
    (collective,) = collectives(fnp.sum, x)
    assert collective.groups == ((7, 6, 5, 4),)


TEXT: Final = """
HloModule f

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%a, %b)
}

%never (p: f32[2]) -> f32[2] {
  ROOT %all-reduce.9 = f32[2]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %ar = bf16[2,3]{1,0} all-reduce(%p), replica_groups={}, to_apply=%add, metadata={op_name="f/sum"}
  %ag = (s4[2]{0}, s4[8]{0}) all-gather-start(%p), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
  %agd = s4[8]{0} all-gather-done(%ag)
  %m = pred[] all-reduce(%p), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}, to_apply=%add
  %n = c64[] all-reduce(%p), replica_groups=mesh['a'=8] {'a':(2)2}, to_apply=%add
  ROOT %cp = f8e4m3fn[2]{0} collective-permute(%p), source_target_pairs={{0,2},{1,3}}
}
"""


def test_parsing_of_hlo_text() -> None:
    parsed = parse_collectives(TEXT, range(8))
    assert [(c.kind, str(c.types[0]), len(c.types)) for c in parsed] == [
        ("all-reduce", "bf16[2,3]", 1),
        ("all-gather", "i4[8]", 1),
        ("all-reduce", "bool[]", 1),
        ("all-reduce", "c64[]", 1),
        ("collective-permute", str(parsed[-1].types[0]), 1),
    ]
    assert str(parsed[-1].types[0].dtype) == "float8_e4m3fn"
    assert [c.groups for c in parsed] == [
        *((tuple(range(8)),), COLUMNS, ROWS, ((0, 2), (1, 3), (4, 6), (5, 7)), ((0, 2), (1, 3)))
    ]
    assert [c.name for c in parsed] == ["f/sum", "", "", "", ""]
