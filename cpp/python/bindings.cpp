// Named columns in, named columns out. The GIL is released for every computation and taken back
// only to ask for signals.
#include "python/bindings.h"

#include <pybind11/stl.h>

#include <optional>

#include "core/problem.h"
#include "search/count.h"
#include "search/custom_objective.h"
#include "search/partition.h"
#include "search/proposals.h"
#include "search/reachable.h"
#include "search/search.h"
#include "search/verify.h"

using namespace fastplan;

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

bool signal_is_pending() {
  py::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

namespace {

PartitionerSettings read_partitioner(const py::dict& c) {
  PartitionerSettings settings;
  settings.memory_balanced = scalar<bool>(c, "memory_balanced");
  settings.sort_by_perf = scalar<bool>(c, "sort_by_perf");
  settings.balance_modules = scalar<bool>(c, "balance_modules");
  settings.max_search_count = scalar<std::int64_t>(c, "max_search_count");
  settings.tolerance = scalar<double>(c, "tolerance");
  return settings;
}

// Bins that TorchRec itself could hardly go through.
constexpr std::int64_t kMostBins = std::int64_t{1} << 20;
constexpr std::int64_t kMostBinsOfAll = std::int64_t{1} << 31;

ProposerSettings read_proposer(const py::dict& c, const Columns& problem) {
  ProposerSettings settings;
  const auto kind = scalar<std::uint8_t>(c, "kind");
  if (kind > static_cast<std::uint8_t>(kLastProposerKind)) {
    throw py::type_error("`kind` must name a proposer");
  }
  settings.kind = static_cast<ProposerKind>(kind);
  settings.use_depth = scalar<bool>(c, "use_depth");
  settings.threshold = scalar<std::int64_t>(c, "threshold");
  settings.best_rating = scalar<double>(c, "best_rating");
  settings.inferior = scalar<std::int64_t>(c, "inferior");
  settings.max_proposals = scalar<std::int64_t>(c, "max_proposals");
  settings.bins_per_device = scalar<std::int64_t>(c, "bins_per_device");
  settings.exhausted = scalar<bool>(c, "exhausted");
  const auto bins = settings.bins_per_device;
  if (settings.kind == ProposerKind::dynamic_programming &&
      (bins < 1 || bins > kMostBins ||
       bins * static_cast<std::int64_t>(problem.rank_hbm.size()) >= kMostBinsOfAll)) {
    throw OutOfRange(
        "`bins_per_device` must be at least 1, at most 2^20, and below 2^31 over all "
        "ranks, not " +
        std::to_string(bins));
  }
  return settings;
}

py::dict write_chosen(Chosen&& chosen) {
  py::dict out;
  out["options"] = array(std::move(chosen.options));
  out["proposer"] = chosen.proposer;
  return out;
}

py::list write_reports(const std::vector<ProposerReport>& reports) {
  py::list out;
  for (const auto& report : reports) {
    py::dict entry;
    entry["proposals"] = report.proposals;
    entry["repeats"] = report.repeats;
    entry["plans"] = report.plans;
    entry["timed_out"] = report.timed_out;
    entry["best_rating"] = report.best_rating;
    entry["state_best_rating"] = report.state_best_rating;
    entry["state_inferior"] = report.state_inferior;
    out.append(entry);
  }
  return out;
}

SearchSettings read_settings(const py::dict& c, const Columns& problem) {
  SearchSettings settings;
  settings.partitioner = read_partitioner(scalar<py::dict>(c, "partitioner"));
  for (const auto proposer : scalar<py::list>(c, "proposers")) {
    settings.proposers.push_back(read_proposer(py::cast<py::dict>(proposer), problem));
  }
  settings.exhaustive = scalar<bool>(c, "exhaustive");
  settings.timeout_seconds = scalar<double>(c, "timeout_seconds");
  settings.objective = function_at<ObjectiveFunction>(scalar<std::uintptr_t>(c, "objective"));
  settings.interrupted = signal_is_pending;
  return settings;
}

std::pair<std::vector<std::int64_t>, std::int64_t> count(const py::dict& problem_columns,
                                                         const py::dict& settings_columns,
                                                         std::int64_t placements) {
  const Columns columns = read_problem(problem_columns);
  const SearchSettings settings = read_settings(settings_columns, columns);
  py::gil_scoped_release unlocked;
  auto found = count_plans(Problem::from(columns), settings, placements);
  return {std::move(found.plans), found.undecided};
}

py::dict solve(const py::dict& problem_columns, const py::dict& settings_columns) {
  const Columns columns = read_problem(problem_columns);
  const SearchSettings settings = read_settings(settings_columns, columns);
  SearchResult result;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    result = search(problem, settings);
  }
  py::dict out;
  out["found"] = result.found;
  out["rating"] = result.rating;
  out["best"] = write_chosen(std::move(result.best));
  out["ranks"] = array(std::move(result.ranks));
  out["reports"] = write_reports(result.reports);
  out["evaluated"] = result.evaluated;
  out["lowest"] = write_chosen(std::move(result.lowest));
  out["last"] = write_chosen(std::move(result.last));
  return out;
}

double reach(const py::dict& problem_columns, const py::dict& settings_columns) {
  const Columns columns = read_problem(problem_columns);
  const SearchSettings settings = read_settings(settings_columns, columns);
  py::gil_scoped_release unlocked;
  return reachable_rating(Problem::from(columns), settings);
}

// Proposals [begin, end) of one proposer as rows of option numbers, with the tables' plan order.
py::dict propose(const py::dict& problem_columns, const py::dict& proposer, std::int64_t begin,
                 std::int64_t end) {
  const Columns columns = read_problem(problem_columns);
  const ProposerSettings settings = read_proposer(proposer, columns);
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> order;
  std::int64_t size = 0;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    const auto sequence = make_sequence(problem, settings, signal_is_pending);
    size = sequence->size();
    order.assign(sequence->order().begin(), sequence->order().end());
    begin = std::clamp<std::int64_t>(begin, 0, size);
    end = std::clamp<std::int64_t>(end, begin, size);
    rows.resize((end - begin) * problem.tables());
    for (std::int64_t i = begin; i < end; ++i) {
      sequence->at(i, std::span(rows).subspan((i - begin) * problem.tables(), problem.tables()));
    }
  }
  py::dict out;
  const auto tables = static_cast<py::ssize_t>(order.size());
  out["size"] = size;
  out["table_order"] = array(std::move(order));
  out["options"] = array(std::move(rows)).reshape({static_cast<py::ssize_t>(end - begin), tables});
  return out;
}

// Places and rates single proposals, for searches that are driven from Python.
class Placer {
 public:
  Placer(const py::dict& problem_columns, const py::dict& partitioner, std::uintptr_t objective)
      : problem_(make_problem(problem_columns)),
        partitioner_(problem_, read_partitioner(partitioner)) {
    if (objective) objective_.emplace(problem_, function_at<ObjectiveFunction>(objective));
  }

  std::optional<std::pair<std::vector<std::int32_t>, double>> place(
      const std::vector<std::int32_t>& options) {
    check_index(std::span<const std::int32_t>(options), problem_.options.size(), "options");
    if (options.size() > problem_.tables()) {
      throw py::type_error("`options` must name at most one option per table");
    }
    // The work space is shared between calls, so this short call keeps the GIL.
    if (partitioner_.place(options, Partitioner::kNoLimit) != Outcome::placed) {
      return std::nullopt;
    }
    const auto ranks = partitioner_.ranks();
    const double rating = objective_ ? objective_->rate(options, ranks) : partitioner_.rating();
    return std::pair{std::vector<std::int32_t>(ranks.begin(), ranks.end()), rating};
  }

 private:
  static Problem make_problem(const py::dict& problem_columns) {
    const Columns columns = read_problem(problem_columns);
    py::gil_scoped_release unlocked;
    return Problem::from(columns);
  }

  Problem problem_;
  Partitioner partitioner_;
  std::optional<Objective> objective_;
};

std::string verify_columns(const py::dict& problem_columns,
                           const py::array_t<std::int32_t, py::array::c_style>& options,
                           const py::array_t<std::int32_t, py::array::c_style>& ranks,
                           double rating, std::uintptr_t objective) {
  const Columns columns = read_problem(problem_columns);
  check_aligned<std::int32_t>(options, "options");
  check_aligned<std::int32_t>(ranks, "ranks");
  const std::span<const std::int32_t> chosen(options.data(), options.size());
  const std::span<const std::int32_t> placed(ranks.data(), ranks.size());
  py::gil_scoped_release unlocked;
  return verify(Problem::from(columns), chosen, placed, rating,
                function_at<ObjectiveFunction>(objective));
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "The native core: pure functions over named columns.";
  py::register_exception<OutOfRange>(m, "OutOfRange", PyExc_ArithmeticError);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(error);
    } catch (const Interrupted&) {
      // The signal's handler has raised already: that is Python's error.
    }
  });
  m.def("solve", &solve, py::arg("problem"), py::arg("settings"));
  m.def("count_plans", &count, py::arg("problem"), py::arg("settings"), py::arg("placements"));
  m.def("reachable_rating", &reach, py::arg("problem"), py::arg("settings"));
  m.def("propose", &propose, py::arg("problem"), py::arg("proposer"), py::arg("begin"),
        py::arg("end"));
  m.def("verify", &verify_columns, py::arg("problem"), py::arg("options"), py::arg("ranks"),
        py::arg("rating"), py::arg("objective") = 0);
  py::class_<Placer>(m, "Placer")
      .def(py::init<const py::dict&, const py::dict&, std::uintptr_t>(), py::arg("problem"),
           py::arg("partitioner"), py::arg("objective") = 0)
      .def("place", &Placer::place, py::arg("options"));
  bind_estimate(m);
  bind_optimize(m);
  bind_replan(m);
  bind_custom(m);
}
