// SPDX-License-Identifier: Apache-2.0
// An attribute of many objects, as it was; those on whom nobody has stored anything are not asked.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tmc {

/// Python counts what is stored in a dict, up to 3.12, and objects have their attributes in one.
class Stored {
public:
    explicit Stored(PyObject* name) : name_(Py_NewRef(name)) {}
    ~Stored();
    Stored(const Stored&) = delete;
    Stored& operator=(const Stored&) = delete;

    /// objects: a list. false: a Python error is set, and nothing is noted.
    bool note(PyObject* objects);
    /// 1: the very objects of that list have the very values that were noted; 0: they have not; -1: an
    /// error.
    int same(PyObject* objects);

private:
    struct Object {
        PyObject* object;
        PyObject* value;
        PyObject* held;     // Its attributes; null: it is asked each time.
        std::uint64_t tag;  // Of these, when it was asked.
    };

    void clear() noexcept;
    bool see(Object& object) const noexcept;

    PyObject* name_;
    std::vector<Object> objects_;
    std::vector<PyTypeObject*> types_;  // Which have nothing of that name themselves.
};

}  // namespace tmc
