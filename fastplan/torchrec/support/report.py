"""Prints the verdict on the installed TorchRec as lines of JSON, for `fastplan doctor`.

`python -m fastplan.torchrec.support.report [DRAWS]`: with a number of draws, the self-check runs in
full. Lines with `done`, `of` and `case` show its progress. The last line has the verdict.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any


def main(draws: int = 0) -> None:
    """Prints the verdict, after a full self-check if `draws` is not 0."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    from fastplan.torchrec.fallback import native
    from fastplan.torchrec.support import support
    from fastplan.torchrec.support.watch import PLANNER

    found = native()
    if isinstance(found, str):
        _print(name="", digest="", origin="unusable", reasons={PLANNER: found}, plans=0)
        return
    decided = support.decide()
    reasons, plans = dict(decided.reasons), decided.plans
    if draws:
        from fastplan.torchrec.support.proof import prove
        from fastplan.torchrec.support.proof_cases import cases

        total = draws * len(list(cases()))
        checked, plans = prove(
            draws,
            lambda done, case: _print(done=done, of=total, case=case.name),
            known=decided.reasons,
        )
        reasons |= checked
    _print(
        name=decided.name,
        digest=decided.digest,
        origin=decided.origin,
        reasons=reasons,
        plans=plans,
    )


def _print(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
