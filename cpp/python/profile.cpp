// Streams of ids as handles that Python feeds, and their state as named columns.
#include "profile/id_stream.h"
#include "python/boundary.h"

using namespace fastplan;

namespace {

constexpr std::uint32_t kMostLimit = 1u << 24;

std::span<const std::int64_t> ids_of(const py::array& ids, const char* name) {
  if (!py::isinstance<py::array_t<std::int64_t>>(ids) || ids.ndim() != 1 ||
      !(ids.flags() & py::array::c_style)) {
    throw py::type_error("`" + std::string(name) +
                         "` must be an array of int64, one-dimensional and contiguous");
  }
  check_aligned<std::int64_t>(ids, name);
  return {static_cast<const std::int64_t*>(ids.data()), static_cast<std::size_t>(ids.size())};
}

void add(IdStream& stream, const py::array& ids) {
  const auto values = ids_of(ids, "ids");
  py::gil_scoped_release unlocked;
  stream.add(values);
}

// By name: one function reads and writes them, so that none is left out.
template <typename Totals, typename Visit>
void each_histogram(Totals& totals, Visit visit) {
  visit("hot_times", totals.hot_times);
  visit("cold_times", totals.cold_times);
  visit("hot_distances", totals.hot_distances);
  visit("cold_distances", totals.cold_distances);
}

template <typename T, typename Field>
py::array_t<T> of_known(const std::vector<KnownId>& known, Field field) {
  std::vector<T> values;
  values.reserve(known.size());
  for (const auto& each : known) values.push_back(static_cast<T>(field(each)));
  return array(std::move(values));
}

py::dict columns_of(const IdStream& stream) {
  py::dict out;
  const auto known = stream.known();
  out["id"] = of_known<std::int64_t>(known, [](const auto& each) { return each.id; });
  out["last"] = of_known<std::uint64_t>(known, [](const auto& each) { return each.last; });
  out["count"] = of_known<std::uint64_t>(known, [](const auto& each) { return each.count; });
  out["recent"] = of_known<std::uint32_t>(known, [](const auto& each) { return each.recent; });
  out["state"] = of_known<std::uint8_t>(known, [](const auto& each) { return each.state; });
  out["was_hot"] = of_known<std::uint8_t>(known, [](const auto& each) { return each.was_hot; });
  const auto& totals = stream.totals();
  out["counts"] = array(std::vector<std::uint64_t>{totals.ids, totals.cold_ids, totals.threshold});
  out["weights"] = array(std::vector<double>{totals.cold_weight, totals.first_weight});
  each_histogram(totals, [&](const std::string& name, const Histogram& histogram) {
    out[py::str(name)] = array(std::vector<double>(histogram.weight));
    out[py::str(name + "_sum")] = array(std::vector<double>(histogram.sum));
  });
  out["sketch"] = array(std::vector<std::uint8_t>(stream.sketch().begin(), stream.sketch().end()));
  return out;
}

std::vector<double> weights_in(const py::dict& columns, const std::string& name,
                               std::ptrdiff_t length) {
  const auto values = column<double>(columns, name.c_str(), length);
  // Sums of weights stay finite, whatever a file claims.
  for (const double value : values) {
    if (!(value >= 0 && value <= 1e100)) {
      throw py::type_error("`" + name + "` must be weights from 0 to 1e100");
    }
  }
  return {values.begin(), values.end()};
}

void restore(IdStream& stream, const py::dict& columns) {
  const auto ids = column<std::int64_t>(columns, "id");
  const auto length = static_cast<std::ptrdiff_t>(ids.size());
  const auto last = column<std::uint64_t>(columns, "last", length);
  const auto count = column<std::uint64_t>(columns, "count", length);
  const auto recent = column<std::uint32_t>(columns, "recent", length);
  const auto state = column<std::uint8_t>(columns, "state", length);
  check_enum(state, kLastFollowing, "state");
  const auto was_hot = column<std::uint8_t>(columns, "was_hot", length);
  const auto counts = column<std::uint64_t>(columns, "counts", 3);
  const auto weights = weights_in(columns, "weights", 2);
  StreamTotals totals;
  totals.ids = counts[0];
  totals.cold_ids = counts[1];
  totals.threshold = counts[2];
  totals.cold_weight = weights[0];
  totals.first_weight = weights[1];
  each_histogram(totals, [&](const std::string& name, Histogram& histogram) {
    histogram.weight = weights_in(columns, name, kBins);
    histogram.sum = weights_in(columns, name + "_sum", kBins);
  });
  std::vector<KnownId> known(ids.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    known[i] = {ids[i],         last[i], count[i], 0, recent[i], static_cast<Following>(state[i]),
                was_hot[i] != 0};
  }
  const auto sketch = column<std::uint8_t>(columns, "sketch");
  if (const char* problem = stream.restore(std::move(totals), known, sketch)) {
    throw py::type_error(problem);
  }
}

py::array_t<std::uint64_t> hashes(const py::array& ids) {
  std::vector<std::uint64_t> found;
  found.reserve(static_cast<std::size_t>(ids.size()));
  for (const auto id : ids_of(ids, "ids")) found.push_back(IdStream::hash(id));
  return array(std::move(found));
}

py::array_t<std::uint64_t> bin_edges() {
  std::vector<std::uint64_t> edges;
  for (std::size_t bin = 0; bin < kBins; ++bin) edges.push_back(lower_edge(bin));
  return array(std::move(edges));
}

IdStream make_stream(std::int64_t limit) {
  if (limit < 1 || limit > kMostLimit) {
    throw py::type_error("`limit` must be between 1 and " + std::to_string(kMostLimit) + ", not " +
                         std::to_string(limit));
  }
  return IdStream(static_cast<std::uint32_t>(limit));
}

}  // namespace

void bind_profile(py::module_& m) {
  py::class_<IdStream>(m, "IdStream")
      .def(py::init(&make_stream), py::arg("limit"))
      .def("add", &add, py::arg("ids"))
      .def("columns", &columns_of)
      .def("restore", &restore, py::arg("columns"))
      .def_property_readonly("limit", &IdStream::limit)
      .def_property_readonly("rate", &IdStream::rate)
      .def_property_readonly("ids", [](const IdStream& stream) { return stream.totals().ids; });
  m.def("id_hashes", &hashes, py::arg("ids"));
  m.def("bin_edges", &bin_edges);
}
