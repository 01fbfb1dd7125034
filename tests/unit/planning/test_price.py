"""What has to be accepted before a plan may be carried out."""

from __future__ import annotations

import pytest

from lastgood.planning.price import Guarantee, Waiver, list_waivers_needed


@pytest.mark.parametrize(
    ("guarantee", "accepted", "duplicates", "wanted"),
    [
        (Guarantee.EXACTLY_ONCE, (), False, ()),
        (Guarantee.AT_LEAST_ONCE, (), False, (Waiver.DUPLICATES,)),
        (Guarantee.AT_LEAST_ONCE, (Waiver.DUPLICATES,), False, ()),
        (Guarantee.AT_LEAST_ONCE, (Waiver.LOSS,), False, (Waiver.DUPLICATES,)),
        (Guarantee.LOSSY, (), False, (Waiver.LOSS,)),
        (Guarantee.LOSSY, (Waiver.LOSS,), True, (Waiver.DUPLICATES,)),
    ],
)
def test_what_is_not_exact_has_to_be_accepted(
    guarantee: Guarantee, accepted: tuple[Waiver, ...], duplicates: bool, wanted: tuple[Waiver, ...]
) -> None:
    assert list_waivers_needed(guarantee, accepted, duplicates=duplicates) == wanted
