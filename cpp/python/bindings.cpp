// What names are bound to: whether any binding has changed since it was seen.
#include <pybind11/stl.h>

#include <cstddef>
#include <vector>

#include "python/boundary.h"

namespace {

// The attributes of a class or a module; nothing for anything else. Borrowed.
PyObject* attributes_of(PyObject* owner) {
  if (PyType_Check(owner)) return reinterpret_cast<PyTypeObject*>(owner)->tp_dict;
  return PyModule_Check(owner) ? PyModule_GetDict(owner) : nullptr;
}

// Whether the values of a dictionary are these objects, in order.
bool has_values(PyObject* attributes, PyObject* before) {
  if (attributes == nullptr || !PyTuple_CheckExact(before)) return false;
  if (PyDict_Size(attributes) != PyTuple_GET_SIZE(before)) return false;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  for (Py_ssize_t i = 0; PyDict_Next(attributes, &position, nullptr, &value); ++i) {
    if (PyTuple_GET_ITEM(before, i) != value) return false;
  }
  return true;
}

// The numbers of the owners whose attributes are no longer the values that they had.
std::vector<std::size_t> rebound(const py::list& owners, const py::list& values) {
  if (owners.size() != values.size()) throw py::type_error("each owner has a tuple of values");
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const auto place = static_cast<Py_ssize_t>(i);
    PyObject* owner = PyList_GET_ITEM(owners.ptr(), place);
    if (!has_values(attributes_of(owner), PyList_GET_ITEM(values.ptr(), place))) {
      found.push_back(i);
    }
  }
  return found;
}

// Whether functions still have this code and these defaults (None for a function without).
bool are_unchanged(const py::list& functions, const py::list& codes, const py::list& defaults) {
  if (functions.size() != codes.size() || functions.size() != defaults.size()) {
    throw py::type_error("each function has its code and its defaults");
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(functions.ptr()); ++i) {
    PyObject* function = PyList_GET_ITEM(functions.ptr(), i);
    if (!PyFunction_Check(function)) throw py::type_error("only functions have code");
    PyObject* own = PyFunction_GetDefaults(function);
    if (PyFunction_GetCode(function) != PyList_GET_ITEM(codes.ptr(), i) ||
        (own == nullptr ? Py_None : own) != PyList_GET_ITEM(defaults.ptr(), i)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void bind_bindings(py::module_& m) {
  m.def("rebound", &rebound, py::arg("owners"), py::arg("values"));
  m.def("are_unchanged", &are_unchanged, py::arg("functions"), py::arg("codes"),
        py::arg("defaults"));
}
