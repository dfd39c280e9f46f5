"""Maps and surfaces of functions of two variables."""

from __future__ import annotations

import numpy as np

from gatelab.plotting import Plane, draw_plane, draw_surface, new_figure

AXIS = np.linspace(-1, 1, 21)
HINGE = np.column_stack((AXIS, AXIS, np.zeros(21)))
PLANE = Plane(AXIS, AXIS, np.add.outer(AXIS, -AXIS), (HINGE,))


def test_a_map_is_symmetric_about_zero_and_has_its_hinge_in_black() -> None:
    panel = new_figure(3, 3).subplots()
    filled = draw_plane(panel, PLANE, "plane")
    assert np.isclose(filled.levels[0], -2) and np.isclose(filled.levels[-1], 2)
    assert panel.get_title() == "plane" and (panel.get_xlabel(), panel.get_ylabel()) == ("$x_1$", "$x_2$")
    (line,) = panel.get_lines()
    assert line.get_color() == "#010101"
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), AXIS)


def test_a_constant_plane_can_be_drawn() -> None:
    filled = draw_plane(new_figure(3, 3).subplots(), Plane(AXIS, AXIS, np.zeros((21, 21))), "flat")
    assert np.isclose(filled.levels[0], -1) and np.isclose(filled.levels[-1], 1)
    middle = len(filled.levels) // 2 - 1
    assert [len(path.vertices) > 0 for path in filled.get_paths()].index(True) == middle


def test_a_surface_has_its_hinge_upon_it() -> None:
    panel = new_figure(3, 3).add_subplot(projection="3d")
    draw_surface(panel, PLANE, "surface")
    assert len(panel.collections) == 1 and len(panel.get_lines()) == 1
