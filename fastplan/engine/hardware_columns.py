"""The hardware costs of a request as columns of the native core."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastplan.model.request import HardwareCosts

_NO_CURVES = (None, None)


def hardware_columns(hardware: HardwareCosts) -> dict[str, Any]:
    """Returns the columns of the hardware costs."""
    return {
        "hardware_constants": np.array(hardware.constants, np.float64),
        "hardware_domain_ranks": hardware.domain_ranks,
        "hardware_states": np.array(hardware.states, np.float64),
        **_curve_columns(hardware),
    }


def _curve_columns(hardware: HardwareCosts) -> dict[str, Any]:
    """Returns two curves per table, one after the other; empty ones for tables without any."""
    curves = [curve for own in hardware.ids for curve in (own or _NO_CURVES)]
    points = [0 if curve is None else len(curve.x) for curve in curves]
    known = [curve for curve in curves if curve is not None]
    return {
        "hardware_curve_begin": np.cumsum([0, *points], dtype=np.int64),
        "hardware_curve_x": np.array([x for curve in known for x in curve.x], np.float64),
        "hardware_curve_y": np.array([y for curve in known for y in curve.y], np.float64),
    }
