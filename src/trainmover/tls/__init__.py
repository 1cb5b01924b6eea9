# SPDX-License-Identifier: Apache-2.0
"""TLS at a job's listeners, if it was asked for.

The token says who comes in; the certificate says whose listener it is.
"""
