"""The parts of ``tf.contrib.learn`` that programs use: experiments, their configuration, data and vocabularies."""

from __future__ import annotations

import csv
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tpugraph.estimator import specs
from tpugraph.estimator.plain_estimator import PlainRunConfig
from tpugraph.estimator.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate


class ModeKeys:
    """The modes of a model function."""

    TRAIN, EVAL, INFER = specs.ModeKeys.TRAIN, specs.ModeKeys.EVAL, specs.ModeKeys.PREDICT


class RunConfig(PlainRunConfig):
    """The RunConfig of ``tf.estimator``; arguments that place a program on devices or a cluster are ignored."""

    def __init__(self, master: Any = None, num_cores: int = 0, log_device_placement: bool = False,
                 gpu_memory_fraction: float = 1, evaluation_master: str = "", **named: Any) -> None:  # fmt: skip
        super().__init__(**named)


class Experiment:
    """An estimator with the inputs to train and evaluate it.

    Args:
        train_steps: the step to train up to; to the end of the data when None.
        eval_steps: the batches of an evaluation; all when None.
        more: of no meaning here: how often workers evaluate, how long they wait, and exports, which an Exporter does.
    """

    def __init__(self, estimator: Any, train_input_fn: Callable[..., Any], eval_input_fn: Callable[..., Any],
                 eval_metrics: Any = None, train_steps: int | None = None, eval_steps: int | None = 100,
                 train_monitors: Iterable[Any] | None = None, eval_hooks: Iterable[Any] | None = None,
                 **more: Any) -> None:  # fmt: skip
        if eval_metrics is not None:
            raise ValueError("eval_metrics are not there any more: a model function gives eval_metric_ops")
        self.estimator, self._train, self._eval = estimator, train_input_fn, eval_input_fn
        self._steps, self._eval_steps = train_steps, eval_steps
        self._hooks, self._eval_hooks = list(train_monitors or ()), list(eval_hooks or ())

    def train(self, delay_secs: float | None = None) -> Any:
        """Train up to ``train_steps``."""
        return self.estimator.train(self._train, self._hooks, max_steps=self._steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> Any:
        """Evaluate the newest checkpoint."""
        return self.estimator.evaluate(self._eval, self._eval_steps, self._eval_hooks, name=name)

    def train_and_evaluate(self) -> Any:
        """Train, and evaluate whenever a checkpoint is saved."""
        train = TrainSpec(self._train, self._steps, self._hooks)
        evaluate = EvalSpec(self._eval, self._eval_steps, hooks=self._eval_hooks, throttle_secs=0)
        return train_and_evaluate(self.estimator, train, evaluate)

    continuous_train_and_eval = train_and_evaluate


def run(experiment_fn: Callable[..., Experiment], output_dir: str | None = None, schedule: str | None = None,
        run_config: Any = None, hparams: Any = None) -> Any:  # fmt: skip
    """Make an experiment of a folder, or of a configuration and hyperparameters, and run what ``schedule`` names."""
    if (output_dir is None) == (run_config is None):
        raise ValueError("either output_dir or run_config should be specified")
    given = {"run_config": run_config, "hparams": hparams} if run_config is not None else {"output_dir": output_dir}
    takes = inspect.signature(experiment_fn).parameters
    words = [value for name, value in given.items() if name in takes] or [v for v in given.values() if v is not None]
    return getattr(experiment_fn(*words), schedule or "train_and_evaluate")()


class Dataset(NamedTuple):
    """Rows and their targets."""

    data: Any
    target: Any


class Datasets(NamedTuple):
    """The three parts of a data set."""

    train: Any
    validation: Any
    test: Any


def _rows(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1, *, skip: int) -> Dataset:
    with open(os.fspath(filename), newline="") as file:
        rows = [row for row in csv.reader(file) if row][skip:]
    targets = [row.pop(target_column) for row in rows]
    return Dataset(np.array(rows, features_dtype), np.array(targets).astype(target_dtype))


load_csv_with_header = partial(_rows, skip=1)
load_csv_without_header = partial(_rows, skip=0)

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|['\w\-]+")


class VocabularyProcessor:
    """Numbers the words of documents in the order in which they occur; 0 stands for other words, and pads.

    Args:
        max_document_length: how many numbers a document becomes.
        min_frequency: words that occur at most so often get no number of their own.
        tokenizer_fn: gives the words of each of some documents.
    """

    def __init__(self, max_document_length: int, min_frequency: int = 0, vocabulary: Any = None,
                 tokenizer_fn: Callable[[Iterable[str]], Iterable[list[str]]] | None = None) -> None:  # fmt: skip
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_: dict[str, int] = dict(vocabulary or {"<UNK>": 0})
        self._tokens = tokenizer_fn or (lambda documents: (_WORD.findall(text) for text in documents))

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learn the words of some documents."""
        for word, count in Counter(word for words in self._tokens(raw_documents) for word in words).items():
            if count > self.min_frequency or not self.min_frequency:
                self.vocabulary_.setdefault(word, len(self.vocabulary_))
        return self

    def transform(self, raw_documents: Iterable[str]) -> Iterator[Any]:
        """An array of numbers for each document."""
        for words in self._tokens(raw_documents):
            numbers = np.zeros(self.max_document_length, np.int64)
            known = [self.vocabulary_.get(word, 0) for word in words[: self.max_document_length]]
            numbers[: len(known)] = known
            yield numbers

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[Any]:
        documents = list(raw_documents)
        return self.fit(documents).transform(documents)
