// SPDX-License-Identifier: Apache-2.0
#include "python/stored.hpp"

#include <algorithm>
#include <utility>

namespace tmc {

namespace {

constexpr std::size_t kAhead = 12;

#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr bool kCounts = true;
std::uint64_t tag_of(PyObject* dict) noexcept { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop
#else
constexpr bool kCounts = false;
std::uint64_t tag_of(PyObject*) noexcept { return 0; }
#endif

PyObject* attributes_of(PyObject* object) noexcept {
    PyObject** at = _PyObject_GetDictPtr(object);
    return at != nullptr && *at != nullptr && PyDict_CheckExact(*at) ? *at : nullptr;
}

}  // namespace

Stored::~Stored() {
    clear();
    Py_DECREF(name_);
}

void Stored::clear() noexcept {
    auto objects = std::exchange(objects_, {});
    auto types = std::exchange(types_, {});
    for (const auto& one : objects) {
        Py_DECREF(one.object);
        Py_DECREF(one.value);
        Py_XDECREF(one.held);
    }
    for (auto* type : types) Py_DECREF(type);
}

/// Whether its value lies among its own attributes: then what they count shows whether it is another.
bool Stored::see(Object& one) const noexcept {
    PyObject* held = kCounts ? attributes_of(one.object) : nullptr;
    if (held != nullptr && PyDict_GetItemWithError(held, name_) != one.value) held = nullptr;
    PyErr_Clear();
    Py_XSETREF(one.held, Py_XNewRef(held));
    one.tag = held != nullptr ? tag_of(held) : 0;
    return held != nullptr;
}

bool Stored::note(PyObject* objects) {
    clear();
    if (!PyList_CheckExact(objects)) {
        PyErr_SetString(PyExc_TypeError, "the objects that are asked come as a list");
        return false;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(objects); ++at) {
        PyObject* object = PyList_GET_ITEM(objects, at);
        PyObject* value = PyObject_GetAttr(object, name_);
        if (value == nullptr) {
            clear();
            return false;
        }
        objects_.push_back({Py_NewRef(object), value, nullptr, 0});
        auto* type = Py_TYPE(object);
        const bool is_own = _PyType_Lookup(type, name_) == nullptr && see(objects_.back());
        if (is_own && std::find(types_.begin(), types_.end(), type) == types_.end()) {
            Py_INCREF(type);
            types_.push_back(type);
        }
    }
    return true;
}

int Stored::same(PyObject* objects) {
    if (!PyList_CheckExact(objects)) {
        PyErr_SetString(PyExc_TypeError, "the objects that are asked come as a list");
        return -1;
    }
    if (static_cast<std::size_t>(PyList_GET_SIZE(objects)) != objects_.size()) return 0;
    for (auto* type : types_)
        if (_PyType_Lookup(type, name_) != nullptr) return 0;
    for (std::size_t at = 0; at < objects_.size(); ++at) {
        if (at + kAhead < objects_.size()) {
            const auto& next = objects_[at + kAhead];
            __builtin_prefetch(reinterpret_cast<const char*>(next.object) - 32);
            if (next.held != nullptr) __builtin_prefetch(next.held);
        }
        auto& one = objects_[at];
        if (static_cast<std::size_t>(PyList_GET_SIZE(objects)) != objects_.size() ||
            PyList_GET_ITEM(objects, static_cast<Py_ssize_t>(at)) != one.object)
            return 0;
        if (one.held != nullptr && attributes_of(one.object) == one.held && tag_of(one.held) == one.tag) continue;
        PyObject* now = PyObject_GetAttr(one.object, name_);
        if (now == nullptr) return -1;
        const bool is_same = now == one.value;
        Py_DECREF(now);
        if (!is_same) return 0;
        if (one.held != nullptr) see(one);
    }
    return 1;
}

}  // namespace tmc
