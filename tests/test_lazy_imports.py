"""Packages with a stub: its names are the package's, and are imported when they are used."""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import pickle
import pkgutil
import re
from pathlib import Path
from typing import Any, Final

import jax
import pytest

import tracefx
import tracefx.numpy
from tests.test_imports import run
from tests.versions import ABSENT_PARAMETERS
from tracefx.jax_counterparts import COUNTERPARTS, PARAMETERS
from tracefx.lazy_stubs import exports

SOURCE: Final = Path(tracefx.__file__).parent
STUBS: Final = {
    ".".join(["tracefx", *path.parent.relative_to(SOURCE).parts]): path for path in sorted(SOURCE.rglob("*.pyi"))
}
each_package = pytest.mark.parametrize("package", STUBS)


@each_package
def test_stub_consists_of_exports(package: str) -> None:
    """Every statement has the form that the import system, type checkers and the documentation read alike."""
    statements = [
        ast.unparse(ast.ImportFrom(module, [ast.alias(name, name)], 0)) for name, module in exports(package).items()
    ]
    assert ast.unparse(ast.parse(STUBS[package].read_text(encoding="utf-8"))).splitlines() == statements


@each_package
def test_init_file_defines_nothing(package: str) -> None:
    """Type checkers read the stub instead."""
    body = ast.parse(STUBS[package].with_suffix(".py").read_text(encoding="utf-8")).body
    assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)


@each_package
def test_every_name_resolves(package: str) -> None:
    module = importlib.import_module(package)
    assert list(exports(package)) == module.__all__
    assert set(exports(package)) <= set(dir(module))
    for name, source in exports(package).items():
        found = getattr(module, name)
        if source != package:
            defined = getattr(importlib.import_module(source), name)
            assert found is defined or getattr(found, "__wrapped__", None) is defined  # filters tracebacks
        assert vars(module)[name] is found


@each_package
def test_no_module_hides_a_name(package: str) -> None:
    """The import of a module `m` of a package sets the attribute `m` of the package."""
    modules = {path.name.removesuffix(".py") for path in STUBS[package].parent.iterdir()}
    assert {name for name, source in exports(package).items() if source != package} & modules == set()


def test_star_import_and_dir_before_names_are_loaded() -> None:
    program = """
    import tracefx.numpy as fnp
    print(sorted(set(fnp.__all__) - set(dir(fnp))), "block" in vars(fnp))
    from tracefx.lax import *
    print(sin(0.0), erf(0.0))
    """
    assert run(set(), program) == "[] False\n0.0 0.0\n"


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tracefx.numpy' has no attribute 'no_such_name'$"):
        _ = tracefx.numpy.no_such_name  # type: ignore[attr-defined]  # tested
    with pytest.raises(ImportError, match=r"^cannot import name 'no_such_name' from 'tracefx.numpy'"):
        from tracefx.numpy import no_such_name  # type: ignore[attr-defined]  # noqa: F401  # tested


@pytest.mark.parametrize("name", [name for name in COUNTERPARTS if hasattr(jax, name.removeprefix("tracefx."))])
def test_names_of_jax_have_a_hint(name: str) -> None:
    package, _, attribute = name.rpartition(".")
    with pytest.raises(AttributeError) as failure:
        getattr(importlib.import_module(package), attribute)
    message = str(failure.value)
    assert message == (
        f"module '{package}' has no attribute '{attribute}'; the counterpart of JAX's name: {COUNTERPARTS[name]}"
    )
    for path in re.findall(r"`(tracefx\.[\w.]+)", message):
        assert pkgutil.resolve_name(path) is not None


@each_package
def test_public_exceptions_are_in_one_module(package: str) -> None:
    module = importlib.import_module(package)
    found = [getattr(module, name) for name in exports(package)]
    for each in found:
        if isinstance(each, type) and issubclass(each, Exception) and not issubclass(each, Warning):
            assert getattr(tracefx.errors, each.__name__, None) is each


def test_compiling_loads_no_classes_of_stablehlo_operations_and_jax_still_gets_them() -> None:
    out = run(
        set(),
        """
        import sys
        import tracefx as fx

        f = fx.jit(lambda x: x * 2)
        f(1.0)
        print("jaxlib.mlir.dialects.stablehlo" in sys.modules)

        import jax
        from jaxlib.mlir.dialects import stablehlo

        module = jax.jit(lambda x: x * 2).lower(1.0).compiler_ir("stablehlo")
        multiply = module.body.operations[0].body.blocks[0].operations[1]
        print(isinstance(multiply, stablehlo.MulOp), "stablehlo.multiply" in f.lower(1.0).as_text())
        """,
    )
    assert out == "False\nTrue True\n"


@pytest.mark.parametrize("name", PARAMETERS)
def test_restricted_parameters_are_those_of_jax(name: str) -> None:
    own, theirs = [operator.attrgetter(name.removeprefix("tracefx."))(library) for library in (tracefx, jax)]
    for parameter, (accepted, _) in PARAMETERS[name].items():
        found, expected = [inspect.signature(f).parameters.get(parameter) for f in (own, theirs)]
        assert found is not None
        assert found.default in accepted
        assert (expected is None) == (f"{name}: {parameter}" in ABSENT_PARAMETERS)
        assert expected is None or found.default == expected.default


def test_restricted_parameters_take_their_defaults() -> None:
    grad: Any = tracefx.grad
    assert float(grad(lambda x: x * x, reduce_axes=())(3.0)) == 6.0
    with pytest.raises(NotImplementedError, match=r"^grad: reduce_axes=\('i',\) is not supported: .*shard_map"):
        grad(lambda x: x, reduce_axes=("i",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such_parameter'"):
        grad(lambda x: x, no_such_parameter=1)
    scan: Any = tracefx.lax.scan
    assert scan(lambda c, x: (c + x, None), 0, tracefx.numpy.arange(3), _split_transpose=True)[0] == 3
    assert pickle.loads(pickle.dumps(tracefx.numpy.zeros)) is tracefx.numpy.zeros
    add: Any = tracefx.numpy.add
    x = tracefx.numpy.arange(3)
    assert add(x, x, out=None, where=None).tolist() == [0, 2, 4]
    for parameter in ("out", "where"):
        with pytest.raises(NotImplementedError, match=rf"^add: {parameter}=Array\(.* is not supported"):
            add(x, x, **{parameter: x > 1})


def test_names_that_other_libraries_look_up() -> None:
    special = importlib.import_module("tracefx.scipy.special")
    assert getattr(tracefx.numpy, "special", None) is special
    assert special.psi is special.digamma
    for name in ("einsum", "tensordot", "transpose"):
        assert getattr(tracefx, name) is getattr(tracefx.numpy, name)
        assert name not in exports("tracefx")
