// SPDX-License-Identifier: Apache-2.0
// Where in its table a set has what is in it. That is the order in which it gives it, and tells where what
// comes later will lie; it depends on all that was ever put in and taken out.
#pragma once

#include <Python.h>

namespace tmc {

/// A tuple of how many places the table has; the place at which `pop` looks first; a list of places, one for each
/// entry, in order; and a list of those from which an entry was taken, which others' search goes on behind.
/// New reference; null with an error.
PyObject* table_of(PyObject* set);

/// Have `set` hold `entries`, a list without equals, at these places. 1: it does. 0: they cannot lie there (another
/// process's hashes, places that no table has), and the set is empty. -1: an error is set.
///
/// set: a set, or a frozenset that nobody else holds
int fill(PyObject* set, Py_ssize_t size, Py_ssize_t first, PyObject* places, PyObject* left, PyObject* entries);

}  // namespace tmc
