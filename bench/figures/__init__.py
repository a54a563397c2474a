"""Tables and sentences of README and docs, each generated from a benchmark's result file.

On a page they are between two comments, `<!-- bench/results/cache.json: hits -->` and
`<!-- end -->`: the function `hits` of the module `cache` generates that text.
"""
