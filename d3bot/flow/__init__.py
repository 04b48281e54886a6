"""The stages in order, tied together: plan, run, judge, compare, confirm, shrink, report."""
