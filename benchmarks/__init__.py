"""What Holdfast costs, as ratios to what the same machine can do at best in the same run.

Every benchmark runs in a process of its own and returns figures; nothing is asserted here. Absolute
numbers depend on the machine and on what else it does: compare the ratios, and only within one run.
"""
