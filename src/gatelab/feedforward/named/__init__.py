"""The units that have a name: every `Unit` at the top of a module here is registered.

Modules with a `POSITION` are listed first, in its order. None imports torch: lists of units come at once.
"""
