"""The session that hooks see: the plain graph on the host, whose variables follow those of the cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1


@dataclass(frozen=True)
class _Cone:
    """What a run touches: variables, those it writes, and an op that takes input (or None)."""

    variables: tuple[str, ...]
    written: tuple[str, ...]
    takes: Any


class HostSession(tf.compat.v1.Session):  # type: ignore[misc]
    """Runs parts of the plain graph that do not depend on the input.

    Before a run the variables that it reads get the values that they have on the cores; what it writes goes back there.

    Args:
        graph: the traced graph.
        config: a ``tf.compat.v1.ConfigProto``, or None.
    """

    def __init__(self, graph: Any, config: Any = None) -> None:
        super().__init__(graph=graph, config=guarded(config, parts=True))
        self._cores: TPUSession | None = None
        self._cones: dict[tuple[str, ...], _Cone] = {}
        self._by_name = {v.op.name: v for v in graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)}

    def follow(self, cores: TPUSession | None) -> None:
        """From now on the variables are those of the cores; on their own again when None."""
        self._cores = cores

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """As ``tf.compat.v1.Session.run``.

        Raises:
            RunError: a fetch depends on the input, which the cores take inside the loop.
        """
        if self._cores is None:
            return super().run(fetches, feed_dict, options, run_metadata)
        cone = self._cone(fetches, feed_dict)
        if cone.takes is not None:
            raise RunError(
                f"{_names(fetches)} depends on the input, which the cores take inside the training loop",
                node=f"{cone.takes.name} ({cone.takes.type})",
                fix="fetch the loss, variables or what is made of them; log others with tf.summary; or use_tpu=False",
            )
        held = set(self._cores.variable_names())
        self.set_values(self._cores.values([name for name in cone.variables if name in held]))
        results = super().run(fetches, feed_dict, options, run_metadata)
        written = [name for name in cone.written if name in held]
        if written:
            self._cores.assign(self.values(written))
        return results

    def takes_input(self, tensor: Any) -> bool:
        """Whether a tensor depends on the input."""
        return self._cone(tensor, None).takes is not None

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Give variables values, by name; those that the graph does not know are left out."""
        known = [(self._by_name[name].initializer, value) for name, value in values.items() if name in self._by_name]
        if known:
            feed = {initializer.inputs[1]: value for initializer, value in known}
            super().run([initializer for initializer, _ in known], feed)

    def values(self, names: list[str]) -> dict[str, Any]:
        """The values that variables have here."""
        found = super().run({name: self._by_name[name] for name in names})
        return dict(found)

    def _cone(self, fetches: Any, feed_dict: Any) -> _Cone:
        ends = [self._element(fetch) for fetch in tf.nest.flatten(fetches)]
        fed = {self._element(key).name for key in feed_dict or {}}
        key = (*sorted(str(end.name) for end in ends if end is not None), "fed", *sorted(fed))
        if key not in self._cones:
            self._cones[key] = self._walk([end for end in ends if end is not None], fed)
        return self._cones[key]

    def _element(self, value: Any) -> Any:
        if isinstance(value, (tf.SparseTensor, tf1.SparseTensorValue)):
            value = value.values
        return None if value is None else self.graph.as_graph_element(value)

    def _walk(self, ends: list[Any], fed: set[str]) -> _Cone:
        stack = [end if isinstance(end, tf.Operation) else end.op for end in ends if end.name not in fed]
        seen = set(stack)
        variables: dict[str, None] = {}
        written: dict[str, None] = {}
        takes = None
        while stack:
            op = stack.pop()
            if op.type in ops.VARIABLES:
                variables[op.name] = None
            if op.type in ops.WRITES:
                written.update((op.inputs[i].op.name, None) for i in ops.WRITES[op.type].variables)
            if op.type in ops.INPUTS and op.type not in ops.PLACEHOLDERS:
                takes = takes or op
            before = [tensor.op for tensor in op.inputs if tensor.name not in fed]
            for producer in (*before, *op.control_inputs):
                if producer not in seen:
                    seen.add(producer)
                    stack.append(producer)
        return _Cone(tuple(variables), tuple(written), takes)


def _names(fetches: Any) -> str:
    found = [f"'{getattr(fetch, 'name', fetch)}'" for fetch in tf.nest.flatten(fetches)]
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
