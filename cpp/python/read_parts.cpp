// Numbers of Python objects as columns: faster than to read each attribute in Python.
#include <pybind11/stl.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/boundary.h"

namespace {

// Whole numbers up to here are also doubles.
constexpr std::int64_t kLargestExact = std::int64_t{1} << 53;

// An attribute with an object of one class, and the attributes of that object.
struct Record {
  py::object name;
  PyObject* type = nullptr;
  std::vector<py::object> fields;
};

py::object interned(const std::string& name) {
  return py::reinterpret_steal<py::object>(PyUnicode_InternFromString(name.c_str()));
}

Record read_record(const std::tuple<std::string, py::type, std::vector<std::string>>& from) {
  const auto& [name, type, fields] = from;
  Record record{interned(name), type.ptr(), {}};
  for (const auto& field : fields) record.fields.push_back(interned(field));
  return record;
}

py::object attribute(PyObject* object, const py::object& name) {
  auto found = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, name.ptr()));
  if (found) return found;
  // An interrupt or an exit is not for the caller to answer.
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw py::error_already_set();
  PyErr_Clear();
  return found;
}

bool read_int(PyObject* object, std::vector<std::int64_t>& to) {
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  to.push_back(PyLong_AsLongLongAndOverflow(object, &overflow));
  return overflow == 0;
}

bool read_float(PyObject* object, std::vector<double>& to) {
  if (PyFloat_CheckExact(object)) {
    to.push_back(PyFloat_AS_DOUBLE(object));
    return !std::isnan(to.back());
  }
  std::vector<std::int64_t> whole;
  if (!read_int(object, whole)) return false;
  to.push_back(static_cast<double>(whole.back()));
  return -kLargestExact <= whole.back() && whole.back() <= kLargestExact;
}

// The numbers of a part. Equal ones become one row with their count.
struct Row {
  std::vector<std::int64_t> ints;
  std::vector<double> floats;
  bool operator==(const Row&) const = default;
  void clear() {
    ints.clear();
    floats.clear();
  }
};

class PartReader {
 public:
  PartReader(const std::string& list, const py::type& type, const std::string& sizes, Record ints,
             Record floats)
      : list_(interned(list)),
        sizes_(interned(sizes)),
        type_(type.ptr()),
        ints_(std::move(ints)),
        floats_(std::move(floats)),
        columns_(2 + ints_.fields.size()),
        costs_(floats_.fields.size()) {}

  // False for an object with anything but plain numbers.
  bool read(PyObject* object) {
    const auto parts = attribute(object, list_);
    if (!parts || !PyList_CheckExact(parts.ptr()) || PyList_GET_SIZE(parts.ptr()) == 0) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts.ptr()); ++i) {
      row_.clear();
      // Reading an attribute may run code that takes the part out of the list.
      const auto part = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(parts.ptr(), i));
      if (!read_part(part.ptr())) return false;
      if (i > 0 && row_ == before_) {
        ++counts_.back();
        continue;
      }
      counts_.push_back(1);
      for (std::size_t c = 0; c < columns_.size(); ++c) columns_[c].push_back(row_.ints[c]);
      for (std::size_t c = 0; c < costs_.size(); ++c) costs_[c].push_back(row_.floats[c]);
      std::swap(row_, before_);
    }
    begin_.push_back(static_cast<std::int64_t>(counts_.size()));
    return true;
  }

  py::tuple columns() const {
    py::list ints;
    py::list floats;
    for (const auto& column : columns_) ints.append(array(column));
    for (const auto& column : costs_) floats.append(array(column));
    return py::make_tuple(array(begin_), array(counts_), ints, floats);
  }

 private:
  template <typename T>
  static py::array_t<T> array(const std::vector<T>& values) {
    return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
  }

  bool read_part(PyObject* part) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(part)) != type_) return false;
    const auto sizes = attribute(part, sizes_);
    if (!sizes || !PyList_CheckExact(sizes.ptr()) || PyList_GET_SIZE(sizes.ptr()) != 2) {
      return false;
    }
    for (Py_ssize_t i = 0; i < 2; ++i) {
      if (!read_int(PyList_GET_ITEM(sizes.ptr(), i), row_.ints)) return false;
    }
    return read_fields(part, ints_, row_.ints, read_int) &&
           read_fields(part, floats_, row_.floats, read_float);
  }

  template <typename T>
  static bool read_fields(PyObject* part, const Record& record, std::vector<T>& to,
                          bool (*read)(PyObject*, std::vector<T>&)) {
    const auto holder = attribute(part, record.name);
    if (!holder || reinterpret_cast<PyObject*>(Py_TYPE(holder.ptr())) != record.type) return false;
    for (const auto& field : record.fields) {
      const auto value = attribute(holder.ptr(), field);
      if (!value || !read(value.ptr(), to)) return false;
    }
    return true;
  }

  py::object list_;
  py::object sizes_;
  PyObject* type_;
  Record ints_;
  Record floats_;
  Row row_;
  Row before_;
  std::vector<std::int64_t> begin_{0};
  std::vector<std::int64_t> counts_;
  std::vector<std::vector<std::int64_t>> columns_;
  std::vector<std::vector<double>> costs_;
};

using Spec = std::tuple<std::string, py::type, std::vector<std::string>>;

// The columns of all parts of all objects: where those of an object begin, how many parts are
// equal, two sizes and the whole numbers, the floats. Nothing if a number is not a plain one.
std::optional<py::tuple> read_parts(const py::sequence& objects, const std::string& list,
                                    const py::type& type, const std::string& sizes,
                                    const Spec& ints, const Spec& floats) {
  PartReader reader(list, type, sizes, read_record(ints), read_record(floats));
  for (const auto object : objects) {
    if (!reader.read(object.ptr())) return std::nullopt;
  }
  return reader.columns();
}

// A field of rows as a column. Nothing of it is used once a value is not a plain number within the
// column's range.
class NumberColumn {
 public:
  NumberColumn(std::size_t field, const py::dtype& dtype, py::ssize_t rows)
      : field_(field), array_(dtype, rows), to_(static_cast<char*>(array_.mutable_data())) {
    const auto same = [&](const auto& other) { return dtype.equal(other); };
    if (same(py::dtype::of<double>())) {
      kind_ = Kind::real;
    } else if (same(py::dtype::of<std::int64_t>())) {
      kind_ = Kind::whole;
    } else if (same(py::dtype::of<std::int32_t>())) {
      kind_ = Kind::index;
    } else if (same(py::dtype::of<std::uint8_t>())) {
      kind_ = Kind::byte;
    } else {
      throw py::type_error("`dtypes` must be float64, int64, int32 or uint8");
    }
  }

  void read(PyObject* row) {
    if (!plain_) return;
    PyObject* value = PyTuple_GET_ITEM(row, static_cast<Py_ssize_t>(field_));
    if (kind_ == Kind::real) {
      if (PyFloat_CheckExact(value)) return write(PyFloat_AS_DOUBLE(value));
      const double number = PyLong_CheckExact(value) ? PyLong_AsDouble(value) : -1;
      plain_ = PyLong_CheckExact(value) && PyErr_Occurred() == nullptr;
      PyErr_Clear();
      if (plain_) write(number);
      return;
    }
    if (!PyLong_CheckExact(value) && !PyBool_Check(value)) {
      plain_ = false;
      return;
    }
    int overflow = 0;
    const std::int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (kind_ == Kind::whole) return keep<std::int64_t>(number, overflow);
    if (kind_ == Kind::index) return keep<std::int32_t>(number, overflow);
    keep<std::uint8_t>(number, overflow);
  }

  std::size_t field() const { return field_; }
  py::object column() const { return plain_ ? py::object(array_) : py::none(); }

 private:
  enum class Kind : std::uint8_t { real, whole, index, byte };

  template <typename T>
  void keep(std::int64_t number, int overflow) {
    plain_ = overflow == 0 && std::in_range<T>(number);
    if (plain_) write(static_cast<T>(number));
  }

  template <typename T>
  void write(T value) {
    std::memcpy(to_, &value, sizeof value);
    to_ += sizeof value;
  }

  std::size_t field_;
  py::array array_;
  char* to_;
  Kind kind_{};
  bool plain_ = true;
};

// Fields of tuples as arrays of the given dtypes; None for a field with anything but plain numbers
// of that kind.
py::list number_columns(const py::tuple& rows, const std::vector<std::size_t>& fields,
                        const std::vector<py::dtype>& dtypes) {
  if (fields.size() != dtypes.size()) throw py::type_error("`fields` and `dtypes` must match");
  std::vector<NumberColumn> columns;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    columns.emplace_back(fields[i], dtypes[i], static_cast<py::ssize_t>(rows.size()));
  }
  for (const auto row : rows) {
    if (!PyTuple_Check(row.ptr())) throw py::type_error("`rows` must be tuples");
    const auto size = static_cast<std::size_t>(PyTuple_GET_SIZE(row.ptr()));
    for (auto& column : columns) {
      if (column.field() >= size) throw py::type_error("`rows` have too few fields");
      column.read(row.ptr());
    }
  }
  py::list found;
  for (const auto& column : columns) found.append(column.column());
  return found;
}

}  // namespace

void bind_read_parts(py::module_& m) {
  m.def("number_columns", &number_columns, py::arg("rows"), py::arg("fields"), py::arg("dtypes"));
  m.def("read_parts", &read_parts, py::arg("objects"), py::kw_only(), py::arg("list"),
        py::arg("type"), py::arg("sizes"), py::arg("ints"), py::arg("floats"));
}
