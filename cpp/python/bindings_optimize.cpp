// The optimizer and its bounds for Python.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <span>

#include "bound/bound_search.h"
#include "improve/goal.h"
#include "improve/optimize.h"
#include "improve/refine.h"
#include "python/bindings.h"

using namespace fastplan;

namespace {

constexpr std::int64_t kMostThreads = 256;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;

py::dict write_certificate(Certificate&& certificate) {
  std::vector<double> low, high, uniform;
  std::vector<std::array<double, 3>> memory;
  py::list reward;
  for (auto& slab : certificate.slabs) {
    low.push_back(slab.low);
    high.push_back(slab.high);
    uniform.push_back(slab.uniform);
    memory.push_back(slab.memory);
    reward.append(slab.reward.empty() ? py::object(py::none()) : array(std::move(slab.reward)));
  }
  py::dict out;
  out["value"] = certificate.value;
  out["threshold"] = certificate.threshold;
  out["low"] = low;
  out["high"] = high;
  out["memory"] = memory;
  out["uniform"] = uniform;
  out["reward"] = reward;
  return out;
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

namespace {

OptimizeSettings read_settings(const py::dict& columns) {
  OptimizeSettings settings;
  settings.seconds = not_negative(columns, "seconds");
  settings.moves = number(columns, "moves", 0, kNoLimit);
  settings.seed = scalar<std::uint64_t>(columns, "seed");
  settings.threads = static_cast<std::int32_t>(number(columns, "threads", 1, kMostThreads));
  settings.interrupted = signal_is_pending;
  return settings;
}

py::dict optimize_columns(const py::dict& problem_columns, const py::dict& settings_columns,
                          const py::dict& start_columns) {
  const Columns columns = read_problem(problem_columns);
  const auto options = column<std::int32_t>(start_columns, "options");
  const auto ranks = column<std::int32_t>(start_columns, "ranks");
  const OptimizeSettings settings = read_settings(settings_columns);
  Optimized result;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    result = optimize(problem, read_plan(problem, options, ranks), settings);
  }
  if (result.stopped_by == Stop::interrupted) settle_signal();
  py::dict out;
  out["found"] = result.plan.found();
  out["rating"] = result.plan.rating;
  out["options"] = array(std::move(result.plan.options));
  out["ranks"] = array(std::move(result.plan.ranks));
  out["stopped_by"] = static_cast<int>(result.stopped_by);
  out["moves"] = result.moves;
  out["restarts"] = result.restarts;
  out["trace"] = result.trace;
  out["certificate"] = write_certificate(std::move(result.certificate));
  return out;
}

py::dict bound_columns(const py::dict& problem_columns, const py::dict& settings) {
  const Columns columns = read_problem(problem_columns);
  const auto upper = not_negative(settings, "upper");
  const auto evaluations = number(settings, "evaluations", 0, kNoLimit);
  const auto knapsacks = number(settings, "knapsacks", 0, kNoLimit);
  Certificate certificate;
  double most = 0;
  bool interrupted = false;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    BoundSearch search(problem);
    std::int64_t asked = 0;
    const auto stopped = [&] {
      interrupted = interrupted || (asked++ % 256 == 0 && signal_is_pending());
      return interrupted;
    };
    search.bound_averages(upper, evaluations, stopped);
    search.bound_packing(upper, knapsacks, stopped);
    certificate = search.checked();
    most = search.relaxation().most();
  }
  if (interrupted) throw py::error_already_set();
  py::dict out = write_certificate(std::move(certificate));
  out["most"] = most;
  return out;
}

Goal read_goal(const py::dict& columns, const Columns& problem) {
  const auto runs = static_cast<std::ptrdiff_t>(problem.run_count.size());
  const auto begin = column<std::int64_t>(columns, "run_part_begin", runs + 1);
  const auto channel = column<std::int32_t>(columns, "part_channel");
  const auto parts = static_cast<std::ptrdiff_t>(channel.size());
  const auto amount = column<std::int64_t>(columns, "part_amount", parts);
  const auto options = static_cast<std::ptrdiff_t>(problem.option_type.size());
  const auto own = column<std::int64_t>(columns, "option_amount", options);
  Goal goal;
  goal.channels = static_cast<std::int32_t>(number(columns, "channels", 0, kMostChannels));
  check_index(channel, static_cast<std::size_t>(goal.channels), "part_channel");
  if (!std::is_sorted(begin.begin(), begin.end()) || begin.front() != 0 || begin.back() != parts) {
    throw py::type_error("`run_part_begin` must rise from 0 to the number of parts");
  }
  goal.run_part_begin.assign(begin.begin(), begin.end());
  goal.option_amount.assign(own.begin(), own.end());
  for (std::ptrdiff_t p = 0; p < parts; ++p) goal.parts.push_back({channel[p], amount[p]});
  return goal;
}

py::dict refine_columns(const py::dict& problem_columns, const py::dict& settings_columns,
                        const py::dict& start_columns, double limit, const py::dict& goal_columns) {
  const Columns columns = read_problem(problem_columns);
  const auto options = column<std::int32_t>(start_columns, "options");
  const auto ranks = column<std::int32_t>(start_columns, "ranks");
  const Goal goal = read_goal(goal_columns, columns);
  const OptimizeSettings settings = read_settings(settings_columns);
  if (options.empty()) throw py::type_error("`options` must be those of a plan");
  check_not_negative(limit, "limit");
  Refined result;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    check_goal(problem, goal);
    result = refine(problem, read_plan(problem, options, ranks), limit, goal, settings);
  }
  if (result.stopped_by == Stop::interrupted) settle_signal();
  py::dict out;
  out["rating"] = result.plan.rating;
  out["options"] = array(std::move(result.plan.options));
  out["ranks"] = array(std::move(result.plan.ranks));
  out["value"] = result.value;
  out["value_before"] = result.value_before;
  out["stopped_by"] = static_cast<int>(result.stopped_by);
  out["moves"] = result.moves;
  return out;
}

double rate_columns(const py::dict& problem_columns, const py::dict& plan_columns) {
  const Columns columns = read_problem(problem_columns);
  const auto options = column<std::int32_t>(plan_columns, "options");
  const auto ranks = column<std::int32_t>(plan_columns, "ranks");
  py::gil_scoped_release unlocked;
  const Problem problem = Problem::from(columns);
  return read_plan(problem, options, ranks).rating;
}

}  // namespace

void bind_optimize(py::module_& m) {
  m.def("optimize", &optimize_columns, py::arg("problem"), py::arg("settings"), py::arg("start"));
  m.def("refine", &refine_columns, py::arg("problem"), py::arg("settings"), py::arg("start"),
        py::arg("limit"), py::arg("goal"));
  m.def("rate", &rate_columns, py::arg("problem"), py::arg("plan"));
  m.def("lower_bound", &bound_columns, py::arg("problem"), py::arg("settings"));
}
