// Marks that tell whether Python objects and lists have changed, without a look at their content.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "python/boundary.h"

// Python counts the changes of a dictionary up to 3.11: a number that no other state of any
// dictionary has. Later versions have none for other code, so everything is compared.
#if PY_VERSION_HEX < 0x030C0000
inline constexpr bool kCountsChanges = true;
inline std::uint64_t changes_of(PyObject* attributes) {
  return reinterpret_cast<PyDictObject*>(attributes)->ma_version_tag;
}
inline PyObject** place_of_attributes(PyObject* object) { return _PyObject_GetDictPtr(object); }
#else
inline constexpr bool kCountsChanges = false;
inline std::uint64_t changes_of(PyObject*) { return 0; }
inline PyObject** place_of_attributes(PyObject*) { return nullptr; }
#endif

// The attributes of an object in a state that is known. As long as the count is the same, every
// attribute is the same object. The memory that has the stamp keeps the object alive.
struct Stamp {
  PyObject* object = nullptr;
  PyTypeObject* type = nullptr;
  PyObject** place = nullptr;  // where the object has its dictionary
  PyObject* attributes = nullptr;
  std::uint64_t changes = 0;
  std::uint64_t assigned = 0;  // if all is known but the value that assign() has set; 0 never

  Stamp(PyObject* of, PyObject* dictionary)
      : object(of),
        type(Py_TYPE(of)),
        place(place_of_attributes(of)),
        attributes(dictionary),
        changes(changes_of(dictionary)) {}

  bool has_attributes() const {
    return place != nullptr && *place == attributes && Py_TYPE(object) == type;
  }
  bool holds() const { return has_attributes() && changes_of(attributes) == changes; }
};

struct ListStamp {
  PyObject* list = nullptr;
  std::vector<PyObject*> items;

  bool holds() const {
    return static_cast<std::size_t>(PyList_GET_SIZE(list)) == items.size() &&
           std::equal(items.begin(), items.end(), PySequence_Fast_ITEMS(list));
  }
};
