// Named values and columns that come from Python, read and checked: a TypeError names what is
// wrong.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

inline py::object item(const py::dict& from, const char* name) {
  if (!from.contains(name)) throw py::type_error("`" + std::string(name) + "` is missing");
  return from[name];
}

// numpy has arrays at any address; reading a number from one that is not aligned is undefined.
template <typename T>
void check_aligned(const py::array& array, const char* name) {
  if (array.size() > 0 && reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0) {
    throw py::type_error("`" + std::string(name) + "` must be aligned");
  }
}

// A view of a numpy array, without conversion or copy: the dtype must be exact. It is valid for as
// long as the dict holds the array, which outlives the call.
template <typename T>
std::span<const T> column(const py::dict& from, const char* name, std::ptrdiff_t length = -1) {
  const py::object value = item(from, name);
  if (!py::isinstance<py::array_t<T>>(value)) {
    const std::string dtype = py::str(py::dtype::of<T>());
    throw py::type_error("`" + std::string(name) + "` must be an array of " + dtype);
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (array.ndim() != 1 || !(array.flags() & py::array::c_style)) {
    throw py::type_error("`" + std::string(name) + "` must be one-dimensional and contiguous");
  }
  check_aligned<T>(array, name);
  if (length >= 0 && array.shape(0) != length) {
    throw py::type_error("`" + std::string(name) + "` must have " + std::to_string(length) +
                         " entries, not " + std::to_string(array.shape(0)));
  }
  return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.shape(0))};
}

template <typename T>
T scalar(const py::dict& from, const char* name) {
  try {
    return py::cast<T>(item(from, name));
  } catch (const py::cast_error&) {
    throw py::type_error("`" + std::string(name) + "` has the wrong type");
  }
}

// A number with limits of its own, both of which it may reach.
inline std::int64_t number(const py::dict& from, const char* name, std::int64_t least,
                           std::int64_t most) {
  const auto value = scalar<std::int64_t>(from, name);
  if (value < least || value > most) {
    throw py::type_error("`" + std::string(name) + "` must be between " + std::to_string(least) +
                         " and " + std::to_string(most) + ", not " + std::to_string(value));
  }
  return value;
}

// What is counted down stays far from where it would wrap around.
inline constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;

// NaN is neither: comparisons with it would never end a search.
inline void check_not_negative(double value, const char* name) {
  if (!(value >= 0)) {
    throw py::type_error("`" + std::string(name) + "` must be a number that is not negative");
  }
}

inline double not_negative(const py::dict& from, const char* name) {
  const auto value = scalar<double>(from, name);
  check_not_negative(value, name);
  return value;
}

// A compiled function by its address; null for zero.
template <typename Function>
Function function_at(std::uintptr_t address) {
  return reinterpret_cast<Function>(address);
}

// Hands a vector over to numpy without a copy: the array owns it.
template <typename T>
py::array_t<T> array(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  py::capsule free(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(owned->size()), owned->data(), free);
}

// Index columns come from outside: nothing may point past the end of what it indexes.
template <typename T>
void check_index(std::span<const T> values, std::size_t size, const char* name) {
  for (const T value : values) {
    if (value < 0 || static_cast<std::size_t>(value) >= size) {
      throw py::type_error("`" + std::string(name) + "` has an index that is out of range");
    }
  }
}

template <typename T>
void check_enum(std::span<const std::uint8_t> values, T last, const char* name) {
  for (const auto value : values) {
    if (value > static_cast<std::uint8_t>(last)) {
      throw py::type_error("`" + std::string(name) + "` has a value with no meaning");
    }
  }
}

template <typename T>
T enumerator(const py::dict& columns, const char* name, T last) {
  const auto value = scalar<std::uint8_t>(columns, name);
  check_enum({&value, 1}, last, name);
  return static_cast<T>(value);
}
