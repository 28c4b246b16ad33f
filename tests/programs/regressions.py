"""Programs that campaigns found wrong once, simplified: those of fields, and compositions of ops."""

GENERATED = """
first=map_rows open=True
first=map_rows second=images
first=running_sum third=loop_fixed open=True
second=scan loss=softmax_of_rows open=True
first=loop_mean second=softmax_of_rows open=True
second=map_rows third=running_sum
second=loop_fixed third=softmax_of_rows
second=deviation third=loop_fixed loss=softmax_of_rows
other=top_k open=True
third=loop_mean other=pairs
second=regrouped
rows=1 first=experts
rows=1 first=attention
rows=1 loss=sorted
rows=1 first=gate_of_mean
rows=1 third=shared
rows=1 front=bag third=shared
rows=1 first=map_rows third=shared
rows=4 first=map_rows third=deviation open=True
rows=1 decay=True units=1
rows=1 loss=row_maxima
rows=1 loss=covariance
rows=1 loss=top_k
rows=1 front=positions time=1
rows=1 second=attention_of_rows units=1
rows=1 loss=slope
loss=top_k
rows=4 second=waves loss=triplets units=1
second=map_rows loss=pairs_of_two
second=waves loss=pairs_of_two
first=regrouped loss=sorted
first=regrouped third=scan
second=loop_fixed third=dilated
first=map_rows third=dilated
second=loop_max third=dilated open=True
rows=1 first=loop_mean third=dilated time=4
front=bag second=shared
front=positions third=regrouped units=2
second=map_rows third=shared
first=loop_mean third=shared open=True
second=loop_max third=deviation open=True
first=loop_fixed third=best_rows open=True
rows=1 loss=maximum
rows=1 third=fused_norm open=True
rows=1 other=top_k open=True
rows=1 second=scan loss=sorted open=True
rows=1 first=gate_of_mean second=shared open=True
rows=1 loss=triplets
rows=1 loss=triplets open=True
rows=1 second=attention units=1 open=True
rows=1 other=top_k
rows=1 third=scan loss=covariance clip=centralised time=1
rows=1 second=deviation other=covariance clip=centralised width=1
rows=1 first=row_norm loss=covariance units=1
rows=1 front=one_hot loss=covariance clip=norm_of_columns units=1 vocabulary=3
rows=1 third=fused_norm decay=True units=1
rows=1 second=map_rows third=map_rows
rows=1 first=map_rows second=map_rows loss=chosen width=1 units=1
rows=1 loss=top_k other=pairs
rows=1 first=attention third=fused_norm units=1
rows=1 second=fused_norm clip=centralised
rows=1 second=map_rows third=images loss=triplets
rows=1 second=map_rows other=covariance
rows=1 first=attention second=gate_of_mean units=1
"""

COMPOSED = """
composed rows=4 open=1 sizes=22 reverse.0 loop.14
composed rows=3 open=0 sizes=45 halves.33 table.9
composed rows=2 open=0 sizes=53 halves.33 centre.22
composed rows=4 open=1 sizes=33 pairs.69 halves.82
composed rows=4 open=1 sizes=44 stack.17 cumsum.85-1 sort.72-1
composed rows=3 open=0 sizes=52 pairs.90 merge.11 sort.66
composed rows=4 open=1 sizes=43 map_rows.87 sort.58
composed rows=4 open=0 sizes=35 map_rows.2 halves.87
composed rows=3 open=0 sizes=53 map_rows.13-1 scan.37-2 by_target.71 halves.43-2
composed rows=3 open=0 sizes=55 dense.12 loop.61 by_target.21-2 pad.1-2 by_target.25-2
composed rows=2 open=0 sizes=33 by_target.72 sort.13
composed rows=4 open=0 sizes=44 map_rows.86-2 fold.64 map_rows.16 centre.93-2 einsum.83
composed rows=4 open=0 sizes=44 map_rows.48-2 cut.20 pick.72 pairs.13 dense.29
composed rows=4 open=0 sizes=33 by_target.34 pairs.76 scan.69
composed rows=4 open=1 sizes=55 pairs.32 unstack.28 einsum.5 map_rows.3
composed rows=4 open=0 sizes=33 by_target.90 pick.6 map_rows.15
composed rows=3 open=1 sizes=34 dense.46 sort.69
composed rows=4 open=0 sizes=35 by_target.87 halves.2
composed rows=2 open=0 sizes=22 reduce.40 unstack.84 by_target.85-1 unstack.74 halves.67
composed rows=3 open=0 sizes=53 concat.90 by_target.90 gate.51-2 gate.43
composed rows=4 open=1 sizes=33 halves.58-1 norm.88-1 unstack.42 fold.45-2 halves.58
composed rows=3 open=0 sizes=22 stack.59-1 map_rows.61 dense.3 halves.70
composed rows=3 open=0 sizes=55 centre.43 tile.25 cut.11 stack.66-1 fold.29 loop.3 pairs.25 halves.65
composed rows=3 open=0 sizes=43 tile.83-1 tile.40 pairs.44 sort.17
"""

REGRESSIONS = [*GENERATED.strip().splitlines(), *COMPOSED.strip().splitlines()]
"""As a campaign prints them."""
