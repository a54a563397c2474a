// The optimizer and its bounds for Python.
#include "improve/optimize.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <span>

#include "bound/bound_search.h"
#include "improve/goal.h"
#include "improve/refine.h"
#include "python/boundary.h"

using namespace fastplan;

namespace {

constexpr std::int64_t kMostThreads = 256;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;

// Slabs by column: one list for each multiplier.
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

// Seconds may be infinite, moves have an end: what is counted must not wrap around.
OptimizeSettings read_settings(const py::dict& columns) {
  OptimizeSettings settings;
  settings.seconds = not_negative(columns, "seconds");
  settings.moves = number(columns, "moves", 0, kNoLimit);
  settings.seed = scalar<std::uint64_t>(columns, "seed");
  settings.threads = static_cast<std::int32_t>(number(columns, "threads", 1, kMostThreads));
  settings.interrupted = signal_is_pending;
  return settings;
}

py::dict optimize_plan(const Problem& problem, const py::dict& settings_columns,
                       const py::dict& start_columns) {
  const auto options = column<std::int32_t>(start_columns, "options");
  const auto ranks = column<std::int32_t>(start_columns, "ranks");
  const OptimizeSettings settings = read_settings(settings_columns);
  Optimized result;
  {
    py::gil_scoped_release unlocked;
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

py::dict bound_plans(const Problem& problem, const py::dict& settings) {
  const auto upper = not_negative(settings, "upper");
  const auto evaluations = number(settings, "evaluations", 0, kNoLimit);
  const auto knapsacks = number(settings, "knapsacks", 0, kNoLimit);
  Certificate certificate;
  double most = 0;
  bool interrupted = false;
  {
    py::gil_scoped_release unlocked;
    BoundSearch search(problem);
    std::int64_t asked = 0;
    const auto stopped = [&] {
      // Asking takes the GIL: once in so many evaluations.
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

// Offsets that end in the number of what they are offsets into.
void check_offsets(std::span<const std::int64_t> begin, std::size_t count, const char* name) {
  if (begin.empty() || begin.front() != 0 || !std::is_sorted(begin.begin(), begin.end()) ||
      begin.back() != static_cast<std::int64_t>(count)) {
    throw py::type_error("`" + std::string(name) + "` must rise from 0 to " +
                         std::to_string(count));
  }
}

std::vector<Goal::Part> read_parts(std::span<const std::int32_t> channel,
                                   std::span<const std::int64_t> amount) {
  std::vector<Goal::Part> parts;
  for (std::size_t p = 0; p < channel.size(); ++p) parts.push_back({channel[p], amount[p]});
  return parts;
}

// A goal comes by run and option of its problem; check_goal() looks at the amounts.
Goal read_goal(const py::dict& columns, const Problem& problem) {
  const auto runs = std::ssize(problem.runs);
  const auto begin = column<std::int64_t>(columns, "run_part_begin", runs + 1);
  const auto channel = column<std::int32_t>(columns, "part_channel");
  const auto amount = column<std::int64_t>(columns, "part_amount", std::ssize(channel));
  const auto own = column<std::int64_t>(columns, "option_amount", std::ssize(problem.options));
  const auto run_charge_begin = column<std::int64_t>(columns, "run_charge_begin", runs + 1);
  const auto run_charges = column<std::int32_t>(columns, "run_charges");
  const auto charge_begin = column<std::int64_t>(columns, "charge_part_begin");
  const auto charge_channel = column<std::int32_t>(columns, "charge_part_channel");
  const auto charge_amount =
      column<std::int64_t>(columns, "charge_part_amount", std::ssize(charge_channel));
  Goal goal;
  goal.channels = static_cast<std::int32_t>(number(columns, "channels", 0, kMostChannels));
  const auto channels = static_cast<std::size_t>(goal.channels);
  const auto channel_ranks =
      column<std::int32_t>(columns, "channel_ranks", static_cast<std::ptrdiff_t>(channels));
  for (const auto ranks : channel_ranks) {
    if (ranks < 1) throw py::type_error("`channel_ranks` must be at least 1");
  }
  goal.channel_ranks.assign(channel_ranks.begin(), channel_ranks.end());
  check_index(channel, channels, "part_channel");
  check_index(charge_channel, channels, "charge_part_channel");
  check_offsets(begin, channel.size(), "run_part_begin");
  check_offsets(run_charge_begin, run_charges.size(), "run_charge_begin");
  check_offsets(charge_begin, charge_channel.size(), "charge_part_begin");
  check_index(run_charges, charge_begin.size() - 1, "run_charges");
  goal.run_part_begin.assign(begin.begin(), begin.end());
  goal.parts = read_parts(channel, amount);
  goal.option_amount.assign(own.begin(), own.end());
  goal.run_charge_begin.assign(run_charge_begin.begin(), run_charge_begin.end());
  goal.run_charges.assign(run_charges.begin(), run_charges.end());
  goal.charge_part_begin.assign(charge_begin.begin(), charge_begin.end());
  goal.charge_parts = read_parts(charge_channel, charge_amount);
  return goal;
}

py::dict refine_plan(const Problem& problem, const py::dict& settings_columns,
                     const py::dict& start_columns, double limit, const py::dict& goal_columns) {
  const auto options = column<std::int32_t>(start_columns, "options");
  const auto ranks = column<std::int32_t>(start_columns, "ranks");
  const Goal goal = read_goal(goal_columns, problem);
  const OptimizeSettings settings = read_settings(settings_columns);
  if (options.empty()) throw py::type_error("`options` must be those of a plan");
  check_not_negative(limit, "limit");
  Refined result;
  {
    py::gil_scoped_release unlocked;
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

// What a plan comes to: the value, and by channel and rank all amounts and those of charges.
py::dict tally_plan(const Problem& problem, const py::dict& plan_columns,
                    const py::dict& goal_columns) {
  const auto options = column<std::int32_t>(plan_columns, "options");
  const auto ranks = column<std::int32_t>(plan_columns, "ranks");
  const Goal goal = read_goal(goal_columns, problem);
  std::int64_t value = 0;
  std::vector<std::int64_t> sums, charges;
  {
    py::gil_scoped_release unlocked;
    check_goal(problem, goal);
    Tally tally(goal, problem.ranks());
    count_plan(problem, read_plan(problem, options, ranks), tally);
    value = tally.value();
    sums = tally.sums();
    charges = tally.charge_sums();
  }
  py::dict out;
  out["value"] = value;
  out["sums"] = array(std::move(sums));
  out["charges"] = array(std::move(charges));
  return out;
}

double rate_plan(const Problem& problem, const py::dict& plan_columns) {
  const auto options = column<std::int32_t>(plan_columns, "options");
  const auto ranks = column<std::int32_t>(plan_columns, "ranks");
  py::gil_scoped_release unlocked;
  return read_plan(problem, options, ranks).rating;
}

}  // namespace

void bind_optimize(py::module_& m) {
  m.def("optimize", &optimize_plan, py::arg("problem"), py::arg("settings"), py::arg("start"));
  m.def("refine", &refine_plan, py::arg("problem"), py::arg("settings"), py::arg("start"),
        py::arg("limit"), py::arg("goal"));
  m.def("tally", &tally_plan, py::arg("problem"), py::arg("plan"), py::arg("goal"));
  m.def("rate", &rate_plan, py::arg("problem"), py::arg("plan"));
  m.def("lower_bound", &bound_plans, py::arg("problem"), py::arg("settings"));
}
