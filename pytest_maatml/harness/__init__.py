"""A rollout put together: what it is to run, the environment and policy opened, its families run.

Knows models, records and gates, and neither pytest nor the command line.
"""
