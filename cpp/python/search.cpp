// TorchRec's search and the checks of its plans, for Python.
#include "search/search.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>

#include "core/problem.h"
#include "python/boundary.h"
#include "search/count.h"
#include "search/custom_objective.h"
#include "search/partition.h"
#include "search/proposals.h"
#include "search/pruned.h"
#include "search/verify.h"

using namespace fastplan;

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

// Bins that TorchRec itself could hardly go through; beyond them the indices of the table would not
// fit.
constexpr std::int64_t kMostBins = std::int64_t{1} << 20;
constexpr std::int64_t kMostBinsOfAll = std::int64_t{1} << 31;

// All settings are read whatever the kind: a missing one is named at once.
ProposerSettings read_proposer(const py::dict& c, const Problem& problem) {
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
       bins * static_cast<std::int64_t>(problem.ranks()) >= kMostBinsOfAll)) {
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

// Names of ProposerReport in fastplan/engine/solve.py.
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

SearchSettings read_settings(const py::dict& c, const Problem& problem) {
  SearchSettings settings;
  settings.partitioner = read_partitioner(scalar<py::dict>(c, "partitioner"));
  for (const auto proposer : scalar<py::list>(c, "proposers")) {
    settings.proposers.push_back(read_proposer(py::cast<py::dict>(proposer), problem));
  }
  settings.exhaustive = scalar<bool>(c, "exhaustive");
  settings.timeout_seconds = scalar<double>(c, "timeout_seconds");
  settings.objective = function_at<ObjectiveFunction>(scalar<std::uintptr_t>(c, "objective"));
  if (const auto goal = scalar<py::object>(c, "goal"); !goal.is_none()) {
    auto read = std::make_shared<Goal>(read_goal(py::cast<py::dict>(goal), problem));
    check_goal(problem, *read);
    settings.goal = std::move(read);
  }
  settings.goal_per_rating = scalar<double>(c, "goal_per_rating");
  settings.interrupted = signal_is_pending;
  return settings;
}

std::pair<std::vector<std::int64_t>, std::int64_t> count(const Problem& problem,
                                                         const py::dict& settings_columns) {
  const SearchSettings settings = read_settings(settings_columns, problem);
  py::gil_scoped_release unlocked;
  auto found = count_plans(problem, settings);
  return {std::move(found.plans), found.placed};
}

py::dict solve(const Problem& problem, const py::dict& settings_columns) {
  const SearchSettings settings = read_settings(settings_columns, problem);
  SearchResult result;
  {
    py::gil_scoped_release unlocked;
    result = search(problem, settings);
  }
  py::dict out;
  out["found"] = result.found;
  out["exhaustive"] = result.exhaustive;
  out["rating"] = result.rating;
  out["best"] = write_chosen(std::move(result.best));
  out["ranks"] = array(std::move(result.ranks));
  out["reports"] = write_reports(result.reports);
  out["evaluated"] = result.evaluated;
  out["lowest"] = write_chosen(std::move(result.lowest));
  out["last"] = write_chosen(std::move(result.last));
  return out;
}

std::optional<double> better(const Problem& problem, const py::dict& settings_columns,
                             double limit) {
  const SearchSettings settings = read_settings(settings_columns, problem);
  py::gil_scoped_release unlocked;
  return better_proposal(problem, settings, limit);
}

// Proposals [begin, end) of one proposer as rows of option numbers, with the tables' plan order.
py::dict propose(const Problem& problem, const py::dict& proposer, std::int64_t begin,
                 std::int64_t end) {
  const ProposerSettings settings = read_proposer(proposer, problem);
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> order;
  std::int64_t size = 0;
  {
    py::gil_scoped_release unlocked;
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

// Places and rates single proposals, for searches that are driven from Python. Keeps its work space
// between calls.
class Placer {
 public:
  Placer(std::shared_ptr<Problem> problem, const py::dict& partitioner, std::uintptr_t objective)
      : problem_(std::move(problem)), partitioner_(*problem_, read_partitioner(partitioner)) {
    if (objective) objective_.emplace(*problem_, function_at<ObjectiveFunction>(objective));
  }

  std::optional<std::pair<std::vector<std::int32_t>, double>> place(
      const std::vector<std::int32_t>& options) {
    check_index(std::span<const std::int32_t>(options), problem_->options.size(), "options");
    if (options.size() > problem_->tables()) {
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

  std::vector<std::int32_t> partial_ranks() const { return partitioner_.partial_ranks(); }
  std::vector<std::int32_t> ranks_before_failure() const {
    return partitioner_.ranks_before_failure();
  }

 private:
  std::shared_ptr<const Problem> problem_;  // the others refer to it, so it must outlive them
  Partitioner partitioner_;
  std::optional<Objective> objective_;
};

std::string verify_plan(const Problem& problem,
                        const py::array_t<std::int32_t, py::array::c_style>& options,
                        const py::array_t<std::int32_t, py::array::c_style>& ranks, double rating,
                        std::uintptr_t objective) {
  check_aligned<std::int32_t>(options, "options");
  check_aligned<std::int32_t>(ranks, "ranks");
  const std::span<const std::int32_t> chosen(options.data(), options.size());
  const std::span<const std::int32_t> placed(ranks.data(), ranks.size());
  py::gil_scoped_release unlocked;
  return verify(problem, chosen, placed, rating, function_at<ObjectiveFunction>(objective));
}

}  // namespace

void bind_search(py::module_& m) {
  m.def("solve", &solve, py::arg("problem"), py::arg("settings"));
  m.def("count_plans", &count, py::arg("problem"), py::arg("settings"));
  m.def("better_proposal", &better, py::arg("problem"), py::arg("settings"), py::arg("limit"));
  m.def("propose", &propose, py::arg("problem"), py::arg("proposer"), py::arg("begin"),
        py::arg("end"));
  m.def("verify", &verify_plan, py::arg("problem"), py::arg("options"), py::arg("ranks"),
        py::arg("rating"), py::arg("objective") = 0);
  py::class_<Placer>(m, "Placer")
      .def(py::init<std::shared_ptr<Problem>, const py::dict&, std::uintptr_t>(),
           py::arg("problem"), py::arg("partitioner"), py::arg("objective") = 0)
      .def("place", &Placer::place, py::arg("options"))
      .def("partial_ranks", &Placer::partial_ranks)
      .def("ranks_before_failure", &Placer::ranks_before_failure);
}
