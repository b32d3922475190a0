"""What this machine has, and whether it is healthy.

Sources read below a root directory (`tree.Tree`) or from recordings (`tree_recorded`, `nvml_recorded`), so that whole
machines can be tests: `astraeus-agent inventory --record DIR` makes them. `machine.Discovery` puts them together on a
thread of its own; the driver's library is only ever asked in another process (`helper`), which may hang without
anybody waiting for it.
"""
