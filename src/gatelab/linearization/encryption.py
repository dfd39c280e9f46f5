"""Polynomials evaluated under encryption (CKKS, by TenSEAL), with the parts of the error.

The size N of the modulus limits the number of primes, and so the number of levels. All parameters have 128 bits of
security by SEAL's table (homomorphicencryption.org, ternary secrets).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from gatelab.arrays import Array
from gatelab.display import Compact, counted, one_line
from gatelab.errors import GatelabError
from gatelab.feedforward.gates import Activation
from gatelab.linearization.circuits import CircuitForm, Number, PlainMachine
from gatelab.linearization.polynomials import Polynomial, numbers, to_unit, values
from gatelab.linearization.proofs import bound
from gatelab.plain import to_plain

SECURITY = 128
LARGEST = {4096: 109, 8192: 218, 16384: 438, 32768: 881}  # bits of the whole modulus for that security, by N
END_BITS = 60  # of the first prime, which holds the result, and of the last, for switching keys
LEAST_BITS, MOST_BITS = 36, 50  # of a scale: with fewer, noise exceeds the approximation error; more gain nothing


@dataclass(frozen=True)
class Parameters:
    """Parameters of CKKS.

    Attributes:
        poly_modulus_degree: N; a ciphertext holds N / 2 numbers.
        coeff_mod_bit_sizes: the bits of the primes: one per level between two larger ones.
        scale_bits: numbers are multiplied by two to this power before encryption.
        security: the bits of security, by SEAL's table.
    """

    poly_modulus_degree: int
    coeff_mod_bit_sizes: tuple[int, ...]
    scale_bits: int
    security: int = SECURITY

    def __repr__(self) -> str:
        return one_line(
            self, f"N = {self.poly_modulus_degree}, {counted(self.levels, 'level')}, {self.security} bits of security"
        )

    @property
    def levels(self) -> int:
        """The number of products that can follow one another."""
        return len(self.coeff_mod_bit_sizes) - 2

    @property
    def slots(self) -> int:
        """How many numbers a ciphertext holds."""
        return self.poly_modulus_degree // 2


def parameters_for(levels: int, *, largest: float = 1.0) -> Parameters:
    """The smallest parameters with this number of levels and 128 bits of security.

    Args:
        levels: the number of products that can follow one another.
        largest: the size of the largest number in the computation.

    Returns:
        The `Parameters`.

    >>> parameters_for(4), parameters_for(4).coeff_mod_bit_sizes
    (Parameters(N = 16384, 4 levels, 128 bits of security), (60, 50, 50, 50, 50, 60))
    """
    # The first prime holds the result: scale times the largest number, with a sign and one spare bit.
    available = END_BITS - 2 - max(0, math.ceil(math.log2(max(largest, 1.0))))
    for n, most in LARGEST.items():
        bits = min(MOST_BITS, available, (most - 2 * END_BITS) // max(levels, 1))
        if bits >= LEAST_BITS:
            return Parameters(n, (END_BITS, *[bits] * levels, END_BITS), bits)
    needed = levels * LEAST_BITS + 2 * END_BITS
    raise GatelabError(
        f"{counted(levels, 'level')} of {LEAST_BITS} bits or more and numbers up to {largest:.3g} need a modulus of "
        f"{needed} bits; {SECURITY} bits of security allow {max(LARGEST.values())}: lower the degree or the interval"
    )


class SealMachine(PlainMachine):
    """Ciphertexts and their keys."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        try:
            self.seal = api = import_module("tenseal.sealapi")
        except ImportError:
            raise GatelabError("encryption needs TenSEAL: pip install 'gatelab[encrypted]'") from None
        n = parameters.poly_modulus_degree
        settings = api.EncryptionParameters(api.SCHEME_TYPE.CKKS)
        settings.set_poly_modulus_degree(n)
        settings.set_coeff_modulus(api.CoeffModulus.Create(n, list(parameters.coeff_mod_bit_sizes)))
        # SEAL itself refuses parameters that its table does not call secure.
        self.context = api.SEALContext(settings, True, api.SEC_LEVEL_TYPE.TC128)
        keys, public = api.KeyGenerator(self.context), api.PublicKey()
        keys.create_public_key(public)
        self.relinearize = api.RelinKeys()
        keys.create_relin_keys(self.relinearize)
        self.encryptor, self.encoder = api.Encryptor(self.context, public), api.CKKSEncoder(self.context)
        self.decryptor, self.evaluator = api.Decryptor(self.context, keys.secret_key()), api.Evaluator(self.context)
        self.scale = 2.0**parameters.scale_bits
        self.ids, self.primes = [], []
        data = self.context.first_context_data()
        while data is not None:
            self.ids.append(data.parms_id())
            self.primes.append(data.parms().coeff_modulus()[-1].value())
            data = data.next_context_data()

    def encode(self, content: Any, level: int, scale: float) -> Any:
        """A plain number, or an array of them, as SEAL's plaintext."""
        plain = self.seal.Plaintext()
        if not isinstance(content, float):
            content = np.asarray(content, dtype=np.float64).tolist()
        self.encoder.encode(content, self.ids[level], scale, plain)
        return plain

    def encrypt(self, z: Any) -> Number:
        """A ciphertext of numbers, at most one per slot."""
        cipher = self.seal.Ciphertext(self.context)
        self.encryptor.encrypt(self.encode(z, 0, self.scale), cipher)
        return Number(cipher, 0, self.scale)

    def decrypt(self, a: Number, count: int) -> Array:
        """The first `count` numbers."""
        plain = self.seal.Plaintext()
        self.decryptor.decrypt(a.value, plain)
        return np.asarray(self.encoder.decode_double(plain), dtype=np.float64)[:count]

    def size(self, a: Number) -> int:
        """The bytes of a ciphertext: 8 per coefficient, polynomial and prime."""
        return 8 * a.value.size() * a.value.poly_modulus_degree() * a.value.coeff_modulus_size()

    def lower(self, a: Number, level: int) -> Number:
        if a.level == level:
            return a
        lowered = self.seal.Ciphertext(self.context)
        self.evaluator.mod_switch_to(a.value, self.ids[level], lowered)
        return Number(lowered, level, a.scale)

    def rescale(self, cipher: Any, level: int, scale: float) -> Number:
        """A product at a level, moved to the next."""
        self.evaluator.rescale_to_next_inplace(cipher)
        cipher.scale = scale  # equal up to the last bit of a double
        return Number(cipher, level + 1, scale)

    def product(self, a: Number, b: Number) -> Number:
        level = max(a.level, b.level)
        self.products += 1
        a, b = self.lower(a, level), self.lower(b, level)
        cipher = self.seal.Ciphertext(self.context)
        if a.value is b.value:
            self.evaluator.square(a.value, cipher)
        else:
            self.evaluator.multiply(a.value, b.value, cipher)
        self.evaluator.relinearize_inplace(cipher, self.relinearize)
        return self.rescale(cipher, level, a.scale * b.scale / self.primes[level])

    def combination(self, terms: Sequence[tuple[float, Number]], constant: float, level: int, scale: float) -> Number:
        scale = scale or self.scale
        total = None
        for c, u in terms:
            factor, weight = self.lower(u, level - 1), scale * self.primes[level - 1] / u.scale
            cipher = self.seal.Ciphertext(self.context)
            try:
                self.evaluator.multiply_plain(factor.value, self.encode(c, level - 1, weight), cipher)
            except (RuntimeError, ValueError) as error:
                if "transparent" in str(error):  # a coefficient below the scale's resolution: its term is 0
                    continue
                raise
            if total is None:
                total = cipher
            else:
                cipher.scale = total.scale
                self.evaluator.add_inplace(total, cipher)
        if total is None:
            raise GatelabError("all coefficients are below the resolution of the scale; scale the polynomial")
        result = self.rescale(total, level - 1, scale)
        if constant:
            self.evaluator.add_plain_inplace(result.value, self.encode(constant, level, scale))
        return result

    def add(self, a: Number, b: Number) -> Number:
        if (a.level, a.scale) != (b.level, b.scale):
            level = max(a.level, b.level)
            a, b = self.lower(a, level), self.lower(b, level)
        cipher = self.seal.Ciphertext(self.context)
        b.value.scale = a.value.scale
        self.evaluator.add(a.value, b.value, cipher)
        return Number(cipher, a.level, a.scale)

    def shift(self, a: Number, constant: float) -> Number:
        cipher = self.seal.Ciphertext(self.context)
        self.evaluator.add_plain(a.value, self.encode(constant, a.level, a.scale), cipher)
        return Number(cipher, a.level, a.scale)

    def partner(self, a: Number, level: int, scale: float) -> float:
        return (scale or self.scale) * self.primes[level - 1] / a.scale


@dataclass(frozen=True, eq=False)
class Encrypted(Compact):
    """Decrypted values of a polynomial that was evaluated under encryption, and the parts of their error.

    Attributes:
        values: the values at the inputs.
        approximation: a proved bound on the error of the polynomial; None if there is none for the activation.
        encryption: the largest error due to encryption, measured.
        total: the largest difference from the exact values, measured.
        levels: the number of levels used.
        products: the number of products of ciphertexts.
        seconds: the time of each step: keys, encryption, evaluation, decryption.
        bytes: the size of the ciphertexts sent and returned.
        parameters: the parameters of CKKS.
    """

    values: Array = field(repr=False)
    approximation: float | None
    encryption: float
    total: float
    levels: int
    products: int
    seconds: Mapping[str, float]
    bytes: tuple[int, int]
    parameters: Parameters
    PROPERTIES: ClassVar = ("excess",)  # also in documents

    @property
    def excess(self) -> float | None:
        """The total error minus the proved bound: at most the error due to encryption."""
        if self.approximation is None:
            return None
        return self.total - self.approximation

    def document(self) -> dict[str, Any]:
        """A dict for JSON, without the values."""
        sizes = dict(zip(("sent", "returned"), self.bytes, strict=True))
        return {"numbers": len(self.values), **to_plain(self), "bytes": sizes}


def encrypt_polynomial(polynomial: Polynomial, activation: Activation, x: Any) -> Encrypted:
    """p at the numbers x under encryption; see `Linearization.encrypted`."""
    z, (low, high) = numbers(x), polynomial.interval
    outside = (z < low) | (z > high)
    if outside.any():
        far = z[np.argmax(np.abs(z - (low + high) / 2))]
        raise GatelabError(
            f"{int(outside.sum())} of {len(z)} numbers ({outside.mean():.2%}) lie outside [{low:g}, {high:g}], the "
            f"farthest at {far:.4g}; make the polynomial for a wider interval, such as calibrate(data, margin=0.1)"
        )
    if polynomial.degree == 0:
        raise GatelabError("a polynomial of degree 0 is a plain number; give one of degree 1 or more")
    form = CircuitForm.of(polynomial)
    largest = max(1.0, float(np.abs(polynomial.chebyshev).sum()))
    parameters = parameters_for(form.cost.levels, largest=largest)
    seconds: dict[str, float] = {}

    def timed(step: str, function: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - start
        return result

    machine = timed("keys", SealMachine, parameters)
    t = np.clip(to_unit(z, polynomial.interval), -1, 1)
    outputs, sent, returned = [], 0, 0
    for row in np.array_split(t, math.ceil(len(t) / parameters.slots)):
        cipher = timed("encryption", machine.encrypt, row)
        result = timed("evaluation", form.run, machine, cipher)
        outputs.append(timed("decryption", machine.decrypt, result, len(row)))
        sent, returned = sent + machine.size(cipher), returned + machine.size(result)
    decrypted = np.concatenate(outputs)
    try:
        proved = bound(polynomial, activation).value
    except GatelabError:
        proved = None
    return Encrypted(
        values=decrypted.reshape(np.shape(x)),
        approximation=proved,
        encryption=float(np.abs(decrypted - polynomial(z)).max()),
        total=float(np.abs(decrypted - values(activation, z).numpy()).max()),
        levels=form.cost.levels,
        products=machine.products,
        seconds=seconds,
        bytes=(sent, returned),
        parameters=parameters,
    )
