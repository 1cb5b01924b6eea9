// SPDX-License-Identifier: Apache-2.0
#include "python/packed.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>

namespace tmc {

namespace {

constexpr int kDepthMost = 48;
constexpr std::size_t kUsual = 256;  // Bytes, as small state mostly has less.

/// The formats of MessagePack that are used, by their first byte.
enum Format : std::uint8_t {
    kFixMap = 0x80, kFixArray = 0x90, kFixStr = 0xa0,
    kNil = 0xc0, kFalse = 0xc2, kTrue = 0xc3,
    kBin8 = 0xc4, kBin16 = 0xc5, kBin32 = 0xc6,
    kExt8 = 0xc7, kExt16 = 0xc8, kExt32 = 0xc9,
    kFloat64 = 0xcb,
    kUint8 = 0xcc, kUint16 = 0xcd, kUint32 = 0xce, kUint64 = 0xcf,
    kInt8 = 0xd0, kInt16 = 0xd1, kInt32 = 0xd2, kInt64 = 0xd3,
    kFixExt1 = 0xd4,
    kStr8 = 0xd9, kStr16 = 0xda, kStr32 = 0xdb,
    kArray16 = 0xdc, kArray32 = 0xdd, kMap16 = 0xde, kMap32 = 0xdf,
};

/// What is written so far. Every `put` says whether the value could be written.
class Packing {
public:
    explicit Packing(int tuple_code) : tuple_code_(tuple_code) { out_.reserve(kUsual); }

    bool put(PyObject* value, int depth = 0) {
        if (value == Py_None) return byte(kNil);
        if (value == Py_True) return byte(kTrue);
        if (value == Py_False) return byte(kFalse);
        if (PyLong_CheckExact(value)) return integer(value);
        if (PyFloat_CheckExact(value))
            return head(kFloat64, std::bit_cast<std::uint64_t>(PyFloat_AS_DOUBLE(value)));
        if (PyUnicode_CheckExact(value)) return text(value);
        if (PyBytes_CheckExact(value)) return bytes(value);
        if (depth == kDepthMost) return false;
        if (PyDict_CheckExact(value)) return mapping(value, depth + 1);
        if (PyList_CheckExact(value)) {
            auto* list = reinterpret_cast<PyListObject*>(value);
            return items(list->ob_item, PyList_GET_SIZE(value), depth + 1);
        }
        if (PyTuple_CheckExact(value)) return tuple(value, depth + 1);
        return false;
    }

    const std::string& written() const noexcept { return out_; }

private:
    bool byte(int value) {
        out_.push_back(static_cast<char>(value));
        return true;
    }

    /// A format, and a number behind it in as many bytes as its type has, the first one first.
    template <std::unsigned_integral Number>
    bool head(int format, Number number) {
        char whole[1 + sizeof(Number)];
        whole[0] = static_cast<char>(format);
        for (std::size_t at = 0; at < sizeof(Number); ++at)
            whole[1 + at] = static_cast<char>(number >> (8 * (sizeof(Number) - 1 - at)));
        out_.append(whole, sizeof(whole));
        return true;
    }

    bool sized(Py_ssize_t size, int in8, int in16, int in32) {
        const auto count = static_cast<std::uint64_t>(size);
        if (in8 != 0 && count <= UINT8_MAX) return head(in8, static_cast<std::uint8_t>(count));
        if (count <= UINT16_MAX) return head(in16, static_cast<std::uint16_t>(count));
        return count <= UINT32_MAX && head(in32, static_cast<std::uint32_t>(count));
    }

    bool integer(PyObject* value) {
        int overflows = 0;
        const auto number = PyLong_AsLongLongAndOverflow(value, &overflows);
        if (overflows < 0) return false;
        if (overflows > 0) {
            const auto large = PyLong_AsUnsignedLongLong(value);
            if (PyErr_Occurred() == nullptr) return head(kUint64, std::uint64_t{large});
            PyErr_Clear();
            return false;
        }
        if (number >= 0) return natural(static_cast<std::uint64_t>(number));
        const auto bits = static_cast<std::uint64_t>(number);
        if (number >= -32) return byte(static_cast<int>(number));
        if (number >= INT8_MIN) return head(kInt8, static_cast<std::uint8_t>(bits));
        if (number >= INT16_MIN) return head(kInt16, static_cast<std::uint16_t>(bits));
        if (number >= INT32_MIN) return head(kInt32, static_cast<std::uint32_t>(bits));
        return head(kInt64, bits);
    }

    bool natural(std::uint64_t number) {
        if (number < 128) return byte(static_cast<int>(number));
        if (number <= UINT32_MAX)
            return sized(static_cast<Py_ssize_t>(number), kUint8, kUint16, kUint32);
        return head(kUint64, number);
    }

    bool text(PyObject* value) {
        Py_ssize_t size = 0;
        const char* utf8 = PyUnicode_AsUTF8AndSize(value, &size);
        if (utf8 == nullptr) {  // It holds half a character.
            PyErr_Clear();
            return false;
        }
        if (size < 32 ? !byte(kFixStr | static_cast<int>(size)) : !sized(size, kStr8, kStr16, kStr32))
            return false;
        out_.append(utf8, static_cast<std::size_t>(size));
        return true;
    }

    bool bytes(PyObject* value) {
        const auto size = PyBytes_GET_SIZE(value);
        if (!sized(size, kBin8, kBin16, kBin32)) return false;
        out_.append(PyBytes_AS_STRING(value), static_cast<std::size_t>(size));
        return true;
    }

    bool items(PyObject* const* first, Py_ssize_t count, int depth) {
        if (count < 16 ? !byte(kFixArray | static_cast<int>(count)) : !sized(count, 0, kArray16, kArray32))
            return false;
        for (Py_ssize_t at = 0; at < count; ++at)
            if (!put(first[at], depth)) return false;
        return true;
    }

    bool mapping(PyObject* dict, int depth) {
        const auto count = PyDict_GET_SIZE(dict);
        if (count < 16 ? !byte(kFixMap | static_cast<int>(count)) : !sized(count, 0, kMap16, kMap32))
            return false;
        PyObject *key = nullptr, *value = nullptr;
        for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);)
            if (!PyUnicode_CheckExact(key) || !text(key) || !put(value, depth)) return false;
        return true;
    }

    /// Its head says how long it is, so its items are written first.
    bool tuple(PyObject* value, int depth) {
        Packing body(tuple_code_);
        auto* items_of = reinterpret_cast<PyTupleObject*>(value)->ob_item;
        if (!body.items(items_of, PyTuple_GET_SIZE(value), depth)) return false;
        const auto size = body.out_.size();
        if (std::has_single_bit(size) && size <= 16) {
            byte(kFixExt1 + std::countr_zero(size));
        } else if (!sized(static_cast<Py_ssize_t>(size), kExt8, kExt16, kExt32)) {
            return false;
        }
        byte(tuple_code_);
        out_ += body.out_;
        return true;
    }

    int tuple_code_;
    std::string out_;
};

}  // namespace

PyObject* packed(PyObject* value, int tuple_code) {
    try {
        Packing packing(tuple_code);
        if (!packing.put(value)) return nullptr;
        const auto& out = packing.written();
        return PyBytes_FromStringAndSize(out.data(), static_cast<Py_ssize_t>(out.size()));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

}  // namespace tmc
