"""The reader of formulas: it agrees with numpy on what it takes and refuses all else with a GatelabError."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest
from scipy import special

from gatelab.data import Expression, parse
from gatelab.errors import GatelabError

X = np.linspace(-0.9, 0.9, 38)

AGREE = [
    ("1/(1+cos(pi*x)**2)", lambda x: 1 / (1 + np.cos(np.pi * x) ** 2)),
    ("-x**2", lambda x: -(x**2)),
    ("2**-x", lambda x: 2.0**-x),
    ("2**3**x", lambda x: 2.0 ** (3.0**x)),
    ("+x - -x", lambda x: 2 * x),
    ("e**x", np.exp),
    ("asin(x) + arccos(x) + atan(x)", lambda x: np.arcsin(x) + np.arccos(x) + np.arctan(x)),
    ("sinh(x) + cosh(x) + tanh(x) + tan(x)", lambda x: np.sinh(x) + np.cosh(x) + np.tanh(x) + np.tan(x)),
    ("log(2+x)*sqrt(1-x)", lambda x: np.log(2 + x) * np.sqrt(1 - x)),
    ("abs(x)*sign(x)", lambda x: x),
    ("erf(x)", special.erf),
    ("minimum(x, 0.25) + maximum(x, x**2)", lambda x: np.minimum(x, 0.25) + np.maximum(x, x**2)),
    ("relu(x)", lambda x: np.where(x > 0, x, 0)),
    ("gelu(x)", lambda x: x / 2 * (1 + special.erf(x / np.sqrt(2)))),
    ("silu(x)", lambda x: x / (1 + np.exp(-x))),
    ("sigmoid(x)", lambda x: 1 / (1 + np.exp(-x))),
    ("  x + 1_000 + 0x10 + 1e-3 ", lambda x: x + 1016.001),
    ("cos(0)*2", lambda x: np.full_like(x, 2.0)),
]


@pytest.mark.parametrize(("text", "numpy_twin"), AGREE, ids=[text for text, _ in AGREE])
def test_agrees_with_numpy(text, numpy_twin):
    np.testing.assert_allclose(parse(text)(X), numpy_twin(X), rtol=4e-15, atol=1e-15)


SEVERAL = [
    ("sin(4*x)*sin(4*y)", 2, lambda v: np.sin(4 * v[0]) * np.sin(4 * v[1])),
    ("x + 0*y + z**2", 3, lambda v: v[0] + v[2] ** 2),
    ("x1", 1, lambda v: v[0]),
    ("maximum(x3, x1*x2) + pi", 3, lambda v: np.maximum(v[2], v[0] * v[1]) + np.pi),
    ("x1+x2+x3+x4+x5+x6+x7+x8+x9", 9, lambda v: v.sum(axis=0)),
]


@pytest.mark.parametrize(("text", "d", "twin"), SEVERAL, ids=[text for text, *_ in SEVERAL])
def test_several_inputs_agree_with_numpy(text, d, twin):
    f = parse(text)
    points = np.random.default_rng(0).uniform(-1, 1, (7, 5, d))
    assert f.d_in == len(f.inputs) == d
    found = f(points if d > 1 else points[..., 0])
    assert found.shape == (7, 5)
    np.testing.assert_allclose(found, twin(np.moveaxis(points, -1, 0)), rtol=4e-15, atol=1e-15)
    assert pickle.loads(pickle.dumps(f)).inputs == f.inputs


@pytest.mark.parametrize("shape", [(), (4, 2)])
def test_several_inputs_refuse_other_shapes(shape):
    f = parse("x*y*z*0 + x")
    with pytest.raises(GatelabError, match=r"has the 3 inputs x, y, z and was given an array of shape .*\(N, 3\)"):
        f(np.zeros(shape))


@pytest.mark.parametrize("shape", [(), (3, 4), (0,)])
def test_keeps_the_shape_and_is_no_alias(shape):
    x = np.zeros(shape)
    for text in ("x", "3", "sin(x)", "x1"):
        value = parse(text)(x)
        assert value.shape == shape and value.dtype == np.float64
        assert not np.shares_memory(value, x)


def test_undefined_values_come_back_silently():
    with np.errstate(all="raise"):
        assert np.isnan(parse("log(x)")(np.array([-1.0]))).all()
        assert np.isinf(parse("1/x")(np.array([0.0]))).all()
        assert np.isnan(parse("x**0.5")(np.array([-1.0]))).all()


def test_pickles_copies_and_compares_by_text():
    f = parse(" exp(sin(3*x)) ")
    for twin in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        assert twin == f
        assert hash(twin) == hash(f)
        assert twin.text == "exp(sin(3*x))" == str(twin)
        assert np.array_equal(twin(X), f(X))
    with pytest.raises(AttributeError):
        f.text = "x"  # type: ignore[misc]


REFUSED = [
    ("__import__('os')", "__import__"),
    ("__import__('os').system('ls')", "is called as a function"),
    ("x.__class__", "which is not"),
    ("lambda: x", "which is not"),
    ("'x'", "which is not"),
    ("True", "which is not"),
    ("2j*x", "which is not"),
    ("x % 2", "which is not"),
    ("sin(*x)", "which is not"),
    ("sin(x=x)", "without keywords"),
    ("exp(x, x)", "takes 1 argument, without keywords, and was given 2"),
    ("maximum(x)", "takes 2 arguments, without keywords, and was given 1"),
    ("sin", "without arguments"),
    ("2(x)", r"product with \*"),
    ("x(2)", r"product with \*"),
    ("eval(x)", "'eval'"),
    ("w + 1", "'w'.*Known.*pi.*x"),
    ("y + 1", "has y but not x; the inputs are x, y, z in this order.*0\\*x"),
    ("x*z", "has z but not y"),
    ("x1 + x4", "has x4 but not x2 and x3; the inputs are x1, x2, x3, ..."),
    ("x + x1", "mixes x and x1; call the inputs x, y, z or x1 to x9, not both"),
    ("x10 + 1", "'x10'"),
    ("sine(x)", "did you mean.*'sin'"),
    ("x^2", r"uses \^; write a power with \*\*"),
    ("9**9**9", "'9\\*\\*9\\*\\*9'.*inf"),
    ("9" * 400, "inf"),
    ("1/0", "'1/0'.*inf"),
    ("(-8)**0.5", "is nan"),
    ("", "give a text"),
    ("sin(x", "never closed at character 4"),
    ("x +", "at character"),
    ("(" * 300 + "x" + ")" * 300, "too many nested parentheses at character"),
    ("-" * 900 + "x", "levels deep"),
    ("x+" * 1000 + "x", "2001 characters"),
    ("ѕin(x)", r"U\+0455"),
    ("𝑥 + 1", r"U\+1D465"),
    ("x\n+1", r"U\+000A"),
    ("\ud800", r"U\+D800"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED, ids=[repr(text[:25]) for text, _ in REFUSED])
def test_refuses(text, says):
    with pytest.raises(GatelabError, match=says) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, b"x", np.array("x")])
def test_refuses_what_is_no_text(value):
    for make in (parse, Expression):
        with pytest.raises(GatelabError, match="give a text such as"):
            make(value)


def test_no_warning_reaches_the_user(recwarn):
    for text in ("0x1for x in x", "'\\d'", "1(x)", "1if 1else x"):
        with pytest.raises(GatelabError):
            parse(text)
    assert not recwarn.list


def test_depth_just_inside_the_limit_is_read():
    assert parse("(" * 100 + "x" + ")" * 100)(X).shape == X.shape
    assert np.allclose(parse("+".join(["x"] * 101))(X), 101 * X)


WORDS = r"""
x e pi sin cos exp log sqrt maximum relu gelu y __class__ lambda for in if else not and is
0 1 2 9 1e308 1e999 .5 3j 0x 1_0 True None 'a' "b" f'{x}' b''
+ - * / ** // % ^ ~ @ & | << >> ( ) [ ] { } , . : := ; = == < > ! # \ ` $ ?
"""
TOKENS = [*WORDS.split(), *[" ", "", "\n", "\t", "\x00", "\ud800", "π", "²", "ｘ", "(x)", "sin(x)", "-x", "**x", "x*"]]


def test_fuzz_raises_nothing_but_gatelab_errors():
    rng = random.Random(0)
    read = 0
    for _ in range(3000):
        if rng.random() < 0.7:
            text = "".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 12)))
        else:
            text = "".join(chr(rng.choice([rng.randint(0, 127), rng.randint(0, 0x10FFFF)])) for _ in range(20))
        try:
            f = parse(text)
        except GatelabError:
            continue
        read += 1
        points = X if f.d_in == 1 else np.stack([X] * f.d_in, axis=-1)
        assert f(points).shape == X.shape
        assert parse(f.text) == f
    assert read > 10
