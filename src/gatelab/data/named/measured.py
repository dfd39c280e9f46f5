"""Measured data: airfoil self-noise and California housing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gatelab.data.specification import Archive, Dataset, ProblemSpec

if TYPE_CHECKING:
    from gatelab.data.tables import Table

POSITION = 4


def read_original(path: Path) -> Table:
    """The table in a file; of StatLib's archive of California housing, scikit-learn's columns."""
    import io
    import tarfile

    import numpy as np

    from gatelab.data.tables import Table, read_table

    if path.suffix.lower() != ".tgz":
        return read_table(path)
    with tarfile.open(path, mode="r:gz") as archive:
        file = archive.extractfile("CaliforniaHousing/cal_housing.data") or io.BytesIO()
        raw = np.loadtxt(io.BytesIO(file.read()), delimiter=",", ndmin=2)
    longitude, latitude, age, rooms, bedrooms, population, households, income, value = raw.T
    averages = rooms / households, bedrooms / households, population, population / households
    return Table(np.column_stack([income, age, *averages, latitude, longitude]), value[:, None] / 100_000.0)


AIRFOIL = ProblemSpec(
    "airfoil", "", "UCI airfoil self-noise, 1503 measurements in a wind tunnel", None, inputs=5, kind="data"
)
AIRFOIL_DATA = Dataset(
    "airfoil",
    Archive(
        "tabular",
        "airfoil_self_noise.dat",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/00291/airfoil_self_noise.dat",
        "74c75fd71783f1e6b71f8a622b993dc592897a97cd689c5090a07147a1b097b3",
    ),
    rows=1503,
    columns=("frequency", "angle", "chord", "speed", "thickness"),
    read=read_original,
)
CALIFORNIA = ProblemSpec(
    "california", "", "California housing, 20640 districts of the census of 1990", None, inputs=8, kind="data"
)
CALIFORNIA_DATA = Dataset(
    "california",
    Archive(
        "tabular",
        "cal_housing.tgz",
        "https://ndownloader.figshare.com/files/5976036",
        "aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
        others=("california_housing.csv.gz",),
    ),
    rows=20640,
    columns=("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude", "Longitude"),
    read=read_original,
)
