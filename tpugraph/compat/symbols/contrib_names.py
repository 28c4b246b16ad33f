"""The packages of ``tf.contrib`` that have something in their place."""

from __future__ import annotations

from tpugraph.compat.symbol_record import Page, Symbol, found_in, gone

_OPS = "tensorflow.python.tpu.ops.tpu_ops"
_V1 = "tensorflow.compat.v1"
_DATA = "tensorflow.compat.v1.data.experimental"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2"
_QUEUES = "it is built on queues that only a Python thread fills, which no TPU input can have"

TPU: Page = {
    **found_in("tpugraph", "TPUEstimator", "a replica of several cores is computed as one"),
    **found_in("tpugraph", "TPUEstimatorSpec RunConfig InputPipelineConfig TPUConfig CrossShardOptimizer"),
    **found_in("tpugraph.compat.pieces.exporters", "export_estimator_savedmodel"),
    **found_in(_OPS, "cross_replica_sum infeed_dequeue infeed_dequeue_tuple infeed_enqueue infeed_enqueue_tuple "
                     "outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue outfeed_enqueue_tuple"),
    **found_in(f"{_V1}.tpu", "initialize_system shutdown_system core replicate shard batch_parallel rewrite "
                             "outside_compilation bfloat16_scope"),
    **found_in("tensorflow.python.tpu.device_assignment", "device_assignment DeviceAssignment"),
    **found_in("tensorflow.python.tpu.topology", "Topology"),
    **found_in("tensorflow.python.tpu.tpu_feed", "InfeedQueue"),
    **found_in("tensorflow.python.tpu.training_loop", "while_loop repeat"),
    **found_in(f"{_V1}.train", "AsyncCheckpointSaverHook=CheckpointSaverHook", "checkpoints are written in the same thread"),
    **found_in("tpugraph.estimator.keras_tpu_model", "keras_to_tpu_model",
               "the logs of an epoch have the loss and the validation, no metrics of training; callbacks are not told of batches"),
    **found_in("tpugraph.estimator.keras_tpu_model", "TPUDistributionStrategy"),
    "profiler": Symbol("@contrib.tpu.profiler"),
    **found_in("tpugraph.compat.pieces.in_memory_evaluation", "TPUInMemoryEvalHook=InMemoryEvaluatorHook",
               "TensorFlow 1.15 names it and has no such class; it is tf.estimator.experimental.InMemoryEvaluatorHook"),
}  # fmt: skip

TPU_PROFILER: Page = found_in("tensorflow.tsl.profiler.protobuf.trace_events_pb2", "Trace Resource Device TraceEvent")

TPU_INSIDE: Page = found_in("tensorflow.python.tpu.tpu_function", "get_tpu_context")

DATA: Page = {
    **found_in(_DATA, "AUTOTUNE map_and_batch parallel_interleave shuffle_and_repeat Counter enumerate_dataset ignore_errors "
                      "get_single_element bucket_by_sequence_length group_by_reducer group_by_window Reducer "
                      "choose_from_datasets sample_from_datasets make_saveable_from_iterator parse_example_dataset "
                      "copy_to_device prefetch_to_device RandomDataset CsvDataset make_batched_features_dataset "
                      "make_csv_dataset SqlDataset rejection_resample scan unique TFRecordWriter get_next_as_optional "
                      "Optional dense_to_sparse_batch unbatch"),
    **found_in("tpugraph.compat.pieces.contrib_data", "batch_and_drop_remainder padded_batch_and_drop_remainder "
               "sloppy_interleave sliding_window_batch assert_element_shape reduce_dataset"),
    **found_in(_DATA, "read_batch_features=make_batched_features_dataset", "it returns the Dataset, not tensors of it"),
    **gone("StatsAggregator latency_stats set_stats_aggregator", "TensorFlow 2 collects no statistics of inputs any more",
           "tf.profiler, which shows where an input waits"),
    **gone("LMDBDataset", "TensorFlow has no reader of LMDB files any more", "tf.data.TFRecordDataset"),
    **gone("CheckpointInputPipelineHook", "the position of an input is not saved",
           "tf.data.experimental.make_saveable_from_iterator in a Saver of your own"),
}  # fmt: skip

CLUSTER_RESOLVER: Page = {
    **found_in("tpugraph", "TPUClusterResolver", "names of TPUs are not looked up: give an address, or 'local'"),
    **found_in("tensorflow.compat.v1.distribute.cluster_resolver", "ClusterResolver SimpleClusterResolver "
               "UnionClusterResolver=UnionResolver GCEClusterResolver KubernetesClusterResolver SlurmClusterResolver "
               "TFConfigClusterResolver"),
}  # fmt: skip

TRAINING: Page = {
    **found_in("tpugraph.compat.pieces.hparams", "HParams parse_values"),
    **found_in("tf_slim.training.evaluation", "checkpoints_iterator evaluate_once evaluate_repeatedly get_or_create_eval_step "
               "StopAfterNEvalsHook SummaryAtEndHook wait_for_new_checkpoint"),
    **found_in("tf_slim.training.training", "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op "
               "multiply_gradients train"),
    **gone("HParamDef", "it was the protobuf behind HParams", "HParams.to_json()"),
    **gone("bucket bucket_by_sequence_length rejection_sample resample_at_rate stratified_sample weighted_resample "
           "batch_sequences_with_states NextQueuedSequenceBatch SequenceQueueingStateSaver FeedingQueueRunner", _QUEUES,
           "tf.data, such as tf.data.experimental.bucket_by_sequence_length and rejection_resample"),
    **gone("RandomStrategy GreedyLoadBalancingStrategy byte_size_load_fn", "there are no parameter servers",
           "nothing: variables are on the cores"),
    **gone("FailureTolerator Tuner", "no program was found that uses it", "a loop of your own around train"),
}  # fmt: skip

SUMMARY: Page = {
    **found_in(_SUMMARY, "scalar histogram image audio generic create_file_writer create_summary_file_writer "
               "always_record_summaries never_record_summaries record_summaries_every_n_global_steps "
               "should_record_summaries all_summary_ops=all_v2_summary_ops flush initialize "
               "summary_writer_initializer_op graph eval_dir import_event SummaryWriter"),
    **gone("create_db_writer", "TensorFlow writes summaries to no database any more", "tf.contrib.summary.create_file_writer"),
}  # fmt: skip
"""In the model itself nothing runs them by itself; in a host call they run in each step."""

FRAMEWORK: Page = {
    **found_in(f"{_V1}.train", "get_global_step get_or_create_global_step create_global_step assert_global_step "
               "init_from_checkpoint list_variables load_variable load_checkpoint"),
    **found_in(_V1, "nest is_tensor"),
    **found_in("tensorflow", "sort argsort"),
}  # fmt: skip
"""What tf_slim does not have of it; the rest comes from there."""

OPT: Page = {
    **found_in("tpugraph.compat.pieces.contrib_optimizers", "AdamWOptimizer MomentumWOptimizer LARSOptimizer "
               "LazyAdamOptimizer extend_with_decoupled_weight_decay DecoupledWeightDecayExtension"),
}  # fmt: skip

LAYERS: Page = found_in("tf_slim", "optimize_loss OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES l1_regularizer l2_regularizer "
                        "l1_l2_regularizer sum_regularizer apply_regularization xavier_initializer xavier_initializer_conv2d "
                        "variance_scaling_initializer summarize_tensor summarize_tensors summarize_collection "
                        "summarize_activation summarize_activations summarize_variables summarize_weights summarize_biases "
                        "instance_norm group_norm adaptive_clipping_fn")  # fmt: skip

ESTIMATOR: Page = {
    **found_in("tpugraph.estimator.heads", "binary_classification_head=BinaryClassHead multi_class_head=MultiClassHead "
               "regression_head=RegressionHead"),
    **found_in("tpugraph.compat.pieces.estimator_functions", "add_metrics clip_gradients_by_norm"),
    **found_in("@estimator.experimental", "stop_if_higher_hook stop_if_lower_hook stop_if_no_increase_hook "
               "stop_if_no_decrease_hook make_early_stopping_hook make_stop_at_checkpoint_step_hook"),
}  # fmt: skip

CRF: Page = {
    **found_in("tpugraph.compat.pieces.crf", "crf_binary_score crf_constrained_decode crf_decode crf_filtered_inputs "
               "crf_log_likelihood crf_log_norm crf_multitag_sequence_score crf_sequence_score crf_unary_score viterbi_decode"),
    **gone("CrfForwardRnnCell CrfDecodeForwardRnnCell CrfDecodeBackwardRnnCell", "they were parts of crf_log_norm and crf_decode",
           "tf.contrib.crf.crf_log_norm or crf_decode"),
}  # fmt: skip

RNN: Page = {
    **found_in("tpugraph.compat.pieces.rnn_cells", "AttentionCellWrapper Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell "
               "CoupledInputForgetGateLSTMCell EmbeddingWrapper HighwayWrapper IndRNNCell IndyGRUCell IndyLSTMCell "
               "InputProjectionWrapper LayerNormBasicLSTMCell LayerNormLSTMCell NASCell OutputProjectionWrapper PhasedLSTMCell "
               "SRUCell UGRNNCell stack_bidirectional_dynamic_rnn stack_bidirectional_rnn"),
    **gone("BidirectionalGridLSTMCell CFNCell CompiledWrapper GLSTMCell GridLSTMCell IntersectionRNNCell MinimalRNNCell NTMCell "
           "TimeFreqLSTMCell WeightNormLSTMCell", "it was an experiment of tf.contrib that no published program was found to use",
           "tf.nn.rnn_cell.LSTMCell, or a class of your own that derives from tf.nn.rnn_cell.RNNCell"),
    **found_in("tpugraph.compat.pieces.fused_rnn", "FusedRNNCell FusedRNNCellAdaptor GRUBlockCell GRUBlockCellV2 LSTMBlockCell "
               "LSTMBlockFusedCell TimeReversedFusedRNN"),
    **found_in("tensorflow.python.ops.rnn", "best_effort_input_batch_size=_best_effort_input_batch_size "
               "transpose_batch_time=_transpose_batch_time"),
    **found_in("tf_keras.src.layers.rnn.legacy_cells", "LayerRNNCell"),
}  # fmt: skip

_PIECES = "tpugraph.compat.pieces"
SEQ2SEQ: Page = {
    **found_in(f"{_PIECES}.decoding", "BasicDecoder BasicDecoderOutput Decoder dynamic_decode"),
    **found_in(f"{_PIECES}.decoding_helpers", "CustomHelper GreedyEmbeddingHelper Helper InferenceHelper SampleEmbeddingHelper "
               "ScheduledEmbeddingTrainingHelper ScheduledOutputTrainingHelper TrainingHelper sequence_loss"),
    **found_in(f"{_PIECES}.attention", "AttentionMechanism BahdanauAttention BahdanauMonotonicAttention LuongAttention "
               "LuongMonotonicAttention hardmax monotonic_attention safe_cumprod"),
    **found_in(f"{_PIECES}.attention_wrapper", "AttentionWrapper AttentionWrapperState"),
    **found_in(f"{_PIECES}.beam_search", "BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState "
               "FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array tile_batch"),
}  # fmt: skip
SEQ2SEQ_INSIDE: Page = {
    **found_in(f"{_PIECES}.attention", "_BaseAttentionMechanism _bahdanau_score _luong_score"),
    **found_in(f"{_PIECES}.attention_wrapper", "_compute_attention"),
}

PREDICTOR: Page = found_in(f"{_PIECES}.predictors", "from_estimator from_saved_model")

_CORES = "it means the cores, which share each batch that the input gives"
DISTRIBUTE: Page = {
    **found_in(f"{_PIECES}.strategies", "CollectiveAllReduceStrategy MirroredStrategy OneDeviceStrategy ParameterServerStrategy "
               "TPUStrategy", _CORES),
    **found_in(f"{_PIECES}.strategies", "DistributeConfig DistributionStrategy=CoreStrategy"),
    **found_in("tensorflow.compat.v1.distribute", "get_replica_context get_strategy has_strategy in_cross_replica_context "
               "get_loss_reduction"),
    **gone("AllReduceCrossDeviceOps ReductionToOneDeviceCrossDeviceOps CrossDeviceOps MultiWorkerAllReduce Monitor Step "
           "StandardInputStep StandardSingleLossStep", "the compiler chooses how cores combine their values",
           "nothing: leave it out"),
    **gone("run_standard_tensorflow_server", "there are no TensorFlow servers of workers", "tpugraph run --coordinator"),
    **found_in("tensorflow.compat.v1.tpu", "initialize_tpu_system=initialize_system"),
}  # fmt: skip

PROJECTOR: Page = {
    **found_in("tensorboard.plugins.projector", "ProjectorConfig EmbeddingInfo SpriteMetadata"),
    **found_in(f"{_PIECES}.exporters", "visualize_embeddings"),
}

_LEARN = f"{_PIECES}.contrib_learn"
LEARN: dict[str, Page] = {
    "contrib.learn": {
        **found_in(_LEARN, "Experiment ModeKeys RunConfig"),
        **gone("DNNClassifier DNNRegressor DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNEstimator Estimator "
               "LinearClassifier LinearRegressor LinearEstimator KMeansClustering SVM BaseEstimator Trainable Evaluable SKCompat "
               "MetricSpec ModelFnOps PredictionKey InputFnOps make_export_strategy ExportStrategy "
               "infer_real_valued_columns_from_input infer_real_valued_columns_from_input_fn",
               "it was deprecated with TensorFlow 1.4, and took other arguments", "tf.estimator, which has the same models"),
    },
    "contrib.learn.learn_runner": found_in(_LEARN, "run"),
    "contrib.learn.preprocessing": found_in(_LEARN, "VocabularyProcessor"),
    "contrib.learn.datasets.base": found_in(_LEARN, "Dataset Datasets load_csv_with_header load_csv_without_header"),
}  # fmt: skip

QUANTIZE: Page = gone(
    "create_training_graph create_eval_graph experimental_create_training_graph experimental_create_eval_graph",
    "it put the fake quantization of TensorFlow Lite into a graph, and was dropped with TensorFlow 2",
    "leave it out (most programs have a flag for it), and quantize the exported model",
)
