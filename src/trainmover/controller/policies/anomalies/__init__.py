# SPDX-License-Identifier: Apache-2.0
"""Machines that are about to fail, found before they do, from what is told anyway. Pure.

    what their kernels and processes say    one grave line; or more of others than usual   `told`
    how late their agents speak             robust z-score beside all machines             `late`
    memory that is left                     where it falls to nothing                      `filling`
    own times of their steps                CUSUM, beside others and what they were        `drift`
    incidents that begin on them            more than chance gives one machine             `repeats`

Each says in a sentence what it has seen; `bench/anomalies.py` measures how often each is wrong.
(TRANSOM, arXiv 2310.10046, learns such models from logs; what these see a person can check.)
"""
