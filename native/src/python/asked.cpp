// SPDX-License-Identifier: Apache-2.0
#include "python/asked.hpp"

#include <cstring>

namespace tmc {

namespace {

/// Keeps an object alive that the list it came from may lose meanwhile.
class Held {
public:
    explicit Held(PyObject* object) noexcept : object_(Py_NewRef(object)) {}
    ~Held() { Py_DECREF(object_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    PyObject* get() const noexcept { return object_; }

private:
    PyObject* object_;
};

std::size_t length_of(PyObject* list) { return static_cast<std::size_t>(PyList_GET_SIZE(list)); }

PyObject* item(PyObject* list, std::size_t at) {
    return PyList_GET_ITEM(list, static_cast<Py_ssize_t>(at));
}

bool is_list(PyObject* objects) {
    if (PyList_CheckExact(objects)) return true;
    PyErr_SetString(PyExc_TypeError, "the objects that are asked come as a list");
    return false;
}

PyObject* no_arguments() {
    static PyObject* const empty = PyTuple_New(0);
    return empty;
}

constexpr std::size_t kLine = 64;

void expect_lines(const void* at, std::size_t bytes) {
    const auto* begin = static_cast<const char*>(at);
    for (std::size_t offset = 0; offset < bytes; offset += kLine) __builtin_prefetch(begin + offset);
}

}  // namespace

Question::Question(PyObject* asked) : asked_(asked) {
    if (Py_IS_TYPE(asked, &PyGetSetDescr_Type)) {
        const auto* found = reinterpret_cast<PyGetSetDescrObject*>(asked);
        type_ = PyDescr_TYPE(found);
        get_ = found->d_getset->get;
        closure_ = found->d_getset->closure;
        if (get_ == nullptr) type_ = nullptr;
    } else if (Py_IS_TYPE(asked, &PyMethodDescr_Type)) {
        const auto* found = reinterpret_cast<PyMethodDescrObject*>(asked);
        const int flags = found->d_method->ml_flags & ~METH_COEXIST;
        if (flags == METH_NOARGS) {
            method_ = found->d_method->ml_meth;
        } else if (flags == (METH_VARARGS | METH_KEYWORDS)) {
            method_with_keywords_ = reinterpret_cast<PyCFunctionWithKeywords>(
                reinterpret_cast<void (*)()>(found->d_method->ml_meth));
        }
        if (method_ != nullptr || method_with_keywords_ != nullptr) type_ = PyDescr_TYPE(found);
    }
}

PyObject* Question::of(PyObject* object) const {
    if (type_ != nullptr && PyObject_TypeCheck(object, type_)) {
        if (get_ != nullptr) return get_(object, closure_);
        if (method_ != nullptr) return method_(object, nullptr);
        return method_with_keywords_(object, no_arguments(), nullptr);
    }
    if (Py_IS_TYPE(asked_, &PyGetSetDescr_Type)) {  // It says what it is for, as Python would.
        return Py_TYPE(asked_)->tp_descr_get(asked_, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    }
    return PyObject_CallOneArg(asked_, object);
}

namespace {

std::vector<PyTypeObject*>& standing_for() {
    static std::vector<PyTypeObject*> types;
    return types;
}

constexpr std::size_t kWords = 8;
constexpr std::uintptr_t kLeast = 1 << 16;
constexpr std::uintptr_t kMost = std::uintptr_t{1} << 47;

const void* stood_for(PyObject* object) {
    const void* inner = nullptr;
    std::memcpy(&inner, reinterpret_cast<const char*>(object) + sizeof(PyObject), sizeof(inner));
    return inner;
}

/// Whatever looks like a pointer in the first line of it. A prefetch never faults.
void expect_pointed_at(const void* at) {
    std::uintptr_t words[kWords];
    std::memcpy(words, at, sizeof(words));
    for (const auto word : words)
        if (word >= kLeast && word < kMost && word % sizeof(void*) == 0)
            __builtin_prefetch(reinterpret_cast<const void*>(word));
}

PyObject* attributes_of(PyObject* object) {
    PyObject** at = _PyObject_GetDictPtr(object);
    return at != nullptr && *at != nullptr && PyDict_CheckExact(*at) ? *at : nullptr;
}

}  // namespace

bool stands_for(PyObject* type, PyObject* object, std::uint64_t address) {
    auto* of = reinterpret_cast<PyTypeObject*>(type);
    if (!PyType_Check(type) || !PyObject_TypeCheck(object, of)) return false;
    if (of->tp_basicsize < static_cast<Py_ssize_t>(sizeof(PyObject) + sizeof(void*))) return false;
    if (reinterpret_cast<std::uint64_t>(stood_for(object)) != address || address == 0) return false;
    standing_for().push_back(of);
    return true;
}

bool Question::stands_for() const noexcept {
    for (const auto* type : standing_for())
        if (type == type_) return true;
    return false;
}

void expect_all(const Question& question, PyObject* objects) {
    const auto count = length_of(objects);
    for (std::size_t at = 0; at < count; ++at)
        expect_lines(reinterpret_cast<const char*>(item(objects, at)) - kLine / 2, 2 * kLine);
    if (question.stands_for()) {
        for (std::size_t at = 0; at < count; ++at)
            if (question.takes(item(objects, at))) expect_lines(stood_for(item(objects, at)), 4 * kLine);
        for (std::size_t at = 0; at < count; ++at)
            if (question.takes(item(objects, at))) expect_pointed_at(stood_for(item(objects, at)));
    } else if (!question.is_in_c()) {
        for (std::size_t at = 0; at < count; ++at)
            if (PyObject* held = attributes_of(item(objects, at))) expect_lines(held, kLine);
        for (std::size_t at = 0; at < count; ++at)
            if (PyObject* held = attributes_of(item(objects, at))) {
                const auto* dict = reinterpret_cast<PyDictObject*>(held);
                expect_lines(dict->ma_keys, 4 * kLine);
                if (dict->ma_values != nullptr) expect_lines(dict->ma_values, 2 * kLine);
            }
    }
}

void Answers::clear() noexcept {
    for (const auto& answer : answers_) Py_XDECREF(answer.object);
    answers_.clear();
    is_noted_ = false;
}

Answers::Answer Answers::kept(PyObject* answer) {
    if (PyLong_CheckExact(answer)) {
        int overflows = 0;
        const auto number = PyLong_AsLongLongAndOverflow(answer, &overflows);
        if (!overflows) {
            Py_DECREF(answer);
            return {nullptr, number};
        }
    }
    return {answer, 0};
}

int Answers::equal(const Answer& known, PyObject* now) {
    if (known.object != nullptr) {
        if (known.object == now) return 1;
        if (Py_TYPE(known.object) != Py_TYPE(now)) return 0;
        return PyObject_RichCompareBool(known.object, now, Py_EQ);
    }
    if (!PyLong_CheckExact(now)) return 0;
    int overflows = 0;
    const auto number = PyLong_AsLongLongAndOverflow(now, &overflows);
    return !overflows && number == known.number;
}

bool Answers::note(PyObject* objects) {
    if (!is_list(objects)) return false;
    clear();
    if (!questions_.empty()) expect_all(questions_.front(), objects);
    answers_.reserve(length_of(objects) * questions_.size());
    for (std::size_t at = 0; at < length_of(objects); ++at) {
        const Held object(item(objects, at));
        for (const auto& question : questions_) {
            PyObject* answer = question.of(object.get());
            if (answer == nullptr) {
                clear();
                return false;
            }
            answers_.push_back(kept(answer));
        }
    }
    count_ = length_of(objects);
    is_noted_ = answers_.size() == count_ * questions_.size();
    return true;
}

int Answers::same(PyObject* objects) const {
    if (!is_list(objects)) return -1;
    if (!is_noted_ || length_of(objects) != count_) return 0;
    if (!questions_.empty()) expect_all(questions_.front(), objects);
    std::size_t number = 0;
    for (std::size_t at = 0; at < length_of(objects); ++at) {
        const Held object(item(objects, at));
        for (const auto& question : questions_) {
            if (number == answers_.size()) return 0;
            PyObject* now = question.of(object.get());
            if (now == nullptr) return -1;
            const int is_equal = equal(answers_[number++], now);
            Py_DECREF(now);
            if (is_equal != 1) return is_equal;
        }
    }
    return number == answers_.size();
}

PyObject* Answers::noted(std::size_t question) const {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(is_noted_ ? count_ : 0));
    if (list == nullptr || !is_noted_) return list;
    for (std::size_t at = 0; at < count_; ++at) {
        const auto& answer = answers_[at * questions_.size() + question];
        PyObject* one = answer.object != nullptr ? Py_NewRef(answer.object)
                                                 : PyLong_FromLongLong(answer.number);
        if (one == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(at), one);
    }
    return list;
}

Pieces::Pieces(std::vector<std::pair<const std::byte*, std::size_t>> pieces)
    : pieces_(std::move(pieces)) {
    for (const auto& [at, size] : pieces_) size_ += size;
}

PyObject* Pieces::read() {
    for (const auto& [at, size] : pieces_) expect_lines(at, size < 4 * kLine ? size : 4 * kLine);
    if (newest_ != nullptr) {
        const char* known = PyBytes_AS_STRING(newest_);
        bool same = true;
        for (const auto& [at, size] : pieces_) {
            if (size != 0 && std::memcmp(known, at, size) != 0) {
                same = false;
                break;
            }
            known += size;
        }
        if (same) return Py_NewRef(newest_);
    }
    PyObject* now = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size_));
    if (now == nullptr) return nullptr;
    char* to = PyBytes_AS_STRING(now);
    for (const auto& [at, size] : pieces_) {
        if (size != 0) std::memcpy(to, at, size);
        to += size;
    }
    Py_XDECREF(newest_);
    newest_ = Py_NewRef(now);
    return now;
}

int are(PyObject* objects, PyObject* others) {
    if (!is_list(objects) || !is_list(others)) return -1;
    const auto count = length_of(objects);
    if (count != length_of(others)) return 0;
    const auto* one = reinterpret_cast<PyListObject*>(objects)->ob_item;
    const auto* other = reinterpret_cast<PyListObject*>(others)->ob_item;
    return count == 0 || std::memcmp(one, other, count * sizeof(PyObject*)) == 0;
}

PyObject* given(const Question& question, PyObject* objects) {
    if (!is_list(objects)) return nullptr;
    const auto count = length_of(objects);
    expect_all(question, objects);
    PyObject* result = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count));
    if (result == nullptr) return nullptr;
    for (std::size_t at = 0; at < count; ++at) {
        if (length_of(objects) != count) {
            PyErr_SetString(PyExc_RuntimeError, "the list has changed while its objects were asked");
            Py_DECREF(result);
            return nullptr;
        }
        const Held object(item(objects, at));
        PyObject* answer = question.of(object.get());
        if (answer == nullptr) {
            Py_DECREF(result);
            return nullptr;
        }
        PyBytes_AS_STRING(result)[at] = answer != Py_None;
        Py_DECREF(answer);
    }
    return result;
}

}  // namespace tmc
