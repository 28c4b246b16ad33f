"""Programs that campaigns found wrong once, simplified: those of fields, and compositions of ops."""

GENERATED = """
first=map_rows open=True
first=map_rows second=images
first=running_sum third=loop_fixed open=True
second=scan loss=softmax_of_rows open=True
first=loop_mean second=softmax_of_rows open=True
second=map_rows third=running_sum
second=loop_fixed third=softmax_of_rows
other=top_k open=True
third=loop_mean other=pairs
second=regrouped
loss=top_k
second=map_rows loss=pairs_of_two
first=regrouped loss=sorted
first=regrouped third=scan
second=loop_fixed third=dilated
first=map_rows third=dilated
second=loop_max third=dilated open=True
front=bag second=shared
front=positions third=regrouped units=2
second=map_rows third=shared
first=loop_mean third=shared open=True
rows=1 front=bag third=shared
rows=1 loss=top_k
rows=1 loss=maximum
rows=1 loss=triplets
rows=1 first=map_rows second=map_rows loss=chosen width=1 units=1
rows=1 second=map_rows other=covariance
"""

COMPOSED = """
composed rows=4 open=1 sizes=22 reverse.0 loop.14
composed rows=2 open=0 sizes=53 halves.33 centre.22
composed rows=4 open=1 sizes=44 stack.17 cumsum.85-1 sort.72-1
composed rows=4 open=1 sizes=43 map_rows.87 sort.58
composed rows=3 open=0 sizes=53 map_rows.13-1 scan.37-2 by_target.71 halves.43-2
composed rows=2 open=0 sizes=33 by_target.72 sort.13
composed rows=4 open=0 sizes=44 map_rows.48-2 cut.20 pick.72 pairs.13 dense.29
composed rows=4 open=1 sizes=55 pairs.32 unstack.28 einsum.5 map_rows.3
composed rows=3 open=1 sizes=34 dense.46 sort.69
composed rows=2 open=0 sizes=22 reduce.40 unstack.84 by_target.85-1 unstack.74 halves.67
composed rows=4 open=1 sizes=33 halves.58-1 norm.88-1 unstack.42 fold.45-2 halves.58
composed rows=3 open=0 sizes=55 centre.43 tile.25 cut.11 stack.66-1 fold.29 loop.3 pairs.25 halves.65
"""

REGRESSIONS = [*GENERATED.strip().splitlines(), *COMPOSED.strip().splitlines()]
"""As a campaign prints them."""
