"""Draws docs/images/bound.svg: the ranks of two plans, and the rating that no plan can beat.

python -m bench.pictures
"""

import json
import subprocess
import sys
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt

from bench.parts import ROOT

IMAGE = ROOT / "docs" / "images" / "bound.svg"
# A number of moves and not of seconds, so that every machine draws the same picture.
OPTIMIZE = ("--optimize", "--move-budget", "200000")
COLOURS = {"TorchRec's plan": "#b5473c", "optimized plan": "#2b6cb0"}


def main() -> int:
    IMAGE.parent.mkdir(exist_ok=True)
    draw(_plan(), _plan(*OPTIMIZE))
    print(f"written: {IMAGE.relative_to(ROOT)}")
    return 0


def draw(torchrec: dict[str, Any], optimized: dict[str, Any]) -> None:
    """Draws the load of each rank, sorted, with both ratings and the proven bound."""
    style = {"svg.fonttype": "none", "svg.hashsalt": "fastplan", "font.size": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
        bound = optimized["lower_bound"]
        for shift, (name, plan) in enumerate(zip(COLOURS, (torchrec, optimized), strict=True)):
            loads = sorted(plan["costs"]["total"], reverse=True)
            places = [rank + 0.42 * (shift - 0.5) for rank in range(len(loads))]
            label = f"{name}: rating {plan['rating']:.3f} ms"
            axes.bar(places, loads, width=0.4, color=COLOURS[name], label=label)
        label = f"proven bound: no plan is below {bound:.3f} ms"
        axes.axhline(bound, color="#222222", linestyle="--", linewidth=1.2, label=label)
        axes.set_ylim(0, 1.45 * torchrec["rating"])
        axes.set_xlabel("ranks, from the slowest")
        axes.set_ylabel("load of a rank, ms")
        axes.set_xticks([])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(frameon=False, loc="upper right")
        figure.savefig(IMAGE, format="svg", metadata={"Date": None})
        plt.close(figure)


def _plan(*options: str) -> dict[str, Any]:
    words = ["plan", "bench.demo_model:criteo", "--batch-size", "8192", "--sku", "h100"]
    words += ["--world-size", "16", *options, "--json"]
    command = [sys.executable, "-m", "fastplan", *words]
    ended = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
