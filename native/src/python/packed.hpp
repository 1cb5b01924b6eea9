// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

namespace tmc {

/// MessagePack of a value that is made of None, bool, int, float, str, bytes, list, dict with str as keys, and
/// tuple (an extension of type `tuple_code` around its items), of those very types. Null without an
/// error: it holds something else, or is nested too deeply. New reference; null with an error: no memory.
///
/// None of the script's code is run, so nothing in it changes meanwhile.
PyObject* packed(PyObject* value, int tuple_code);

}  // namespace tmc
