"""What is loaded late: the table, what type checkers are told, and what `__all__` says are one."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import tracefx.numpy as fnp
from tests.test_imports import run
from tracefx.numpy.rooms import LATE


def told_to_type_checkers() -> dict[str, str]:
    """The names that are imported under `if TYPE_CHECKING`, and where from."""
    text = Path(fnp.__file__).read_text(encoding="utf-8")
    (branch,) = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
    found = {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            module = f"tracefx.numpy.{alias.name}" if node.module == "tracefx.numpy" else node.module
            found[alias.asname or alias.name] = module
    return found


def test_type_checkers_are_told_what_the_table_says() -> None:
    assert told_to_type_checkers() == dict(LATE)


def test_every_name_is_there_and_public() -> None:
    assert set(LATE) <= set(fnp.__all__)
    for name, module in LATE.items():
        room = importlib.import_module(module)
        assert getattr(fnp, name) is (room if module == f"tracefx.numpy.{name}" else getattr(room, name))


def test_names_are_listed_before_they_are_loaded() -> None:
    program = "import tracefx.numpy as fnp; print(sorted(set(fnp.__all__) - set(dir(fnp))), 'block' in vars(fnp))"
    assert run(set(), program) == "[] False\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tracefx.numpy' has no attribute 'no_such_name'"):
        _ = fnp.no_such_name  # type: ignore[attr-defined]  # that is the test
