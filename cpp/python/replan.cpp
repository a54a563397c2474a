// Plans from older ones, for Python.
#include "replan/replan.h"

#include <pybind11/stl.h>

#include "python/boundary.h"

using namespace fastplan;

namespace {

constexpr std::size_t kMostElementBytes = std::size_t{1} << 16;

// What ranks hold comes from plan files and caches, so that nothing in it is taken on trust:
// offsets, ranks and sizes are checked before anything is added up.
HeldColumns read_held(const py::dict& c, const Problem& problem) {
  HeldColumns in;
  const auto tables = static_cast<std::ptrdiff_t>(problem.tables());
  in.table_held_begin = column<std::int64_t>(c, "table_held_begin", tables + 1);
  in.held_rank = column<std::int64_t>(c, "held_rank");
  const auto shards = static_cast<std::ptrdiff_t>(in.held_rank.size());
  in.held_row = column<std::int64_t>(c, "held_row", shards);
  in.held_column = column<std::int64_t>(c, "held_column", shards);
  in.held_rows = column<std::int64_t>(c, "held_rows", shards);
  in.held_columns = column<std::int64_t>(c, "held_columns", shards);
  in.table_held_type = column<std::uint8_t>(c, "table_held_type", tables);
  in.table_held_kernel = column<std::uint8_t>(c, "table_held_kernel", tables);
  in.table_rows = column<std::int64_t>(c, "table_rows", tables);
  in.table_dim = column<std::int64_t>(c, "table_dim", tables);
  in.table_element_size = column<std::int64_t>(c, "table_element_size", tables);
  in.table_state = column<double>(c, "table_state", tables);
  std::int64_t before = 0;
  for (const auto begin : in.table_held_begin) {
    if (begin < before || begin > shards) {
      throw py::type_error("`table_held_begin` must rise from 0 to the number of shards");
    }
    before = begin;
  }
  if (in.table_held_begin.front() != 0 || before != shards) {
    throw py::type_error("`table_held_begin` must rise from 0 to the number of shards");
  }
  check_index(in.held_rank, std::size_t{1} << 31, "held_rank");
  for (const auto& [name, values] : {std::pair{"held_row", in.held_row},
                                     {"held_column", in.held_column},
                                     {"held_rows", in.held_rows},
                                     {"held_columns", in.held_columns},
                                     {"table_rows", in.table_rows},
                                     {"table_dim", in.table_dim},
                                     {"run_rows", problem.run_rows},
                                     {"run_cols", problem.run_cols}}) {
    check_index(values, std::size_t{1} << 51, name);
  }
  check_index(in.table_element_size, kMostElementBytes, "table_element_size");
  for (std::ptrdiff_t t = 0; t < tables; ++t) {
    check_not_negative(in.table_state[t], "table_state");
    const double bytes = static_cast<double>(in.table_rows[t]) *
                         static_cast<double>(in.table_dim[t]) *
                         static_cast<double>(in.table_element_size[t]) * (1 + in.table_state[t]);
    if (!(bytes < 0x1p51)) throw OutOfRange("a table's bytes are beyond exact arithmetic");
  }
  return in;
}

ReplanSettings read_settings(const py::dict& c) {
  ReplanSettings settings;
  settings.criterion = scalar<bool>(c, "lower_bytes") ? Criterion::bytes : Criterion::cost;
  settings.target = not_negative(c, "target");
  settings.budgets = scalar<std::vector<double>>(c, "budgets");
  for (const double budget : settings.budgets) {
    // All bytes may move to every rank at most.
    if (!(budget >= 0 && budget <= 1e4))
      throw py::type_error("`budgets` must be between 0 and 1e4");
  }
  settings.moves = number(c, "moves", 0, kNoLimit);
  settings.seed = scalar<std::uint64_t>(c, "seed");
  settings.seconds = not_negative(c, "seconds");
  settings.interrupted = signal_is_pending;
  return settings;
}

py::dict write_point(ReplanPoint&& point) {
  py::dict out;
  out["found"] = point.plan.found();
  out["rating"] = point.plan.rating;
  out["options"] = array(std::move(point.plan.options));
  out["ranks"] = array(std::move(point.plan.ranks));
  out["moved"] = point.moved;
  return out;
}

py::dict replan_tables(const Problem& problem, const py::dict& held_columns,
                       const py::dict& settings_columns) {
  const HeldColumns held = read_held(held_columns, problem);
  ReplanSettings settings = read_settings(settings_columns);
  const auto options = column<std::int32_t>(settings_columns, "reached_options");
  const auto ranks = column<std::int32_t>(settings_columns, "reached_ranks");
  Replanned result;
  {
    py::gil_scoped_release unlocked;
    if (!options.empty()) settings.reached = read_plan(problem, options, ranks);
    result = replan(problem, held, settings);
  }
  if (result.stopped_by == Stop::interrupted) settle_signal();
  py::dict out;
  py::list points;
  for (auto& point : result.points) points.append(write_point(std::move(point)));
  out["points"] = points;
  out["start"] = write_point(std::move(result.start));
  out["mean"] = result.mean;
  out["least"] = result.least;
  out["held"] = result.held;
  out["moves"] = result.moves;
  out["stopped_by"] = static_cast<int>(result.stopped_by);
  return out;
}

std::int64_t count_moved_bytes(const Problem& problem, const py::dict& held_columns,
                               const py::dict& plan_columns) {
  const HeldColumns held = read_held(held_columns, problem);
  const auto options = column<std::int32_t>(plan_columns, "options");
  const auto ranks = column<std::int32_t>(plan_columns, "ranks");
  py::gil_scoped_release unlocked;
  const Plan plan = read_plan(problem, options, ranks);
  return moved_bytes(problem, held, plan.options, plan.ranks);
}

}  // namespace

void bind_replan(py::module_& m) {
  m.def("moved_bytes", &count_moved_bytes, py::arg("problem"), py::arg("held"), py::arg("plan"));
  m.def("replan", &replan_tables, py::arg("problem"), py::arg("held"), py::arg("settings"));
}
