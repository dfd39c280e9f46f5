"""The problems that have a name: every `ProblemSpec` at the top of a module here is registered.

A problem of the kind "data" has a `Dataset` of its name beside it. Modules with a `POSITION` are listed first, in its
order. None imports torch: lists of problems come at once.
"""
