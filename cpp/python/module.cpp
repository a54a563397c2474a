// The module: a problem is built once from named columns, and pure functions work on it. The GIL is
// released for every computation and taken back only to ask for signals.
#include "python/boundary.h"
#include "search/proposals.h"

using namespace fastplan;

PYBIND11_MODULE(_native, m) {
  m.doc() = "The native core: problems, and pure functions over them.";
  py::register_exception<OutOfRange>(m, "OutOfRange", PyExc_ArithmeticError);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(error);
    } catch (const Interrupted&) {
      // The signal's handler has raised already: that is Python's error.
    }
  });
  bind_problem(m);
  bind_estimate(m);
  bind_search(m);
  bind_optimize(m);
  bind_replan(m);
  bind_custom(m);
  bind_profile(m);
  bind_watch(m);
  bind_read_parts(m);
  bind_bindings(m);
  bind_canonical(m);
  bind_shards(m);
}
