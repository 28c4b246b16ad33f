"""Numbers that divide a sum over the batch and equal the number of what is summed: read as that, which the report says."""

from __future__ import annotations

from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.placing import Placing
from tpugraph.partition.two_readings import constant_behind


def literal_divisors(placing: Placing) -> list[str]:
    """What the user should know of each such number that the loss is divided by, where a flag does not say what it is.

    Of one row, which a number of the model seldom equals but by chance, the report speaks as a whole.
    """
    d = placing.d
    divided = {constant_behind(node.inputs[1]): node for node in d.untold.divisions if node in placing.verdicts}
    return [
        f"'{node.name}' divides a sum over the batch by '{number.name}', which equals the number of rows or elements that are "
        f"summed: read as that; --batch_constants={number.name} if it is, --literals={number.name} if it is of the model"
        for number, node in divided.items()
        if d.rows > 1 and constant_at(number.out()) is not None and d.constants.choice(number.name) is None
    ]
