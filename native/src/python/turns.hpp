// SPDX-License-Identifier: Apache-2.0
// Iterators that stand in a rewritten loop (`loops/turns.py`): one indirect call a turn.
#pragma once

#include <Python.h>

namespace tmc {

/// Add the types `Loop` and `Turns` to a module, the functions that make them, `iterate` and
/// `repeat`, and `left`. False with a Python error.
bool add_loops(PyObject* module);

/// Call `begin` with each loop that begins, `turn` before each turn of a transaction, and `left` with
/// the line of each loop that the script leaves; nullptr: nothing is called. `retry` is the exception by
/// which a turn is asked for again.
void set_hooks(PyObject* begin, PyObject* turn, PyObject* left, PyObject* retry) noexcept;

}  // namespace tmc
