// Named columns in, named columns out. The GIL is released for every computation and taken back
// only to ask for signals.
#include "bindings.h"

#include <pybind11/stl.h>

#include <optional>

#include "count.h"
#include "custom_cost.h"
#include "custom_objective.h"
#include "estimate.h"
#include "partition.h"
#include "problem.h"
#include "proposals.h"
#include "search.h"
#include "verify.h"

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
  check_enum(in.option_kernel, Kernel::unfused_tpu, "option_kernel");
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

void read_clusters(const py::dict& c, EstimateInput& in) {
  auto& cluster = in.cluster;
  cluster.world_size = scalar<std::int64_t>(c, "perf_world_size");
  cluster.local_world_size = scalar<std::int64_t>(c, "perf_local_world_size");
  cluster.group_size = scalar<std::int64_t>(c, "perf_group_size");
  cluster.bw_world_all_to_all = scalar<double>(c, "bw_world_all_to_all");
  cluster.bw_world_reduce_scatter = scalar<double>(c, "bw_world_reduce_scatter");
  cluster.bw_world_all_gather = scalar<double>(c, "bw_world_all_gather");
  cluster.bw_world_all_reduce = scalar<double>(c, "bw_world_all_reduce");
  cluster.bw_group_reduce_scatter = scalar<double>(c, "bw_group_reduce_scatter");
  cluster.bw_group_all_gather = scalar<double>(c, "bw_group_all_gather");
  cluster.bw_across_all_to_all = scalar<double>(c, "bw_across_all_to_all");
  cluster.hbm_to_ddr_bw = scalar<double>(c, "hbm_to_ddr_bw");
  cluster.bwd_compute_multiplier = scalar<double>(c, "bwd_compute_multiplier");
  cluster.weighted_bwd_multiplier = scalar<double>(c, "weighted_bwd_multiplier");

  auto& model = in.model;
  model.inference = scalar<bool>(c, "perf_inference");
  model.min_dim_table_wise = scalar<bool>(c, "min_dim_table_wise");
  model.block_penalty_table_wise = scalar<bool>(c, "block_penalty_table_wise");
  model.block_penalty_other = scalar<bool>(c, "block_penalty_other");
  model.input_read_in_bytes = scalar<bool>(c, "input_read_in_bytes");
  model.input_element_size = scalar<double>(c, "input_element_size");
  model.weighted_kernel_multiplier = scalar<double>(c, "weighted_kernel_multiplier");
  model.fetches_from_batch_inputs = scalar<bool>(c, "fetches_from_batch_inputs");
  model.linear_prefetch = scalar<bool>(c, "linear_prefetch");
  model.prefetch_coefficients = scalar<std::array<double, 3>>(c, "prefetch_coefficients");

  auto& storage = in.storage;
  storage.world_size = scalar<std::int64_t>(c, "storage_world_size");
  storage.group_size = scalar<std::int64_t>(c, "storage_group_size");
  storage.device = static_cast<DeviceKind>(scalar<std::uint8_t>(c, "device_kind"));
  storage.weights_in_ddr = scalar<bool>(c, "weights_in_ddr");
  storage.quant_weights_in_ddr = scalar<bool>(c, "quant_weights_in_ddr");
  storage.pipeline = static_cast<Pipeline>(scalar<std::uint8_t>(c, "pipeline"));
  storage.at_peak_memory = scalar<bool>(c, "at_peak_memory");
  storage.inference = scalar<bool>(c, "storage_inference");

  in.layout.world_size = scalar<std::int64_t>(c, "layout_world_size");
  in.layout.group_size = scalar<std::int64_t>(c, "layout_group_size");
  in.layout.rank_memory = column<std::int64_t>(c, "layout_rank_memory");
  for (const auto size :
       {cluster.world_size, cluster.local_world_size, cluster.group_size, storage.world_size,
        storage.group_size, in.layout.world_size, in.layout.group_size}) {
    if (size < 1 || size > (1 << 24)) throw py::type_error("a cluster size is not positive");
  }
  for (const auto memory : in.layout.rank_memory) {
    if (memory < 0) throw OutOfRange("negative memory");
  }
}

void read_tables(const py::dict& c, EstimateInput& in) {
  in.table_rows = column<std::int64_t>(c, "table_rows");
  const auto n = static_cast<std::ptrdiff_t>(in.table_rows.size());
  in.table_dim = column<std::int64_t>(c, "table_dim", n);
  in.table_element_size = column<std::int64_t>(c, "table_element_size", n);
  in.table_bytes = column<std::int64_t>(c, "table_bytes", n);
  in.table_menu = column<std::int32_t>(c, "table_menu", n);
  in.table_perf_inputs = column<double>(c, "table_perf_inputs", n);
  in.table_perf_outputs = column<double>(c, "table_perf_outputs", n);
  in.table_storage_inputs = column<double>(c, "table_storage_inputs", n);
  in.table_storage_outputs = column<double>(c, "table_storage_outputs", n);
  in.table_pooled = column<std::uint8_t>(c, "table_pooled", n);
  in.table_weighted = column<std::uint8_t>(c, "table_weighted", n);
  in.table_usage = column<std::uint8_t>(c, "table_usage", n);
  in.table_virtual = column<std::uint8_t>(c, "table_virtual", n);
  in.table_output_element_size = column<double>(c, "table_output_element_size", n);
  in.table_fwd_a2a = column<double>(c, "table_fwd_a2a", n);
  in.table_bwd_a2a = column<double>(c, "table_bwd_a2a", n);
  in.table_fwd_sr = column<double>(c, "table_fwd_sr", n);
  in.table_bwd_sr = column<double>(c, "table_bwd_sr", n);
  in.table_min_partition = column<std::int64_t>(c, "table_min_partition", n);
  in.table_buckets = column<std::int64_t>(c, "table_buckets", n);
  in.table_prefetch_passes = column<std::int64_t>(c, "table_prefetch_passes", n);
  in.table_optimizer_multiplier = column<double>(c, "table_optimizer_multiplier", n);
  in.table_cache_ratio = column<double>(c, "table_cache_ratio", n);
  in.table_kv_load_factor = column<double>(c, "table_kv_load_factor", n);
  in.table_kv_cache_bytes = column<std::int64_t>(c, "table_kv_cache_bytes", n);
  in.table_expected_lookups = column<double>(c, "table_expected_lookups", n);
  in.table_miss_rate = column<double>(c, "table_miss_rate", n);
  for (const auto buckets : in.table_buckets) {
    if (buckets < 0) throw OutOfRange("negative buckets");
  }
}

void read_menus(const py::dict& c, EstimateInput& in) {
  in.menu_type = column<std::uint8_t>(c, "menu_type");
  const auto n = static_cast<std::ptrdiff_t>(in.menu_type.size());
  in.menu_kernel = column<std::uint8_t>(c, "menu_kernel", n);
  in.menu_bandwidth = column<double>(c, "menu_bandwidth", n);
  in.menu_coefficients = column<std::int32_t>(c, "menu_coefficients", n);
  in.menu_begin = column<std::int64_t>(c, "menu_begin");
  check_enum(in.menu_type, ShardingType::grid_shard, "menu_type");
  check_enum(in.menu_kernel, Kernel::unfused_tpu, "menu_kernel");
  if (in.menu_begin.empty()) throw py::type_error("`menu_begin` must not be empty");
  for (std::size_t i = 0; i < in.menu_begin.size(); ++i) {
    const auto before = i ? in.menu_begin[i - 1] : 0;
    if (in.menu_begin[i] < before || in.menu_begin[i] > n) {
      throw py::type_error("`menu_begin` must be offsets into the menus");
    }
  }
  check_index(in.table_menu, in.menu_begin.size() - 1, "table_menu");
  for (const auto row : py::cast<py::list>(item(c, "coefficients"))) {
    const auto [fwd, bwd] =
        py::cast<std::pair<std::array<double, 4>, std::optional<std::array<double, 4>>>>(row);
    in.coefficients.push_back({fwd, bwd.has_value(), bwd.value_or(std::array<double, 4>{})});
  }
  check_index(in.menu_coefficients, in.coefficients.size(), "menu_coefficients");
}

py::dict estimate_columns(const py::dict& columns) {
  EstimateInput input;
  read_clusters(columns, input);
  read_tables(columns, input);
  read_menus(columns, input);
  const auto cost = function_at<CostFunction>(scalar<std::uintptr_t>(columns, "cost_function"));
  const auto batch = scalar<std::int64_t>(columns, "batch_size");
  SearchSpace space;
  {
    py::gil_scoped_release unlocked;
    std::optional<Pricer> pricer;
    if (cost) pricer.emplace(input, cost, batch);
    space = estimate(input, pricer ? &*pricer : nullptr);
  }
  py::dict out;
  out["table_option_begin"] = array(std::move(space.table_option_begin));
  out["option_type"] = array(std::move(space.option_type));
  out["option_kernel"] = array(std::move(space.option_kernel));
  out["option_key"] = array(std::move(space.option_key));
  out["option_run_begin"] = array(std::move(space.option_run_begin));
  out["run_count"] = array(std::move(space.run_count));
  out["run_rows"] = array(std::move(space.run_rows));
  out["run_cols"] = array(std::move(space.run_cols));
  out["run_fwd_compute"] = array(std::move(space.run_fwd_compute));
  out["run_fwd_comms"] = array(std::move(space.run_fwd_comms));
  out["run_bwd_compute"] = array(std::move(space.run_bwd_compute));
  out["run_bwd_comms"] = array(std::move(space.run_bwd_comms));
  out["run_input_dist_comms"] = array(std::move(space.run_input_dist_comms));
  out["run_prefetch_compute"] = array(std::move(space.run_prefetch_compute));
  out["run_hbm"] = array(std::move(space.run_hbm));
  out["run_ddr"] = array(std::move(space.run_ddr));
  out["run_ssd"] = array(std::move(space.run_ssd));
  return out;
}

PartitionerSettings read_partitioner(const py::dict& c) {
  PartitionerSettings settings;
  settings.memory_balanced = scalar<bool>(c, "memory_balanced");
  settings.sort_by_perf = scalar<bool>(c, "sort_by_perf");
  settings.balance_modules = scalar<bool>(c, "balance_modules");
  settings.max_search_count = scalar<std::int64_t>(c, "max_search_count");
  settings.tolerance = scalar<double>(c, "tolerance");
  return settings;
}

ProposerSettings read_proposer(const py::dict& c) {
  ProposerSettings settings;
  const auto kind = scalar<std::uint8_t>(c, "kind");
  if (kind > static_cast<std::uint8_t>(ProposerKind::dynamic_programming)) {
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

SearchSettings read_settings(const py::dict& c) {
  SearchSettings settings;
  settings.partitioner = read_partitioner(scalar<py::dict>(c, "partitioner"));
  for (const auto proposer : scalar<py::list>(c, "proposers")) {
    settings.proposers.push_back(read_proposer(py::cast<py::dict>(proposer)));
  }
  settings.exhaustive = scalar<bool>(c, "exhaustive");
  settings.timeout_seconds = scalar<double>(c, "timeout_seconds");
  settings.objective = function_at<ObjectiveFunction>(scalar<std::uintptr_t>(c, "objective"));
  settings.interrupted = signal_is_pending;
  return settings;
}

std::vector<std::int64_t> count(const py::dict& problem_columns, const py::dict& settings_columns) {
  const Columns columns = read_problem(problem_columns);
  const SearchSettings settings = read_settings(settings_columns);
  PlanCount result;
  {
    py::gil_scoped_release unlocked;
    result = count_plans(Problem::from(columns), settings);
  }
  if (result.interrupted) throw py::error_already_set();
  return result.plans;
}

py::dict solve(const py::dict& problem_columns, const py::dict& settings_columns) {
  const Columns columns = read_problem(problem_columns);
  const SearchSettings settings = read_settings(settings_columns);
  SearchResult result;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    result = search(problem, settings);
  }
  if (result.status == Status::interrupted) throw py::error_already_set();
  py::dict out;
  out["found"] = result.status == Status::found;
  out["rating"] = result.rating;
  out["best"] = write_chosen(std::move(result.best));
  out["ranks"] = array(std::move(result.ranks));
  out["reports"] = write_reports(result.reports);
  out["evaluated"] = result.evaluated;
  out["lowest"] = write_chosen(std::move(result.lowest));
  out["last"] = write_chosen(std::move(result.last));
  return out;
}

// Proposals [begin, end) of one proposer as rows of option numbers, with the tables' plan order.
py::dict propose(const py::dict& problem_columns, const py::dict& proposer, std::int64_t begin,
                 std::int64_t end) {
  const Columns columns = read_problem(problem_columns);
  const ProposerSettings settings = read_proposer(proposer);
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> order;
  std::int64_t size = 0;
  {
    py::gil_scoped_release unlocked;
    const Problem problem = Problem::from(columns);
    const auto sequence = make_sequence(problem, settings);
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
      : problem_(Problem::from(read_problem(problem_columns))),
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
  Problem problem_;
  Partitioner partitioner_;
  std::optional<Objective> objective_;
};

std::string verify_columns(const py::dict& problem_columns,
                           const py::array_t<std::int32_t, py::array::c_style>& options,
                           const py::array_t<std::int32_t, py::array::c_style>& ranks,
                           double rating, std::uintptr_t objective) {
  const Columns columns = read_problem(problem_columns);
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
  m.def("estimate", &estimate_columns, py::arg("columns"));
  m.def("solve", &solve, py::arg("problem"), py::arg("settings"));
  m.def("count_plans", &count, py::arg("problem"), py::arg("settings"));
  m.def("propose", &propose, py::arg("problem"), py::arg("proposer"), py::arg("begin"),
        py::arg("end"));
  m.def("verify", &verify_columns, py::arg("problem"), py::arg("options"), py::arg("ranks"),
        py::arg("rating"), py::arg("objective") = 0);
  py::class_<Placer>(m, "Placer")
      .def(py::init<const py::dict&, const py::dict&, std::uintptr_t>(), py::arg("problem"),
           py::arg("partitioner"), py::arg("objective") = 0)
      .def("place", &Placer::place, py::arg("options"));
  bind_optimize(m);
  bind_replan(m);
  bind_custom(m);
}
