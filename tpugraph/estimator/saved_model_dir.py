"""What was learnt: the checkpoints of a folder, and the values in the newest one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.saving import passed_over
from tpugraph.runtime.checkpoints.checkpoint_folder import newest
from tpugraph.support.errors import ArgumentError, CheckpointError


class Learnt:
    """The checkpoints of an estimator."""

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and event files."""
        raise NotImplementedError

    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest whole checkpoint; None where there is none.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        found = newest(Path(self.model_dir), passed_over)
        return None if found is None else str(found)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the newest checkpoint.

        Raises:
            ArgumentError: nothing is trained yet (a ``ValueError``).
        """
        return [name for name, _ in tf.train.list_variables(self._newest())]

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint, as a NumPy array.

        Raises:
            ArgumentError: nothing is trained yet, or there is no such variable (a ``ValueError``).
        """
        newest = self._newest()
        if name not in dict(tf.train.list_variables(newest)):
            raise ArgumentError(f"there is no variable '{name}' in '{newest}'",
                                fix=f"one of {', '.join(self.get_variable_names()[:5])}, ...")  # fmt: skip
        return tf.train.load_variable(newest, name)

    def _newest(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ArgumentError(f"there is no checkpoint in '{self.model_dir}' yet", fix="train first")
        return found

    @property
    def saved_step(self) -> int:
        """The global step of the newest checkpoint; 0 where there is none.

        Raises:
            CheckpointError: it cannot be read.
        """
        found = self.latest_checkpoint()
        if found is None:
            return 0
        try:
            return int(tf.train.load_variable(found, tf.compat.v1.GraphKeys.GLOBAL_STEP))
        except tf.errors.OpError as error:
            raise CheckpointError(f"the checkpoint '{found}' cannot be read: {error.message}") from error
