"""`examples/schedulers/kubernetes`: what Kubernetes makes of the manifests, and what runs in the pods."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from schedulers import SCHEDULERS, Machine, await_, later, trying_again

from lastgood.process.java import Java
from lastgood.settings.config import Config, Pipeline

FOLDER = SCHEDULERS / "kubernetes"
MANIFESTS = ("settings.yaml", "run.yaml", "recover.yaml")
JOBS = {"run.yaml": "run", "recover.yaml": "recover"}
"""Manifest → the container that is lastgood's."""
VERSIONS = ("1.29", "1.33", "1.37")
KILLED_OR_CRASHED = {1, 130, 137, 143}
GIVEN_BY_KUBERNETES = {"POD_NAME"}

Json = dict[str, Any]


def documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def job(name: str) -> Json:
    spec: Json = documents(name)[0]["spec"]
    return spec


def container(name: str) -> Json:
    """That of lastgood."""
    pod = job(name)["template"]["spec"]
    return next(each for each in [*pod.get("initContainers", []), *pod["containers"]] if each["name"] == JOBS[name])


def pipeline(folder: Path) -> Pipeline:
    """What the pod finds in its ConfigMap."""
    file = folder / "lastgood.toml"
    file.write_text(documents("settings.yaml")[0]["data"]["lastgood.toml"])
    return Config(file).pipelines()["orders"]


def action(name: str, code: int) -> str:
    """What the Job does when the container of lastgood exits: by the first rule that fits."""
    for rule in job(name)["podFailurePolicy"]["rules"]:
        wanted = rule.get("onExitCodes")
        if wanted is not None and wanted["containerName"] == JOBS[name]:
            listed = code in wanted["values"]
            if listed == (wanted["operator"] == "In"):
                return str(rule["action"])
    return "Count"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def pod(name: str, machine: Machine) -> subprocess.Popen[str]:
    """The container of lastgood as it stands, on this machine instead of a node."""
    here = container(name)
    mounts = {each["mountPath"]: machine.folder for each in here["volumeMounts"] if each["name"] == "config"}
    mounts |= {each["mountPath"]: machine.folder / "state" for each in here["volumeMounts"] if each["name"] == "state"}
    (machine.folder / "state").mkdir(exist_ok=True)

    def local(path: str) -> str:
        for inside, outside in mounts.items():
            if path == inside or path.startswith(f"{inside}/"):
                return f"{outside}{path.removeprefix(inside)}"
        return path

    env = {each["name"]: local(each["value"]) for each in here["env"] if each["name"] not in GIVEN_BY_KUBERNETES}
    return subprocess.Popen(
        here["command"],
        cwd=local(here["workingDir"]),
        env={**machine.env, **env, "POD_NAME": "orders-x7k2p"},
        text=True,
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_kubernetes_understands_every_line(manifest: str, version: str) -> None:
    import kubernetes_validate

    for document in documents(manifest):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", JOBS)
def test_there_is_never_a_second_pod(name: str) -> None:
    spec = job(name)
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec.get("parallelism", 1) == spec.get("completions", 1) == 1
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    claim = next(each for each in documents("settings.yaml") if each["kind"] == "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_both_jobs_have_one_name_so_that_there_is_one_of_them() -> None:
    assert len({documents(name)[0]["metadata"]["name"] for name in JOBS}) == 1


@pytest.mark.parametrize("name", JOBS)
def test_drained_node_does_not_count(name: str) -> None:
    first = job(name)["podFailurePolicy"]["rules"][0]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_run_gets_another_pod_where_time_mends_it_and_else_only_when_killed() -> None:
    assert {code for code in trying_again() if action("run.yaml", code) == "Ignore"} == later()
    counted = {code for code in range(1, 256) if action("run.yaml", code) == "Count"}
    assert counted == KILLED_OR_CRASHED
    assert {action("run.yaml", code) for code in (3, 71)} == {"FailJob"}


def test_recover_fails_the_job_at_everything_but_being_killed() -> None:
    counted = {code for code in range(1, 256) if action("recover.yaml", code) != "FailJob"}
    assert counted == KILLED_OR_CRASHED


@pytest.mark.parametrize("name", JOBS)
def test_values_of_a_rule_are_in_order_as_kubernetes_wants_them(name: str) -> None:
    for rule in job(name)["podFailurePolicy"]["rules"][1:]:
        values = rule["onExitCodes"]["values"]
        assert values == sorted(set(values))


@pytest.mark.parametrize("name", JOBS)
def test_pod_is_ended_with_more_patience_than_the_grace(name: str, tmp_path: Path) -> None:
    grace = pipeline(tmp_path).policy.grace_seconds
    assert job(name)["template"]["spec"]["terminationGracePeriodSeconds"] > grace


@pytest.mark.parametrize("name", JOBS)
def test_pod_finds_what_it_names(name: str, tmp_path: Path) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in documents("settings.yaml")}
    template = job(name)["template"]
    spec = template["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert ("ServiceAccount", spec["serviceAccountName"]) in there
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in there
    assert ("PersistentVolumeClaim", volumes["state"]["persistentVolumeClaim"]["claimName"]) in there
    asked = pipeline(tmp_path).driver_check
    assert asked[1:] == ("--selector", "app=orders")
    assert template["metadata"]["labels"] == {"app": "orders"}


def test_pod_runs_the_application_to_its_end(machine: Machine, java: Java) -> None:
    machine.end(0)
    process = pod("run.yaml", machine)
    shown, _ = process.communicate()
    assert process.returncode == 0, shown
    assert len(machine.started) == 1
    assert (machine.folder / "state/lastgood/log/orders.log").exists()


def test_pod_may_start_where_a_restart_does_it(machine: Machine) -> None:
    process = pod("recover.yaml", machine)
    shown, _ = process.communicate()
    assert process.returncode == 0
    assert "Start the application now" in shown


def test_pod_fails_where_a_person_is_needed_and_keeps_the_plan(machine: Machine) -> None:
    machine.need_a_person()
    process = pod("recover.yaml", machine)
    shown, _ = process.communicate()
    assert process.returncode == 3
    assert "A person is needed" in shown
    assert len(list((machine.folder / "state/lastgood/plans").iterdir())) == 1


def test_pod_waits_while_somebody_else_is_at_work(machine: Machine) -> None:
    with machine.somebody_at_work():
        process = pod("recover.yaml", machine)
        await_(lambda: len(machine.waited) > 1)
        assert process.poll() is None
    process.communicate()
    assert process.returncode == 0
    assert set(machine.waited) == {"30"}
