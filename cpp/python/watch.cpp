// Whether Python objects are still what they were: faster than to read or to hash their content.
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/boundary.h"
#include "python/stamp.h"

namespace {

// How an attribute is followed. All others hold values that don't change, or that don't matter.
enum class Follow : std::uint8_t {
  items,     // a list of values
  object,    // an object with attributes
  objects,   // a list of such objects
  hashed,    // an object that is known by its hash; None has none. One for each object.
  assigned,  // a value of an object in a list, which assign() sets
};
constexpr auto kLastFollow = Follow::assigned;

struct Field {
  py::object name;
  Follow follow = Follow::items;
  std::vector<Field> inner;
};

std::vector<Field> read_fields(const py::sequence& from) {
  std::vector<Field> fields;
  for (const auto item : from) {
    const auto [name, follow, inner] = py::cast<std::tuple<py::str, int, py::sequence>>(item);
    if (follow < 0 || follow > static_cast<int>(kLastFollow)) {
      throw py::type_error("`fields` has a way to follow with no meaning");
    }
    // Interned names are found by their address.
    auto interned = py::reinterpret_steal<py::object>(
        PyUnicode_InternFromString(py::cast<std::string>(name).c_str()));
    fields.push_back({std::move(interned), static_cast<Follow>(follow), read_fields(inner)});
  }
  return fields;
}

// What was seen of an object, in the order of the fields. It keeps all objects alive, so that no
// other one can get the address of one of them.
struct Memory {
  bool known = false;
  std::uint64_t look = 0;  // the number of the look that it is of
  std::vector<py::object> objects;
  std::vector<Py_hash_t> hashes;
  // The same by stamps, for a look that is faster if nothing has changed.
  std::vector<Stamp> stamps;
  std::vector<ListStamp> lists;
  py::object hashed;
  // Of the objects in lists: their stamps, and what assign() may change there.
  std::vector<std::size_t> parts;
  std::vector<PyObject*> assignable;
};

class Writer {
 public:
  explicit Writer(Memory& memory) : memory_(memory) {}
  bool see(PyObject* object) {
    memory_.objects.push_back(py::reinterpret_borrow<py::object>(object));
    return true;
  }
  bool see(Py_hash_t hash) {
    memory_.hashes.push_back(hash);
    return true;
  }
  void see_attributes(PyObject* object, PyObject* attributes) {
    memory_.stamps.emplace_back(object, attributes);
  }
  void see_list(PyObject* list) {
    const auto items = PySequence_Fast_ITEMS(list);
    memory_.lists.push_back({list, {items, items + PyList_GET_SIZE(list)}});
  }
  void see_hashed(const py::object& hashed) { memory_.hashed = hashed; }
  void see_part() {
    memory_.parts.push_back(memory_.stamps.size());
    memory_.assignable.push_back(nullptr);
  }
  void see_assignable(PyObject* value) {
    if (!memory_.assignable.empty()) memory_.assignable.back() = value;
  }

 private:
  Memory& memory_;
};

class Comparer {
 public:
  explicit Comparer(const Memory& memory) : memory_(memory) {}
  bool see(PyObject* object) {
    return next_ < memory_.objects.size() && memory_.objects[next_++].ptr() == object;
  }
  bool see(Py_hash_t hash) {
    return next_hash_ < memory_.hashes.size() && memory_.hashes[next_hash_++] == hash;
  }
  void see_attributes(PyObject* object, PyObject* attributes) {
    stamps_.emplace_back(object, attributes);
  }
  void see_list(PyObject*) {}
  void see_hashed(const py::object&) {}
  void see_part() {}
  void see_assignable(PyObject*) {}
  bool ended() const {
    return next_ == memory_.objects.size() && next_hash_ == memory_.hashes.size();
  }
  std::vector<Stamp> stamps() && { return std::move(stamps_); }  // valid if nothing differs

 private:
  const Memory& memory_;
  std::size_t next_ = 0;
  std::size_t next_hash_ = 0;
  std::vector<Stamp> stamps_;
};

std::optional<Py_hash_t> hash_of(const py::object& object) {
  const auto hash = PyObject_Hash(object.ptr());
  if (hash != -1 || !PyErr_Occurred()) return hash;
  PyErr_Clear();
  return std::nullopt;
}

// Shows every part of an object to a visitor, until the visitor has seen enough. False also for
// something that is not of its kind: such an object is never known.
template <typename Visitor>
bool visit(PyObject* object, const std::vector<Field>& fields, Visitor& visitor);

template <typename Visitor>
bool visit_list(PyObject* list, const Field& field, Visitor& visitor) {
  if (!PyList_CheckExact(list)) return false;
  visitor.see_list(list);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (!visitor.see(item)) return false;
    if (field.follow != Follow::objects) continue;
    visitor.see_part();
    if (!visit(item, field.inner, visitor)) return false;
  }
  return true;
}

template <typename Visitor>
bool visit(PyObject* object, const std::vector<Field>& fields, Visitor& visitor) {
  if (!visitor.see(reinterpret_cast<PyObject*>(Py_TYPE(object)))) return false;
  const auto attributes =
      py::reinterpret_steal<py::object>(PyObject_GenericGetDict(object, nullptr));
  if (!attributes) {
    PyErr_Clear();
    return false;
  }
  visitor.see_attributes(object, attributes.ptr());
  py::object hashed;
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(attributes.ptr(), &position, &name, &value)) {
    if (!visitor.see(name) || !visitor.see(value)) return false;
    // Fields are found by the address of their names.
    if (!PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name)) return false;
    for (const auto& field : fields) {
      if (field.name.ptr() != name) continue;
      if (field.follow == Follow::hashed) {
        hashed = py::reinterpret_borrow<py::object>(value);
      } else if (field.follow == Follow::assigned) {
        visitor.see_assignable(value);
      } else if (field.follow == Follow::object) {
        if (!visit(value, field.inner, visitor)) return false;
      } else if (!visit_list(value, field, visitor)) {
        return false;
      }
      break;
    }
  }
  if (!hashed || hashed.is_none()) return true;
  visitor.see_hashed(hashed);
  // Python computes it, so all else is read before.
  const auto hash = hash_of(hashed);
  return hash && visitor.see(*hash);
}

// Whether setting an attribute of such objects only changes their dictionary.
bool stores_in_dictionary(PyTypeObject* type, PyObject* name) {
  if (type->tp_setattro != PyObject_GenericSetAttr) return false;
  PyObject* found = _PyType_Lookup(type, name);
  return found == nullptr || Py_TYPE(found)->tp_descr_set == nullptr;
}

class ObjectWatch {
 public:
  ObjectWatch(const py::sequence& objects, const py::sequence& fields)
      : fields_(read_fields(fields)) {
    for (const auto object : objects) {
      numbers_[object.ptr()] = objects_.size();
      objects_.push_back(py::reinterpret_borrow<py::object>(object));
    }
    memories_.resize(objects_.size());
    for (const auto& field : fields_) {
      if (field.follow != Follow::objects) continue;
      list_ = field.name;
      for (const auto& inner : field.inner) {
        if (inner.follow == Follow::assigned) assigned_ = inner.name;
      }
    }
  }

  // By identity; nothing if an object is not one of those that are watched.
  std::optional<std::vector<std::size_t>> numbers(const py::iterable& objects) const {
    std::vector<std::size_t> numbers;
    for (const auto object : objects) {
      const auto found = numbers_.find(object.ptr());
      if (found == numbers_.end()) return std::nullopt;
      numbers.push_back(found->second);
    }
    return numbers;
  }

  void remember(const std::vector<std::size_t>& numbers) {
    for (const auto number : numbers) {
      check(number);
      Memory memory;
      memory.look = ++looks_;
      Writer writer(memory);
      memory.known = visit(objects_[number].ptr(), fields_, writer);
      // What was remembered ends after the exchange: its end may run code that looks here.
      std::swap(memories_[number], memory);
    }
  }

  std::vector<std::size_t> changed(const std::vector<std::size_t>& numbers) {
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      check(numbers[i]);
      if (!is_same(numbers[i])) positions.push_back(i);
    }
    return positions;
  }

  // Sets the attribute of all objects in the lists of these objects, as Python would: to its
  // position in the list where `counted` says so, else to the next value; to None without values.
  void assign(const py::list& objects, const std::optional<py::list>& values,
              const std::vector<bool>& counted) {
    if (!list_ || !assigned_) throw py::type_error("`fields` has nothing to assign");
    if (values && counted.size() != objects.size()) {
      throw py::type_error("`counted` must be as long as `objects`");
    }
    plain_ = nullptr;
    std::size_t next = 0;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      const auto held = py::reinterpret_borrow<py::object>(
          PyList_GET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(i)));
      PyObject* object = held.ptr();
      const auto found = numbers_.find(object);
      auto* memory = found == numbers_.end() ? nullptr : &memories_[found->second];
      const auto parts = list_of(object);
      for (Py_ssize_t position = 0; position < PyList_GET_SIZE(parts.ptr()); ++position) {
        // Setting an attribute may run code that shortens the list.
        const auto part =
            py::reinterpret_borrow<py::object>(PyList_GET_ITEM(parts.ptr(), position));
        py::object value = py::none();
        // at(): setting an attribute may also run code that lengthens `objects`.
        if (values && counted.at(i)) {
          value = py::int_(position);
        } else if (values) {
          if (next >= values->size()) throw py::index_error("`values` is too short");
          value = py::reinterpret_borrow<py::object>(
              PyList_GET_ITEM(values->ptr(), static_cast<Py_ssize_t>(next++)));
        }
        assign_part(part.ptr(), value.ptr(), memory, static_cast<std::size_t>(position));
      }
    }
  }

 private:
  void check(std::size_t number) const {
    if (number >= objects_.size()) throw py::index_error("no object has this number");
  }

  // The list with the parts of an object; a new one if they are not in a list.
  py::object list_of(PyObject* object) const {
    auto parts = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, list_.ptr()));
    if (!parts) throw py::error_already_set();
    return PyList_CheckExact(parts.ptr()) ? parts : py::list(parts);
  }

  bool is_same(std::size_t number) {
    auto& memory = memories_[number];
    if (!memory.known) return false;
    if (holds(memory)) {
      if (!memory.hashed) return true;
      const auto before = memory.hashes.back();
      const auto hash = hash_of(py::object(memory.hashed));
      return hash && *hash == before;
    }
    const auto look = memory.look;
    Comparer comparer(memory);
    if (!visit(objects_[number].ptr(), fields_, comparer) || !comparer.ended()) return false;
    if (memory.look != look)
      return false;  // comparing has run code that remembers the object again
    memory.stamps = std::move(comparer).stamps();
    return true;
  }

  static bool holds(const Memory& memory) {
    return kCountsChanges &&
           std::ranges::all_of(memory.stamps, [](const auto& stamp) { return stamp.holds(); }) &&
           std::ranges::all_of(memory.lists, [](const auto& list) { return list.holds(); });
  }

  void assign_part(PyObject* part, PyObject* value, Memory* memory, std::size_t position) {
    Stamp* stamp = nullptr;
    if (kCountsChanges && memory != nullptr && memory->known && position < memory->parts.size()) {
      stamp = &memory->stamps[memory->parts[position]];
    }
    if (stamp == nullptr || stamp->object != part || !stamp->has_attributes() || !is_plain(part)) {
      plain_ = nullptr;  // this may run any code
      if (PyObject_SetAttr(part, assigned_.ptr(), value) != 0) throw py::error_already_set();
      return;
    }
    const auto before = changes_of(stamp->attributes);
    const bool was_known = before == stamp->changes || before == stamp->assigned;
    // Its end may run code that exchanges the memory.
    const auto replaced = py::reinterpret_borrow<py::object>(
        PyDict_GetItemWithError(stamp->attributes, assigned_.ptr()));
    if (PyDict_SetItem(stamp->attributes, assigned_.ptr(), value) != 0) {
      throw py::error_already_set();
    }
    if (!was_known) return;
    const bool is_as_seen = memory->assignable[position] == value;
    (is_as_seen ? stamp->changes : stamp->assigned) = changes_of(stamp->attributes);
  }

  bool is_plain(PyObject* part) {
    if (Py_TYPE(part) == plain_) return true;
    if (!stores_in_dictionary(Py_TYPE(part), assigned_.ptr())) return false;
    plain_ = Py_TYPE(part);
    return true;
  }

  std::vector<Field> fields_;
  std::vector<py::object> objects_;
  std::unordered_map<PyObject*, std::size_t> numbers_;
  std::vector<Memory> memories_;
  std::uint64_t looks_ = 0;
  py::object list_;                // the name of the list with objects
  py::object assigned_;            // the name of what assign() sets there
  PyTypeObject* plain_ = nullptr;  // the last class whose attributes are just stored
};

}  // namespace

void bind_watch(py::module_& m) {
  py::class_<ObjectWatch>(m, "ObjectWatch")
      .def(py::init<const py::sequence&, const py::sequence&>(), py::arg("objects"),
           py::arg("fields"))
      .def("numbers", &ObjectWatch::numbers, py::arg("objects"))
      .def("remember", &ObjectWatch::remember, py::arg("numbers"))
      .def("changed", &ObjectWatch::changed, py::arg("numbers"))
      .def("assign", &ObjectWatch::assign, py::arg("objects"), py::arg("values"),
           py::arg("counted"));
}
