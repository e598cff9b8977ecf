"""This package plays scenarios: it has the runs, which join engines and network, the steps of scripts, and the
results.
"""
