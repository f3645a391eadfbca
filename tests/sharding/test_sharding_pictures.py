"""`debug.visualize_sharding`: pictures of shardings on the terminal."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.sharding.both import TRACEFX
from tests.sharding.test_meshes import on

PICTURES: Final[dict[tuple[tuple[int, ...], tuple[Any, ...]], str]] = {
    ((8, 4), ("x", "y")): """
+---------+---------+
|  CPU 0  |  CPU 1  |
+---------+---------+
|  CPU 2  |  CPU 3  |
+---------+---------+
|  CPU 4  |  CPU 5  |
+---------+---------+
|  CPU 6  |  CPU 7  |
+---------+---------+
""",
    ((8, 4), (None, "y")): """
+-------------+-------------+
| CPU 0,2,4,6 | CPU 1,3,5,7 |
+-------------+-------------+
""",
    ((8,), ("x",)): """
+---------+---------+---------+---------+
| CPU 0,1 | CPU 2,3 | CPU 4,5 | CPU 6,7 |
+---------+---------+---------+---------+
""",
    ((4, 2, 6), ("y",)): """
[0:2]
+-------------+
| CPU 0,2,4,6 |
+-------------+
[2:4]
+-------------+
| CPU 1,3,5,7 |
+-------------+
""",
    ((), ()): """
+---------+
| CPU 0-7 |
+---------+
""",
}


@pytest.mark.parametrize(("shape", "parts", "picture"), [(*key, text) for key, text in PICTURES.items()], ids=str)
def test_pictures(shape: Any, parts: Any, picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    fx.debug.visualize_sharding(shape, on(TRACEFX, *parts))
    assert "\n" + capsys.readouterr().out == picture
    fx.debug.visualize_array_sharding(fx.device_put(np.zeros(shape, np.float32), on(TRACEFX, *parts)))
    assert "\n" + capsys.readouterr().out == picture


def test_narrow_pictures_wrap_lines(capsys: pytest.CaptureFixture[str]) -> None:
    fx.debug.visualize_sharding((8,), on(TRACEFX, "y"), max_width=16)
    assert capsys.readouterr().out.splitlines() == [
        "+------+------+",
        "|CPU 0,|CPU 1,|",
        "| 2,4, | 3,5, |",
        "|  6   |  7   |",
        "+------+------+",
    ]


def test_terminals_show_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    fx.debug.visualize_sharding((8,), on(TRACEFX, "y"))
    assert "\x1b[" in capsys.readouterr().out
    fx.debug.visualize_sharding((8,), on(TRACEFX, "y"), use_color=False)
    assert "\x1b[" not in capsys.readouterr().out
    fx.debug.visualize_sharding((8,), on(TRACEFX, "y"), color_map=lambda part: (part, part, part, 1.0))
    out = capsys.readouterr().out
    assert "\x1b[48;2;0;0;0m\x1b[97m" in out
    assert "\x1b[48;2;255;255;255m\x1b[30m" in out


def test_larger_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    fx.debug.visualize_array_sharding(fx.device_put(np.zeros(8), on(TRACEFX, "y")), scale=3, min_width=5)
    assert capsys.readouterr().out.splitlines() == [
        "+---------------+---------------+",
        "|               |               |",
        "|  CPU 0,2,4,6  |  CPU 1,3,5,7  |",
        "|               |               |",
        "+---------------+---------------+",
    ]


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="can't be cut into 4 equal pieces"):
        fx.debug.visualize_sharding((6,), on(TRACEFX, "x"))
    with pytest.raises(TypeError, match="takes a concrete array, got .*output_shardings"):
        fx.jit(fx.debug.visualize_array_sharding)(fnp.ones(2))
