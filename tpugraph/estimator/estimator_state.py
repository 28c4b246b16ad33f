"""What an estimator is between its calls: its folder, its configuration, and the sessions that are kept for the next call."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tpugraph.estimator.arguments import instance
from tpugraph.estimator.exporting import Exports
from tpugraph.estimator.input_tracing import trace_input, trace_training
from tpugraph.estimator.models import Models
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.plain_session import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.requests import Requests
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.saved_model_dir import Learnt
from tpugraph.estimator.tracing import Request, trace_model
from tpugraph.estimator.train import Cores
from tpugraph.estimator.warm_start import settings_of
from tpugraph.support.errors import ArgumentError


class EstimatorState(Learnt):
    """The folder, the configuration and the sessions of an estimator."""

    def _open(self, requests: Requests, model_dir: Any, warm_start_from: Any) -> None:
        """Take what is asked for, once it is checked."""
        requests.check()
        self._config = requests.config.replace(model_dir=_folder(model_dir, requests.config.model_dir))
        self._requests = replace(requests, config=self._config)
        self._warm_start = settings_of(warm_start_from)
        self._cores: Cores | None = None
        self._models = Models(self._config)
        self._exports = Exports()

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and event files."""
        return str(self._config.model_dir)

    @property
    def config(self) -> RunConfig:
        """The run configuration, with the model_dir in use."""
        return self._config

    @property
    def params(self) -> Any:
        """A deep copy of the params."""
        return copy.deepcopy(self._requests.params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model function."""
        return self._requests.model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of the event files of an evaluation."""
        return os.path.join(self.model_dir, "eval" if not name else f"eval_{name}")

    def close(self) -> None:
        """Release the sessions that are kept for the next training; using the estimator again opens new ones."""
        if self._cores is not None:
            self._cores.close()
            self._cores = None
        self._models.close()

    def _replayed(self, input_fn: Callable[..., Any]) -> PlainModel:
        """The plain model of training, to see what went wrong."""
        request = self._requests.of(input_fn, ModeKeys.TRAIN, on_cores=False)
        fed = trace_input(request)
        return PlainModel(trace_model(request, fed), fed.fingerprint, self._config.session_config)

    def _model_on_cores(self, request: Request) -> Cores:
        """The model with this input: the one at hand where the input is the same."""
        fed = trace_input(request)
        if self._cores is not None and self._cores.fingerprint == fed.fingerprint:
            return self._cores
        if self._cores is not None:
            self._cores.close()
        self._cores = Cores(trace_training(request, fed), fed.fingerprint, self._config)
        return self._cores


def _folder(model_dir: Any, configured: str | None) -> str:
    given = None if not model_dir else os.fspath(model_dir)  # "" as a flag that was left out
    if given is not None and configured is not None and given != configured:
        raise ArgumentError(f"model_dir is '{given}', but that of the config is '{configured}'", fix="give one of them")
    found = given or configured
    if found is None:
        found = tempfile.mkdtemp(prefix="tpugraph-")
        say(f"model_dir is the temporary folder {found}")
    return instance("model_dir", found, str, what="a folder")  # type: ignore[no-any-return]
