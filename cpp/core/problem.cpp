#include "core/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "core/exact.h"

namespace fastplan {
namespace {

// Far above any real cluster. Products with sizes below 2^53 still fit a 128-bit sum, and loops
// over shards end.
constexpr std::int64_t kMostShards = std::int64_t{1} << 24;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

// Columns that contradict each other are the caller's mistake: a ValueError in Python.
[[noreturn]] void wrong(const std::string& column, const std::string& must) {
  throw std::invalid_argument("`" + column + "` must " + must);
}

// Offsets of something that has at least one entry each, ending at `end`.
void check_offsets(std::span<const std::int64_t> begin, std::size_t end, const char* name) {
  if (begin.empty() || begin.front() != 0) wrong(name, "start with 0");
  if (begin.size() == 1) wrong(name, "have something to begin");
  for (std::size_t i = 1; i < begin.size(); ++i) {
    if (begin[i] <= begin[i - 1]) wrong(name, "increase: nothing may be empty");
  }
  if (begin.back() != static_cast<std::int64_t>(end)) wrong(name, "end with the last row");
}

void check_size(std::int64_t size, const char* name) {
  if (size < 1 || size > kMostRanks) wrong(name, "be between 1 and 2^24");
}

// 0.0 and -0.0 are different here: adding them can give different bits. Costs of input distribution
// are left out, since no sum of TorchRec's has them.
bool same_bits(const Perf& a, const Perf& b) {
  const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  return bits(a.fwd_compute) == bits(b.fwd_compute) && bits(a.fwd_comms) == bits(b.fwd_comms) &&
         bits(a.bwd_compute) == bits(b.bwd_compute) && bits(a.bwd_comms) == bits(b.bwd_comms) &&
         bits(a.prefetch_compute) == bits(b.prefetch_compute);
}

// The values must be such that sums and comparisons of them are what Python's would be: no NaN, no
// infinity, nothing negative.
Run read_run(const Columns& c, std::size_t i) {
  Run run;
  run.count = c.run_count[i];
  run.perf = {c.run_fwd_compute[i], c.run_fwd_comms[i],        c.run_bwd_compute[i],
              c.run_bwd_comms[i],   c.run_input_dist_comms[i], c.run_prefetch_compute[i]};
  run.total = run.perf.total();
  run.storage = {c.run_hbm[i], c.run_ddr[i], c.run_ssd[i]};
  if (run.count < 1 || run.count > kMostShards) wrong("run_count", "be between 1 and 2^24");
  const auto& p = run.perf;
  for (const double part : {p.fwd_compute, p.fwd_comms, p.bwd_compute, p.bwd_comms,
                            p.input_dist_comms, p.prefetch_compute, run.total}) {
    if (!(part >= 0) || std::isinf(part)) {
      throw OutOfRange("a cost is negative, infinite or not a number");
    }
  }
  const auto& s = run.storage;
  if (std::min({s.hbm, s.ddr, s.ssd}) < 0 || std::max({s.hbm, s.ddr, s.ssd}) >= 4 * kLargestSize) {
    throw OutOfRange("a shard's storage is negative or too large");
  }
  return run;
}

// Python's sum() of floats: plain up to 3.11, compensated (Neumaier) from 3.12 on.
class PythonSum {
 public:
  explicit PythonSum(bool compensated) : compensated_(compensated) {}
  void add(double x) {
    const double t = sum_ + x;
    if (compensated_) {
      // Neumaier: what the larger of both has lost of the smaller.
      lost_ += std::fabs(sum_) >= std::fabs(x) ? (sum_ - t) + x : (x - t) + sum_;
    }
    sum_ = t;
  }
  // Python leaves the compensation out where it is no number, as after an overflow.
  double value() const { return compensated_ && std::isfinite(lost_) ? sum_ + lost_ : sum_; }

 private:
  bool compensated_;
  double sum_ = 0;
  double lost_ = 0;
};

// What an option's shards come to. perf_sum is added shard by shard: count x total would round
// differently from TorchRec's sum.
void summarise(Option& option, std::span<const Run> runs, bool compensated) {
  PythonSum plain(false);
  PythonSum score(compensated);
  option.same_perf = true;
  option.perf_min = runs.front().total;
  for (const auto& run : runs) {
    option.shards += run.count;
    if (option.shards > kMostShards) throw OutOfRange("an option has too many shards");
    // Shards are below 2^53 and there are fewer than 2^24 of them: a run fits, and so does the sum
    // as long as it stays below the limit.
    if (static_cast<__int128>(run.count) *
            std::max({run.storage.hbm, run.storage.ddr, run.storage.ssd}) >=
        kLargestSum) {
      throw OutOfRange("a table's storage is too large");
    }
    option.storage_sum += run.count * run.storage;
    if (std::max({option.storage_sum.hbm, option.storage_sum.ddr, option.storage_sum.ssd}) >=
        kLargestSum) {
      throw OutOfRange("a table's storage is too large");
    }
    option.max_hbm = std::max(option.max_hbm, run.storage.hbm);
    option.max_ddr = std::max(option.max_ddr, run.storage.ddr);
    option.perf_max = std::max(option.perf_max, run.total);
    option.perf_min = std::min(option.perf_min, run.total);
    option.same_perf = option.same_perf && same_bits(run.perf, runs.front().perf);
    for (std::int64_t i = 0; i < run.count; ++i) plain.add(run.total);
    if (compensated) {
      for (std::int64_t i = 0; i < run.count; ++i) score.add(run.total);
    }
  }
  option.perf_sum = plain.value();
  option.perf_score = compensated ? score.value() : option.perf_sum;
}

// The options in order, each with what its runs come to.
void read_options(const Columns& c, Problem& problem) {
  problem.options.resize(c.option_type.size());
  for (std::size_t t = 0; t + 1 < c.table_option_begin.size(); ++t) {
    for (auto o = c.table_option_begin[t]; o < c.table_option_begin[t + 1]; ++o) {
      auto& option = problem.options[o];
      option.table = static_cast<std::int32_t>(t);
      if (c.option_type[o] > static_cast<std::uint8_t>(kLastShardingType)) {
        wrong("option_type", "name a sharding type");
      }
      option.type = static_cast<ShardingType>(c.option_type[o]);
      option.kernel = static_cast<Kernel>(c.option_kernel[o]);
      option.reach = reach_of(option.type);
      option.key = c.option_key[o];
      option.run_begin = c.option_run_begin[o];
      option.run_end = c.option_run_begin[o + 1];
      const auto runs = std::span<const Run>(problem.runs);
      summarise(option, runs.subspan(option.run_begin, option.run_end - option.run_begin),
                c.compensated_sum);
    }
  }
}

// No plan, whatever its options, may come to sums that leave exact arithmetic: checked for the
// largest option of every table.
void check_sums(const Problem& problem) {
  __int128 hbm = 0, ddr = 0, ssd = 0;
  double perf = 0;
  for (std::size_t t = 0; t < problem.tables(); ++t) {
    Storage largest;
    double costliest = 0;
    for (auto o = problem.table_option_begin[t]; o < problem.table_option_begin[t + 1]; ++o) {
      const auto& sum = problem.options[o].storage_sum;
      largest.hbm = std::max(largest.hbm, sum.hbm);
      largest.ddr = std::max(largest.ddr, sum.ddr);
      largest.ssd = std::max(largest.ssd, sum.ssd);
      costliest = std::max(costliest, problem.options[o].perf_sum);
    }
    perf += costliest;
    hbm += largest.hbm;
    ddr += largest.ddr;
    ssd += largest.ssd;
  }
  if (std::max({hbm, ddr, ssd}) >= kLargestSum) {
    throw OutOfRange("the model's storage is too large");
  }
  // TorchRec never takes a plan that is rated above the largest int64.
  if (!(perf < static_cast<double>(kLargestSum))) throw OutOfRange("the model costs too much");
}

// Ranks may have less than nothing, where more is reserved than there is.
void check_capacity(std::span<const std::int64_t> capacity, const char* name) {
  __int128 sum = 0;
  for (const __int128 bytes : capacity) sum += bytes < 0 ? -bytes : bytes;
  if (sum >= kLargestSum) {
    throw OutOfRange("`" + std::string(name) + "` comes to 2 EiB or more over all ranks");
  }
}

// What TorchRec's partitioner answers with an assertion or an index error, not a planner error.
void check_reach(const Problem& problem) {
  std::vector<std::int32_t> members;
  for (auto group : problem.table_group) {
    if (group < 0) continue;
    // Tables of each tower.
    if (members.size() <= static_cast<std::size_t>(group)) members.resize(group + 1, 0);
    ++members[group];
  }
  for (const auto& option : problem.options) {
    const auto group = problem.table_group[option.table];
    if (option.reach == Reach::device && group >= 0 && members[group] > 1) {
      throw OutOfRange("tables that share a host have an option that is placed by device");
    }
    if (option.reach == Reach::multi_host && problem.hosts == 0) {
      throw OutOfRange("a grid needs at least one whole host");
    }
  }
}

}  // namespace

Problem Problem::from(const Columns& c) {
  check_offsets(c.table_option_begin, c.option_type.size(), "table_option_begin");
  check_offsets(c.option_run_begin, c.run_count.size(), "option_run_begin");
  if (c.rank_hbm.empty()) wrong("rank_hbm", "have at least one rank");
  check_size(c.local_world_size, "local_world_size");
  check_size(c.group_size, "group_size");

  Problem problem;
  problem.table_option_begin.assign(c.table_option_begin.begin(), c.table_option_begin.end());
  problem.table_module.assign(c.table_module.begin(), c.table_module.end());
  problem.table_group.assign(c.table_group.begin(), c.table_group.end());
  problem.local_world_size = c.local_world_size;
  problem.group_size = c.group_size;

  problem.runs.reserve(c.run_count.size());
  for (std::size_t i = 0; i < c.run_count.size(); ++i) problem.runs.push_back(read_run(c, i));
  problem.run_rows.assign(c.run_rows.begin(), c.run_rows.end());
  problem.run_cols.assign(c.run_cols.begin(), c.run_cols.end());

  read_options(c, problem);

  // Capacities may be any numbers; only their sum must fit.
  check_capacity(c.rank_hbm, "rank_hbm");
  check_capacity(c.rank_ddr, "rank_ddr");
  check_capacity(c.rank_ssd, "rank_ssd");
  for (std::size_t rank = 0; rank < c.rank_hbm.size(); ++rank) {
    problem.capacity.push_back({c.rank_hbm[rank], c.rank_ddr[rank], c.rank_ssd[rank]});
    problem.capacity_sum += problem.capacity.back();
    problem.room += largest_of(problem.capacity.back(), Storage{});
  }
  problem.hosts = static_cast<std::int64_t>(problem.ranks()) / problem.group_size;
  check_sums(problem);
  check_reach(problem);
  return problem;
}

}  // namespace fastplan
