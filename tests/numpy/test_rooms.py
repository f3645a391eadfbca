"""What is loaded late: the table, what type checkers are told, and what `__all__` says are one."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import tracefx.lax
import tracefx.lax.rooms
import tracefx.numpy
import tracefx.numpy.rooms
from tests.test_imports import run

Table = Mapping[str, str]
HOUSES: Final = ((tracefx.numpy, tracefx.numpy.rooms.LATE), (tracefx.lax, tracefx.lax.rooms.LATE))
each_house = pytest.mark.parametrize(("house", "late"), HOUSES, ids=["numpy", "lax"])


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
            module = f"{node.module}.{alias.name}" if node.module == house.__name__ else node.module
            found[alias.asname or alias.name] = module
    return found


@each_house
def test_type_checkers_are_told_what_the_table_says(house: ModuleType, late: Table) -> None:
    assert told_to_type_checkers(house) == dict(late)


@each_house
def test_every_name_is_there_and_public(house: ModuleType, late: Table) -> None:
    assert set(late) - {"linalg"} <= set(house.__all__)
    for name, module in late.items():
        room = importlib.import_module(module)
        assert getattr(house, name) is (room if module == f"{house.__name__}.{name}" else getattr(room, name))


def test_names_are_listed_before_they_are_loaded() -> None:
    program = "import tracefx.numpy as fnp; print(sorted(set(fnp.__all__) - set(dir(fnp))), 'block' in vars(fnp))"
    assert run(set(), program) == "[] False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tracefx.numpy' has no attribute 'no_such_name'"):
        _ = tracefx.numpy.no_such_name  # type: ignore[attr-defined]  # that is the test
