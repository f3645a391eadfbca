"""The chapters of the reference: which modules are public, and on which page each of their names stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

from attrs import field, frozen


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@final
@frozen
class Page:
    """A subject: the names of a module that are defined in certain modules, or that are named themselves."""

    title: str
    rooms: tuple[str, ...] = field(converter=_words, default="")
    """The modules of the definitions, as the ends of their names; `.` stands for the chapter's own module."""
    names: tuple[str, ...] = field(converter=_words, default="")
    """What stands here wherever it is defined."""

    @property
    def file(self) -> str:
        return self.title.lower().replace(",", "").replace(" ", "-") + ".md"


@final
@frozen
class Chapter:
    """A public module. With subjects it has a page for each, and one more for what is on none of them."""

    module: str
    pages: tuple[Page, ...] = ()
    with_modules: bool = False
    """Whether the public modules in it are subjects, too."""

    @property
    def has_pages(self) -> bool:
        return bool(self.pages) or self.with_modules

    @property
    def folder(self) -> str:
        return self.module.removeprefix("tracefx.")


CHAPTERS: Final[Sequence[Chapter]] = (
    Chapter(
        "tracefx",
        (
            Page(
                "Transformations",
                "transforms.gradients transforms.jacobians transforms.differentiation transforms.vmap transforms.jit"
                " taylor.functions",
                "jacobian",
            ),
            Page("Pipelines", "transforms.pipelines transforms.handle core.handler"),
            Page(
                "Programs",
                "transforms.staging transforms.shapes core.jaxpr core.check core.source programs transforms.exporting",
                "typeof show",
            ),
            Page("Rules and memory", "transforms.custom_derivatives transforms.checkpointing transforms.residuals"),
            Page("Arrays", "core.array"),
            Page("Several devices", "transforms.shardings transforms.shard_maps core.meshes core.shardings"),
            Page(
                "Devices, callbacks and settings",
                "transforms.devices transforms.callbacks core.settings core.dtypes",
            ),
        ),
    ),
    Chapter(
        "tracefx.numpy",
        (
            Page("Arrays and dtypes", "kinds scalar_types external core.array inspection .", "questions"),
            Page("Creating", "creation sequences interchange diagonals"),
            Page("Shapes", "shapes turning joining stacking repeating padding views"),
            Page("Indexing and updates", "indexing index_tricks updates places choosing editing", "where"),
            Page("Arithmetic", "ufuncs float_parts floats integers"),
            Page("Functions", "transcendentals special_functions window_functions"),
            Page("Logic", "logic closeness questions"),
            Page("Reductions", "reductions nan_reductions differences"),
            Page("Statistics", "quantiles histograms correlations"),
            Page("Products", "linear products summation convolving"),
            Page("Sorting and sets", "sorting searching sets"),
            Page("Polynomials", "polynomials fits"),
            Page("Functions of functions", "vectorizing"),
            Page("Printing", "printing"),
        ),
    ),
    Chapter("tracefx.numpy.linalg"),
    Chapter("tracefx.numpy.fft"),
    Chapter(
        "tracefx.lax",
        (
            Page(
                "Control flow",
                "transforms.branches transforms.loops transforms.scans transforms.prefixes control.sinking"
                " transforms.composites",
            ),
            Page("Solvers", "transforms.solvers"),
            Page(
                "Arithmetic",
                "ops.arithmetic ops.bitwise ops.elementwise ops.magnitude ops.pairs ops.powers ops.rounding ops.complex"
                " ops.high_product",
            ),
            Page(
                "Functions",
                "ops.transcendental ops.special ops.bit_generator ops.accuracy special.bessel special.incomplete_beta"
                " special.incomplete_gamma ops.fourier",
            ),
            Page("Comparison", "ops.comparison ops.selection"),
            Page(
                "Shapes and dtypes",
                "ops.basis ops.shape ops.shaping ops.cutting ops.filling ops.representation",
                "stop_gradient optimization_barrier",
            ),
            Page(
                "Indexing",
                "ops.along_axis ops.dynamic ops.indexing ops.scattering ops.windows lax.applying",
            ),
            Page(
                "Reductions",
                "ops.reduction ops.cumulative transforms.reductions ops.moving_windows ops.padding_types ops.sorting"
                " ops.greatest",
                "reduce_sum",
            ),
            Page(
                "Products and convolutions",
                "ops.contraction ops.dot_algorithms ops.convolution ops.convolution_forms ops.convolution_numbers"
                " ops.ragged ops.scaled",
            ),
            Page(
                "Along mapped axes",
                "lax.collectives ops.collective ops.groups transforms.shardings",
                "psum pmean pmax pmin all_gather psum_scatter ppermute all_to_all",
            ),
        ),
    ),
    Chapter("tracefx.lax.linalg"),
    Chapter(
        "tracefx.random",
        (
            Page("Keys", "keys"),
            Page("Distributions", "uniforms continuous gammas counts matrices"),
            Page("Choosing", "choosing"),
        ),
    ),
    Chapter("tracefx.nn"),
    Chapter("tracefx.nn.initializers"),
    Chapter("tracefx.scipy.cluster.vq"),
    Chapter("tracefx.scipy.fft"),
    Chapter("tracefx.scipy.integrate"),
    Chapter("tracefx.scipy.interpolate"),
    Chapter("tracefx.scipy.linalg"),
    Chapter("tracefx.scipy.ndimage"),
    Chapter("tracefx.scipy.optimize"),
    Chapter("tracefx.scipy.signal"),
    Chapter("tracefx.scipy.sparse.linalg"),
    Chapter("tracefx.scipy.spatial.transform"),
    Chapter("tracefx.scipy.special"),
    Chapter("tracefx.scipy.stats", (Page("Samples", "samples density_estimation"),), with_modules=True),
    Chapter("tracefx.image"),
    Chapter("tracefx.ops"),
    Chapter("tracefx.tree"),
    Chapter("tracefx.tree_util"),
    Chapter("tracefx.flatten_util"),
    Chapter("tracefx.dtypes"),
    Chapter("tracefx.typing"),
    Chapter("tracefx.debug"),
    Chapter("tracefx.sharding"),
    Chapter("tracefx.distributed"),
    Chapter("tracefx.custom_derivatives"),
    Chapter("tracefx.custom_batching"),
    Chapter("tracefx.checkpoint_policies"),
    Chapter("tracefx.errors"),
    Chapter(
        "tracefx.handlers",
        (
            Page("Intermediate values", "sowing"),
            Page("Log and explain", "log explain watching summaries"),
            Page("Costs", "counting"),
            Page("Checks", "checking"),
            Page("Keys used twice", "key_reuse"),
            Page("Mixed precision", "precision"),
            Page("Taylor series", "taylor"),
            Page("Laplacians", "laplacian"),
            Page("Sparsity", "sparsity"),
            Page("Bounds", "intervals"),
            Page("Progress", "progressing"),
            Page("Probabilistic programs", "probabilistic"),
            Page("Units", "quantities units"),
            Page("Low-rank adaptation", "lora"),
        ),
    ),
    Chapter("tracefx.handlers.units"),
    Chapter(
        "tracefx.extend",
        (
            Page("Interpreters", "interpreters.interpreter interpreters.rules core.handler core.entering core.errors"),
            Page("Primitives", "core.primitive core.effects core.printer control.call ops.basis ops.elementwise"),
            Page("Values and types", "core.values core.array core.avals core.dtypes core.literal"),
            Page("Programs", "core.jaxpr core.check"),
            Page("Lowering", "core.builder"),
        ),
    ),
    Chapter("tracefx.rewriting"),
    Chapter("tracefx.programs"),
    Chapter(
        "tracefx.testing",
        (
            Page("Checks", "checks derivatives equivalence errors subjects tolerances wrappings"),
            Page("Laws", "laws law"),
            Page("Laws of handlers", "testing.handlers"),
        ),
    ),
    Chapter("tracefx.testing.strategies"),
    Chapter("tracefx.interop.jax"),
    Chapter("tracefx.pictures"),
)
"""In the order of the navigation. A module that is not there, or has no names yet, is left out.

What several modules have stands where it comes first; the others say that theirs is the same.
"""

TYPES: Final[Sequence[str]] = (
    "tracefx.core.dtypes.DType",
    "tracefx.core.dtypes.DTypeLike",
    "tracefx.core.avals.Shape",
    "tracefx.core.array.Axes",
    "tracefx.numpy.shapes.ShapeLike",
    "tracefx.core.backend.Device",
    "tracefx.core.literal.Scalar",
    "tracefx.ops.collective.AxisName",
    "tracefx.ops.accuracy.Accuracy",
    "tracefx.control.saving.Policy",
    "tracefx.transforms.pipelines.Function",
    "tracefx.transforms.pipelines.No",
    "tracefx.transforms.pipelines.Yes",
)
"""What signatures name often without being public names: a page tells what they are."""

GUIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tracefx/index.md": "tour.md",
        "tracefx/rules-and-memory.md": "control-flow.md",
        "tracefx/pipelines.md": "handlers.md",
        "tracefx/programs.md": "serialization.md",
        "lax/control-flow.md": "control-flow.md",
        "random/index.md": "random.md",
        "random/keys.md": "random.md",
        "numpy/index.md": "interchange.md",
        "handlers/index.md": "gallery/index.md",
        "handlers/intermediate-values.md": "gallery/sow.md",
        "handlers/log-and-explain.md": "gallery/explain.md",
        "handlers/costs.md": "gallery/count.md",
        "handlers/checks.md": "gallery/checkify.md",
        "handlers/keys-used-twice.md": "gallery/key_reuse.md",
        "handlers/mixed-precision.md": "gallery/autocast.md",
        "handlers/taylor-series.md": "gallery/taylor.md",
        "handlers/laplacians.md": "gallery/laplacian.md",
        "handlers/sparsity.md": "gallery/sparsity.md",
        "handlers/bounds.md": "gallery/intervals.md",
        "handlers/progress.md": "gallery/progress.md",
        "handlers/probabilistic-programs.md": "gallery/probabilistic.md",
        "handlers/units.md": "gallery/units.md",
        "handlers/low-rank-adaptation.md": "gallery/lora.md",
        "handlers.units.md": "gallery/units.md",
        "extend/index.md": "design.md",
        "extend/interpreters.md": "handlers.md",
        "extend/primitives.md": "writing_operations.md",
        "rewriting.md": "rewriting.md",
        "programs.md": "serialization.md",
        "testing/index.md": "laws.md",
        "interop.jax.md": "from_jax.md",
        "pictures.md": "pictures.md",
    }
)
"""The page of docs/ that tells about what is on a page of the reference."""
