// SPDX-License-Identifier: Apache-2.0
#include "python/tables.hpp"

#include <algorithm>
#include <utility>

namespace tmc {

namespace {

constexpr std::size_t kAhead = 16;

}  // namespace

Tables::Tables(PyObject* tables) {
    if (!PyList_CheckExact(tables)) {
        PyErr_SetString(PyExc_TypeError, "tables come as a list of dicts");
        return;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(tables); ++at) {
        PyObject* dict = PyList_GET_ITEM(tables, at);
        if (!PyDict_Check(dict)) {
            PyErr_SetString(PyExc_TypeError, "tables come as a list of dicts");
            return;
        }
        std::vector<PyObject*> read_now;
        if (read(dict, read_now) < 0) return;
        tables_.push_back({Py_NewRef(dict), static_cast<Py_ssize_t>(read_now.size() / 2)});
        for (PyObject* one : read_now) held_.push_back(Py_NewRef(one));
    }
    is_made_ = true;
}

Tables::~Tables() {
    for (PyObject* one : held_) Py_DECREF(one);
    for (const auto& table : tables_) Py_DECREF(table.dict);
}

/// Borrowed. An ordered dict has an order of its own, which its iterator knows.
int Tables::read(PyObject* dict, std::vector<PyObject*>& into) {
    PyObject *key = nullptr, *value = nullptr;
    if (PyDict_CheckExact(dict) || PyDict_GET_SIZE(dict) < 2) {
        for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
            into.push_back(key);
            into.push_back(value);
        }
        return 0;
    }
    PyObject* keys = PySequence_List(dict);
    if (keys == nullptr) return -1;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(keys); ++at) {
        key = PyList_GET_ITEM(keys, at);
        value = PyDict_GetItemWithError(dict, key);
        if (value == nullptr) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a table has changed while it was read");
            Py_DECREF(keys);
            return -1;
        }
        into.push_back(key);
        into.push_back(value);
    }
    Py_DECREF(keys);
    return 0;
}

bool Tables::is_same(const Table& table, PyObject* const* held) const {
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(table.dict, &at, &key, &value); held += 2)
        if (key != held[0] || value != held[1]) return false;
    return true;
}

int Tables::same() const {
    PyObject* const* held = held_.data();
    std::vector<PyObject*> now;
    for (std::size_t at = 0; at < tables_.size(); ++at) {
        if (at + kAhead < tables_.size()) __builtin_prefetch(tables_[at + kAhead].dict);
        const auto& [dict, size] = tables_[at];
        if (PyDict_GET_SIZE(dict) != size) return 0;
        if (size == 0) continue;
        if (size < 2 || PyDict_CheckExact(dict)) {
            if (!is_same(tables_[at], held)) return 0;
        } else {
            now.clear();
            if (read(dict, now) < 0) return -1;
            if (!std::equal(now.begin(), now.end(), held, held + 2 * size)) return 0;
        }
        held += 2 * size;
    }
    return 1;
}

Sizes::Sizes(PyObject* containers, std::vector<Py_ssize_t> sizes) : sizes_(std::move(sizes)) {
    if (!PyList_CheckExact(containers) || static_cast<std::size_t>(PyList_GET_SIZE(containers)) != sizes_.size()) {
        PyErr_SetString(PyExc_TypeError, "containers come as a list, each with its size");
        return;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(containers); ++at)
        containers_.push_back(Py_NewRef(PyList_GET_ITEM(containers, at)));
    is_made_ = true;
}

Sizes::~Sizes() {
    for (PyObject* one : containers_) Py_DECREF(one);
}

int Sizes::same() const {
    for (std::size_t at = 0; at < containers_.size(); ++at) {
        if (at + kAhead < containers_.size()) __builtin_prefetch(containers_[at + kAhead]);
        PyObject* one = containers_[at];
        const Py_ssize_t size = PyDict_CheckExact(one) ? PyDict_GET_SIZE(one) : PyObject_Size(one);
        if (size < 0) return -1;
        if (size != sizes_[at]) return 0;
    }
    return 1;
}

}  // namespace tmc
