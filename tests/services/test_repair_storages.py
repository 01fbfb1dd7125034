"""Repairs on real storages: carried out and taken back byte for byte, also when they are killed in between."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from repair.engine_cases import KINDS, Case, changes, killed, moments

from lastgood.recovery.room import open_recovery
from lastgood.storage import parse_location
from lastgood.writing import HdfsWriter, open_writable, require_exclusive_create

pytestmark = pytest.mark.services

KILLS = 3
SEED = os.environ.get("LASTGOOD_SEED", "1")
MakeCase = Callable[[str], Case]


@pytest.fixture(params=["local", "s3", pytest.param("hdfs", marks=pytest.mark.proof)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCase:
    """Makes a checkpoint of its own on one kind of storage."""
    options = None
    if request.param == "local":
        root = str(tmp_path)
    elif request.param == "s3":
        root, options = "s3a://lake", request.getfixturevalue("s3").options
    else:
        cluster = request.getfixturevalue("hdfs")
        root, options = f"{cluster.uri}/lake", cluster.options

    def new(kind: str) -> Case:
        location = parse_location(f"{root}/{uuid.uuid4().hex}/orders")
        storage = open_writable(location, options)
        require_exclusive_create(storage, location)
        return Case(kind, storage, location)

    return new


@pytest.mark.parametrize("kind", KINDS)
def test_plan_is_carried_out_and_taken_back_on_this_storage(make: MakeCase, kind: str) -> None:
    case = make(kind)
    case.engine().apply("proof")
    assert case.files() == case.wanted
    case.engine().undo("proof")
    assert case.files() == case.before


@pytest.mark.parametrize("kind", ["lift", "cut"])
def test_killed_on_this_storage_it_is_finished_or_taken_back(make: MakeCase, kind: str) -> None:
    chosen = random.Random(f"{SEED}/{kind}")
    count = len(changes(make(kind), lambda engine: engine.apply("proof")))
    for moment in chosen.sample(list(moments(count)), KILLS):
        case = make(kind)
        is_quick = not isinstance(case.storage, HdfsWriter)  # to look at all files at every change takes a minute there
        killed(case, lambda engine: engine.apply("proof"), watch=is_quick, **moment)
        if chosen.random() < 0.5:
            case.engine().apply("proof")
            assert case.files() == case.wanted, moment
        else:
            case.engine().undo("proof")
            assert case.files() == case.before, moment
        assert open_recovery(case.storage, case.location) is None
