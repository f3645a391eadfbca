"""Test suites of libraries for JAX, from their source distributions, on JAX and on tracefx."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from attrs import frozen

DOWNLOADS: Final = Path("build") / "ecosystem"


@frozen
class Suite:
    """Test files of a library, which are few enough to run on two cores.

    Args:
        library: The name of its distribution.
        folder: The folder that the files are in.
        files: The names of the files, without `.py`.
        rest: Why some tests pass on JAX only, as far as is known.
    """

    library: str
    folder: str
    files: str
    rest: str = ""

    def paths(self) -> list[str]:
        """Returns the paths of the files in the source distribution."""
        return [f"{self.folder}/{name}.py" for name in self.files.split()]


SUITES: Final = (
    Suite(
        "optax",
        "optax",
        "_src/base_test _src/combine_test _src/lookahead_test _src/numerics_test _src/sharding_test "
        "_src/transform_test _src/update_test _src/utils_test contrib/_privacy_test "
        "contrib/_reduce_on_plateau_test contrib/_sam_test "
        "losses/_fenchel_young_test losses/_ranking_test losses/_regression_test losses/_self_supervised_test "
        "losses/_smoothing_test schedules/_inject_test schedules/_join_test transforms/_accumulation_test "
        "transforms/_adding_test transforms/_clipping_test transforms/_combining_test transforms/_conditionality_test "
        "transforms/_constraining_test transforms/_freezing_test transforms/_layouts_test transforms/_masking_test "
        "transforms/_monitoring_test tree_utils/_casting_test tree_utils/_random_test tree_utils/_state_utils_test "
        "tree_utils/_tree_math_test",
        "words of messages",
    ),
    Suite(
        "chex",
        "chex/_src",
        "asserts_chexify_test asserts_internal_test asserts_test dataclass_test dimensions_test restrict_backends_test "
        "warnings_test",
        "words of messages, also of errors under vmap; jitted functions are recognized by the text of their type",
    ),
    Suite(
        "flax",
        "tests",
        "core/core_frozen_dict_test core/core_meta_test core/core_scope_test linen/kw_only_dataclasses_test "
        "linen/linen_activation_test linen/linen_batch_apply_test linen/linen_combinators_test linen/linen_dtypes_test "
        "linen/linen_meta_test linen/linen_module_test nnx/containers_test nnx/filters_test nnx/graph_utils_test "
        "nnx/helpers_test nnx/ids_test nnx/metrics_test nnx/module_test nnx/nn/embed_test nnx/nn/linear_test "
        "nnx/nn/stochastic_test nnx/optimizer_test nnx/rngs_test nnx/state_test nnx/variable_test serialization_test "
        "struct_test traverse_util_test",
        "types of higher order (hijax); words of messages; text of initializers",
    ),
    Suite(
        "numpyro",
        "test",
        "test_compile test_constraints test_diagnostics test_flows test_handlers test_nn test_optimizers test_util",
        "the name of a key dtype",
    ),
    Suite(
        "blackjax",
        "tests",
        "adaptation/test_mass_matrix adaptation/test_step_size mcmc/test_integrators mcmc/test_proposal "
        "mcmc/test_random_walk_without_chex mcmc/test_trajectory mcmc/test_uturn optimizers/test_optimizers "
        "sgmcmc/test_gradients smc/test_resampling smc/test_smc_ess smc/test_solver test_api_protocols "
        "test_compilation test_util",
        "a difference of rounding, in tests that allow less",
    ),
    Suite(
        "distrax",
        "distrax/_src",
        "bijectors/bijector_test bijectors/block_test bijectors/chain_test bijectors/inverse_test "
        "bijectors/lambda_bijector_test bijectors/linear_test bijectors/shift_test distributions/distribution_test "
        "distributions/epsilon_greedy_test distributions/greedy_test distributions/joint_test "
        "distributions/mvn_kl_test distributions/softmax_test utils/conversion_test utils/jittable_test "
        "utils/monte_carlo_test utils/transformations_test",
    ),
    Suite(
        "dm-haiku",
        "haiku/_src",
        "base_test basic_test bias_test config_test data_structures_test deferred_test dot_test embed_test "
        "filtering_test initializers_test jaxpr_info_test layer_norm_test lift_test mixed_precision_test module_test "
        "moving_averages_test multi_transform_test pad_test random_test rms_norm_test spectral_norm_test stateful_test "
        "typing_test utils_test",
        "words of messages; the operations that programs consist of; random generators by jax.extend.random",
    ),
    Suite("mctx", "mctx/_src/tests", "mctx_test policies_test qtransforms_test seq_halving_test tree_test"),
    Suite(
        "einops",
        "einops/tests",
        "test_einsum test_examples test_layers test_ops test_other test_packing test_parsing",
    ),
)


def source(library: str) -> Path:
    """Returns the folder of the source distribution of the installed version, which is downloaded once."""
    name = f"{library.replace('-', '_')}-{version(library)}"
    if not (DOWNLOADS / name).exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
        subprocess.run([*pip, "--dest", str(DOWNLOADS), f"{library}=={version(library)}"], check=True)
        with tarfile.open(DOWNLOADS / f"{name}.tar.gz") as archive:
            archive.extractall(DOWNLOADS, filter="data")
    return DOWNLOADS / name


def passed(suite: Suite, *plugins: str) -> set[str]:
    """Returns the names of the tests that pass."""
    folder = source(suite.library)
    report = (DOWNLOADS / "report.xml").absolute()
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junit-xml={report}"]
    settings = ["-W", "ignore", "-o", "addopts=", "-o", "python_files=*_test.py test_*.py"]
    loaded = [option for plugin in plugins for option in ("-p", plugin)]
    fast = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "EINOPS_TEST_BACKENDS": "numpy,jax"}
    command = [sys.executable, "-m", "pytest", *loaded, *options, *settings, *suite.paths()]
    with (DOWNLOADS / f"{suite.library}{'-tracefx' if plugins else ''}.log").open("w", encoding="utf-8") as log:
        subprocess.run(command, cwd=folder, env={**os.environ, **fast}, stdout=log, check=False)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    failures = ("failure", "error", "skipped")
    return {f"{c.get('classname')}::{c.get('name')}" for c in cases if all(c.find(each) is None for each in failures)}


def row(suite: Suite) -> str:
    """Runs a suite on both and returns its line of the table."""
    theirs = passed(suite)
    ours = theirs & passed(suite, "tracefx.interop.as_jax.pytest_plugin")
    share = f"{100 * len(ours) / len(theirs):.1f} %"
    cells = [
        suite.library,
        version(suite.library),
        str(len(theirs)),
        str(len(ours)),
        share,
        suite.rest if ours < theirs else "",
    ]
    return f"| {' | '.join(cells)} |"
