"""Facts about op types, as data: one record per op type. Passes ask here and never look into op names themselves.

The records stand on the pages of this package, by family. What passes ask of many op types at once (which ops write
variables, which are elementwise) is a query over the records: a set in ``sets``. An op without a record gets the careful
answer: what TensorFlow's own op registry says of it, and nothing beyond that.
"""

from __future__ import annotations

from tpugraph.ops.facts import *
from tpugraph.ops.record import *
from tpugraph.ops.registry import *
from tpugraph.ops.sets import *
