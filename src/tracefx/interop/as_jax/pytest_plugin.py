"""A plug-in of pytest: `pytest -p tracefx.interop.as_jax.pytest_plugin` runs tests of JAX programs on tracefx.

pytest loads the plug-ins of its command line before all others, and before any test; importing this one installs.
"""

from __future__ import annotations

from tracefx.interop.as_jax.modules import install

install()
