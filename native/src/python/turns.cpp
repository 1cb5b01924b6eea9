// SPDX-License-Identifier: Apache-2.0
#include "python/turns.hpp"

#include <cstddef>
#include <cstdint>
#include <structmember.h>

namespace tmc {

namespace {

enum Flag : std::uintptr_t { kIsTransaction = 1, kIsRepeat = 2, kHasEnded = 4 };

struct Turns {
    PyObject_HEAD
    std::uintptr_t flags;
    long long turn_count;
};

struct Loop {
    Turns turns;
    PyObject* iterator;
    PyObject* item;
};

PyObject* begin_hook = nullptr;
PyObject* turn_hook = nullptr;
PyObject* left_hook = nullptr;
PyObject* retry_type = nullptr;

Turns* as_turns(PyObject* self) noexcept { return reinterpret_cast<Turns*>(self); }
Loop* as_loop(PyObject* self) noexcept { return reinterpret_cast<Loop*>(self); }

bool call(PyObject* hook, PyObject* loop) {
    if (hook == nullptr) return true;
    PyObject* held = Py_NewRef(hook);
    PyObject* result = PyObject_CallOneArg(held, loop);
    Py_DECREF(held);
    Py_XDECREF(result);
    return result != nullptr;
}

/// Tell that the script has left the loop with its header on this line.
PyObject* left(PyObject*, PyObject* line) {
    if (left_hook == nullptr) Py_RETURN_NONE;
    PyObject* held = Py_NewRef(left_hook);
    PyObject* result = PyObject_CallOneArg(held, line);
    Py_DECREF(held);
    return result;
}

/// Ask the hook where this loop is a transaction. 1: a turn; 0: the loop has ended; -1: an error.
int enter(PyObject* self) {
    if ((as_turns(self)->flags & kIsTransaction) && !call(turn_hook, self)) return -1;
    return (as_turns(self)->flags & kHasEnded) ? 0 : 1;
}

PyObject* end(PyObject* self, PyObject*) {
    as_turns(self)->flags |= kHasEnded;
    Py_RETURN_NONE;
}

PyObject* get_flag(PyObject* self, void* flag) {
    return PyBool_FromLong((as_turns(self)->flags & reinterpret_cast<std::uintptr_t>(flag)) != 0);
}

int set_flag(PyObject* self, PyObject* value, void* closure) {
    const auto flag = reinterpret_cast<std::uintptr_t>(closure);
    if (value == nullptr) {
        PyErr_SetString(PyExc_AttributeError, "a flag of a loop cannot be deleted");
        return -1;
    }
    const int is_set = PyObject_IsTrue(value);
    if (is_set < 0) return -1;
    if (is_set) {
        as_turns(self)->flags |= flag;
    } else {
        as_turns(self)->flags &= ~flag;
    }
    return 0;
}

void* closure_of(Flag flag) noexcept { return reinterpret_cast<void*>(flag); }

PyObject* turns_next(PyObject* self) {
    if (as_turns(self)->flags != 0) [[unlikely]] {
        if (enter(self) != 1) return nullptr;
        if (as_turns(self)->flags & kIsRepeat) {
            as_turns(self)->flags &= ~std::uintptr_t{kIsRepeat};
            return Py_NewRef(self);
        }
    }
    ++as_turns(self)->turn_count;
    return Py_NewRef(self);
}

PyObject* turns_again(PyObject* self, PyObject*) {
    if (!(as_turns(self)->flags & kIsTransaction)) Py_RETURN_FALSE;
    as_turns(self)->flags |= kIsRepeat;
    Py_RETURN_TRUE;
}

PyTypeObject* turns_type = nullptr;
PyTypeObject* loop_type = nullptr;

PyObject* repeat(PyObject*, PyObject*) {
    PyObject* self = turns_type->tp_alloc(turns_type, 0);
    if (self == nullptr || call(begin_hook, self)) return self;
    Py_DECREF(self);
    return nullptr;
}

void turns_free(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/// Let go of the iterator, as a `for` does when it is exhausted.
void exhaust(Loop* self, const PyObject* iterator) {
    self->turns.flags |= kHasEnded;
    Py_CLEAR(self->item);
    if (self->iterator != iterator) return;
    PyObject* nothing = PyTuple_New(0);
    if (nothing == nullptr) return;
    PyObject* empty = PyObject_GetIter(nothing);
    Py_DECREF(nothing);
    if (empty != nullptr) Py_SETREF(self->iterator, empty);
}

void exhaust_keeping_error(Loop* self, const PyObject* iterator) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    exhaust(self, iterator);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

PyObject* loop_next(PyObject* object) {
    Loop* self = as_loop(object);
    while (true) {
        if (self->turns.flags != 0) [[unlikely]] {
            if (enter(object) != 1) return nullptr;
            if (self->turns.flags & kIsRepeat) {
                self->turns.flags &= ~std::uintptr_t{kIsRepeat};
                if (self->item != nullptr) return Py_NewRef(self->item);
            }
        }
        PyObject* iterator = Py_NewRef(self->iterator);
        PyObject* item = Py_TYPE(iterator)->tp_iternext(iterator);
        if (item != nullptr) [[likely]] {
            ++self->turns.turn_count;
            if (self->turns.flags & kIsTransaction) Py_XSETREF(self->item, Py_NewRef(item));
            Py_DECREF(iterator);
            return item;
        }
        const bool is_retry = (self->turns.flags & kIsTransaction) && PyErr_Occurred() &&
                              retry_type != nullptr && PyErr_ExceptionMatches(retry_type);
        if (is_retry) {
            PyErr_Clear();
        } else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_StopIteration)) {
            exhaust_keeping_error(self, iterator);
        }
        Py_DECREF(iterator);
        if (!is_retry) return nullptr;
    }
}

PyObject* loop_again(PyObject* self, PyObject* nothing) {
    if (as_loop(self)->item == nullptr) Py_RETURN_FALSE;
    return turns_again(self, nothing);
}

int set_transaction(PyObject* self, PyObject* value, void* flag) {
    if (set_flag(self, value, flag) < 0) return -1;
    if (!(as_turns(self)->flags & kIsTransaction)) {
        as_turns(self)->flags &= ~std::uintptr_t{kIsRepeat};
        Py_CLEAR(as_loop(self)->item);
    }
    return 0;
}

PyObject* get_iterator(PyObject* self, void*) { return Py_NewRef(as_loop(self)->iterator); }

int set_iterator(PyObject* self, PyObject* value, void*) {
    if (value == nullptr || !PyIter_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "the iterator of a loop is set to an iterator");
        return -1;
    }
    Py_SETREF(as_loop(self)->iterator, Py_NewRef(value));
    return 0;
}

PyObject* iterate(PyObject*, PyObject* iterable) {
    PyObject* iterator = PyObject_GetIter(iterable);
    if (iterator == nullptr) return nullptr;
    PyObject* self = loop_type->tp_alloc(loop_type, 0);
    if (self == nullptr) {
        Py_DECREF(iterator);
        return nullptr;
    }
    as_loop(self)->iterator = iterator;
    if (call(begin_hook, self)) return self;
    Py_DECREF(self);
    return nullptr;
}

int loop_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(as_loop(self)->iterator);
    Py_VISIT(as_loop(self)->item);
    return 0;
}

int loop_clear(PyObject* self) {
    Py_CLEAR(as_loop(self)->item);
    exhaust(as_loop(self), as_loop(self)->iterator);  // Never without an iterator.
    return 0;
}

void loop_free(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(as_loop(self)->item);
    Py_CLEAR(as_loop(self)->iterator);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMethodDef turns_methods[] = {{"again", turns_again, METH_NOARGS, nullptr},
                               {"end", end, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef loop_methods[] = {{"again", loop_again, METH_NOARGS, nullptr},
                              {"end", end, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyMemberDef turns_members[] = {{"turn_count", T_LONGLONG, offsetof(Turns, turn_count), 0, nullptr},
                               {nullptr, 0, 0, 0, nullptr}};
PyMemberDef loop_members[] = {{"turn_count", T_LONGLONG, offsetof(Turns, turn_count), 0, nullptr},
                              {"item", T_OBJECT_EX, offsetof(Loop, item), 0, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef turns_flags[] = {
    {"is_transaction", get_flag, set_flag, nullptr, closure_of(kIsTransaction)},
    {"is_repeat", get_flag, set_flag, nullptr, closure_of(kIsRepeat)},
    {"has_ended", get_flag, set_flag, nullptr, closure_of(kHasEnded)},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef loop_flags[] = {
    {"is_transaction", get_flag, set_transaction, nullptr, closure_of(kIsTransaction)},
    {"is_repeat", get_flag, set_flag, nullptr, closure_of(kIsRepeat)},
    {"has_ended", get_flag, set_flag, nullptr, closure_of(kHasEnded)},
    {"iterator", get_iterator, set_iterator, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

template <typename Function>
void* slot(Function function) noexcept {
    return reinterpret_cast<void*>(function);
}

constexpr unsigned int kPlain =
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION;

PyTypeObject* make_turns_type() {
    static PyType_Slot slots[] = {{Py_tp_dealloc, slot(turns_free)},
                                  {Py_tp_iter, slot(PyObject_SelfIter)},
                                  {Py_tp_iternext, slot(turns_next)},
                                  {Py_tp_methods, turns_methods},
                                  {Py_tp_members, turns_members},
                                  {Py_tp_getset, turns_flags},
                                  {0, nullptr}};
    static PyType_Spec spec{"trainmover._native.Turns", sizeof(Turns), 0, kPlain, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyTypeObject* make_loop_type() {
    static PyType_Slot slots[] = {{Py_tp_dealloc, slot(loop_free)},
                                  {Py_tp_traverse, slot(loop_traverse)},
                                  {Py_tp_clear, slot(loop_clear)},
                                  {Py_tp_iter, slot(PyObject_SelfIter)},
                                  {Py_tp_iternext, slot(loop_next)},
                                  {Py_tp_methods, loop_methods},
                                  {Py_tp_members, loop_members},
                                  {Py_tp_getset, loop_flags},
                                  {0, nullptr}};
    static PyType_Spec spec{"trainmover._native.Loop", sizeof(Loop), 0, kPlain | Py_TPFLAGS_HAVE_GC,
                            slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyMethodDef functions[] = {{"iterate", iterate, METH_O, nullptr},
                           {"left", left, METH_O, nullptr},
                           {"repeat", repeat, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_loops(PyObject* module) {
    if (turns_type == nullptr) turns_type = make_turns_type();
    if (loop_type == nullptr) loop_type = make_loop_type();
    return turns_type != nullptr && loop_type != nullptr && PyModule_AddType(module, turns_type) == 0 &&
           PyModule_AddType(module, loop_type) == 0 && PyModule_AddFunctions(module, functions) == 0;
}

void set_hooks(PyObject* begin, PyObject* turn, PyObject* left, PyObject* retry) noexcept {
    Py_XINCREF(begin);
    Py_XINCREF(turn);
    Py_XINCREF(left);
    Py_XSETREF(begin_hook, begin);
    Py_XSETREF(turn_hook, turn);
    Py_XSETREF(left_hook, left);
    Py_XSETREF(retry_type, Py_NewRef(retry));
}

}  // namespace tmc
