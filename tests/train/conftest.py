import pytest


@pytest.fixture(autouse=True)
def trainings_on_one_thread(one_thread: None) -> None:
    pass
