# SPDX-License-Identifier: Apache-2.0
"""The command line: `verbs` has all commands and their flags, `main` dispatches.

`run`, `watch`, `steer`, `report`, `demo`, `doctor` are folders of what carries them out; `client`
asks a live run.
"""
