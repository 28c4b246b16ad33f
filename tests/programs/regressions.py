"""Programs that campaigns found wrong once, simplified."""

REGRESSIONS = """
composed rows=2 open=1 sizes=24 pick.0 map_rows.0
composed rows=2 open=0 sizes=24 convolve.0 pick.0 map_rows.0
composed rows=2 open=1 sizes=24 pick.0 cumsum.0 loop.0
composed rows=2 open=1 sizes=24 transpose.2 scan.0 loss=softmax
composed rows=2 open=1 sizes=24 pick.0 settle.0 softmax.0
composed rows=2 open=0 sizes=24 pick.0 map_rows.0 cumsum.0
composed rows=2 open=0 sizes=24 pick.0 loop.0 softmax.0
composed rows=2 open=1 sizes=24 pick.0 dense.1 loss=best
composed rows=2 open=0 sizes=24 pick.0 settle.0 likeness.0
composed rows=2 open=0 sizes=24 pick.0 regroup.0
composed rows=2 open=0 sizes=24 pick.0 map_rows.0 likeness.0
composed rows=2 open=0 sizes=24 pick.0 map_rows.0 loss=of_two
composed rows=2 open=0 sizes=24 pick.0 regroup.0 loss=sorted
composed rows=2 open=0 sizes=24 pick.0 regroup.0 stack.1 transpose.2 scan.0
composed rows=2 open=0 sizes=24 map_rows.0 convolve.1
composed rows=2 open=1 sizes=24 settle.1 convolve.1
composed rows=2 open=0 sizes=24 loop.0 convolve.1
composed rows=2 open=0 sizes=24 embedding.2 beside.0
composed rows=2 open=0 sizes=22 places.0 pick.0 regroup.0
composed rows=2 open=0 sizes=24 pick.0 map_rows.0 beside.0
composed rows=2 open=1 sizes=24 pick.0 settle.0 beside.0
composed rows=1 open=0 sizes=24 embedding.2 beside.0
composed rows=1 open=0 sizes=24 pick.0 loss=best
composed rows=1 open=0 sizes=24 pick.0 loss=maximum_of_batch
composed rows=1 open=0 sizes=24 pick.0 loss=kernel
composed rows=1 open=0 sizes=21 pick.0 map_rows.0 map_rows.0 loss=sum_of_chosen_rows
composed rows=2 open=0 sizes=24 pick.0 map_rows.0 covariance.0
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
""".strip().splitlines()
"""As a campaign prints them."""
