// What the files of the boundary to Python share.
#pragma once

#include <span>

#include "core/problem.h"
#include "improve/plan.h"
#include "python/columns.h"
#include "search/goal.h"

// Whether a Python signal handler has raised. Takes the GIL for a moment.
bool signal_is_pending();
// Ctrl-C ends a search and keeps its plan; what other signal handlers raise goes on.
void settle_signal();
// A plan of the problem, rated; nothing in it points outside. TypeError otherwise.
fastplan::Plan read_plan(const fastplan::Problem& problem, std::span<const std::int32_t> options,
                         std::span<const std::int32_t> ranks);
// A goal comes by run and option of its problem. TypeError for columns that don't fit together;
// check_goal() looks at the amounts.
fastplan::Goal read_goal(const py::dict& columns, const fastplan::Problem& problem);

// Each adds its part to the module.
void bind_problem(py::module_& m);
void bind_estimate(py::module_& m);
void bind_search(py::module_& m);
void bind_optimize(py::module_& m);
void bind_replan(py::module_& m);
void bind_custom(py::module_& m);
void bind_profile(py::module_& m);
void bind_watch(py::module_& m);
void bind_read_parts(py::module_& m);
void bind_bindings(py::module_& m);
void bind_canonical(py::module_& m);
void bind_shards(py::module_& m);
