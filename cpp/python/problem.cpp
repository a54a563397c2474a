// The problem as a handle that Python holds: read and checked once, then shared by every call.
#include <algorithm>
#include <memory>

#include "python/boundary.h"

using namespace fastplan;

namespace {

// Types, lengths and indices, each with the column's name; Problem::from() checks the values.
Columns read_problem(const py::dict& c) {
  Columns in;
  in.table_option_begin = column<std::int64_t>(c, "table_option_begin");
  const auto tables = static_cast<std::ptrdiff_t>(in.table_option_begin.size()) - 1;
  in.table_module = column<std::int32_t>(c, "table_module", std::max<std::ptrdiff_t>(tables, 0));
  in.table_group = column<std::int32_t>(c, "table_group", std::max<std::ptrdiff_t>(tables, 0));
  check_index(in.table_module, in.table_module.size(), "table_module");
  for (const auto group : in.table_group) {
    if (group < -1 || group >= tables) {
      throw py::type_error("`table_group` must be -1 or smaller than the number of tables");
    }
  }
  in.option_type = column<std::uint8_t>(c, "option_type");
  const auto options = static_cast<std::ptrdiff_t>(in.option_type.size());
  in.option_kernel = column<std::uint8_t>(c, "option_kernel", options);
  check_enum(in.option_kernel, kLastKernel, "option_kernel");
  in.option_key = column<std::uint64_t>(c, "option_key", options);
  in.option_run_begin = column<std::int64_t>(c, "option_run_begin", options + 1);
  in.run_count = column<std::int64_t>(c, "run_count");
  const auto runs = static_cast<std::ptrdiff_t>(in.run_count.size());
  in.run_rows = column<std::int64_t>(c, "run_rows", runs);
  in.run_cols = column<std::int64_t>(c, "run_cols", runs);
  in.run_fwd_compute = column<double>(c, "run_fwd_compute", runs);
  in.run_fwd_comms = column<double>(c, "run_fwd_comms", runs);
  in.run_bwd_compute = column<double>(c, "run_bwd_compute", runs);
  in.run_bwd_comms = column<double>(c, "run_bwd_comms", runs);
  in.run_input_dist_comms = column<double>(c, "run_input_dist_comms", runs);
  in.run_prefetch_compute = column<double>(c, "run_prefetch_compute", runs);
  in.run_hbm = column<std::int64_t>(c, "run_hbm", runs);
  in.run_ddr = column<std::int64_t>(c, "run_ddr", runs);
  in.run_ssd = column<std::int64_t>(c, "run_ssd", runs);
  in.rank_hbm = column<std::int64_t>(c, "rank_hbm");
  const auto ranks = static_cast<std::ptrdiff_t>(in.rank_hbm.size());
  in.rank_ddr = column<std::int64_t>(c, "rank_ddr", ranks);
  in.rank_ssd = column<std::int64_t>(c, "rank_ssd", ranks);
  in.local_world_size = scalar<std::int64_t>(c, "local_world_size");
  in.group_size = scalar<std::int64_t>(c, "group_size");
  in.compensated_sum = scalar<bool>(c, "compensated_sum");
  return in;
}

// The columns are read without the GIL: whoever calls must not change them meanwhile.
std::shared_ptr<Problem> make_problem(const py::dict& columns) {
  const Columns in = read_problem(columns);
  py::gil_scoped_release unlocked;
  return std::make_shared<Problem>(Problem::from(in));
}

// Ranks beyond the last whole host are on no host that could be looked up.
void check_hosts(const Problem& problem, std::span<const std::int32_t> options,
                 std::span<const std::int32_t> ranks) {
  for (const auto o : options) {
    const auto& option = problem.options[o];
    if (option.reach == Reach::uniform) continue;
    const auto own = ranks.first(option.shards);
    ranks = ranks.subspan(option.shards);
    if (option.reach == Reach::device) continue;
    for (const auto rank : own) {
      if (rank / problem.group_size >= problem.hosts) {
        throw py::type_error("`ranks` must be on whole hosts where an option is bound to hosts");
      }
    }
  }
}

}  // namespace

// PyErr_CheckSignals runs the handlers; on another thread than the main one it says no.
bool signal_is_pending() {
  py::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

void settle_signal() {
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw py::error_already_set();
  PyErr_Clear();
}

Plan read_plan(const Problem& problem, std::span<const std::int32_t> options,
               std::span<const std::int32_t> ranks) {
  Plan plan;
  if (options.empty()) return plan;
  // Whether it is a good plan is the caller's to verify; here it must only not point outside.
  if (options.size() != problem.tables()) {
    throw py::type_error("`options` must name one option per table");
  }
  check_index(options, problem.options.size(), "options");
  check_index(ranks, problem.ranks(), "ranks");
  std::size_t shards = 0;
  std::vector<std::uint8_t> covered(problem.tables(), 0);
  for (const auto o : options) {
    const auto& option = problem.options[o];
    if (covered[option.table]++) throw py::type_error("`options` must name each table once");
    if (option.reach != Reach::uniform) {
      shards += static_cast<std::size_t>(option.shards);
    } else if (option.shards != static_cast<std::int64_t>(problem.ranks())) {
      throw py::type_error("`options` must have one shard per rank where they are uniform");
    }
  }
  if (shards != ranks.size()) throw py::type_error("`ranks` must have one entry per shard");
  check_hosts(problem, options, ranks);
  plan.options.assign(options.begin(), options.end());
  plan.ranks.assign(ranks.begin(), ranks.end());
  plan.rating = rate(problem, plan);
  return plan;
}

void bind_problem(py::module_& m) {
  // Nothing to read or to change: whoever wants to know what is in it has the columns.
  py::class_<Problem, std::shared_ptr<Problem>>(m, "Problem")
      .def(py::init(&make_problem), py::arg("columns"));
}
