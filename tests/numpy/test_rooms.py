"""What is loaded late: the table, what type checkers are told, and what `__all__` says are one."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import tracefx
import tracefx.lax
import tracefx.lax.lazy_names
import tracefx.numpy
import tracefx.numpy.lazy_names
from tests.test_imports import run

Table = Mapping[str, str]
HOUSES: Final = (
    (tracefx, {**tracefx._LAZY_MODULES, **tracefx._LAZY_NAMES}),
    (tracefx.numpy, tracefx.numpy.lazy_names.LAZY_NAMES),
    (tracefx.lax, tracefx.lax.lazy_names.LAZY_NAMES),
)
each_house = pytest.mark.parametrize(("house", "late"), HOUSES, ids=["tracefx", "numpy", "lax"])


def told_to_type_checkers(house: ModuleType) -> dict[str, str]:
    """The names that are imported under `if TYPE_CHECKING`, and where from."""
    assert house.__file__ is not None
    text = Path(house.__file__).read_text(encoding="utf-8")
    (branch,) = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
    found = {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            found[alias.asname or alias.name] = node.module
    return found


@each_house
def test_type_checkers_are_told_what_the_table_says(house: ModuleType, late: Table) -> None:
    told = told_to_type_checkers(house)
    assert set(told) == set(late)
    assert [name for name, module in late.items() if module not in (told[name], f"{told[name]}.{name}")] == []


@each_house
def test_every_name_is_there_and_public(house: ModuleType, late: Table) -> None:
    assert set(late) - {"linalg"} <= set(getattr(house, "__all__", dir(house)))
    told = told_to_type_checkers(house)
    for name, module in late.items():
        room = importlib.import_module(module)
        assert getattr(house, name) is (room if module == f"{told[name]}.{name}" else getattr(room, name))


def test_names_are_listed_before_they_are_loaded() -> None:
    program = "import tracefx.numpy as fnp; print(sorted(set(fnp.__all__) - set(dir(fnp))), 'block' in vars(fnp))"
    assert run(set(), program) == "[] False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tracefx.numpy' has no attribute 'no_such_name'"):
        _ = tracefx.numpy.no_such_name  # type: ignore[attr-defined]  # that is the test
