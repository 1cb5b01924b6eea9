// SPDX-License-Identifier: Apache-2.0
// What a step asks of many objects at once (`asked.py`); not for Python's stable ABI.
#ifndef Py_LIMITED_API
#include <nanobind/stl/pair.h>

#include <utility>
#include <vector>

#include "binding/defined.hpp"
#include "binding/given.hpp"
#include "python/asked.hpp"
#include "python/nodes.hpp"
#include "python/packed.hpp"
#include "python/sets.hpp"
#include "python/stored.hpp"
#include "python/tables.hpp"
#include "python/turns.hpp"
#include "python/words.hpp"

namespace tmc {

using namespace nb::literals;

namespace {

nb::object given_by_python(PyObject* result) {
    if (result == nullptr) throw nb::python_error();
    return nb::steal<nb::object>(result);
}

std::vector<Window> windows_of(nb::handle given, nb::handle object) {
    std::vector<Window> result;
    if (nb::isinstance<WindowPlan>(given)) {
        if (!nb::cast<const WindowPlan&>(given).find(object.ptr(), result)) throw Bad("an object has another layout");
        return result;
    }
    for (const auto window : nb::cast<nb::list>(given)) {
        const auto [address, size] = nb::cast<std::pair<Pointer, std::size_t>>(window);
        result.push_back({reinterpret_cast<const char*>(bytes_at(address)), size});
    }
    return result;
}

bool truth(int answer) {
    if (answer < 0) throw nb::python_error();
    return answer != 0;
}

}  // namespace

void define_asked(nb::module_& m) {
    nb::class_<Answers>(m, "Answers")
        .def("__init__",
             [](Answers* self, const nb::args& questions) {
                 std::vector<Question> all;
                 for (const auto question : questions) all.emplace_back(question.ptr());
                 new (self) Answers(std::move(all));
             },
             nb::keep_alive<1, 2>())
        .def("note",
             [](Answers& a, nb::handle objects) {
                 if (!a.note(objects.ptr())) throw nb::python_error();
             },
             nb::arg("objects"))
        .def("same", [](const Answers& a, nb::handle objects) { return truth(a.same(objects.ptr())); },
             nb::arg("objects"))
        .def("noted", [](const Answers& a, std::size_t question) {
            return given_by_python(a.noted(question));
        }, nb::arg("question"));
    nb::class_<Pieces>(m, "Pieces")
        .def("__init__",
             [](Pieces* self, const Pointers& addresses, const Counts& sizes) {
                 std::vector<std::pair<const std::byte*, std::size_t>> pieces;
                 if (addresses.size() != sizes.size()) throw Bad("a piece of memory is an address and a size");
                 for (std::size_t at = 0; at < sizes.size(); ++at)
                     pieces.emplace_back(bytes_at(addresses[at]), sizes[at]);
                 new (self) Pieces(std::move(pieces));
             },
             nb::arg("addresses"), nb::arg("sizes"))
        .def("read", [](Pieces& p) { return given_by_python(p.read()); });
    nb::class_<Stored>(m, "Stored")
        .def("__init__", [](Stored* self, const nb::str& name) { new (self) Stored(name.ptr()); },
             nb::arg("name"))
        .def("note",
             [](Stored& s, nb::handle objects) {
                 if (!s.note(objects.ptr())) throw nb::python_error();
             },
             nb::arg("objects"))
        .def("same", [](Stored& s, nb::handle objects) { return truth(s.same(objects.ptr())); },
             nb::arg("objects"));
    nb::class_<Tables>(m, "Tables")
        .def("__init__",
             [](Tables* self, nb::handle tables) {
                 new (self) Tables(tables.ptr());
                 if (self->is_made()) return;
                 self->~Tables();
                 throw nb::python_error();
             },
             nb::arg("tables"))
        .def("same", [](const Tables& t) { return truth(t.same()); });
    nb::class_<Sizes>(m, "Sizes")
        .def("__init__",
             [](Sizes* self, nb::handle containers, std::vector<Py_ssize_t> sizes) {
                 new (self) Sizes(containers.ptr(), std::move(sizes));
                 if (self->is_made()) return;
                 self->~Sizes();
                 throw nb::python_error();
             },
             nb::arg("containers"), nb::arg("sizes"))
        .def("same", [](const Sizes& s) { return truth(s.same()); });
    nb::class_<Words>(m, "Words")
        .def("__init__",
             [](Words* self, const Pointers& leads, const Counts& places, const Counts& compared, bool counts) {
                 if (places.size() != 5 || compared.size() != 2) throw Bad("words lie at five places");
                 new (self) Words(leads, {places[0], places[1], places[2], places[3], places[4], compared[0],
                                          compared[1], counts});
             },
             nb::arg("leads"), nb::arg("places"), nb::arg("compared"), nb::arg("counts"))
        .def("note", &Words::note)
        .def("same", &Words::same)
        .def("addresses", [](const Words& w) { return w.addresses(); })
        .def("places", [](const Words& w) {
            const auto& at = w.addresses();
            return nb::make_tuple(nb::bytes(at.data(), at.size() * sizeof(at[0])),
                                  nb::bytes(w.parts().data(), w.parts().size()));
        })
        .def("versions", [](const Words& w) { return w.versions(); })
        .def("parts", [](const Words& w) {
            nb::list result;
            for (std::size_t at = 0; at < w.parts().size(); at += w.part_bytes())
                result.append(nb::bytes(w.parts().data() + at, w.part_bytes()));
            return result;
        });
    nb::class_<WindowPlan>(m, "WindowPlan")
        .def("__init__",
             [](WindowPlan* self, const std::vector<std::pair<Counts, std::size_t>>& places, const Counts& path,
                std::uint64_t known) {
                 std::vector<WindowPlan::Place> all;
                 for (const auto& [one, size] : places) all.push_back({{one.begin(), one.end()}, size});
                 for (const auto& place : all)
                     if (place.path.empty()) throw Bad("a path has an offset");
                 if (path.empty()) throw Bad("a path has an offset");
                 new (self) WindowPlan(std::move(all), {path.begin(), path.end()}, known);
             },
             "places"_a, "path"_a, "known"_a);
    nb::class_<NodeTable>(m, "NodeTable")
        .def(nb::init<>())
        .def("put",
             [](NodeTable& t, std::size_t number, nb::handle object, unsigned parts, const nb::tuple& members,
                nb::handle windows, nb::handle content) {
                 std::vector<Py_ssize_t> offsets;
                 for (const auto member : members) {
                     offsets.push_back(offset_of(member.ptr()));
                     if (offsets.back() < 0) throw Bad("a member is no pointer in an object");
                 }
                 PyObject* bytes = content.is_none() ? nullptr : content.ptr();
                 if (!t.put(number, object.ptr(), parts, std::move(offsets), windows_of(windows, object), bytes))
                     throw nb::python_error();
             },
             "number"_a, "object"_a.none(), "parts"_a, "members"_a, "windows"_a, "content"_a.none())
        .def("remove", &NodeTable::remove, "number"_a)
        .def("changed", [](NodeTable& t) { return given_by_python(t.changed()); });
    m.def("same_value", [](nb::handle one, nb::handle other) {
        return truth(same_value(one.ptr(), other.ptr()));
    }, "one"_a.none(), "other"_a.none());
    m.def("known_refs", [](const nb::list& values, const nb::dict& numbers, const nb::frozenset& plain,
                           const nb::list& edges, const nb::list& integers, long long address_min) {
        const Met met{edges.ptr(), integers.ptr(), address_min};
        return given_by_python(known_refs(values.ptr(), numbers.ptr(), plain.ptr(), met));
    }, "values"_a, "numbers"_a, "plain"_a, "edges"_a, "integers"_a, "address_min"_a);
    m.def("stands_for", [](nb::handle type, nb::handle object, std::uint64_t address) {
        return stands_for(type.ptr(), object.ptr(), address);
    }, "type"_a, "object"_a, "address"_a);
    m.def("are", [](nb::handle objects, nb::handle others) {
        return truth(are(objects.ptr(), others.ptr()));
    }, "objects"_a, "others"_a);
    m.def("given", [](nb::handle question, nb::handle objects) {
        return given_by_python(given(Question(question.ptr()), objects.ptr()));
    }, "question"_a, "objects"_a);
    m.def("table_of", [](nb::handle set) { return given_by_python(table_of(set.ptr())); }, "set"_a);
    m.def("fill", [](nb::handle set, Py_ssize_t size, Py_ssize_t first, nb::handle places, nb::handle left,
                     nb::handle entries) {
        return truth(fill(set.ptr(), size, first, places.ptr(), left.ptr(), entries.ptr()));
    }, "set"_a, "size"_a, "first"_a, "places"_a, "left"_a, "entries"_a);
    m.def("packed", [](int tuple_code, nb::handle value) -> nb::object {
        PyObject* result = packed(value.ptr(), tuple_code);
        if (result == nullptr && PyErr_Occurred() == nullptr) return nb::none();
        return given_by_python(result);
    }, "tuple_code"_a, "value"_a.none());
    if (!add_loops(m.ptr())) throw nb::python_error();
    m.def("set_hooks", [](nb::handle begin, nb::handle turn, nb::handle left, nb::handle retry) {
        const auto hook = [](nb::handle one) { return one.is_none() ? nullptr : one.ptr(); };
        set_hooks(hook(begin), hook(turn), hook(left), retry.ptr());
    }, "begin"_a.none(), "turn"_a.none(), "left"_a.none(), "retry"_a);
}

}  // namespace tmc
#endif
