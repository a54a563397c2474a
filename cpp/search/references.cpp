#include "search/references.h"

namespace fastplan {

Sequences make_sequences(const Problem& problem, const SearchSettings& settings) {
  Sequences sequences;
  for (const auto& proposer : settings.proposers) {
    sequences.push_back(make_sequence(problem, proposer, settings.interrupted));
  }
  return sequences;
}

Chosen choose(const Problem& problem, const Sequences& sequences, const Reference& reference) {
  Chosen chosen;
  chosen.options.resize(problem.tables());
  chosen.proposer = reference.proposer;
  sequences[reference.proposer]->at(reference.index, chosen.options);
  return chosen;
}

void report_failures(const Problem& problem, const Sequences& sequences, const Failures& failures,
                     SearchResult& result) {
  if (!failures.any) return;
  result.lowest = choose(problem, sequences, failures.lowest_at);
  result.last = choose(problem, sequences, failures.last_at);
}

}  // namespace fastplan
