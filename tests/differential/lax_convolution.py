"""Records of `tracefx.lax`: convolutions and their shapes."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from tests.differential.records import Call, Library, Record, c_grid, call, grid, i32, record
from tracefx.testing.tolerances import SUMMED

IMAGES: Final = grid(2, 4, 5, 3)
KERNEL: Final = grid(2, 4, 2, 2, seed=1)
LINE: Final = grid(4, 2, 5)
FILTER: Final = grid(4, 2, 3, seed=1)
LAST: Final = ("NHWC", "HWIO", "NHWC")
MIXED: Final = ("CWNH", "IHOW", "HNWC")
SOME: Final = ("bool", "int8", "int32", "bfloat16", "float64", "complex64")


def lax(name: str, *calls: Call, **kw: Any) -> Record:
    kw.setdefault("dtypes", SOME)
    kw.setdefault("ulps", SUMMED)
    return record(name, *calls, module="lax", **kw)


def plain(name: str, *calls: Call, refused: tuple[Call, ...] = ()) -> Record:
    def via(library: Library) -> Any:
        f = getattr(library.lax, name)

        def returning_plain_tuple(*args: Any) -> Any:
            out = f(*args)
            return out if isinstance(out, list) else tuple(out)  # named tuples have different classes

        return returning_plain_tuple

    return record(
        name,
        *calls,
        module="lax",
        refused=refused,
        via=via,
        is_plain=True,
        derivatives=False,
        batched=False,
        dtypes=(),
    )


RECORDS: Final[tuple[Record, ...]] = (
    lax(
        "conv_general_dilated",
        call(LINE, FILTER, (2,), [(1, 2)]),
        call(LINE, FILTER, (1,), [(-1, 3)], (2,), (2,), batch_group_count=2),
        call(IMAGES, grid(4, 2, 2, 2), (1, 2), "SAME", None, (2, 1), feature_group_count=2),
        call(c_grid(2, 3, 3), c_grid(2, 3, 2), (1,), "VALID", precision="highest"),
        values=[
            call(IMAGES, grid(2, 2, 4, 3), (2, 1), "SAME_LOWER", dimension_numbers=("NCHW", "HWIO", "NHWC")),
            call(grid(5, 2, 3, 4), grid(5, 2, 3, 3), (1, 1), "valid", dimension_numbers=MIXED),
            call(grid(2, 3), grid(4, 3), (), ()),
            call(
                np.ones((1, 1, 3), np.int8),
                np.full((1, 1, 3), 100, np.int8),
                (1,),
                "SAME",
                preferred_element_type="int32",
            ),
            call(
                np.ones((1, 1, 3), np.uint8),
                np.ones((1, 1, 2), np.uint8),
                (1,),
                "SAME",
                preferred_element_type="float32",
            ),
            call(np.zeros((0, 2, 3), np.float32), grid(1, 2, 2), (1,), "VALID"),
            call(np.zeros((1, 0, 3), np.float32), np.zeros((2, 0, 2), np.float32), (1,), "VALID"),
            call(grid(1, 2, 1), grid(1, 2, 3), (1,), "VALID"),
        ],
        refused=[
            call(LINE, FILTER, (1, 1), "SAME"),
            call(LINE, FILTER, (1,), "OTHER"),
            call(LINE, FILTER, (1,), 3),
            call(LINE, FILTER, (1,), [(1, 2, 3)]),
            call(LINE, FILTER, (1,), [(1, 2), (0, 0)]),
            call(LINE, FILTER, (1,), [(-4, -4)]),
            call(LINE, FILTER, (1,), "SAME", (2,)),
            call(LINE, KERNEL, (1,), "SAME"),
            call(LINE, grid(4, 3, 3), (1,), "SAME"),
            call(LINE, FILTER, (1,), "SAME", feature_group_count=2),
            call(LINE, FILTER, (1,), "SAME", feature_group_count=0),
            call(LINE, FILTER, (1,), "SAME", batch_group_count=3),
            call(LINE, grid(3, 2, 3), (1,), "SAME", batch_group_count=2),
            call(LINE, FILTER.astype(np.int32), (1,), "SAME"),
            call(LINE, FILTER, (1,), "SAME", preferred_element_type="int32"),
            call(LINE, FILTER, (1,), "SAME", preferred_element_type="float16"),
            call(LINE, FILTER, (1,), "SAME", precision="other"),
            call(LINE, FILTER, (1,), "SAME", dimension_numbers=("NCH", "OIH")),
            call(LINE, FILTER, (1,), "SAME", dimension_numbers=("NCH", "OIH", "NC")),
            call(LINE, FILTER, (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCC")),
            call(LINE, FILTER, (1,), "SAME", dimension_numbers=("NCH", "OIW", "NCH")),
            call(LINE, FILTER, (1,), "SAME", dimension_numbers="NCH"),
        ],
    ),
    lax(
        "conv", call(LINE, FILTER, (2,), "SAME"), dtypes=(), refused=[call(LINE, FILTER, (2,), "OTHER")], batched=False
    ),
    lax(
        "conv_with_general_padding",
        call(LINE, FILTER, (1,), [(0, 1)], (2,), None),
        values=[call(LINE, FILTER, (2,), "SAME", None, (2,))],
        dtypes=(),
        batched=False,
    ),
    lax(
        "conv_transpose",
        call(grid(1, 3, 4, 2), grid(3, 2, 2, 3), (2, 3), "SAME"),
        values=[
            call(grid(1, 3, 2), grid(2, 2, 3), (3,), "VALID", (2,)),
            call(grid(1, 3, 2), grid(3, 4, 2), (2,), "SAME", transpose_kernel=True),
            call(grid(1, 3, 2), grid(3, 2, 4), (2,), [(1, 0)]),
            call(grid(1, 3, 2), grid(3, 2, 4), (2,), [(1, 0)], use_consistent_padding=True),
            call(grid(1, 2, 3), grid(4, 2, 3), (2,), "VALID", dimension_numbers=("NCH", "OIH", "NCH")),
            call(grid(2, 3), grid(3, 4), (), ()),
        ],
        refused=[
            call(grid(1, 3, 2), grid(3, 2, 4), (2,), "OTHER"),
            call(grid(1, 3, 2), grid(3, 2, 4), (2,), "OTHER", use_consistent_padding=True),
            call(grid(1, 2, 2, 2, 2, 2), grid(1, 2, 2, 2, 2, 2), (1, 1, 1, 1), "SAME"),
        ],
        dtypes=("bfloat16",),
        batched=False,
    ),
    lax(
        "conv_general_dilated_patches",
        call(IMAGES, (2, 2), (1, 2), "SAME"),
        values=[
            call(IMAGES, (3, 2), (2, 1), [(1, 0), (0, 0)], (1, 2), (2, 1), ("NCHW", "OIWH", "CNHW")),
            call(IMAGES.astype(np.float64), (2, 1), (1, 1), "VALID", dimension_numbers=LAST),
        ],
        refused=[call(IMAGES, (2,), (1, 1), "SAME"), call(IMAGES, (2, 2), (1,), "SAME")],
        dtypes=("int32",),
    ),
    lax(
        "conv_general_dilated_local",
        call(LINE, grid(3, 6, 3), (1,), "VALID", (3,)),
        values=[
            call(IMAGES, grid(2, 8, 5, 3), (1, 1), "SAME", (2, 1)),
            call(
                grid(2, 4, 5, 3), grid(4, 5, 6, 2), (1, 1), "SAME", (2, 1), dimension_numbers=("NHWC", "HWIO", "WNCH")
            ),
        ],
        refused=[call(LINE, grid(3, 5, 3), (1,), "VALID", (3,))],
        dtypes=(),
    ),
    lax(
        "ragged_dot",
        call(grid(5, 3), grid(2, 3, 2), i32(2, 2)),
        values=[
            call(grid(5, 3), grid(2, 3, 2), i32(2, 9)),
            call(grid(0, 3), grid(1, 3, 2), i32(0)),
            call(grid(5, 3), grid(2, 3, 2), i32(2, 2).astype(np.uint8), preferred_element_type="float64"),
        ],
        refused=[
            call(grid(5, 3), grid(2, 3, 2), grid(2)),
            call(grid(5, 3), grid(2, 3, 2), i32(1, 2, 3)),
            call(grid(5, 3), grid(2, 3, 2), i32(2)[0]),
            call(grid(5, 3), grid(2, 2, 2), i32(1, 2)),
            call(grid(5, 3), grid(3, 2), i32(1, 2)),
            call(grid(5, 3), grid(2, 3, 2), i32(2, 2), precision="other"),
        ],
        batched=False,  # JAX supports leading batch axes only; `tests/laws` tests the others
    ),
    record(
        "ragged_dot_general",
        call(grid(2, 5), grid(5, 2), i32(2, 2)),
        module="lax",
        values=[call(grid(2, 5), grid(5, 2), i32([2, 2], [1, 1])[0])],
        refused=[call(grid(2, 5), grid(5, 2), i32([2, 2, 1], [2, 2, 1]))],
        via=lambda library: partial(
            library.lax.ragged_dot_general,
            ragged_dot_dimension_numbers=library.lax.RaggedDotDimensionNumbers((([1], [0]), ([], [])), [1], []),
        ),
        ulps=SUMMED,
        dtypes=("bfloat16",),
        derivatives=False,  # JAX lacks them where the contracted axis is in groups; `tests/laws` has them
        batched=False,
    ),
    lax(
        "scaled_dot",
        call(grid(2, 4), grid(4, 3)),
        call(
            grid(2, 2, 4), grid(2, 4, 3), lhs_scale=2 ** np.floor(grid(2, 2, 2)), rhs_scale=2 ** np.floor(grid(2, 1, 3))
        ),
        values=[
            call(grid(4, 2), grid(4, 3), dimension_numbers=(((0,), (0,)), ((), ())), preferred_element_type="float32")
        ],
        refused=[
            call(grid(3), grid(3)),
            call(grid(2, 3), grid(4, 3)),
            call(grid(2, 4), grid(4, 3), lhs_scale=grid(2, 4)),
            call(grid(2, 4), grid(4, 3), lhs_scale=grid(2, 3)),
            call(grid(2, 4), grid(4, 3), rhs_scale=grid(2, 2)),
            call(grid(2, 4), grid(4, 3), rhs_scale=grid(2)),
        ],
        dtypes=("int8", "bfloat16"),
        derivatives=False,  # not implemented in JAX
    ),
    plain(
        "conv_dimension_numbers",
        call((1, 2, 3), (1, 2, 3), None),
        call((1, 2, 3, 4), (1, 2, 3, 4), MIXED),
        refused=(
            call((1, 2), (1, 2, 3), None),
            call((1, 2), (1, 2), 3),
            call((1, 2), (1, 2), ((0, 1), (0, 1), (0, 1))),
        ),
    ),
    plain(
        "conv_general_permutations",
        call(LAST),
        call(MIXED),
        refused=(call(("NCH", "OIH", "NCW")), call(("NCC", "OIH", "NCH")), call(("NHH", "OIH", "NCH"))),
    ),
    plain(
        "conv_shape_tuple",
        call((2, 3, 8), (4, 3, 3), (2,), "SAME"),
        call((4, 3, 8), (4, 3, 3), (2,), [(1, -3)], 2),
        refused=(call((2, 3, 8), (4, 3, 3), (2,), [(0, 0), (0, 0)]), call((2, 3, 8), (4, 3, 3), (2,), [(-5, -5)])),
    ),
    plain("conv_general_shape_tuple", call((2, 8, 9, 3), (3, 2, 3, 4), (1, 2), "VALID", LAST)),
    plain(
        "conv_transpose_shape_tuple",
        call((2, 8, 9, 3), (3, 2, 3, 4), (1, 2), "VALID", LAST),
        call((2, 8, 9, 3), (3, 2, 3, 4), (3, 2), "SAME", LAST),
        call((2, 8, 9, 3), (3, 2, 3, 4), (3, 2), [(1, 2), (0, 0)], LAST),
        refused=(call((2, 8, 9, 3), (3, 2, 3, 4), (3, 2), "OTHER", LAST),),
    ),
    plain(
        "padtype_to_pads",
        call((10, 7, 1), (3, 2, 4), (1, 3, 2), "SAME"),
        call((10, 7), (3, 2), (2, 3), "same_lower"),
        call((10, 7), (3, 2), (2, 3), "VALID"),
        refused=(call((10,), (3,), (1,), "OTHER"), call((10,), (3,), (1,), 1)),
    ),
)
