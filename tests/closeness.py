"""How tests compare tensors: a tolerance holds for the scale of a whole tensor, since that is what rounding goes by.

The small numbers of a tensor are often differences of large ones, and processors round those in different ways. A series
of losses is no tensor: each is compared by its own scale.
"""

from typing import Any

import numpy as np


def assert_close(found: Any, expected: Any, relative: float, name: str = "") -> None:
    """No element differs by more than ``relative`` times the largest element of what is expected."""
    expected = np.asarray(expected, np.float64)
    scale = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0.0, atol=relative * float(scale), err_msg=name)
