// SPDX-License-Identifier: Apache-2.0
// What a step asks of many Python objects, in one call: attributes of modules and tensors, and the
// bytes of small memory. It knows nothing of torch: questions are descriptors or callables that
// Python gives, and what they answer is compared as Python compares it.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tmc {

/// An attribute or a method without arguments that is written in C is called without a look-up;
/// anything else is called with the object.
class Question {
public:
    /// asked  borrowed: whoever has the question keeps it alive
    explicit Question(PyObject* asked);
    /// A new reference; null: a Python error is set.
    PyObject* of(PyObject* object) const;
    bool is_in_c() const noexcept { return type_ != nullptr; }
    bool takes(PyObject* object) const noexcept {
        return type_ != nullptr && PyObject_TypeCheck(object, type_);
    }
    /// Whether it is of a class of which `stands_for` was seen to be so.
    bool stands_for() const noexcept;

private:
    PyObject* asked_;
    PyTypeObject* type_ = nullptr;  // Of the objects that the C function takes.
    getter get_ = nullptr;
    void* closure_ = nullptr;
    PyCFunction method_ = nullptr;
    PyCFunctionWithKeywords method_with_keywords_ = nullptr;
};

/// From now on objects of this type are known to begin with a pointer to what they stand for, if this
/// one does, whose other half has that address. It must have it as long as it lives, and at least
/// 64 bytes. Only speed depends on it.
bool stands_for(PyObject* type, PyObject* object, std::uint64_t address);

/// Have on its way what the answers of all these will be read from, for most of what an answer takes
/// is waiting for memory. Only speed depends on it.
void expect_all(const Question& question, PyObject* objects);

/// Answers as they were noted. An integer of Python is kept as a number: no object is made for it.
/// Of other answers a reference is held, so they are to be plain: flags, forms, names of types.
class Answers {
public:
    explicit Answers(std::vector<Question> questions) : questions_(std::move(questions)) {}
    ~Answers() { clear(); }
    Answers(const Answers&) = delete;
    Answers& operator=(const Answers&) = delete;

    /// objects  a list. false: a Python error is set, and nothing is noted.
    bool note(PyObject* objects);
    /// 1: all is as it was noted, for as many objects; 0: it is not, or nothing is; -1: an error.
    int same(PyObject* objects) const;
    /// Answers to one question, as it was noted: a new list; null: an error.
    PyObject* noted(std::size_t question) const;

private:
    struct Answer {
        PyObject* object;  // null: it is the number
        std::int64_t number;
    };
    void clear() noexcept;
    static Answer kept(PyObject* answer);
    static int equal(const Answer& known, PyObject* now);

    std::vector<Question> questions_;
    std::vector<Answer> answers_;  // By object, then by question.
    std::size_t count_ = 0;
    bool is_noted_ = false;
};

/// Pieces of memory, read as one; whoever reads knows that they are still there.
class Pieces {
public:
    Pieces(std::vector<std::pair<const std::byte*, std::size_t>> pieces);
    ~Pieces() { Py_XDECREF(newest_); }
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;

    /// New reference to bytes: the very object that was given last, if it still says what is there.
    PyObject* read();

private:
    std::vector<std::pair<const std::byte*, std::size_t>> pieces_;
    std::size_t size_ = 0;
    PyObject* newest_ = nullptr;
};

/// 1: two lists hold the very same objects in the same order; none of them is touched. -1: an error.
int are(PyObject* objects, PyObject* others);

/// A byte for each object of a list: 1 where the answer is not None. New reference; null: an error.
PyObject* given(const Question& question, PyObject* objects);

}  // namespace tmc
