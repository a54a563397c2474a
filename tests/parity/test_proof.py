"""The self-check notices every change of TorchRec that would make a native plan wrong.

Functions of TorchRec are changed one at a time, and fastplan is kept from noticing. Where its plan
of a small model then differs from TorchRec's, the self-check must find a difference, too.
"""

from collections.abc import Iterator

import pytest

from fastplan.torchrec.support import support
from fastplan.torchrec.support.proof import prove

from . import replaced
from .compare import outcome, quiet
from .replaced import Place, bound, changed, tripled
from .subject import SELF_CHECK, FastPlanner, TorchRecPlanner
from .test_replaced import build, plan_by_torchrec

SHARES = 12

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner has no self-check"),
]


@pytest.fixture
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps fastplan from noticing replaced functions, as if the source had them."""
    with monkeypatch.context() as patches:
        patches.setattr(support._watch, "replaced", dict)
        yield


def is_wrong() -> bool:
    """Whether a native plan differs from TorchRec's now."""
    expected, _ = outcome(TorchRecPlanner, build())
    actual, planner = outcome(FastPlanner, build())
    return expected != actual and planner.last_run.engine == "native"


@pytest.mark.parametrize("share", range(SHARES))
def test_self_check_notices_what_makes_a_plan_wrong(unnoticed: None, share: int) -> None:
    places = replaced.called_functions(plan_by_torchrec)
    missed, found = [], 0
    for place in places[share::SHARES]:
        if (wrong := noticed(place)) is not None:
            found += 1
            if not wrong:
                missed.append(place.title)
    print(f"{found} changes make plans wrong, {len(missed)} of them are missed")
    assert missed == []


def noticed(place: Place) -> bool | None:
    """Whether the self-check notices a changed function; None if native plans stay right."""
    with bound(place, changed(place, tripled)), quiet():
        if not is_wrong():
            return None
        reasons, _ = prove()
        return bool(reasons)
