"""What is so of a query, asked by every verb: the one judge of questions that are not to be answered twice. Pure.

It goes by values (logs, what sinks and brokers said) and knows no storage, no clock, and none of the verbs.
"""
