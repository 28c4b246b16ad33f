"""A ``tf.Session`` that runs TPU ops on emulated cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.client.session import BaseSession

from tpugraph.runtime.counterparts import Counterparts, counterparts_of
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1


class _OnCores:
    """The part of both sessions that puts counterparts in the place of what only a TPU runs."""

    graph: Any
    _config: Any
    _target: Any
    _with_tpu: bool | None = None
    _has_run = False

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None,
            run_metadata: Any = None) -> Any:  # fmt: skip
        """As ``tf.Session.run``.

        Raises:
            RunError: a TPU op that is not emulated, or the first one of a graph that this session has run without.
        """
        held = self._counterparts()
        self._has_run = True
        if held is not None:
            fetches = _in_structure(fetches, partial(_instead, self.graph, held))
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
        self._place_what_runs()
        held.update()
        return held

    def _place_what_runs(self) -> None:
        """See that TensorFlow looks for kernels of what is run, and not of the whole graph with its TPU ops.

        It optimises nothing then, so that sessions are made without. TensorFlow asks for it when a session is made: one in
        which nothing has run is made anew.
        """
        if self._config.graph_options.place_pruned_graph:
            return
        if self._has_run:
            raise RunError("the graph was given its first TPU op after this session had run without",
                           fix="make the graph before the first run, or the session with "
                               "config.graph_options.place_pruned_graph = True")  # fmt: skip
        config = tf1.ConfigProto()
        config.CopyFrom(self._config)
        config.graph_options.place_pruned_graph = True
        BaseSession.__del__(self)  # what was made and not used
        BaseSession.__init__(self, self._target, self.graph, config)


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


def _in_structure(fetches: Any, replace: Callable[[Any], Any]) -> Any:
    """Fetches with each replaced; the keys of a dict, which hooks are in a monitored session, need no order as in tf.nest."""
    if isinstance(fetches, dict):
        found = copy(fetches)  # of its own type, which the result has too
        found.update({key: _in_structure(value, replace) for key, value in fetches.items()})
        return found
    if type(fetches) in (list, tuple):
        return type(fetches)(_in_structure(value, replace) for value in fetches)
    return tf.nest.map_structure(replace, fetches, expand_composites=True)


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
