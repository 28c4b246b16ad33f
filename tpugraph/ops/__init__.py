"""Facts about op types, as data: one record per op type. Passes ask here and never look into op names themselves.

The records are in the modules of this package, by family. Queries over many op types (which ops write variables, which are
elementwise) are sets in ``sets``. An op without a record gets the conservative answer: what TensorFlow's op registry says of
it, and nothing beyond.
"""

from __future__ import annotations

from tpugraph.ops.facts import *
from tpugraph.ops.record import *
from tpugraph.ops.registry import *
from tpugraph.ops.sets import *
