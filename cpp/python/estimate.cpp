// Estimating a search space, for Python.
#include "estimate/estimate.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "estimate/custom_cost.h"
#include "estimate/hardware.h"
#include "python/boundary.h"

using namespace fastplan;

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
  storage.device = enumerator(c, "device_kind", kLastDeviceKind);
  storage.weights_in_ddr = scalar<bool>(c, "weights_in_ddr");
  storage.quant_weights_in_ddr = scalar<bool>(c, "quant_weights_in_ddr");
  storage.pipeline = enumerator(c, "pipeline", kLastPipeline);
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
  check_enum(in.table_usage, kLastUsageType, "table_usage");
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
  check_enum(in.menu_type, kLastShardingType, "menu_type");
  check_enum(in.menu_kernel, kLastKernel, "menu_kernel");
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

EstimateInput read_input(const py::dict& columns) {
  EstimateInput input;
  read_clusters(columns, input);
  read_tables(columns, input);
  read_menus(columns, input);
  return input;
}

HardwareConstants read_constants(std::span<const double> values) {
  if (values.size() != kHardwareConstants) {
    throw py::type_error("`hardware_constants` must have " + std::to_string(kHardwareConstants) +
                         " values");
  }
  for (const double value : values) {
    if (!(value >= 0) || std::isinf(value)) {
      throw OutOfRange("a hardware constant is negative, infinite or not a number");
    }
  }
  std::array<double, kHardwareConstants> copy;
  std::copy(values.begin(), values.end(), copy.begin());
  return std::bit_cast<HardwareConstants>(copy);
}

void check_curve(const Curve& curve) {
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const double before = i ? curve.x[i - 1] : 0;
    if (!(curve.x[i] > before) || std::isinf(curve.x[i])) {
      throw OutOfRange("`hardware_curve_x` must be positive, finite and grow");
    }
    if (!(curve.y[i] >= 0 && curve.y[i] <= 1)) {
      throw OutOfRange("`hardware_curve_y` must be shares between 0 and 1");
    }
  }
}

// Two curves per table, either of which may be empty only if both are; none for no statistics.
std::vector<IdCurves> read_curves(const py::dict& c, std::size_t tables) {
  const auto begin = column<std::int64_t>(c, "hardware_curve_begin");
  const auto x = column<double>(c, "hardware_curve_x");
  const auto y = column<double>(c, "hardware_curve_y", std::ssize(x));
  if (begin.size() == 1 && begin[0] == 0) return {};
  if (begin.size() != 2 * tables + 1) {
    throw py::type_error("`hardware_curve_begin` must have two curves per table");
  }
  std::vector<Curve> curves;
  for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
    if (begin[i] < 0 || begin[i + 1] < begin[i] || begin[i + 1] > std::ssize(x)) {
      throw py::type_error("`hardware_curve_begin` must be offsets into the curves");
    }
    const auto first = static_cast<std::size_t>(begin[i]);
    const auto points = static_cast<std::size_t>(begin[i + 1] - begin[i]);
    curves.push_back({x.subspan(first, points), y.subspan(first, points)});
    check_curve(curves.back());
  }
  std::vector<IdCurves> found;
  for (std::size_t t = 0; t < tables; ++t) {
    found.push_back({curves[2 * t], curves[2 * t + 1]});
    if (found[t].unique.known() != found[t].misses.known()) {
      throw py::type_error("a table must have both curves or none");
    }
  }
  return found;
}

// None where the costs are TorchRec's.
std::optional<HardwareCosts> read_hardware(const py::dict& c, const EstimateInput& input) {
  const auto values = column<double>(c, "hardware_constants");
  if (values.empty()) return std::nullopt;
  HardwareCosts costs;
  costs.constants = read_constants(values);
  costs.domain_ranks = number(c, "hardware_domain_ranks", 1, 1 << 24);
  costs.table_states = column<double>(c, "hardware_states", std::ssize(input.table_rows));
  costs.table_ids = read_curves(c, input.tables());
  return costs;
}

// The hardware model of a request, with what it refers to.
struct RequestModel {
  explicit RequestModel(const py::dict& columns, const EstimateInput& input)
      : costs(read_hardware(columns, input)) {
    if (costs) model.emplace(input, *costs);
  }
  RequestModel(const RequestModel&) = delete;

  const HardwareModel* get() const { return model ? &*model : nullptr; }

  std::optional<HardwareCosts> costs;
  std::optional<HardwareModel> model;
};

// The vectors become numpy arrays without a copy.
void write_estimates(py::dict& out, SearchSpace& space) {
  out["run_fwd_compute"] = array(std::move(space.run_fwd_compute));
  out["run_fwd_comms"] = array(std::move(space.run_fwd_comms));
  out["run_bwd_compute"] = array(std::move(space.run_bwd_compute));
  out["run_bwd_comms"] = array(std::move(space.run_bwd_comms));
  out["run_input_dist_comms"] = array(std::move(space.run_input_dist_comms));
  out["run_prefetch_compute"] = array(std::move(space.run_prefetch_compute));
  out["run_hbm"] = array(std::move(space.run_hbm));
  out["run_ddr"] = array(std::move(space.run_ddr));
  out["run_ssd"] = array(std::move(space.run_ssd));
}

py::dict estimate_columns(const py::dict& columns) {
  const EstimateInput input = read_input(columns);
  const RequestModel hardware(columns, input);
  const auto cost = function_at<CostFunction>(scalar<std::uintptr_t>(columns, "cost_function"));
  const auto batch = scalar<std::int64_t>(columns, "batch_size");
  // The columns of the space, as a Problem takes them.
  SearchSpace space;
  {
    py::gil_scoped_release unlocked;
    std::optional<Pricer> pricer;
    if (cost) pricer.emplace(input, hardware.get(), cost, batch);
    space = estimate(input, hardware.get(), pricer ? &*pricer : nullptr);
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
  write_estimates(out, space);
  return out;
}

py::dict estimate_given(const py::dict& columns, const py::dict& given) {
  const EstimateInput input = read_input(columns);
  const RequestModel hardware(columns, input);
  GivenShards shards;
  shards.option_table = column<std::int32_t>(given, "option_table");
  const auto n = static_cast<std::ptrdiff_t>(shards.option_table.size());
  shards.option_item = column<std::int32_t>(given, "option_item", n);
  shards.option_begin = column<std::int64_t>(given, "option_begin", n + 1);
  shards.rows = column<std::int64_t>(given, "rows");
  const auto number = static_cast<std::ptrdiff_t>(shards.rows.size());
  shards.cols = column<std::int64_t>(given, "cols", number);
  shards.perf = scalar<bool>(given, "perf");
  shards.storage = scalar<bool>(given, "storage");
  check_index(shards.option_table, input.tables(), "option_table");
  check_index(shards.option_item, input.menu_type.size(), "option_item");
  for (std::ptrdiff_t i = 0; i <= n; ++i) {
    const auto before = i ? shards.option_begin[i - 1] : 0;
    const auto begin = shards.option_begin[i];
    if (begin < before || begin > number || (i == 0 && begin != 0)) {
      throw py::type_error("`option_begin` must be offsets into the shards");
    }
  }
  SearchSpace space;
  {
    py::gil_scoped_release unlocked;
    space = estimate_shards(input, shards, hardware.get());
  }
  py::dict out;
  write_estimates(out, space);
  return out;
}

// Times of single lookups, latency included: forward (with the cache's work) and backward.
py::tuple lookup_times(const py::array_t<double>& values, const py::dict& c) {
  const auto constants = read_constants({values.data(), static_cast<std::size_t>(values.size())});
  const auto family = column<std::uint8_t>(c, "family");
  const auto n = std::ssize(family);
  const auto ids = column<double>(c, "ids", n), unique = column<double>(c, "unique", n);
  const auto misses = column<double>(c, "misses", n), outputs = column<double>(c, "outputs", n);
  const auto row = column<double>(c, "row_bytes", n);
  const auto output = column<double>(c, "output_bytes", n);
  const auto states = column<double>(c, "states", n);
  check_enum(family, kLastKernelFamily, "family");
  std::vector<double> forward, backward;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    Lookup l;
    l.ids = ids[i];
    l.unique = unique[i];
    l.misses = misses[i];
    l.outputs = outputs[i];
    l.row_bytes = row[i];
    l.output_bytes = output[i];
    l.states = states[i];
    const auto kind = static_cast<KernelFamily>(family[i]);
    const auto latency = latency_ms(constants, kind);
    forward.push_back(latency.forward + latency.prefetch + forward_ms(constants, kind, l) +
                      prefetch_ms(constants, kind, l));
    backward.push_back(latency.backward + backward_ms(constants, kind, l));
  }
  return py::make_tuple(array(std::move(forward)), array(std::move(backward)));
}

// Times of single exchanges: latency, and the whole.
py::array exchange_times(const py::array_t<double>& values, const py::dict& c) {
  const auto constants = read_constants({values.data(), static_cast<std::size_t>(values.size())});
  const auto kind = column<std::uint8_t>(c, "collective");
  const auto n = std::ssize(kind);
  const auto ranks = column<std::int64_t>(c, "ranks", n);
  const auto domain = column<std::int64_t>(c, "domain_ranks", n);
  const auto bytes = column<double>(c, "bytes", n);
  check_enum(kind, kLastCollective, "collective");
  std::vector<double> times;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    if (ranks[i] < 1 || domain[i] < 1) throw py::type_error("ranks must be positive");
    const auto time =
        exchange_time(constants, static_cast<Collective>(kind[i]), ranks[i], domain[i]);
    times.push_back(time.latency + bytes[i] * time.byte);
  }
  return array(std::move(times));
}

// What shards share: the latencies of kernel families (forward, prefetch, backward), and those of
// the exchanges of each sharding type, without and with pooling (input, forward, forward across,
// backward, backward across).
py::tuple hardware_latencies(const py::dict& columns) {
  const EstimateInput input = read_input(columns);
  const RequestModel hardware(columns, input);
  if (!hardware.get()) throw py::type_error("the request has no hardware costs");
  py::list families;
  for (int family = 0; family <= static_cast<int>(kLastKernelFamily); ++family) {
    const auto l = latency_ms(hardware.costs->constants, static_cast<KernelFamily>(family));
    families.append(py::make_tuple(l.forward, l.prefetch, l.backward));
  }
  py::list types;
  for (int type = 0; type <= static_cast<int>(kLastShardingType); ++type) {
    py::list both;
    for (const bool pooled : {false, true}) {
      const auto& e = hardware.get()->exchanges(static_cast<ShardingType>(type), pooled);
      both.append(py::make_tuple(e.input.latency, e.forward.latency, e.forward_across.latency,
                                 e.backward.latency, e.backward_across.latency));
    }
    types.append(both);
  }
  return py::make_tuple(families, types);
}

}  // namespace

void bind_estimate(py::module_& m) {
  m.def("estimate", &estimate_columns, py::arg("columns"));
  m.def("lookup_times", &lookup_times, py::arg("constants"), py::arg("lookups"));
  m.def("exchange_times", &exchange_times, py::arg("constants"), py::arg("exchanges"));
  m.def("hardware_latencies", &hardware_latencies, py::arg("columns"));
  m.def("estimate_shards", &estimate_given, py::arg("columns"), py::arg("given"));
}
