from __future__ import annotations

from lastgood.planning.proof import Proof

PROVEN = Proof(is_proven=True, spark="4.2.0", batch=7, reads=("orders/0 10..20",), leaves_open=("the state",))


def test_proof_is_told_in_one_line() -> None:
    assert PROVEN.line == "proven with Spark 4.2.0: next batch 7 reads orders/0 10..20"
    many = Proof(is_proven=True, spark="4.2.0", batch=7, reads=tuple(f"orders/{n} 1..2" for n in range(8)))
    assert many.line.endswith("orders/4 1..2 and 3 more")
    idle = Proof(is_proven=True, spark="4.2.0")
    assert idle.line == "proven with Spark 4.2.0: it starts, and has nothing to read yet"
    assert Proof(is_proven=False, spark="4.2.0", because="no broker").line == "NOT proven: no broker"


def test_proof_is_read_as_it_was_written() -> None:
    assert Proof.from_json(PROVEN.to_json()) == PROVEN
    assert PROVEN.to_json()["line"] == PROVEN.line
