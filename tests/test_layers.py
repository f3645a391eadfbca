"""Checks the layering of the package by parsing every import.

A layer imports only layers above it in `ORDER`; jax is imported by `interop` alone and jaxlib in two modules; imports
stand at the top of a file; there are no import cycles; files have a maximum length.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from attrs import frozen

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = "tracefx"
ROOT_MODULE = "__init__"

ORDER = (
    "errors",
    "jaxlib_support",
    "settings",
    "bounded_cache",
    "source_location",
    "filtered_tracebacks",
    "pytrees",
    "core",
    "dimensions",
    "jax_counterparts",
    "lazy_stubs",
    "text",
    "passes",
    "shardings",
    "lowering",
    "serialization",
    "ops",
    "interpreters",
    "control",
    "repeated_blocks",
    "xla",
    "transforms",
    "lax",
    "tree",
    "tree_util",
    "numpy",
    "flatten_util",
    "dtypes",
    "typing",
    "random",
    "nn",
    "image",
    "scipy",
    "debug",
    "sharding",
    "distributed",
    "ad_checkpoint",
    "custom_derivatives",
    "custom_batching",
    "ffi",
    "profiler",
    "ref",
    "sparse",
    "extend",
    "rewriting",
    "programs",
    "handlers",
    "pictures",
    "testing",
    "interop",
    "command",
    "as_jax",
    "late_bindings",
    ROOT_MODULE,
    "__main__",
)

# Layers that may import less than all layers above them.
RESTRICTED_LAYERS: Mapping[str, frozenset[str]] = {
    # The backend traverses any jaxpr: it refers to no primitive and no control flow by name. It traces the expansion of
    # a primitive that is defined by other primitives.
    "xla": frozenset({*ORDER[: ORDER.index("ops")], "interpreters", "repeated_blocks"}),
}

# Modules, or packages with their modules, that may import jaxlib.
JAXLIB_MODULES = ("tracefx.jaxlib_support", "tracefx.xla.runtime")

# (module, name that it imports inside a function): the reason why the import is lazy.
LATE_IMPORTS: Mapping[tuple[str, str], str] = {
    ("tracefx.jaxlib_support", "jaxlib.version"): (
        "loading jaxlib takes longer than all of tracefx, and eager programs do not need it"
    ),
    ("tracefx.jaxlib_support", "<computed>"): "as above",
    ("tracefx.settings", "pathlib.Path"): "it takes 4 ms with its own imports, and few processes need it",
    (
        "tracefx.serialization.digest",
        "hashlib.blake2b",
    ): "it loads OpenSSL, and only compiled programs have digests",
    ("tracefx.testing.equivalence", "hypothesis.HealthCheck"): "the checks need it only with strategies",
    ("tracefx.testing.equivalence", "hypothesis.given"): "as above",
    ("tracefx.testing.equivalence", "hypothesis.settings"): "as above",
    ("tracefx.testing.equivalence", "hypothesis.strategies"): "as above",
    ("tracefx.control.jvp_rules", "<computed>"): "serialized rules are found by the names of functions",
    ("tracefx.lazy_stubs", "<computed>"): "it imports the modules that stubs name",
    ("tracefx.late_bindings", "tracefx.pictures.notebook_html"): "only notebooks need pages",
    (
        "tracefx.late_bindings",
        "tracefx.transforms.shardings.call_with_out_sharding",
    ): "only `out_sharding` needs it",
    (
        "tracefx.late_bindings",
        "tracefx.handlers.cost_analysis.checkpoint_planning.call_within_budget",
    ): "only memory budgets of `checkpoint` need the cost model",
    (
        "tracefx.late_bindings",
        "tracefx.sparse.handler.sparsify",
    ): "only operators of sparse arrays need it",
    ("tracefx.command", "<computed>"): "the user names the module of the function to show",
    (
        "tracefx.handlers.progress_reporting.rich_bars",
        "rich.progress",
    ): "an optional dependency, which only progress bars need",
    ("tracefx.interop.as_jax.modules", "jax.numpy"): "the import hook makes it",
    ("tracefx.interop.as_jax.modules", "<computed>"): "its tables name the modules",
    ("tracefx.interop.as_jax.namespaces", "<computed>"): "modules of tracefx are found by the names of JAX's",
    ("tracefx.interop.as_jax.real_jax", "<computed>"): "it imports what the modules of JAX import",
    ("tracefx.interop.jax.plugins", "<computed>"): "plug-ins are third-party modules",
    ("tracefx.late_bindings", "tracefx.interop.jax.plugins.JaxPlugins"): "it imports jax, which only plug-ins need",
    (
        "tracefx.late_bindings",
        "tracefx.xla.backend.XlaBackend",
    ): "the backend loads XLA, which only compiled programs need",
}

MAX_FILE_LINES = 650


@frozen
class Import:
    """An imported name: `target` is the absolute name of a module, or of a name in one."""

    target: str
    line: int
    late: bool
    """Whether the import is inside a function, so importing the module does not run it."""


def resolve(module: str, is_package: bool, level: int, name: str | None) -> str:
    """Resolves the relative name of `from ..name import` in `module` to an absolute name."""
    if level == 0:
        return name or ""
    package = module.split(".") if is_package else module.split(".")[:-1]
    base = package[: len(package) - (level - 1)]
    return ".".join([*base, name] if name else base)


@functools.cache
def imports(module: str, is_package: bool, text: str) -> tuple[Import, ...]:
    """Returns all imports in `text`, with calls of `importlib.import_module("...")` and `__import__`."""
    return tuple(_imports_of(module, is_package, ast.parse(text), late=False))


def _imports_of(module: str, is_package: bool, node: ast.AST, *, late: bool) -> Iterator[Import]:
    match node:
        case ast.Import(names=names, lineno=line):
            for alias in names:
                yield Import(alias.name, line, late)
        case ast.ImportFrom(module=name, names=names, level=level, lineno=line):
            base = resolve(module, is_package, level, name)
            for alias in names:
                yield Import(base if alias.name == "*" else f"{base}.{alias.name}", line, late)
        case ast.Call(func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module")):
            match node.args:
                case [ast.Constant(value=str() as target), *_]:
                    yield Import(target, node.lineno, late)
                case _:
                    yield Import("<computed>", node.lineno, late)
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        inside_function = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        yield from _imports_of(module, is_package, child, late=inside_function)


def layer_of(name: str) -> str | None:
    """Returns the layer of a name in the package; None for names outside the package.

    `tracefx.lax` and everything in it is `lax`; the package itself and names taken from it are the root module.
    """
    head, _, rest = name.partition(".")
    if head != PACKAGE:
        return None
    first = rest.partition(".")[0]
    return first if first in ORDER else ROOT_MODULE


def violations(module: str, is_package: bool, text: str) -> list[str]:
    """Returns the violations of the rules in a module, one line each."""
    found: list[str] = []
    own = ROOT_MODULE if module == PACKAGE else module.split(".")[1]
    if own not in ORDER:
        return [f"{module}: {own!r} is no layer; give it a place in ORDER in tests/test_layers.py"]
    allowed = RESTRICTED_LAYERS.get(own, frozenset(ORDER[: ORDER.index(own)])) | {own}
    for each in imports(module, is_package, text):
        where = f"{module}:{each.line}"
        top = each.target.partition(".")[0]
        layer = layer_of(each.target)
        if layer is not None and layer not in allowed:
            found.append(f"{where}: {own} imports {each.target}; it may import only {', '.join(sorted(allowed))}")
        if top == "jax" and own != "interop":
            found.append(f"{where}: imports {each.target}; tracefx does its own work without jax")
        if top == "jaxlib" and not any(f"{module}.".startswith(f"{m}.") for m in JAXLIB_MODULES):
            found.append(f"{where}: imports {each.target}; only {' and '.join(JAXLIB_MODULES)} may")
        if each.target == "<computed>" and (module, each.target) not in LATE_IMPORTS:
            found.append(f"{where}: imports a module by a computed name")
        if each.late and (module, each.target) not in LATE_IMPORTS:
            found.append(f"{where}: imports {each.target} inside a function")
    return found


def import_cycle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Returns the modules of an import cycle, with the first repeated at the end; None if there is no cycle."""
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return None
        for target in graph.get(module, ()):
            found = visit(target, [*path, module])
            if found is not None:
                return found
        finished.add(module)
        return None

    for module in graph:
        found = visit(module, [])
        if found is not None:
            return found
    return None


def import_graph(texts: Mapping[str, tuple[bool, str]]) -> dict[str, list[str]]:
    """Returns the modules of the package that each module imports when it is loaded or type-checked."""
    graph: dict[str, list[str]] = {}
    for module, (is_package, text) in texts.items():
        targets: list[str] = []
        for each in imports(module, is_package, text):
            if not each.late:
                target = each.target if each.target in texts else each.target.rpartition(".")[0]
                if target in texts and target != module:
                    targets.append(target)
        graph[module] = targets
    return graph


def module_name(path: Path) -> tuple[str, bool]:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return ".".join(parts[:-1] if is_package else parts), is_package


FILES = sorted((SOURCE / PACKAGE).rglob("*.py"))
STUBS = sorted((SOURCE / PACKAGE).rglob("*.pyi"))


@pytest.mark.parametrize("path", [*FILES, *STUBS], ids=lambda path: module_name(path)[0] + path.suffix)
def test_module_imports_only_permitted_layers(path: Path) -> None:
    module, is_package = module_name(path)
    assert violations(module, is_package, path.read_text(encoding="utf-8")) == []


def test_exports_of_the_core_are_imported_from_the_package() -> None:
    core = SOURCE / PACKAGE / "core"
    exports = {each.target for each in imports(f"{PACKAGE}.core", True, (core / "__init__.py").read_text("utf-8"))}
    found: list[str] = []
    for path in FILES:
        module, is_package = module_name(path)
        if core not in path.parents:
            targets = {each.target for each in imports(module, is_package, path.read_text(encoding="utf-8"))}
            found += [f"{module} imports {target}" for target in sorted(targets & exports)]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: module_name(path)[0])
def test_file_length(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES


def test_no_import_cycles() -> None:
    texts: dict[str, tuple[bool, str]] = {}
    for path in FILES:
        module, is_package = module_name(path)
        texts[module] = (is_package, path.read_text(encoding="utf-8"))
    assert import_cycle(import_graph(texts)) is None


def test_every_late_import_exception_is_used() -> None:
    late_imports: set[tuple[str, str]] = set()
    for path in FILES:
        module, is_package = module_name(path)
        text = path.read_text(encoding="utf-8")
        late_imports |= {(module, each.target) for each in imports(module, is_package, text) if each.late}
    assert set(LATE_IMPORTS) - late_imports == set()


# ------------------------------------------------------------------ tests of the checker


@pytest.mark.parametrize(
    ("module", "text", "message"),
    [
        ("tracefx.core.avals", "import tracefx.ops.unary", "core imports tracefx.ops.unary"),
        ("tracefx.core.avals", "from tracefx import ops", "core imports tracefx.ops"),
        ("tracefx.core.avals", "from ..ops.unary import sin", "core imports tracefx.ops.unary.sin"),
        ("tracefx.core.avals", "from .. import interpreters", "core imports tracefx.interpreters"),
        (
            "tracefx.interpreters.jvp",
            "from tracefx.control.call import Call",
            "interpreters imports tracefx.control.call",
        ),
        ("tracefx.xla.lower", "from tracefx.control.call import Call", "xla imports tracefx.control.call"),
        ("tracefx.xla.lower", "from tracefx.ops.unary import Sin", "xla imports tracefx.ops.unary"),
        ("tracefx.transforms.jit", "from tracefx.lax import add", "transforms imports tracefx.lax"),
        ("tracefx.numpy.creation", "from tracefx import jit", "numpy imports tracefx.jit"),
        ("tracefx.numpy.creation", "import tracefx", "numpy imports tracefx"),
        ("tracefx.lax", "from tracefx.testing import laws", "lax imports tracefx.testing"),
        (
            "tracefx.core.avals",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tracefx.ops.unary import Sin",
            "core imports tracefx.ops.unary.Sin",
        ),
        ("tracefx.ops.unary", "import jax.numpy as jnp", "imports jax.numpy"),
        ("tracefx.ops.unary", "from jax import lax", "imports jax.lax"),
        ("tracefx.ops.unary", "import jaxlib.xla_client", "imports jaxlib.xla_client"),
        ("tracefx.xla.runtime_of_another", "import jaxlib", "imports jaxlib"),
        ("tracefx.ops.unary", "def f():\n    import math\n", "imports math inside a function"),
        (
            "tracefx.ops.unary",
            "class C:\n    async def f(self):\n        from os import path\n",
            "imports os.path inside",
        ),
        ("tracefx.ops.unary", "import importlib\nf = importlib.import_module('jax.lax')", "imports jax.lax"),
        ("tracefx.ops.unary", "f = lambda: __import__('math')", "imports math inside a function"),
        ("tracefx.ops.unary", "import importlib\nm = importlib.import_module(name)", "by a computed name"),
        ("tracefx.helpers", "", "'helpers' is no layer"),
    ],
)
def test_planted_violation_is_detected(module: str, text: str, message: str) -> None:
    (found,) = violations(module, False, text)
    assert message in found


@pytest.mark.parametrize(
    ("module", "is_package", "text"),
    [
        ("tracefx.core.avals", False, "import numpy as np\nfrom . import dtypes\nfrom tracefx.errors import E"),
        ("tracefx.core", True, "from .avals import ShapedArray"),
        ("tracefx.jaxlib_support", False, "from jaxlib import version"),
        ("tracefx.xla.runtime.client", False, "import jaxlib.xla_client"),
        ("tracefx.xla.runtime", False, "import jaxlib.xla_client\nfrom tracefx.core import avals"),
        ("tracefx.transforms.jit", False, "from tracefx.xla.runtime import client\nfrom tracefx.control import call"),
        ("tracefx.numpy", True, "from tracefx.numpy.creation import zeros\nfrom tracefx import lax"),
        ("tracefx.ops.unary", False, "import jaxtyping_like_name"),
        ("tracefx.interop.jax.values", False, "import jax\nfrom tracefx import lax"),
        ("tracefx", True, "from tracefx.transforms.jit import jit\nfrom tracefx import lax, numpy"),
    ],
)
def test_permitted_imports_pass(module: str, is_package: bool, text: str) -> None:
    assert violations(module, is_package, text) == []


def test_planted_cycle_is_detected() -> None:
    texts = {
        "tracefx.core.a": (False, "from tracefx.core.b import x"),
        "tracefx.core.b": (False, "from . import c"),
        "tracefx.core.c": (False, "import tracefx.core.a"),
    }
    found = import_cycle(import_graph(texts))
    assert found is not None
    assert set(found) == set(texts)
    assert (
        import_cycle(import_graph({**texts, "tracefx.core.c": (False, "def f():\n    import tracefx.core.a")})) is None
    )
