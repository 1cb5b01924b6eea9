// SPDX-License-Identifier: Apache-2.0
// Whether dicts hold the very objects that they held, in the same order: hundreds in one call.
#pragma once

#include <Python.h>

#include <cstddef>
#include <vector>

namespace tmc {

/// What was in them is kept alive, so nothing else can stand at its address.
class Tables {
public:
    /// tables: a list of dicts. A Python error is set if `is_made` says no.
    explicit Tables(PyObject* tables);
    ~Tables();
    Tables(const Tables&) = delete;
    Tables& operator=(const Tables&) = delete;

    bool is_made() const noexcept { return is_made_; }
    /// 1: all have the keys and values that they had, in that order; 0: they have not; -1: an error.
    int same() const;

private:
    struct Table {
        PyObject* dict;
        Py_ssize_t size;
    };

    static int read(PyObject* dict, std::vector<PyObject*>& into);
    bool is_same(const Table& table, PyObject* const* held) const;

    bool is_made_ = false;
    std::vector<Table> tables_;
    std::vector<PyObject*> held_;  // Keys and values of each, one behind the other.
};

/// How many entries hundreds of containers have. They are kept alive, what is in them is not.
class Sizes {
public:
    /// containers: a list; sizes: as many. A Python error is set if `is_made` says no.
    Sizes(PyObject* containers, std::vector<Py_ssize_t> sizes);
    ~Sizes();
    Sizes(const Sizes&) = delete;
    Sizes& operator=(const Sizes&) = delete;

    bool is_made() const noexcept { return is_made_; }
    /// 1: each has so many; 0: some has not; -1: an error.
    int same() const;

private:
    bool is_made_ = false;
    std::vector<PyObject*> containers_;
    std::vector<Py_ssize_t> sizes_;
};

}  // namespace tmc
