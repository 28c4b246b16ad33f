"""The ways of ``tf.train`` to a session with checkpoints and hooks: what they open runs TPU ops on emulated cores."""

from __future__ import annotations

from types import SimpleNamespace

import tensorflow as tf
from tensorflow.python.training import session_manager

from tpugraph.runtime.tpu_op_fallback import Session

session_manager.session = SimpleNamespace(Session=Session)  # all of the names below open their sessions by it

_train = tf.compat.v1.train
ChiefSessionCreator = _train.ChiefSessionCreator
MonitoredSession = _train.MonitoredSession
MonitoredTrainingSession = _train.MonitoredTrainingSession
SessionManager = _train.SessionManager
SingularMonitoredSession = _train.SingularMonitoredSession
Supervisor = _train.Supervisor
WorkerSessionCreator = _train.WorkerSessionCreator
