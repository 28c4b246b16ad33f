"""A ``tf.Session`` that runs TPU ops on emulated cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.runtime.counterparts import Counterparts, counterparts_of

tf1 = tf.compat.v1


class _OnCores:
    """The part of both sessions that puts counterparts in the place of what only a TPU runs."""

    graph: Any
    _with_tpu: bool | None = None

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        super().__init__(target, graph, _placing_what_runs(config))  # type: ignore[call-arg]

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None,
            run_metadata: Any = None) -> Any:  # fmt: skip
        """As ``tf.Session.run``.

        Raises:
            RunError: a TPU op that is not emulated.
        """
        held = self._counterparts()
        if held is not None:
            fetches = tf.nest.map_structure(
                lambda fetch: _instead(self.graph, held, fetch), fetches, expand_composites=True
            )
            feed_dict = _fed(self.graph, held, feed_dict)
        return super().run(fetches, feed_dict, options, run_metadata)  # type: ignore[misc]

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None,
                      accept_options: bool = False) -> Callable[..., Any]:  # fmt: skip
        """As ``tf.Session.make_callable``."""
        if self._counterparts() is None:
            return super().make_callable(fetches, feed_list, accept_options)  # type: ignore[misc, no-any-return]
        keys = list(feed_list or ())

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

        return call

    def _counterparts(self) -> Counterparts | None:
        """Those of the graph; None where it has none, or where there is a TPU."""
        held = counterparts_of(self.graph)
        if self._with_tpu or not held.needed():
            return None
        if self._with_tpu is None:
            self._with_tpu = any(device.device_type == "TPU" for device in self.list_devices())  # type: ignore[attr-defined]
            if self._with_tpu:
                return None
        held.update()
        return held


class Session(_OnCores, tf.compat.v1.Session):  # type: ignore[misc]
    """``tf.Session``: TPU ops run on emulated cores of this machine, all others as ever; on a master with TPUs all run there.

    Args:
        target: as of ``tf.Session``.
        graph: as of ``tf.Session``.
        config: as of ``tf.Session``.
    """


class InteractiveSession(_OnCores, tf.compat.v1.InteractiveSession):  # type: ignore[misc]
    """``tf.InteractiveSession``, as :class:`Session`.

    Args:
        target: as of ``tf.InteractiveSession``.
        graph: as of ``tf.InteractiveSession``.
        config: as of ``tf.InteractiveSession``.
    """


def _placing_what_runs(config: Any) -> Any:
    """The configuration under which TensorFlow looks for kernels of what is run, not of the whole graph with its TPU ops."""
    found = tf1.ConfigProto()
    if config is not None:
        found.CopyFrom(config)
    found.graph_options.place_pruned_graph = True
    return found


def _instead(graph: Any, held: Counterparts, fetch: Any) -> Any:
    """What is run for a fetch, feed or name of one."""
    try:
        element = graph.as_graph_element(fetch)
    except (KeyError, TypeError, ValueError):  # TensorFlow says so in its own words
        return fetch
    found = held.of(element)
    return fetch if found is None else found


def _fed(graph: Any, held: Counterparts, feed: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """A feed dict that feeds a tensor and what stands for it."""
    given = dict(feed or {})
    return given | {found: value for key, value in given.items() if (found := _instead(graph, held, key)) is not key}
