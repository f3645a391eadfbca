"""Each built-in rewrite rule: what it rewrites, and what it must not rewrite."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import tracefx as fx
from tests.rewriting.evaluation import assert_pass_is_sound
from tracefx.core import dtypes
from tracefx.ops.casting import convert_host
from tracefx.passes.check import check_jaxpr
from tracefx.passes.rebuilding import renumber
from tracefx.programs import parse_jaxpr
from tracefx.rewriting import EXACT_RULES, FAST_MATH_RULES, optimize, rewrite, simplify
from tracefx.rewriting.shape_rules import is_lossless_conversion
from tracefx.testing.strategies import DTYPES, edge_values


def read_cases(text: str) -> list[tuple[str, str, str]]:
    """Reads lines `rule: program => program`; lines that are indented continue the one before."""
    cases = []
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, programs = line.split(": ", 1)
        before, after = programs.split(" => ")
        cases.append((name, before, after))
    return cases


EXACT_CASES: Final = read_cases("""
add_identity: a:f32[3]. let b:f32[3] = add a -0.0:f32[] in (b,) => a:f32[3]. let in (a,)
add_identity: a:i32[3]. let b:i32[3] = add 0:i32[] a in (b,) => a:i32[3]. let in (a,)
add_identity: a:i32[3]. let b:i32[3] = broadcast_in_dim[shape=(3,) broadcast_dimensions=()] 0:i32[];
    c:i32[3] = add a b in (c,) => a:i32[3]. let in (a,)
subtract_zero: a:f32[3]. let b:f32[3] = sub a 0.0:f32[] in (b,) => a:f32[3]. let in (a,)
multiply_by_one: a:f32[3]. let b:f32[3] = mul 1.0:f32[] a in (b,) => a:f32[3]. let in (a,)
divide_by_one: a:f32[3]. let b:f32[3] = div a 1.0:f32[] in (b,) => a:f32[3]. let in (a,)
multiply_by_minus_one: a:f32[]. let b:f32[] = mul -1.0:f32[] a in (b,) => a:f32[]. let b:f32[] = neg a in (b,)
multiply_by_minus_one: a:f32[]. let b:f32[] = div a -1.0:f32[] in (b,) => a:f32[]. let b:f32[] = neg a in (b,)
max_min_with_bound: a:f32[3]. let b:f32[3] = max -inf:f32[] a in (b,) => a:f32[3]. let in (a,)
max_min_with_bound: a:u8[3]. let b:u8[3] = max a 0:u8[] in (b,) => a:u8[3]. let in (a,)
max_min_with_bound: a:bool[]. let b:bool[] = min a True:bool[] in (b,) => a:bool[]. let in (a,)
power_of_one: a:f32[3]. let b:f32[3] = integer_pow[y=1] a in (b,) => a:f32[3]. let in (a,)
multiply_integers_by_zero: a:i32[]. let b:i32[] = mul a 0:i32[] in (b,) => a:i32[]. let in (0:i32[],)
equal_integers_cancel: a:i32[]. let b:i32[] = sub a a in (b,) => a:i32[]. let in (0:i32[],)
bitwise_with_constant: a:i32[]. let b:i32[] = and a -1:i32[] in (b,) => a:i32[]. let in (a,)
bitwise_with_constant: a:u8[]. let b:u8[] = or a 255:u8[] in (b,) => a:u8[]. let in (255:u8[],)
bitwise_with_constant: a:bool[]. let b:bool[] = xor a False:bool[] in (b,) => a:bool[]. let in (a,)
idempotent_binary: a:f32[]. let b:f32[] = max a a in (b,) => a:f32[]. let in (a,)
reassociate_integer_constants: a:i8[]. let b:i8[] = mul a 100:i8[]; c:i8[] = mul 3:i8[] b in (c,)
    => a:i8[]. let b:i8[] = mul a 44:i8[] in (b,)
cancel_involution: a:c64[]. let b:c64[] = neg a; c:c64[] = neg b in (c,) => a:c64[]. let in (a,)
cancel_involution: a:i32[]. let b:i32[] = not a; c:i32[] = not b in (c,) => a:i32[]. let in (a,)
cancel_involution: a:c64[]. let b:c64[] = conj[input_dtype=complex64] a;
    c:c64[] = conj[input_dtype=complex64] b in (c,) => a:c64[]. let in (a,)
real_imag_of_complex: a:f32[] b:f32[]. let c:c64[] = complex a b; d:f32[] = imag c; e:f32[] = real c in (d, e)
    => a:f32[] b:f32[]. let in (b, a)
complex_of_real_imag: a:c64[]. let b:f32[] = real a; c:f32[] = imag a; d:c64[] = complex b c in (d,)
    => a:c64[]. let in (a,)
idempotent_unary: a:f32[]. let b:f32[] = floor a; c:f32[] = ceil b in (c,) => a:f32[]. let b:f32[] = floor a in (b,)
add_the_negative: a:f32[] b:f32[]. let c:f32[] = neg a; d:f32[] = add c b in (d,)
    => a:f32[] b:f32[]. let c:f32[] = sub b a in (c,)
subtract_the_negative: a:f32[] b:f32[]. let c:f32[] = neg b; d:f32[] = sub a c in (d,)
    => a:f32[] b:f32[]. let c:f32[] = add a b in (c,)
multiply_negatives: a:f32[] b:f32[]. let c:f32[] = neg a; d:f32[] = neg b; e:f32[] = mul c d in (e,)
    => a:f32[] b:f32[]. let c:f32[] = mul a b in (c,)
compare_with_itself: a:f32[]. let b:bool[] = lt a a in (b,) => a:f32[]. let in (False:bool[],)
compare_with_itself: a:i32[]. let b:bool[] = le a a in (b,) => a:i32[]. let in (True:bool[],)
select_known_predicate: a:f32[] b:f32[]. let c:f32[] = select_n True:bool[] a b in (c,) => a:f32[] b:f32[]. let in (b,)
select_known_predicate: a:i32[] b:f32[]. let c:f32[] = select_n a b b b in (c,) => a:i32[] b:f32[]. let in (b,)
select_negated_predicate: a:bool[] b:f32[] c:f32[]. let d:bool[] = not a; e:f32[] = select_n d b c in (e,)
    => a:bool[] b:f32[] c:f32[]. let d:f32[] = select_n a c b in (d,)
cond_known_index: a:f32[]. let b:f32[] = cond[branches=({ lambda ; a:f32[]. let b:f32[] = sin a in (b,) } { lambda ;
    a:f32[]. let b:f32[] = cos a in (b,) })] 7:i32[] a in (b,) => a:f32[]. let b:f32[] = cos a in (b,)
cond_known_index: a:i32[] b:f32[]. let c:f32[] = cond[branches=({ lambda ; a:f32[]. let in (a,) } { lambda ;
    a:f32[]. let in (a,) })] a b in (c,) => a:i32[] b:f32[]. let in (b,)
merge_reshapes: a:f32[2,3]. let b:f32[6] = reshape[new_sizes=(6,)] a; c:f32[3,2] = reshape[new_sizes=(3, 2)] b in (c,)
    => a:f32[2,3]. let b:f32[3,2] = reshape[new_sizes=(3, 2)] a in (b,)
merge_reshapes: a:f32[3]. let b:f32[1,3] = broadcast_in_dim[shape=(1, 3) broadcast_dimensions=(1,)] a;
    c:f32[3] = squeeze[dimensions=(0,)] b in (c,) => a:f32[3]. let in (a,)
broadcast_of_scalar: a:f32[]. let b:f32[2,3] = broadcast_in_dim[shape=(2, 3) broadcast_dimensions=()] a;
    c:f32[3,2] = transpose[permutation=(1, 0)] b in (c,)
    => a:f32[]. let b:f32[3,2] = broadcast_in_dim[shape=(3, 2) broadcast_dimensions=()] a in (b,)
merge_transposes: a:f32[2,3,5]. let b:f32[3,5,2] = transpose[permutation=(1, 2, 0)] a;
    c:f32[2,5,3] = transpose[permutation=(2, 1, 0)] b in (c,)
    => a:f32[2,3,5]. let b:f32[2,5,3] = transpose[permutation=(0, 2, 1)] a in (b,)
merge_broadcasts: a:f32[3]. let b:f32[2,3] = broadcast_in_dim[shape=(2, 3) broadcast_dimensions=(1,)] a;
    c:f32[2,5,3] = broadcast_in_dim[shape=(2, 5, 3) broadcast_dimensions=(0, 2)] b in (c,)
    => a:f32[3]. let b:f32[2,5,3] = broadcast_in_dim[shape=(2, 5, 3) broadcast_dimensions=(2,)] a in (b,)
merge_slices: a:f32[9]. let b:f32[4] = slice[start_indices=(1,) limit_indices=(9,) strides=(2,)] a;
    c:f32[2] = slice[start_indices=(1,) limit_indices=(4,) strides=(2,)] b in (c,)
    => a:f32[9]. let b:f32[2] = slice[start_indices=(3,) limit_indices=(8,) strides=(4,)] a in (b,)
slice_of_concatenation: a:f32[2] b:f32[3]. let c:f32[5] = concatenate[dimension=0] a b;
    d:f32[2] = slice[start_indices=(3,) limit_indices=(5,) strides=None] c in (d,)
    => a:f32[2] b:f32[3]. let c:f32[2] = slice[start_indices=(1,) limit_indices=(3,) strides=None] b in (c,)
concatenate_empty: a:f32[2] b:f32[0]. let c:f32[2] = concatenate[dimension=0] b a b in (c,)
    => a:f32[2] b:f32[0]. let in (a,)
pad_by_zero: a:f32[2]. let b:f32[2] = pad[padding_config=((0, 0, 0),)] a 1.0:f32[] in (b,) => a:f32[2]. let in (a,)
merge_reversals: a:f32[2,3]. let b:f32[2,3] = rev[dimensions=(0, 1)] a; c:f32[2,3] = rev[dimensions=(1,)] b in (c,)
    => a:f32[2,3]. let b:f32[2,3] = rev[dimensions=(0,)] a in (b,)
dynamic_slice_at_literal: a:f32[5]. let b:f32[3] = dynamic_slice[slice_sizes=(3,)] a 9:i32[] in (b,)
    => a:f32[5]. let b:f32[3] = slice[start_indices=(2,) limit_indices=(5,) strides=None] a in (b,)
reduce_over_no_axes: a:f32[2]. let b:f32[2] = reduce_sum[axes=()] a in (b,) => a:f32[2]. let in (a,)
reduce_over_no_axes: a:f32[2]. let b:f32[2] = reduce_max[axes=()] a in (b,) => a:f32[2]. let in (a,)
merge_conversions: a:f16[2]. let b:f32[2] = convert_element_type[new_dtype=float32 weak_type=False] a;
    c:i8[2] = convert_element_type[new_dtype=int8 weak_type=False] b in (c,)
    => a:f16[2]. let b:i8[2] = convert_element_type[new_dtype=int8 weak_type=False] a in (b,)
convert_literal: a:f16[2]. let b:i8[] = convert_element_type[new_dtype=int8 weak_type=False] 300.0:f32[] in (b,)
    => a:f16[2]. let in (127:i8[],)
""")

FAST_MATH_CASES: Final = read_cases("""
add_zero: a:f32[]. let b:f32[] = add a 0.0:f32[] in (b,) => a:f32[]. let in (a,)
multiply_by_zero: a:f32[]. let b:f32[] = mul a 0.0:f32[] in (b,) => a:f32[]. let in (0:f32[],)
multiply_complex_by_one: a:c64[]. let b:c64[] = mul a (1+0j):c64[] in (b,) => a:c64[]. let in (a,)
equal_numbers_cancel: a:f32[]. let b:f32[] = sub a a in (b,) => a:f32[]. let in (0:f32[],)
divide_by_itself: a:f32[]. let b:f32[] = div a a in (b,) => a:f32[]. let in (1:f32[],)
reassociate_constants: a:f32[]. let b:f32[] = mul a 3.0:f32[]; c:f32[] = mul b 0.5:f32[] in (c,)
    => a:f32[]. let b:f32[] = mul a 1.5:f32[] in (b,)
divide_by_a_number: a:f32[]. let b:f32[] = div a 4.0:f32[] in (b,) => a:f32[]. let b:f32[] = mul a 0.25:f32[] in (b,)
multiply_by_a_quotient: a:f32[] b:f32[]. let c:f32[] = div 1.0:f32[] b; d:f32[] = mul a c in (d,)
    => a:f32[] b:f32[]. let c:f32[] = div a b in (c,)
negative_of_a_difference: a:f32[] b:f32[]. let c:f32[] = sub a b; d:f32[] = neg c in (d,)
    => a:f32[] b:f32[]. let c:f32[] = sub b a in (c,)
log_of_exp: a:f32[]. let b:f32[] = exp a; c:f32[] = log b in (c,) => a:f32[]. let in (a,)
exp_of_log: a:f32[]. let b:f32[] = log a; c:f32[] = exp b in (c,) => a:f32[]. let in (a,)
root_of_square: a:f32[]. let b:f32[] = square a; c:f32[] = sqrt b in (c,) => a:f32[]. let b:f32[] = abs a in (b,)
""")

RULES: Final = {rule.name: rule for rule in EXACT_RULES + FAST_MATH_RULES}


@pytest.mark.parametrize(
    ("name", "before", "after"), [*EXACT_CASES, *FAST_MATH_CASES], ids=[d[0] for d in (*EXACT_CASES, *FAST_MATH_CASES)]
)
def test_rule_rewrites_as_expected(name: str, before: str, after: str) -> None:
    jaxpr, want = [renumber(parse_jaxpr(f"{{ lambda ; {text} }}")) for text in (before, after)]
    check_jaxpr(jaxpr)
    assert rewrite(jaxpr, [RULES[name]]) == want
    assert simplify(jaxpr, fast_math=name in {d[0] for d in FAST_MATH_CASES}) == want
    assert_pass_is_sound(lambda j: rewrite(j, [RULES[name]]), jaxpr, [], exact=False)


@pytest.mark.parametrize(("name", "before"), [d[:2] for d in FAST_MATH_CASES], ids=[d[0] for d in FAST_MATH_CASES])
def test_rules_that_change_rounding_need_fast_math(name: str, before: str) -> None:
    jaxpr = parse_jaxpr(f"{{ lambda ; {before} }}")
    assert simplify(jaxpr) is jaxpr


def test_every_rule_has_a_test_case() -> None:
    assert {d[0] for d in EXACT_CASES} == {rule.name for rule in EXACT_RULES}
    assert {d[0] for d in FAST_MATH_CASES} == {rule.name for rule in FAST_MATH_RULES}


UNCHANGED_PROGRAMS: Final = (
    "a:f32[3]. let b:f32[3] = add a 0.0:f32[] in (b,)",  # -0.0 becomes 0.0
    "a:f32[3]. let b:f32[3] = sub a -0.0:f32[] in (b,)",
    "a:c64[3]. let b:c64[3] = add a (-0-0j):c64[] in (b,)",
    "a:f32[]*. let b:f32[] = mul a 1.0:f32[] in (b,)",  # the result would not be weak
    (
        "a:f32[]. let b:f32[3] = broadcast_in_dim[shape=(3,) broadcast_dimensions=()] 1.0:f32[]; "
        "c:f32[3] = mul a b in (c,)"
    ),
    "a:f32[]. let b:f32[] = sub a a in (b,)",  # NaN
    "a:f32[]. let b:f32[] = max a inf:f32[] in (b,)",
    "a:f32[]. let b:f32[] = div -1.0:f32[] a in (b,)",
    "a:c64[]. let b:c64[] = mul a (-1+0j):c64[] in (b,)",
    "a:f32[]. let b:bool[] = eq a a in (b,)",
    "a:f32[]. let b:bool[] = le a a in (b,)",
    (
        "a:f64[]. let b:f32[] = convert_element_type[new_dtype=float32 weak_type=False] a; "
        "c:f64[] = convert_element_type[new_dtype=float64 weak_type=False] b in (c,)"
    ),
    "a:f32[] b:f32[]*. let c:f32[] = select_n True:bool[] a b in (c,)",  # the chosen case is weakly typed
    "a:f32[]. let b:f32[] = stop_gradient a in (b,)",
    (
        "a:f32[3]. let b:f32[2,3] = broadcast_in_dim[shape=(2, 3) broadcast_dimensions=(1,)] a; "
        "c:f32[6] = reshape[new_sizes=(6,)] b in (c,)"
    ),
    (
        "a:f32[2] b:f32[3]. let c:f32[5] = concatenate[dimension=0] a b; "
        "d:f32[3] = slice[start_indices=(1,) limit_indices=(4,) strides=None] c in (d,)"
    ),
)


@pytest.mark.parametrize("text", UNCHANGED_PROGRAMS)
def test_program_is_not_simplified(text: str) -> None:
    jaxpr = parse_jaxpr(f"{{ lambda ; {text} }}")
    check_jaxpr(jaxpr)
    assert simplify(jaxpr) is jaxpr


def test_branch_with_effects_is_not_simplified() -> None:
    def shown(x: fx.Array) -> fx.Array:
        fx.debug.print("{}", x)
        return x

    jaxpr = fx.make_jaxpr(lambda x: fx.lax.switch(1, [shown, shown], x))(1.0).jaxpr
    simpler = optimize(jaxpr)
    assert simpler.effects == jaxpr.effects
    assert [e.prim for e in simpler.eqns] == [e.prim for e in jaxpr.eqns if e.prim.effects]


def test_lossless_conversions_round_trip() -> None:
    """Tests the extremes of each dtype and values between them by a round trip."""
    for source in DTYPES:
        for target in DTYPES:
            if is_lossless_conversion(source, target) and not dtypes.is_complex(source):
                host = np.array(edge_values(source), object if dtypes.is_integer(source) else np.float64).astype(source)
                back = convert_host(convert_host(host, target), source)
                wide = np.float64 if dtypes.is_float(source) else source
                np.testing.assert_array_equal(back.astype(wide), host.astype(wide))
    named = [(dtypes.int32, dtypes.float32), (dtypes.uint8, dtypes.int8), (dtypes.bfloat16, dtypes.float16)]
    assert not any(is_lossless_conversion(source, target) for source, target in named)
