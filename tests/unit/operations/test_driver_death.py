from __future__ import annotations

import pytest

from lastgood.operations.driver_death import DriverNotProvenDeadError, prove_driver_dead


def test_a_person_or_a_command_can_know() -> None:
    assert prove_driver_dead("chk", told=True) == "--driver-is-dead was given"
    assert prove_driver_dead("chk", told=False, check=("true",)) == "driver_check: true"


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ((), "neither driver_check in lastgood.toml nor --driver-is-dead"),
        (("sh", "-c", "echo it runs; exit 3"), "exit code 3 it runs"),
        (("/no/such/command",), "No such file"),
        (("sleep", "60"), "timed out"),
    ],
)
def test_silence_is_no_proof(check: tuple[str, ...], found: str) -> None:
    with pytest.raises(DriverNotProvenDeadError) as caught:
        prove_driver_dead("chk", told=False, check=check, seconds=0.2)
    assert found in str(caught.value.found)
