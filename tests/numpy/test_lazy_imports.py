"""Lazy imports: the lazy-name tables, the `TYPE_CHECKING` imports and `__all__` agree with each other."""

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
MODULES: Final = (
    (tracefx, {**tracefx._LAZY_MODULES, **tracefx._LAZY_NAMES}),
    (tracefx.numpy, tracefx.numpy.lazy_names.LAZY_NAMES),
    (tracefx.lax, tracefx.lax.lazy_names.LAZY_NAMES),
)
each_module = pytest.mark.parametrize(("package", "lazy_names"), MODULES, ids=["tracefx", "numpy", "lax"])


def type_checking_imports(module: ModuleType) -> dict[str, str]:
    """Returns the names imported under `if TYPE_CHECKING`, each with its source module."""
    assert module.__file__ is not None
    text = Path(module.__file__).read_text(encoding="utf-8")
    (branch,) = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
    imports = {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            imports[alias.asname or alias.name] = node.module
    return imports


@each_module
def test_type_checking_imports_match_the_lazy_name_table(package: ModuleType, lazy_names: Table) -> None:
    imports_of = type_checking_imports(package)
    assert set(imports_of) == set(lazy_names)
    assert [
        name for name, module in lazy_names.items() if module not in (imports_of[name], f"{imports_of[name]}.{name}")
    ] == []


@each_module
def test_every_lazy_name_resolves_and_is_public(package: ModuleType, lazy_names: Table) -> None:
    assert set(lazy_names) - {"linalg"} <= set(getattr(package, "__all__", dir(package)))
    imports_of = type_checking_imports(package)
    for name, module in lazy_names.items():
        loaded = importlib.import_module(module)
        assert getattr(package, name) is (loaded if module == f"{imports_of[name]}.{name}" else getattr(loaded, name))


def test_dir_lists_lazy_names_before_they_are_loaded() -> None:
    program = "import tracefx.numpy as fnp; print(sorted(set(fnp.__all__) - set(dir(fnp))), 'block' in vars(fnp))"
    assert run(set(), program) == "[] False\n"


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tracefx.numpy' has no attribute 'no_such_name'"):
        _ = tracefx.numpy.no_such_name  # type: ignore[attr-defined]  # tested
