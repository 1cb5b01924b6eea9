// SPDX-License-Identifier: Apache-2.0
// Objects of a graph as they were last read, and which of them may have changed since: thousands in one call.
// No header of torch or numpy is known here: what lies in their memory is named by Python, as windows.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tmc {

/// What of an object is compared, beside its type.
enum Part : unsigned {
    kItems = 1,       // Of a dict, list, set or deque: the very objects, in order.
    kAttributes = 2,  // `__dict__`, and what is in it.
    kFunction = 4,    // Code, defaults, names and attributes of a function.
    kCell = 8,        // The content of a cell.
    kClass = 16,      // The attributes of a class.
};

/// Memory at a fixed address. It is read only if all windows before it are as they were: these hold the pointers
/// that lead to it. digest: of what is there, 64 bits; of up to 8 bytes these themselves.
struct Window {
    const char* at;
    std::size_t size;
    std::uint64_t digest = 0;
};

/// Where the windows of objects of one layout lie. A path is a row of offsets: of a pointer in the object, of one in
/// what that leads to, and so on; the last one is that of the window. What a null pointer leads to is left out.
class WindowPlan {
public:
    struct Place {
        std::vector<std::size_t> path;
        std::size_t size;
    };
    /// known: a word at a path that all objects of the layout have.
    WindowPlan(std::vector<Place> places, std::vector<std::size_t> path_of_known, std::uint64_t known)
        : places_(std::move(places)), path_of_known_(std::move(path_of_known)), known_(known) {}
    /// false: the object has another layout.
    bool find(PyObject* object, std::vector<Window>& into) const;

private:
    std::vector<Place> places_;
    std::vector<std::size_t> path_of_known_;
    std::uint64_t known_;
};

/// Nodes by number. Whatever is compared by address is kept alive, so that nothing else can have that address.
class NodeTable {
public:
    NodeTable() = default;
    ~NodeTable();
    NodeTable(const NodeTable&) = delete;
    NodeTable& operator=(const NodeTable&) = delete;

    /// Note an object as it is now. members: offsets of pointers in the object, as those of slots. content: null, or
    /// the bytes that the last window is compared with; windows have as many bytes. false: a Python error is set.
    bool put(std::size_t number, PyObject* object, unsigned parts, std::vector<Py_ssize_t> members,
             std::vector<Window> windows, PyObject* content);
    void remove(std::size_t number);
    /// A list of the numbers of nodes that may have changed, ascending, and a dict of those of which only the
    /// content is other: number to bytes, which are noted. New reference to a tuple of both; null: an error.
    PyObject* changed();

private:
    /// What is looked at only where a dict tells no change by itself.
    struct Held {
        PyObject* content = nullptr;
        std::vector<PyObject*> items, named, others;  // As they were; of attributes keys and values.
        std::vector<Py_ssize_t> members;
        std::vector<Window> windows;  // That of `content` is the last one, and has no digest.
    };
    /// One line of a cache.
    struct Entry {
        PyObject* object = nullptr;  // null: there is no node of this number
        PyTypeObject* type = nullptr;
        PyObject* attributes = nullptr;
        std::uint64_t tag_of_items = 0, tag_of_attributes = 0;
        const Window* windows = nullptr;  // Those with a digest.
        Held* held = nullptr;
        unsigned window_count = 0;
        std::uint16_t parts = 0;
        bool has_others = false, has_content = false;
    };

    static void release(Entry& entry);
    static bool windows_are_same(const Entry& entry);
    static bool content_is_same(const Entry& entry);
    bool is_same(const Entry& entry);
    static bool read_content(std::size_t number, const Entry& entry, PyObject* into);
    bool items_are_same(const Entry& entry);
    bool attributes_are_same(const Entry& entry);
    void expect(std::size_t number) const;
    void expect_far(std::size_t number) const;

    std::vector<Entry> entries_;
    std::vector<PyObject*> now_;
};

/// Offset of the pointer that a member descriptor of C or of `__slots__` gives; -1: it gives something else.
Py_ssize_t offset_of(PyObject* descriptor);

/// What to count beside references; see `known_refs`.
struct Met {
    PyObject *edges, *integers;  // Lists.
    long long address_min;
};

/// A list of references to values: (value,) for one of a type in the set `plain`, ("", number) for an object that
/// `numbers` has by its address, and None for others. null: a Python error.
PyObject* known_refs(PyObject* values, PyObject* numbers, PyObject* plain, const Met& met);

/// 1: two values have the same types, order and bits: 1 is not True, 0.0 is not -0.0, nan is nan. -1: an error.
int same_value(PyObject* one, PyObject* other);

}  // namespace tmc
