"""Tables and sentences of README and docs, each written from a benchmark's result file.

A page has them between two comments, `<!-- bench/results/cache.json: hits -->` and `<!-- end -->`:
what stands there is the text of `hits` in the module `cache`.
"""
