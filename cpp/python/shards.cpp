// Shards of a plan as Python objects: most of a plan's objects are these.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/boundary.h"

namespace {

// What a column of the numbers means; model/plan.py has the same order.
enum Column : py::ssize_t { kRow, kFirstColumn, kRows, kColumns, kRank, kWidth };

py::object checked(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

py::object interned(const char* name) { return checked(PyUnicode_InternFromString(name)); }

void assign(const py::object& object, const py::object& name, PyObject* value) {
  if (PyObject_SetAttr(object.ptr(), name.ptr(), value) != 0) throw py::error_already_set();
}

// A new object of a class, without a call of its constructor.
class Maker {
 public:
  explicit Maker(const py::type& type)
      : type_(reinterpret_cast<PyTypeObject*>(type.ptr())), no_arguments_(py::tuple(0)) {
    if (type_->tp_new == nullptr) throw py::type_error("a class can't be made");
  }

  py::object operator()() const {
    return checked(type_->tp_new(type_, no_arguments_.ptr(), nullptr));
  }

 private:
  PyTypeObject* type_;
  py::tuple no_arguments_;
};

py::object pair(std::int64_t first, std::int64_t second) {
  py::object list = checked(PyList_New(2));
  PyList_SET_ITEM(list.ptr(), 0, checked(PyLong_FromLongLong(first)).release().ptr());
  PyList_SET_ITEM(list.ptr(), 1, checked(PyLong_FromLongLong(second)).release().ptr());
  return list;
}

// Equal placements, one for each shard, because TorchRec changes them in place.
class Placements {
 public:
  Placements(py::function placement, const py::type& type)
      : placement_(std::move(placement)), make_(type) {}

  py::object of(std::int64_t rank) {
    auto known = values_.find(rank);
    if (known == values_.end()) {
      const py::object original = placement_(rank);
      std::array<py::object, 3> values;
      for (std::size_t i = 0; i < names_.size(); ++i) {
        values[i] = checked(PyObject_GetAttr(original.ptr(), names_[i].ptr()));
      }
      known = values_.emplace(rank, std::move(values)).first;
    }
    py::object copy = make_();
    for (std::size_t i = 0; i < names_.size(); ++i) {
      assign(copy, names_[i], known->second[i].ptr());
    }
    return copy;
  }

 private:
  py::function placement_;
  Maker make_;
  std::array<py::object, 3> names_{interned("_worker_name"), interned("_rank"),
                                   interned("_device")};
  std::unordered_map<std::int64_t, std::array<py::object, 3>> values_;
};

// A list of shards for each table. `placement` returns the placement of a rank, of which each shard
// gets a copy.
py::list shard_lists(const py::array& shards, const py::array& begin, const py::type& list_type,
                     const py::type& shard_type, const py::type& placement_type,
                     const py::function& placement) {
  const py::dict columns(py::arg("begin") = begin);
  const auto ends = column<std::int64_t>(columns, "begin");
  if (!py::isinstance<py::array_t<std::int64_t>>(shards) || shards.ndim() != 2 ||
      shards.shape(1) != kWidth) {
    throw py::type_error("`shards` must be an array of int64 with five columns");
  }
  if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(list_type.ptr()), &PyList_Type)) {
    throw py::type_error("`list_type` must be a list");
  }
  if (ends.empty() || ends.front() != 0 || ends.back() != shards.shape(0)) {
    throw py::type_error("`begin` must begin with 0 and end with the number of shards");
  }
  for (std::size_t table = 1; table < ends.size(); ++table) {
    if (ends[table] < ends[table - 1]) throw py::type_error("`begin` must not decrease");
  }
  // Nobody else has the copy: `placement` may change the array.
  const auto own = py::array_t<std::int64_t>(shards.attr("copy")());
  const auto number = own.unchecked<2>();
  const Maker make_shard(shard_type);
  Placements placements(placement, placement_type);
  const auto offsets = interned("shard_offsets");
  const auto sizes = interned("shard_sizes");
  const auto place = interned("placement");
  py::list found;
  for (std::size_t table = 1; table < ends.size(); ++table) {
    const py::object list = list_type();
    for (py::ssize_t i = ends[table - 1]; i < ends[table]; ++i) {
      const py::object shard = make_shard();
      assign(shard, offsets, pair(number(i, kRow), number(i, kFirstColumn)).ptr());
      assign(shard, sizes, pair(number(i, kRows), number(i, kColumns)).ptr());
      assign(shard, place, placements.of(number(i, kRank)).ptr());
      if (PyList_Append(list.ptr(), shard.ptr()) != 0) throw py::error_already_set();
    }
    found.append(list);
  }
  return found;
}

}  // namespace

void bind_shards(py::module_& m) {
  m.def("shard_lists", &shard_lists, py::arg("shards"), py::arg("begin"), py::kw_only(),
        py::arg("list_type"), py::arg("shard_type"), py::arg("placement_type"),
        py::arg("placement"));
}
