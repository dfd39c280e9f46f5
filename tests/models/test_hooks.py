"""Values captured in a model while it runs, and modules replaced for as long."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gatelab.models.hooks import captured, changed_output, replaced


class Pair(nn.Module):
    """A module that is called by name and gives a tuple."""

    def forward(self, states: Tensor) -> tuple[Tensor, str]:
        return states + 1, "beside"


class Model(nn.Module):
    """Calls its part twice."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Pair()

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return self.part(states=self.part(states=x)[0])


X = torch.tensor([1.0, 2.0])


def test_captures_copies_of_inputs_and_outputs_of_every_call_with_their_gradients():
    model = Model()
    with captured({"x": model.part}, {"y": model.part}) as values:
        model(X)
    assert [v.tolist() for v in values["x"]] == [[1, 2], [2, 3]]
    assert [v.tolist() for v in values["y"]] == [[2, 3], [3, 4]]
    model(X)
    assert len(values["x"]) == 2
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    with captured(outputs={"z": model[0]}) as values:
        model(X)
    (z,) = values["z"]
    assert torch.equal(z, model[0](X)) and z.requires_grad


def test_replaces_modules_and_puts_them_back():
    model = Model()
    with replaced({model.part: changed_output(model.part, lambda y: 10 * y)}):
        assert model(X)[0].tolist() == [210, 310] and model(X)[1] == "beside"
    with pytest.raises(RuntimeError, match="stopped"), replaced({model.part: lambda states: (states, "")}):
        assert model(X)[0].tolist() == X.tolist()
        raise RuntimeError("stopped")
    assert "forward" not in vars(model.part) and model(X)[0].tolist() == [3, 4]


def test_what_was_set_on_a_module_itself_comes_back():
    model = Model()
    model.part.forward = own = lambda states: (states, "own")
    with replaced({model.part: lambda states: (states + 5, "")}):
        assert model(X)[0].tolist() == [11, 12]
    assert model.part.forward is own
