// Canonical JSON: what Python's encoder writes with sorted keys and no spaces, in a fifth of its
// time.
#include <pybind11/stl.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/boundary.h"

namespace {

// Deeper documents, and circular ones, are left to Python's encoder.
constexpr int kDeepest = 100;
// Whole numbers below are written with all of their digits; Python's repr ends that at 1e16.
constexpr double kWhole = 1e15;

class Writer {
 public:
  // Numbers that JSON lacks are written as Python's text for them, if `spell`.
  explicit Writer(bool spell) : spell_(spell) {}

  // False for a value that only Python's encoder can write, or can refuse with its own error.
  bool write(PyObject* value, int depth = 0) {
    if (PyUnicode_CheckExact(value)) return write_text(value);
    if (PyFloat_CheckExact(value)) return write_float(PyFloat_AS_DOUBLE(value));
    if (PyLong_CheckExact(value)) return write_int(value);
    if (value == Py_True) return add("true");
    if (value == Py_False) return add("false");
    if (value == Py_None) return add("null");
    if (depth == kDeepest) return false;
    if (PyDict_CheckExact(value)) return write_object(value, depth + 1);
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) return write_list(value, depth + 1);
    return false;
  }

  const std::string& text() const { return out_; }

 private:
  bool add(std::string_view text) {
    out_ += text;
    return true;
  }

  bool write_int(PyObject* value) {
    int overflow = 0;
    const auto number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && add_int(number);
  }

  bool add_int(long long number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return add({digits, static_cast<std::size_t>(end - digits)});
  }

  bool write_float(double value) {
    if (std::isnan(value)) return spell_ && add("\"nan\"");
    if (std::isinf(value)) return spell_ && add(value > 0 ? "\"inf\"" : "\"-inf\"");
    if (value == 0.0) return add(std::signbit(value) ? "-0.0" : "0.0");
    if (value == std::trunc(value) && std::abs(value) < kWhole) {
      return add_int(static_cast<long long>(value)) && add(".0");
    }
    // Columns often have the same numbers, and the digits of repr(), which keys depend on, take
    // long.
    auto& known = known_[value];
    if (known.empty()) {
      char* digits = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
      if (!digits) throw py::error_already_set();
      known = digits;
      PyMem_Free(digits);
    }
    return add(known);
  }

  bool write_text(PyObject* value) {
    const auto size = PyUnicode_GET_LENGTH(value);
    const auto kind = PyUnicode_KIND(value);
    const void* data = PyUnicode_DATA(value);
    out_ += '"';
    for (Py_ssize_t i = 0; i < size; ++i) write_character(PyUnicode_READ(kind, data, i));
    out_ += '"';
    return true;
  }

  void write_character(Py_UCS4 character) {
    switch (character) {
      case '"':
      case '\\':
        out_ += '\\';
        out_ += static_cast<char>(character);
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\f':
        out_ += "\\f";
        return;
      case '\b':
        out_ += "\\b";
        return;
      default:
        break;
    }
    if (character >= ' ' && character <= '~') {
      out_ += static_cast<char>(character);
    } else if (character < 0x10000) {
      write_escape(character);
    } else {  // as a pair of surrogates
      write_escape(0xD7C0 + (character >> 10));
      write_escape(0xDC00 + (character & 0x3FF));
    }
  }

  void write_escape(Py_UCS4 unit) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[(unit >> shift) & 0xF];
  }

  bool write_list(PyObject* values, int depth) {
    const auto size = PySequence_Fast_GET_SIZE(values);
    out_ += '[';
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (i > 0) out_ += ',';
      if (!write(PySequence_Fast_GET_ITEM(values, i), depth)) return false;
    }
    out_ += ']';
    return true;
  }

  bool write_object(PyObject* object, int depth) {
    std::vector<std::pair<PyObject*, PyObject*>> items;
    Py_ssize_t place = 0;
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    while (PyDict_Next(object, &place, &key, &value)) {
      if (!PyUnicode_CheckExact(key)) return false;
      items.emplace_back(key, value);
    }
    std::sort(items.begin(), items.end(), [](const auto& one, const auto& other) {
      return PyUnicode_Compare(one.first, other.first) < 0;
    });
    out_ += '{';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ',';
      write_text(items[i].first);
      out_ += ':';
      if (!write(items[i].second, depth)) return false;
    }
    out_ += '}';
    return true;
  }

  bool spell_;
  std::unordered_map<double, std::string> known_;
  std::string out_;
};

// Runs no Python code, so nothing changes meanwhile.
std::optional<py::bytes> canonical_json(const py::object& document, bool spell) {
  Writer writer(spell);
  if (!writer.write(document.ptr())) return std::nullopt;
  return py::bytes(writer.text());
}

bool all_equal(const py::tuple& rows, std::size_t field) {
  PyObject* first = PyTuple_GET_ITEM(rows[0].ptr(), field);
  for (const auto row : rows) {
    const int equal = PyObject_RichCompareBool(PyTuple_GET_ITEM(row.ptr(), field), first, Py_EQ);
    if (equal < 0) throw py::error_already_set();
    if (equal == 0) return false;
  }
  return true;
}

// The columns of rows: of one value if all are equal.
py::list columns_of(const py::tuple& rows) {
  if (rows.empty()) throw py::type_error("`rows` must not be empty");
  for (const auto row : rows) {
    if (!PyTuple_Check(row.ptr())) throw py::type_error("`rows` must be tuples");
    if (PyTuple_GET_SIZE(row.ptr()) != PyTuple_GET_SIZE(rows[0].ptr())) {
      throw py::type_error("`rows` must have the same number of fields");
    }
  }
  const auto fields = static_cast<std::size_t>(PyTuple_GET_SIZE(rows[0].ptr()));
  py::list columns;  // other code may see it while values are compared
  for (std::size_t field = 0; field < fields; ++field) {
    py::list column(all_equal(rows, field) ? 1 : rows.size());
    for (std::size_t i = 0; i < column.size(); ++i) {
      column[i] = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(rows[i].ptr(), field));
    }
    columns.append(std::move(column));
  }
  return columns;
}

}  // namespace

void bind_canonical(py::module_& m) {
  m.def("canonical_json", &canonical_json, py::arg("document"), py::kw_only(), py::arg("spell"));
  m.def("columns_of", &columns_of, py::arg("rows"));
}
