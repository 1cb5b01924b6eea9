// SPDX-License-Identifier: Apache-2.0
#include "python/sets.hpp"

#include <vector>

namespace tmc {

namespace {

constexpr Py_ssize_t kMost = Py_ssize_t{1} << 26;
/// No table of Python's has so many times as many places as are taken or left.
constexpr Py_ssize_t kAbove = 16;

PySetObject* table(PyObject* set) { return reinterpret_cast<PySetObject*>(set); }

bool is_left(const setentry& at) { return at.key != nullptr && at.hash == -1; }

bool append(PyObject* list, Py_ssize_t number) {
    PyObject* made = PyLong_FromSsize_t(number);
    const bool came = made != nullptr && PyList_Append(list, made) == 0;
    Py_XDECREF(made);
    return came;
}

/// Ascending numbers below `size`; false: they are none.
bool read(PyObject* list, Py_ssize_t size, std::vector<Py_ssize_t>& into) {
    if (!PyList_CheckExact(list)) return false;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); ++at) {
        PyObject* one = PyList_GET_ITEM(list, at);
        const Py_ssize_t number = PyLong_CheckExact(one) ? PyLong_AsSsize_t(one) : -1;
        if (number < 0 || number >= size || (!into.empty() && number <= into.back())) {
            PyErr_Clear();
            return false;
        }
        into.push_back(number);
    }
    return true;
}

/// An entry that Python looks for at this place first, and that is none of the set's.
PyObject* filler(PyObject* set, Py_ssize_t place, Py_ssize_t size) {
    for (Py_ssize_t number = place; number >= 0; number += size) {
        PyObject* made = PyLong_FromSsize_t(number);
        const int has = made == nullptr ? -1 : PySet_Contains(set, made);
        if (has == 0) return made;
        Py_XDECREF(made);
        if (has < 0) return nullptr;
    }
    return nullptr;
}

/// An empty table of that size.
bool grow(PySetObject* set, Py_ssize_t size) {
    if (size == PySet_MINSIZE) return true;
    auto* room = static_cast<setentry*>(PyMem_Calloc(static_cast<std::size_t>(size), sizeof(setentry)));
    if (room == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    set->table = room;
    set->mask = size - 1;
    return true;
}

void place(PySetObject* set, Py_ssize_t at, PyObject* key, Py_hash_t hash) {
    set->table[at].key = Py_NewRef(key);
    set->table[at].hash = hash;
    ++set->fill;
    ++set->used;
}

/// Have it that entries were at these places.
int leave(PyObject* set, const std::vector<Py_ssize_t>& left, Py_ssize_t size) {
    std::vector<PyObject*> fillers;
    int done = 1;
    for (const auto at : left) {
        PyObject* one = filler(set, at, size);
        if (one == nullptr) {
            done = -1;
            break;
        }
        fillers.push_back(one);
        place(table(set), at, one, PyObject_Hash(one));
    }
    for (auto* one : fillers) {
        // One behind another's place is found there as well, since none is empty in between.
        if (done == 1 && PySet_Discard(set, one) != 1) done = PyErr_Occurred() ? -1 : 0;
        Py_DECREF(one);
    }
    return done;
}

/// Whether Python finds each of them.
int all_in(PyObject* set, PyObject* entries) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(entries); ++at) {
        const int has = PySet_Contains(set, PyList_GET_ITEM(entries, at));
        if (has != 1) return has;
    }
    return 1;
}

/// `done`, and what was wrong with it, behind which nothing is left in the set.
int emptied(PyObject* set, int done) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PySet_Clear(set);
    PyErr_Restore(type, value, trace);
    return done;
}

}  // namespace

PyObject* table_of(PyObject* set) {
    if (!PyAnySet_Check(set)) {
        PyErr_SetString(PyExc_TypeError, "a set is asked for its table");
        return nullptr;
    }
    PyObject* places = PyList_New(0);
    PyObject* left = PyList_New(0);
    bool all = places != nullptr && left != nullptr;
    const auto* of = table(set);
    for (Py_ssize_t at = 0; all && at <= of->mask; ++at)
        if (of->table[at].key != nullptr) all = append(is_left(of->table[at]) ? left : places, at);
    PyObject* result = all ? Py_BuildValue("nnOO", of->mask + 1, of->finger, places, left) : nullptr;
    Py_XDECREF(places);
    Py_XDECREF(left);
    return result;
}

int fill(PyObject* set, Py_ssize_t size, Py_ssize_t first, PyObject* places, PyObject* left, PyObject* entries) {
    if (!PySet_Check(set) && !(PyFrozenSet_CheckExact(set) && PySet_GET_SIZE(set) == 0)) {
        PyErr_SetString(PyExc_TypeError, "a set is filled, or a new frozenset");
        return -1;
    }
    if (PySet_Check(set) && PySet_Clear(set) != 0) return -1;
    if (size < PySet_MINSIZE || size > kMost || (size & (size - 1)) != 0 || first < 0) return 0;
    std::vector<Py_ssize_t> at, were;
    if (!PyList_CheckExact(entries) || !read(places, size, at) || !read(left, size, were)) return 0;
    if (PyFrozenSet_Check(set) && !were.empty()) return 0;  // From none of those anything is ever taken.
    const auto many = static_cast<Py_ssize_t>(at.size());
    if (many != PyList_GET_SIZE(entries)) return 0;
    const auto full = many + static_cast<Py_ssize_t>(were.size());
    if (full * 5 > size * 3) return 0;                        // Python would have grown it.
    if (size > PySet_MINSIZE && size > full * kAbove) return 0;  // And never so far.
    std::vector<bool> taken(static_cast<std::size_t>(size));
    for (const auto& some : {at, were})
        for (const auto one : some) {
            if (taken[static_cast<std::size_t>(one)]) return 0;
            taken[static_cast<std::size_t>(one)] = true;
        }
    std::vector<Py_hash_t> hashes;  // Before any is placed: a hash may run code.
    for (Py_ssize_t n = 0; n < many; ++n) {
        hashes.push_back(PyObject_Hash(PyList_GET_ITEM(entries, n)));
        if (hashes.back() == -1) return -1;
    }
    auto* into = table(set);
    if (into->fill != 0 || PyList_GET_SIZE(entries) != many) return 0;
    if (!grow(into, size)) return -1;
    for (Py_ssize_t n = 0; n < many; ++n)
        place(into, at[static_cast<std::size_t>(n)], PyList_GET_ITEM(entries, n), hashes[static_cast<std::size_t>(n)]);
    int done = leave(set, were, size);
    if (done == 1) done = all_in(set, entries);
    if (done == 1) into->finger = first;
    else if (PySet_Check(set)) done = emptied(set, done);
    return done;
}

}  // namespace tmc
