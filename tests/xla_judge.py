"""XLA's own partitioner as a judge: the plain step over the whole batch, divided by XLA along the rows of its inputs.

The step is converted and lowered for one core, so that no collective of tpugraph is in it. XLA gets one program, is
told that the rows of the inputs are sharded over the devices and that every device holds all variables, and finds by
itself how to divide the rest and where the devices have to talk.
"""

THEMES = {
    "networks and optimizers": "optimizers/lamb_2",
    "convolutions": "images/convolution_2",
    "batch statistics": "statistics/batch_norm_fused_2 statistics/batch_norm_by_hand_2",
    "embeddings": "embeddings/embedding_2 embeddings/two_lookups_adam_2",
    "attention": "attention/bert_2 attention/attention_over_batch_2",
    "rows against rows": "pairs/in_batch_softmax_2 pairs/triplets_2 pairs/sorted_batch_2",
    "numbers of the whole batch": "losses/log_sum_exp_of_batch_2 losses/maximum_of_batch_2",
    "order of the rows": "losses/running_sum_2 loops/scan_over_batch_2 embeddings/segments_2",
    "clipping": "clipping/clip_global_norm_adam_2",
    "several losses": "adversarial/multi_task_2 losses/gradient_penalty_2",
    "loops": "loops/loop_max_2 loops/map_over_batch_2 recurrent/dynamic_rnn_2",
    "branches": "control/accumulate_in_cond_with_average_2 control/branch_by_batch_2",
    "counts": "control/count_rows_2 control/metrics_in_step_2",
}
"""The programs, by what they are about.

Of programs that make cores talk in the same way, with another optimizer or another function of the same rows, one is judged;
``test_programs`` trains the others.
"""

JUDGED = [name for names in THEMES.values() for name in names.split()]
"""What the judge is asked about."""

ONE_LAYER = frozenset({"attention/bert_2"})
"""Those of them that are judged with one layer, as XLA takes as long for each of them again; ``test_programs`` trains two."""
