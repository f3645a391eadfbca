"""The chapters of the reference: the public modules, and the assignment of their names to pages."""

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
    """A page of a chapter: the names that are defined in the given modules, and those that are listed."""

    title: str
    modules: tuple[str, ...] = field(converter=_words, default="")
    """The defining modules, as suffixes of their names."""
    names: tuple[str, ...] = field(converter=_words, default="")
    """Names that are on this page wherever they are defined."""

    @property
    def file(self) -> str:
        return self.title.lower().replace(",", "").replace(" ", "-") + ".md"


@final
@frozen
class Chapter:
    """A public module. If it has pages, one more page contains the names that are on none of them."""

    module: str
    pages: tuple[Page, ...] = ()

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
                " taylor.api",
                "jacobian",
            ),
            Page("Pipelines", "transforms.transform transforms.handle core.handler"),
            Page(
                "Programs",
                "transforms.staging transforms.shape_dtype_struct core.jaxpr passes.check source_location"
                " programs transforms.exporting",
                "typeof show",
            ),
            Page(
                "Rules and memory",
                "transforms.custom_derivatives transforms.custom_gradients transforms.closure_conversion"
                " transforms.checkpointing transforms.saved_residuals",
            ),
            Page("Arrays", "core.array"),
            Page("Mutable references", "interpreters.refs"),
            Page(
                "Sharding", "transforms.shardings transforms.shard_maps shardings.meshes shardings.named_sharding", "P"
            ),
            Page(
                "Devices, callbacks and settings",
                "transforms.devices transforms.callbacks settings core.dtypes",
                "Device",
            ),
        ),
    ),
    Chapter(
        "tracefx.numpy",
        (
            Page(
                "Arrays and dtypes",
                "dtype_routines scalar_types external core.array array_api_info constants",
                "static_queries",
            ),
            Page("Creating", "creation ranges sequences interchange diagonals"),
            Page("Shapes", "shapes rotation joining repeating padding views"),
            Page("Indexing and updates", "indexing index_tricks updates mask_selection selection editing", "where"),
            Page("Arithmetic", "ufuncs rounding complex_parts float_parts integers"),
            Page("Functions", "transcendentals special_functions window_functions"),
            Page("Logic", "logic closeness static_queries"),
            Page("Reductions", "reductions moments nan_reductions differences"),
            Page("Statistics", "quantiles histograms covariance"),
            Page("Products", "dot_products products einstein_summation convolution"),
            Page("Sorting and sets", "sorting searching sets"),
            Page("Polynomials", "polynomials polynomial_fitting"),
            Page("Vectorization", "vectorization"),
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
                "transforms.conditionals transforms.loops transforms.scans transforms.associative_scan"
                " control.dce_sink transforms.composites",
            ),
            Page("Solvers", "transforms.solvers"),
            Page(
                "Arithmetic",
                "elementwise.arithmetic elementwise.bitwise elementwise.elementwise elementwise.abs_sign"
                " elementwise.atan2_nextafter elementwise.powers elementwise.rounding elementwise.complex"
                " elementwise.mulhi",
            ),
            Page(
                "Functions",
                "elementwise.transcendental elementwise.inverse_trigonometric elementwise.hyperbolic"
                " elementwise.special elementwise.accuracy"
                " random.rng_bit_generator special.bessel special.incomplete_beta special.incomplete_gamma ops.fourier",
            ),
            Page("Comparison", "elementwise.comparison elementwise.selection"),
            Page(
                "Shapes and dtypes",
                "ops.structural shape.shape shape.broadcasting shape.slicing shape.array_creation"
                " elementwise.bit_representation",
                "stop_gradient optimization_barrier",
            ),
            Page(
                "Indexing",
                "indexing.along_axis indexing.dynamic_slicing indexing.gather_scatter_add indexing.scatter"
                " indexing.indexed_windows lax.indexed_apply",
            ),
            Page(
                "Reductions",
                "reductions.reduction reductions.cumulative transforms.reductions reductions.sliding_windows"
                " ops.padding_types indexing.sorting indexing.top_k",
                "reduce_sum",
            ),
            Page(
                "Products and convolutions",
                "contractions.contraction contractions.dot_algorithms contractions.convolution"
                " contractions.convolution_variants contractions.conv_dimension_numbers"
                " contractions.ragged_dot contractions.scaled_dot",
            ),
            Page(
                "Collectives",
                "lax.collectives collectives.collective collectives.grouped transforms.shardings",
                "psum pmean pmax pmin all_gather psum_scatter ppermute all_to_all",
            ),
        ),
    ),
    Chapter("tracefx.lax.linalg"),
    Chapter(
        "tracefx.random",
        (
            Page("Keys", "keys"),
            Page("Distributions", "uniforms continuous gammas discrete matrices"),
            Page("Choices and permutations", "choices"),
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
    Chapter(
        "tracefx.scipy.stats",
        (
            Page("Distributions", "location_scale shaped discrete multivariate"),
            Page("Samples", "sample_statistics density_estimation"),
        ),
    ),
    Chapter("tracefx.image"),
    Chapter("tracefx.sparse"),
    Chapter(
        "tracefx.ops",
        (
            Page("Segment reductions", "reductions.segment_reductions"),
            Page("Elementwise", "ops.elementwise"),
            Page("Shapes and dtypes", "ops.structural ops.shape ops.annotations"),
            Page("Indexing and sorting", "ops.indexing"),
            Page("Reductions", "ops.reductions"),
            Page("Contractions and transforms", "ops.contractions ops.fourier"),
            Page("Linear algebra", "ops.linalg"),
            Page("Random numbers", "ops.random"),
            Page("Collectives", "ops.collectives"),
        ),
    ),
    Chapter("tracefx.tree"),
    Chapter("tracefx.tree_util"),
    Chapter("tracefx.flatten_util"),
    Chapter("tracefx.dtypes"),
    Chapter("tracefx.typing"),
    Chapter("tracefx.debug"),
    Chapter("tracefx.sharding"),
    Chapter("tracefx.distributed"),
    Chapter("tracefx.ad_checkpoint"),
    Chapter("tracefx.custom_derivatives"),
    Chapter("tracefx.custom_batching"),
    Chapter("tracefx.ffi"),
    Chapter("tracefx.profiler"),
    Chapter("tracefx.ref"),
    Chapter("tracefx.checkpoint_policies"),
    Chapter("tracefx.errors"),
    Chapter(
        "tracefx.handlers",
        (
            Page("Intermediate values", "harvest"),
            Page("Log and explain", "operation_log explanation instrumentation array_summary"),
            Page("Costs", "cost_analysis"),
            Page("Checks", "checking"),
            Page("Key reuse", "key_reuse"),
            Page("Mixed precision", "precision"),
            Page("Taylor series", "taylor"),
            Page("Laplacians", "laplacians"),
            Page("Sparsity", "sparsity"),
            Page("Bounds", "intervals"),
            Page("Progress", "progress_reporting"),
            Page("Probabilistic programs", "probabilistic"),
            Page("Units", "quantities units"),
            Page("Low-rank adaptation", "low_rank"),
        ),
    ),
    Chapter("tracefx.handlers.units"),
    Chapter(
        "tracefx.extend",
        (
            Page(
                "Interpreters",
                "interpreters.interpreter interpreters.rule_methods interpreters.rules source_location "
                "core.handler interpreters.body_transform errors",
            ),
            Page(
                "Primitives",
                "core.primitive core.effects text.printer control.call ops.structural elementwise.elementwise",
            ),
            Page("Values and types", "core.values core.array core.avals core.dtypes core.literal"),
            Page("Programs", "core.jaxpr passes.check"),
            Page("Lowering", "lowering"),
        ),
    ),
    Chapter("tracefx.rewriting"),
    Chapter("tracefx.programs"),
    Chapter(
        "tracefx.testing",
        (
            Page("Checks", "checks derivatives equivalence errors subjects tolerances wrappers"),
            Page("Laws", "laws law"),
            Page("Handler laws", "testing.handler_laws"),
        ),
    ),
    Chapter("tracefx.testing.strategies"),
    Chapter("tracefx.interop.jax"),
    Chapter("tracefx.pictures"),
)
"""In the order of the navigation. Modules that do not exist or have no public names are skipped.

A definition that several modules export is documented in the first of them; the others link to it.
"""

TYPES: Final[Sequence[str]] = (
    "tracefx.core.dtypes.DType",
    "tracefx.core.dtypes.DTypeLike",
    "tracefx.core.avals.Shape",
    "tracefx.core.array.AxisLike",
    "tracefx.numpy.shapes.ShapeLike",
    "tracefx.core.device.Device",
    "tracefx.core.literal.Scalar",
    "tracefx.ops.collectives.collective.AxisName",
    "tracefx.ops.elementwise.accuracy.Accuracy",
    "tracefx.control.remat.CheckpointPolicy",
    "tracefx.transforms.function_types.WrappedFunction",
    "tracefx.transforms.function_types.GradientFunction",
    "tracefx.transforms.function_types.GradientAndAux",
    "tracefx.transforms.function_types.ValueAndGradient",
    "tracefx.transforms.function_types.HessianFunction",
    "tracefx.transforms.function_types.PullbackFunction",
    "tracefx.transforms.function_types.Pair",
    "tracefx.transforms.function_types.Several",
    "tracefx.transforms.function_types.Untyped",
    "tracefx.transforms.transform.No",
    "tracefx.transforms.transform.Yes",
)
"""Types that are common in signatures but not public; one page documents them."""

WITH_INHERITED: Final = frozenset({"tracefx.core.array.Array", "tracefx.interpreters.interpreter.Interpreter"})
"""Classes whose entries also have the members of their base classes, which are not public."""

GUIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tracefx/index.md": "tour.md",
        "tracefx/rules-and-memory.md": "control-flow.md",
        "tracefx/pipelines.md": "handlers.md",
        "tracefx/mutable-references.md": "state.md",
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
        "handlers/key-reuse.md": "gallery/key_reuse.md",
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
        "debug.md": "debugging.md",
        "ref.md": "state.md",
        "tracefx/sharding.md": "sharding.md",
        "sharding.md": "sharding.md",
        "distributed.md": "several_processes.md",
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
"""The guides in docs/ that belong to pages of the reference."""
