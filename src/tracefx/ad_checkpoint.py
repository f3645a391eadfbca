"""Names and policies of checkpoints, under the names of `jax.ad_checkpoint`."""

from __future__ import annotations

from tracefx.transforms import checkpoint_policies as checkpoint_policies
from tracefx.transforms.checkpointing import checkpoint_name as checkpoint_name
from tracefx.transforms.saved_residuals import print_saved_residuals as print_saved_residuals
