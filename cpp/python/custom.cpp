// Custom costs and objectives at the boundary: their records as dtypes, their failures as Python
// exceptions that carry the records.
#include "estimate/custom_cost.h"
#include "python/boundary.h"
#include "search/custom_objective.h"

using namespace fastplan;

namespace {

template <typename Record>
py::array records(const Record* first, std::size_t count) {
  return py::array_t<Record>(static_cast<py::ssize_t>(count), first);
}

// Throws on what is none of its business: pybind11 then asks the next translator.
void translate(std::exception_ptr error, const py::handle& type) {
  py::dict facts;
  try {
    std::rethrow_exception(error);
  } catch (const CostFailed& failed) {
    facts["table"] = failed.table;
    facts["shard"] = failed.shard;
    facts["raised"] = failed.raised;
    facts["record"] = records(&failed.record, 1);
    facts["cost"] = records(&failed.cost, 1);
  } catch (const ObjectiveFailed& failed) {
    facts["raised"] = failed.raised;
    facts["rating"] = failed.rating;
    facts["ranks"] = records(failed.ranks.data(), failed.ranks.size());
  }
  PyErr_SetObject(type.ptr(), facts.ptr());
}

}  // namespace

void bind_custom(py::module_& m) {
  PYBIND11_NUMPY_DTYPE(Perf, fwd_compute, fwd_comms, bwd_compute, bwd_comms, input_dist_comms,
                       prefetch_compute);
  PYBIND11_NUMPY_DTYPE(ShardBandwidths, memory, all_to_all, reduce_scatter, all_gather, all_reduce,
                       group_reduce_scatter, group_all_gather, across_all_to_all, hbm_to_ddr);
  PYBIND11_NUMPY_DTYPE(ShardModel, fwd, bwd, prefetch, bwd_compute_multiplier,
                       weighted_bwd_multiplier, weighted_kernel_multiplier, input_element_size,
                       has_bwd, inference, min_dim_table_wise, block_penalty_table_wise,
                       block_penalty_other, input_read_in_bytes, fetches_from_batch_inputs,
                       linear_prefetch);
  PYBIND11_NUMPY_DTYPE(ShardRecord, rows, dim, table_rows, table_dim, shards, element_size, batch,
                       pooling, inputs, outputs, world_size, local_world_size, group_size, hbm, ddr,
                       ssd, cache_ratio, expected_lookups, miss_rate, fwd_a2a, bwd_a2a, fwd_sr,
                       bwd_sr, sharding_type, kernel, pooled, weighted, bandwidths, model, stock,
                       hardware);
  PYBIND11_NUMPY_DTYPE(RankRecord, fwd_compute, fwd_comms, bwd_compute, bwd_comms, input_dist_comms,
                       prefetch_compute, total, hbm, ddr, ssd, host);
  m.attr("SHARD_DTYPE") = py::dtype::of<ShardRecord>();
  m.attr("COST_DTYPE") = py::dtype::of<Perf>();
  m.attr("RANK_DTYPE") = py::dtype::of<RankRecord>();

  // Never freed: the translator may need it until the process ends.
  static const py::handle failed =
      PyErr_NewException("fastplan.engine._native.CustomFailed", PyExc_Exception, nullptr);
  m.attr("CustomFailed") = failed;
  py::register_exception_translator([](std::exception_ptr error) { translate(error, failed); });
}
