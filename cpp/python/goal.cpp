// A goal's columns, read and checked.
#include "search/goal.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "python/boundary.h"

using namespace fastplan;

namespace {

constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;

// Offsets that end in the number of what they are offsets into.
void check_offsets(std::span<const std::int64_t> begin, std::size_t count, const char* name) {
  if (begin.empty() || begin.front() != 0 || !std::is_sorted(begin.begin(), begin.end()) ||
      begin.back() != static_cast<std::int64_t>(count)) {
    throw py::type_error("`" + std::string(name) + "` must rise from 0 to " +
                         std::to_string(count));
  }
}

// The parts that `begin` are offsets into, without those of no amount.
struct Parts {
  std::vector<std::int64_t> begin{0};
  std::vector<Goal::Part> parts;
};

Parts read_parts(std::span<const std::int64_t> begin, std::span<const std::int32_t> channel,
                 std::span<const std::int64_t> amount) {
  Parts read;
  read.begin.reserve(begin.size());
  read.parts.reserve(channel.size());
  for (std::size_t i = 0; i + 1 < begin.size(); ++i) {
    for (auto p = begin[i]; p < begin[i + 1]; ++p) {
      if (amount[p] != 0) read.parts.push_back({channel[p], amount[p]});
    }
    read.begin.push_back(std::ssize(read.parts));
  }
  return read;
}

}  // namespace

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
  auto run_parts = read_parts(begin, channel, amount);
  goal.run_part_begin = std::move(run_parts.begin);
  goal.parts = std::move(run_parts.parts);
  goal.option_amount.assign(own.begin(), own.end());
  goal.run_charge_begin.assign(run_charge_begin.begin(), run_charge_begin.end());
  goal.run_charges.assign(run_charges.begin(), run_charges.end());
  auto charge_parts = read_parts(charge_begin, charge_channel, charge_amount);
  goal.charge_part_begin = std::move(charge_parts.begin);
  goal.charge_parts = std::move(charge_parts.parts);
  return goal;
}
