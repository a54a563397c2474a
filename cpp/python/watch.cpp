// Whether Python objects are still what they were: faster than to read or to hash their content.
#include <pybind11/stl.h>

#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/boundary.h"

namespace {

// How an attribute is followed. All others hold values that don't change, or that don't matter.
enum class Follow : std::uint8_t {
  items,    // a list of values
  object,   // an object with attributes
  objects,  // a list of such objects
  hashed,   // an object that is known by its hash; None has none. One for each object.
};
constexpr auto kLastFollow = Follow::hashed;

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
  std::vector<py::object> objects;
  std::vector<Py_hash_t> hashes;
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
  bool ended() const {
    return next_ == memory_.objects.size() && next_hash_ == memory_.hashes.size();
  }

 private:
  const Memory& memory_;
  std::size_t next_ = 0;
  std::size_t next_hash_ = 0;
};

// Shows every part of an object to a visitor, until the visitor has seen enough. False also for
// something that is not of its kind: such an object is never known.
template <typename Visitor>
bool visit(PyObject* object, const std::vector<Field>& fields, Visitor& visitor);

template <typename Visitor>
bool visit_list(PyObject* list, const Field& field, Visitor& visitor) {
  if (!PyList_CheckExact(list)) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (!visitor.see(item)) return false;
    if (field.follow == Follow::objects && !visit(item, field.inner, visitor)) return false;
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
      } else if (field.follow == Follow::object) {
        if (!visit(value, field.inner, visitor)) return false;
      } else if (!visit_list(value, field, visitor)) {
        return false;
      }
      break;
    }
  }
  if (!hashed || hashed.is_none()) return true;
  // Python computes it, so all else is read before.
  const auto hash = PyObject_Hash(hashed.ptr());
  if (hash == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return false;
  }
  return visitor.see(hash);
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

  void remember(std::size_t number) {
    check(number);
    Memory memory;
    Writer writer(memory);
    memory.known = visit(objects_[number].ptr(), fields_, writer);
    memories_[number] = std::move(memory);
  }

  std::vector<std::size_t> changed(const std::vector<std::size_t>& numbers) const {
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      check(numbers[i]);
      const auto& memory = memories_[numbers[i]];
      Comparer comparer(memory);
      const bool same =
          memory.known && visit(objects_[numbers[i]].ptr(), fields_, comparer) && comparer.ended();
      if (!same) positions.push_back(i);
    }
    return positions;
  }

 private:
  void check(std::size_t number) const {
    if (number >= objects_.size()) throw py::index_error("no object has this number");
  }

  std::vector<Field> fields_;
  std::vector<py::object> objects_;
  std::unordered_map<PyObject*, std::size_t> numbers_;
  std::vector<Memory> memories_;
};

}  // namespace

void bind_watch(py::module_& m) {
  py::class_<ObjectWatch>(m, "ObjectWatch")
      .def(py::init<const py::sequence&, const py::sequence&>(), py::arg("objects"),
           py::arg("fields"))
      .def("numbers", &ObjectWatch::numbers, py::arg("objects"))
      .def("remember", &ObjectWatch::remember, py::arg("number"))
      .def("changed", &ObjectWatch::changed, py::arg("numbers"));
}
