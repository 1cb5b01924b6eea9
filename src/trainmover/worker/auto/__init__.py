# SPDX-License-Identifier: Apache-2.0
"""Scripts that never name trainmover: their training loop, loaders, models and optimizers."""
