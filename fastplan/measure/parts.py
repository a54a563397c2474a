"""The parts of a step that are timed, and what planners estimate for them."""

from __future__ import annotations

PARTS = ("input_dist", "lookup", "output_dist", "backward")

NAMES = {
    "input_dist": "input dist",
    "lookup": "lookup",
    "output_dist": "output dist",
    "backward": "backward + update",
}

# Parts of TorchRec's estimate, by what is measured.
ESTIMATED = {
    "input_dist": ("input_dist",),
    "lookup": ("fwd_compute", "prefetch"),
    "output_dist": ("fwd_comms",),
    "backward": ("bwd_compute", "bwd_comms"),
}
