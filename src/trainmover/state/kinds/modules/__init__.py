# SPDX-License-Identifier: Apache-2.0
"""What a module has beside its parameters: flags, plain attributes, buffers of every sort."""
