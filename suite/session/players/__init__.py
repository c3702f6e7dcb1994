"""The players of a step's ranks: how they are opened, and in which process they work.

For the steps of this package only.
"""
