// A lower bound on what a proposal comes to by a goal, kept up to date while one table changes
// after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "search/goal.h"

namespace fastplan {

// A plan of options o(t) comes at least to
//     sum_t sum_s amount(s) / R + sum_t amount(o(t)),
// over all channels. One addition by option, for walks over all proposals.
class GoalMean {
 public:
  GoalMean(const Problem& problem, const Goal& goal);

  void change(std::int32_t before, std::int32_t after);
  std::int64_t value() const { return all_ / static_cast<std::int64_t>(problem_.ranks()) + own_; }
  const Storage& storage() const { return storage_; }

 private:
  const Problem& problem_;
  const Goal& goal_;
  std::vector<std::int64_t> option_all_;
  std::int64_t all_ = 0, own_ = 0;
  Storage storage_;
};

// A plan of options o(t) comes at least to
//     sum_channel max( sum_t sum_s amount(s) / R,  U + max_t l(o(t)) ) + sum_t amount(o(t)),
// for each channel the average rank, and the rank of the largest shard l that not all ranks hold,
// with the charges that the shard brings and with U of uniform options beside it. A uniform option
// brings its charges to every rank, so that l of it is these charges.
class GoalBound {
 public:
  GoalBound(const Problem& problem, const Goal& goal);

  // Table `t` goes from option `before` (-1: none yet) to `after`.
  void change(std::int32_t before, std::int32_t after);

  // No placement of the present proposal comes to less.
  std::int64_t value() const { return value_ + own_; }
  // The same by channel, without the amounts of options.
  std::span<const std::int64_t> by_channel() const { return bounds_; }

 private:
  // What an option brings to a channel.
  struct Share {
    std::int32_t channel = 0;
    std::int64_t all = 0;      // amounts of all shards
    std::int64_t uniform = 0;  // least amount any rank has
    std::int64_t largest = 0;  // l
    std::size_t leaf = 0;      // of the table in the channel's tournament
  };
  // A tournament over the tables that may bring something to the channel: the largest l.
  struct Channel {
    std::int64_t all = 0;
    std::int64_t uniform = 0;
    std::size_t begin = 0;  // nodes_[begin + 1] is the root, leaves follow from begin + leaves
    std::size_t leaves = 1;
  };
  void add_shares(const Option& option);
  void add_brought(const Option& option, std::int64_t run);
  void grow_tournaments();
  void set_leaf(const Channel& channel, std::size_t leaf, std::int64_t largest);
  void refresh(std::int32_t channel);

  const Problem& problem_;
  const Goal& goal_;
  std::vector<std::size_t> share_begin_{0};  // by option
  std::vector<Share> shares_;
  std::vector<Channel> channels_;
  std::vector<std::int64_t> nodes_;
  std::vector<std::int64_t> bounds_;  // by channel
  std::int64_t value_ = 0, own_ = 0;

  // While shares are made, by channel: what the run at hand brings, and the option's share.
  struct Brought {
    std::int64_t amount = 0;
    std::int64_t charges = 0;
    std::size_t share = 0;  // if not below the option's first
    std::int64_t runs = 0;  // of the option that bring something so far
    bool listed = false;
  };
  std::vector<Brought> brought_;
  std::vector<std::int32_t> listed_;
};

}  // namespace fastplan
