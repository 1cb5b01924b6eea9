// SPDX-License-Identifier: Apache-2.0
#include "python/nodes.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace tmc {

namespace {

constexpr std::size_t kNear = 12, kFar = 36;  // Nodes whose memory is on its way while one is looked at.

constexpr std::size_t kLine = 64, kExpected = 4 * kLine;

void expect_lines(const void* at, std::size_t bytes) {
    const auto* begin = static_cast<const char*>(at);
    for (std::size_t offset = 0; offset < bytes; offset += kLine) __builtin_prefetch(begin + offset);
    if (bytes != 0) __builtin_prefetch(begin + bytes - 1);
}

#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/// Python gives a dict another number whenever something is stored in it, up to 3.12. 0: it cannot be told.
std::uint64_t tag_of(PyObject* dict) noexcept {
    if (PyODict_Check(dict)) return 0;  // `move_to_end` stores nothing.
    return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#pragma GCC diagnostic pop
#else
std::uint64_t tag_of(PyObject*) noexcept { return 0; }
#endif

using Objects = std::vector<PyObject*>;

PyObject* attributes_of(PyObject* object) {
    PyObject** at = _PyObject_GetDictPtr(object);
    return at != nullptr ? *at : nullptr;
}

void read_dict(PyObject* dict, Objects& into) {
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
        into.push_back(key);
        into.push_back(value);
    }
}

/// Borrowed: the container keeps them. false: an error is set.
bool read_iterated(PyObject* object, getiterfunc iter, Objects& into) {
    PyObject* iterator = iter(object);
    if (iterator == nullptr) return false;
    while (PyObject* one = PyIter_Next(iterator)) {
        into.push_back(one);
        Py_DECREF(one);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() == nullptr;
}

PyTypeObject* deque_type() {
    static PyTypeObject* const type = [] {
        PyObject* module = PyImport_ImportModule("_collections");
        PyObject* found = module == nullptr ? nullptr : PyObject_GetAttrString(module, "deque");
        Py_XDECREF(module);
        PyErr_Clear();
        return reinterpret_cast<PyTypeObject*>(found);
    }();
    return type;
}

/// A set has its entries in the order of its table, empty places included; its finger is where `pop` looks first.
void read_set(PyObject* object, Objects& into) {
    const auto* set = reinterpret_cast<PySetObject*>(object);
    for (Py_ssize_t at = 0; at <= set->mask; ++at) into.push_back(set->table[at].key);
}

/// false: an error is set, or items of this type are not known.
bool read_items(PyObject* object, Objects& into) {
    if (PyDict_Check(object)) {
        read_dict(object, into);
        const bool has_order = PyODict_Check(object) && PyDict_GET_SIZE(object) > 1;
        return !has_order || read_iterated(object, PyODict_Type.tp_iter, into);
    }
    if (PyList_Check(object)) {
        PyObject** items = reinterpret_cast<PyListObject*>(object)->ob_item;
        into.insert(into.end(), items, items + PyList_GET_SIZE(object));
        return true;
    }
    if (PyAnySet_Check(object)) {
        read_set(object, into);
        return true;
    }
    auto* deque = deque_type();
    if (deque == nullptr || !PyObject_TypeCheck(object, deque)) return false;
    return read_iterated(object, deque->tp_iter, into);
}

std::uint64_t tag_of_items(PyObject* object) {
    if (PyDict_Check(object)) return tag_of(object);
    return PySet_Check(object) ? static_cast<std::uint64_t>(reinterpret_cast<PySetObject*>(object)->finger) : 0;
}

/// Pointers beside items and attributes. An unset one is null.
void read_others(PyObject* object, unsigned parts, const std::vector<Py_ssize_t>& members, Objects& into) {
    for (const auto offset : members) {
        PyObject* one = nullptr;
        std::memcpy(&one, reinterpret_cast<const char*>(object) + offset, sizeof(one));
        into.push_back(one);
    }
    if (parts & kCell) into.push_back(PyCell_GET(object));
    if (parts & kFunction) {
        const auto* function = reinterpret_cast<PyFunctionObject*>(object);
        for (PyObject* one : {function->func_code, function->func_defaults, function->func_kwdefaults,
                              function->func_dict, function->func_module, function->func_name})
            into.push_back(one);
    }
    if (parts & kClass) {
        into.push_back(reinterpret_cast<PyHeapTypeObject*>(object)->ht_qualname);
        read_dict(reinterpret_cast<PyTypeObject*>(object)->tp_dict, into);
    }
}

bool fits(PyObject* object, unsigned parts) {
    if ((parts & kCell) && !PyCell_Check(object)) return false;
    if ((parts & kFunction) && !PyFunction_Check(object)) return false;
    if ((parts & kClass) && !(PyType_Check(object) && PyType_HasFeature(reinterpret_cast<PyTypeObject*>(object),
                                                                        Py_TPFLAGS_HEAPTYPE)))
        return false;
    return true;
}

bool is_dict_tagged(PyObject* object, std::uint64_t tag) { return PyDict_Check(object) && tag != 0 && tag_of(object) == tag; }

__extension__ typedef unsigned __int128 Wide;

std::uint64_t product(std::uint64_t one, std::uint64_t other) {
    const Wide both = static_cast<Wide>(one) * other;
    return static_cast<std::uint64_t>(both) ^ static_cast<std::uint64_t>(both >> 64);
}

std::uint64_t read_word(const char* at, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, size);
    return word;
}

/// Of up to 8 bytes these themselves, of more a hash: a sum of products of two words each, as xxh3 makes it.
std::uint64_t digest(const char* at, std::size_t size) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15, kStart = 0xD1B54A32D192ED03;
    if (size <= kWord) return read_word(at, size);
    std::uint64_t hash = size, key = kStart;
    for (; size >= 2 * kWord; at += 2 * kWord, size -= 2 * kWord, key += 2 * kFactor)
        hash += product(read_word(at, kWord) ^ key, read_word(at + kWord, kWord) ^ (key + kFactor));
    const std::size_t first = std::min(size, kWord);
    return hash + product(read_word(at, first) ^ key, read_word(at + first, size - first) ^ (key + kFactor));
}

bool append(PyObject* list, std::size_t number) {
    PyObject* made = PyLong_FromSize_t(number);
    const bool is_appended = made != nullptr && PyList_Append(list, made) == 0;
    Py_XDECREF(made);
    return is_appended;
}

void keep(Objects& objects) {
    for (PyObject* one : objects) Py_XINCREF(one);
}

void drop(Objects& objects) {
    for (PyObject* one : std::exchange(objects, {})) Py_XDECREF(one);
}

}  // namespace

namespace {

/// null: a pointer on the way is.
const char* follow(PyObject* object, const std::vector<std::size_t>& path) {
    const auto* at = reinterpret_cast<const char*>(object);
    for (std::size_t n = 0; n + 1 < path.size(); ++n) {
        std::memcpy(&at, at + path[n], sizeof(at));
        if (at == nullptr) return nullptr;
    }
    return at + path.back();
}

}  // namespace

bool WindowPlan::find(PyObject* object, std::vector<Window>& into) const {
    const char* known = follow(object, path_of_known_);
    if (known == nullptr || read_word(known, sizeof(known_)) != known_) return false;
    for (const auto& [path, size] : places_)
        if (const char* at = follow(object, path)) into.push_back({at, size});
    return true;
}

NodeTable::~NodeTable() {
    for (auto& entry : entries_) release(entry);
}

void NodeTable::release(Entry& entry) {
    const Entry old = std::exchange(entry, Entry{});  // What is dropped may run code, which finds no half entry.
    if (old.object == nullptr) return;
    drop(old.held->items);
    drop(old.held->named);
    drop(old.held->others);
    Py_XDECREF(old.held->content);
    delete old.held;
    Py_XDECREF(old.attributes);
    Py_XDECREF(old.type);
    Py_XDECREF(old.object);
}

bool NodeTable::put(std::size_t number, PyObject* object, unsigned parts, std::vector<Py_ssize_t> members,
                    std::vector<Window> windows, PyObject* content) {
    const bool is_content = content != nullptr && PyBytes_CheckExact(content) && !windows.empty() &&
                            windows.back().size == static_cast<std::size_t>(PyBytes_GET_SIZE(content));
    if (!fits(object, parts) || (content != nullptr && !is_content)) {
        PyErr_SetString(PyExc_TypeError, "an object has no such part");
        return false;
    }
    auto held = std::make_unique<Held>();
    Entry made;
    if ((parts & kItems) && !read_items(object, held->items)) {
        if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "an object has no such items");
        return false;
    }
    if (parts & kItems) made.tag_of_items = tag_of_items(object);
    made.attributes = parts & kAttributes ? attributes_of(object) : nullptr;
    if (made.attributes != nullptr && PyDict_Check(made.attributes)) {
        read_dict(made.attributes, held->named);
        made.tag_of_attributes = tag_of(made.attributes);
    }
    read_others(object, parts, members, held->others);
    made.window_count = static_cast<unsigned>(windows.size() - (content != nullptr));
    for (std::size_t at = 0; at < made.window_count; ++at)
        windows[at].digest = digest(windows[at].at, windows[at].size);
    keep(held->items);
    keep(held->named);
    keep(held->others);
    held->content = Py_XNewRef(content);
    held->members = std::move(members);
    held->windows = std::move(windows);
    made.object = Py_NewRef(object);
    made.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(Py_TYPE(object)));
    Py_XINCREF(made.attributes);
    made.windows = held->windows.data();
    made.parts = static_cast<std::uint16_t>(parts);
    made.has_others = !held->others.empty();
    made.has_content = content != nullptr;
    made.held = held.release();
    if (entries_.size() <= number) entries_.resize(number + 1);
    std::swap(entries_[number], made);
    release(made);
    return true;
}

void NodeTable::remove(std::size_t number) {
    if (number >= entries_.size()) return;
    Entry old = std::exchange(entries_[number], Entry{});
    release(old);
}

bool NodeTable::windows_are_same(const Entry& entry) {
    for (std::size_t at = 0; at < entry.window_count; ++at) {
        const auto& window = entry.windows[at];
        if (digest(window.at, window.size) != window.digest) return false;
    }
    return true;
}

/// To be asked only if all windows are the same.
bool NodeTable::content_is_same(const Entry& entry) {
    if (!entry.has_content) return true;
    const auto& window = entry.windows[entry.window_count];
    return std::memcmp(PyBytes_AS_STRING(entry.held->content), window.at, window.size) == 0;
}

/// Note the content as it is now, and add it to a dict. false: an error is set.
bool NodeTable::read_content(std::size_t number, const Entry& entry, PyObject* into) {
    const auto& window = entry.windows[entry.window_count];
    PyObject* content = PyBytes_FromStringAndSize(window.at, static_cast<Py_ssize_t>(window.size));
    PyObject* made = content == nullptr ? nullptr : PyLong_FromSize_t(number);
    const bool is_added = made != nullptr && PyDict_SetItem(into, made, content) == 0;
    Py_XDECREF(made);
    if (is_added) Py_SETREF(entry.held->content, content);
    else Py_XDECREF(content);
    return is_added;
}

bool NodeTable::items_are_same(const Entry& entry) {
    if (is_dict_tagged(entry.object, entry.tag_of_items)) return true;
    const auto& known = entry.held->items;
    if (PyList_Check(entry.object)) {
        PyObject** items = reinterpret_cast<PyListObject*>(entry.object)->ob_item;
        return std::equal(known.begin(), known.end(), items, items + PyList_GET_SIZE(entry.object));
    }
    now_.clear();
    if (!read_items(entry.object, now_)) {
        PyErr_Clear();
        return false;
    }
    if (now_ != known) return false;
    return !PySet_Check(entry.object) || tag_of_items(entry.object) == entry.tag_of_items;
}

bool NodeTable::attributes_are_same(const Entry& entry) {
    if (attributes_of(entry.object) != entry.attributes) return false;
    if (entry.attributes == nullptr || !PyDict_Check(entry.attributes)) return true;
    if (is_dict_tagged(entry.attributes, entry.tag_of_attributes)) return true;
    now_.clear();
    read_dict(entry.attributes, now_);
    return now_ == entry.held->named;
}

bool NodeTable::is_same(const Entry& entry) {
    if (Py_TYPE(entry.object) != entry.type) return false;
    if ((entry.parts & kItems) && !items_are_same(entry)) return false;
    if ((entry.parts & kAttributes) && !attributes_are_same(entry)) return false;
    if (entry.has_others) {
        now_.clear();
        read_others(entry.object, entry.parts, entry.held->members, now_);
        if (now_ != entry.held->others) return false;
    }
    return windows_are_same(entry);
}

void NodeTable::expect_far(std::size_t number) const {
    if (number >= entries_.size() || entries_[number].object == nullptr) return;
    const auto& entry = entries_[number];
    if (entry.parts != 0) __builtin_prefetch(reinterpret_cast<const char*>(entry.object) - 32);
    __builtin_prefetch(entry.object);
    if (entry.attributes != nullptr) __builtin_prefetch(entry.attributes);
    if (entry.has_others || entry.has_content || entry.tag_of_items == 0) __builtin_prefetch(entry.held);
    expect_lines(entry.windows, (entry.window_count + entry.has_content) * sizeof(Window));
}

void NodeTable::expect(std::size_t number) const {
    if (number >= entries_.size() || entries_[number].object == nullptr) return;
    const auto& entry = entries_[number];
    if (entry.has_content) __builtin_prefetch(PyBytes_AS_STRING(entry.held->content));
    if (entry.has_others) __builtin_prefetch(entry.held->others.data());
    for (std::size_t at = 0; at < entry.window_count + entry.has_content; ++at)
        expect_lines(entry.windows[at].at, std::min(entry.windows[at].size, kExpected));
    if ((entry.parts & kItems) && PyList_Check(entry.object)) {
        __builtin_prefetch(reinterpret_cast<PyListObject*>(entry.object)->ob_item);
        __builtin_prefetch(entry.held->items.data());
    }
}

PyObject* NodeTable::changed() {
    PyObject* numbers = PyList_New(0);
    PyObject* contents = PyDict_New();
    bool is_read = numbers != nullptr && contents != nullptr;
    for (std::size_t number = 0; is_read && number < entries_.size(); ++number) {
        expect_far(number + kFar);
        expect(number + kNear);
        if (entries_[number].object == nullptr) continue;
        if (!is_same(entries_[number])) is_read = append(numbers, number);
        else if (!content_is_same(entries_[number])) is_read = read_content(number, entries_[number], contents);
    }
    PyObject* result = is_read ? PyTuple_Pack(2, numbers, contents) : nullptr;
    Py_XDECREF(numbers);
    Py_XDECREF(contents);
    return result;
}

Py_ssize_t offset_of(PyObject* descriptor) {
    if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
    const auto* member = reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
    return member->type == T_OBJECT_EX || member->type == T_OBJECT ? member->offset : -1;
}

namespace {

bool is_address(PyObject* one, long long address_min) {
    if (!PyLong_CheckExact(one)) return false;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(one, &overflow);
    return overflow > 0 || (overflow == 0 && value > address_min);
}

PyObject* ref_of(PyObject* one, PyObject* numbers, PyObject* plain, const Met& met) {
    static PyObject* const of_node = PyUnicode_InternFromString("");
    const int is_plain = PySet_Contains(plain, reinterpret_cast<PyObject*>(Py_TYPE(one)));
    if (is_plain < 0) return nullptr;
    if (is_plain == 1) {
        if (is_address(one, met.address_min) && PyList_Append(met.integers, one) != 0) return nullptr;
        return PyTuple_Pack(1, one);
    }
    PyObject* address = PyLong_FromVoidPtr(one);
    PyObject* number = address == nullptr ? nullptr : PyDict_GetItemWithError(numbers, address);
    Py_XDECREF(address);
    if (number == nullptr) return PyErr_Occurred() == nullptr ? Py_NewRef(Py_None) : nullptr;
    return PyList_Append(met.edges, number) == 0 ? PyTuple_Pack(2, of_node, number) : nullptr;
}

}  // namespace

PyObject* known_refs(PyObject* values, PyObject* numbers, PyObject* plain, const Met& met) {
    PyObject* found = PyList_New(PyList_GET_SIZE(values));
    for (Py_ssize_t at = 0; found != nullptr && at < PyList_GET_SIZE(values); ++at) {
        PyObject* ref = ref_of(PyList_GET_ITEM(values, at), numbers, plain, met);
        if (ref != nullptr) PyList_SET_ITEM(found, at, ref);
        else Py_CLEAR(found);
    }
    return found;
}

namespace {

int same_buffers(PyObject* one, PyObject* other) {
    Py_buffer a, b;
    if (PyObject_GetBuffer(one, &a, PyBUF_FULL_RO) != 0) return -1;
    if (PyObject_GetBuffer(other, &b, PyBUF_FULL_RO) != 0) {
        PyBuffer_Release(&a);
        return -1;
    }
    const auto dims = static_cast<std::size_t>(a.ndim);
    bool same = a.len == b.len && a.ndim == b.ndim && std::strcmp(a.format, b.format) == 0 &&
                PyBuffer_IsContiguous(&a, 'C') && PyBuffer_IsContiguous(&b, 'C');
    same = same && (dims == 0 || std::memcmp(a.shape, b.shape, dims * sizeof(Py_ssize_t)) == 0) &&
           (a.len == 0 || std::memcmp(a.buf, b.buf, static_cast<std::size_t>(a.len)) == 0);
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return same;
}

int same_texts(PyObject* one, PyObject* other) {
    PyObject* a = PyObject_Repr(one);
    PyObject* b = a == nullptr ? nullptr : PyObject_Repr(other);
    const int same = b == nullptr ? -1 : PyObject_RichCompareBool(a, b, Py_EQ);
    Py_XDECREF(a);
    Py_XDECREF(b);
    return same;
}

int same_dicts(PyObject* one, PyObject* other) {
    if (PyDict_GET_SIZE(one) != PyDict_GET_SIZE(other)) return 0;
    PyObject *key, *value, *key_of_other, *value_of_other;
    for (Py_ssize_t at = 0, there = 0; PyDict_Next(one, &at, &key, &value);) {
        if (!PyDict_Next(other, &there, &key_of_other, &value_of_other)) return 0;
        int same = same_value(key, key_of_other);
        if (same == 1) same = same_value(value, value_of_other);
        if (same != 1) return same;
    }
    return 1;
}

int same_items(PyObject** one, PyObject** other, Py_ssize_t count) {
    for (Py_ssize_t at = 0; at < count; ++at) {
        const int same = same_value(one[at], other[at]);
        if (same != 1) return same;
    }
    return 1;
}

int same_of_type(PyObject* one, PyObject* other) {
    if (PyTuple_CheckExact(one) || PyList_CheckExact(one)) {
        if (Py_SIZE(one) != Py_SIZE(other)) return 0;
        return same_items(PySequence_Fast_ITEMS(one), PySequence_Fast_ITEMS(other), Py_SIZE(one));
    }
    if (PyDict_CheckExact(one)) return same_dicts(one, other);
    if (PyFloat_CheckExact(one)) {
        const double a = PyFloat_AS_DOUBLE(one), b = PyFloat_AS_DOUBLE(other);
        return std::memcmp(&a, &b, sizeof(a)) == 0;
    }
    if (PyLong_CheckExact(one) || PyUnicode_CheckExact(one) || PyBytes_CheckExact(one) || PyBool_Check(one))
        return PyObject_RichCompareBool(one, other, Py_EQ);
    return PyObject_CheckBuffer(one) ? same_buffers(one, other) : same_texts(one, other);
}

}  // namespace

int same_value(PyObject* one, PyObject* other) {
    if (one == other) return 1;
    if (Py_TYPE(one) != Py_TYPE(other)) return 0;
    if (Py_EnterRecursiveCall(" while values are compared") != 0) return -1;
    const int same = same_of_type(one, other);
    Py_LeaveRecursiveCall();
    return same;
}

}  // namespace tmc
