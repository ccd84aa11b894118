"""The generated version of each task: one small world, told in six ways, and the judge that knows the truth.

``words``: the lexicon. ``scenes``: who did what to what, where, when; what can happen at all; to which part it belongs.
``phrases``, ``english``, ``german``: scenes as sentences and back. ``judging``: what the six judges share. A file for
each task: ``rows`` in the columns of the hub's data set, ``facts`` of a row, ``judge`` of answers. ``raw``: what a raw
model reads.
"""
