"""The examples that start a training on a cluster are well formed, and their parts agree with one another."""

import math
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tpugraph.cli import flags
from tpugraph.cli.commands import COMMANDS
from tpugraph.xla.mesh import Mesh

EXAMPLES = Path(__file__).parents[2] / "examples"
SLURM = EXAMPLES / "slurm.sh"


def parsed(words: list[str]) -> flags.Parsed:
    """What a command line of an example asks for: each host must come up again with it."""
    assert words[:2] == ["tpugraph", "run"]
    found = flags.parse(COMMANDS["run"], words[2:])
    assert found["distributed"] == "auto"
    assert found["max_steps"]  # --steps would train so many more after each restart
    assert found["model_dir"]
    return found


def test_the_jobset() -> None:
    jobset = yaml.safe_load((EXAMPLES / "jobset.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    policy, [hosts] = jobset["spec"]["failurePolicy"], jobset["spec"]["replicatedJobs"]
    assert policy["maxRestarts"] > 0
    assert policy["rules"][0]["onJobFailureReasons"] == ["PodFailurePolicy"]
    job = hosts["template"]["spec"]
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    found = parsed(container["command"])
    chips = math.prod(map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")))
    of_a_host = container["resources"]["limits"]["google.com/tpu"]
    assert hosts["replicas"] * job["parallelism"] * of_a_host == chips == Mesh.parse(found["mesh"]).size
    assert (job["completions"], job["backoffLimit"], pod["restartPolicy"]) == (job["parallelism"], 0, "Never")
    by_code: list[Any] = [rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert by_code == [{"containerName": container["name"], "operator": "In", "values": [143]}]
    [mount], [volume] = container["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    assert all(Path(path).is_relative_to(mount["mountPath"]) for path in (found.model, found["model_dir"]))


@pytest.mark.parametrize(("code", "requeued"), [(0, ""), (143, "requeue 7\n"), (2, "")])
def test_the_slurm_script(code: int, requeued: str, tmp_path: Path) -> None:
    """It starts again only what was told to stop; srun and scontrol are stand-ins that write down what they are given."""
    for name, end in (("srun", code), ("scontrol", 0)):
        (tmp_path / name).write_text(f'#!/bin/bash\necho "$@" > {tmp_path / name}.said\nexit {end}\n')
        (tmp_path / name).chmod(0o755)
    ran = subprocess.run(
        ["bash", str(SLURM)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}, check=False
    )
    assert ran.returncode == code
    said = tmp_path / "scontrol.said"
    assert (said.read_text() if said.exists() else "") == requeued
    words = shlex.split((tmp_path / "srun.said").read_text())
    mesh = parsed(words[words.index("tpugraph") :])["mesh"]
    asked = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in SLURM.read_text().splitlines()
                 if line.startswith("#SBATCH "))  # fmt: skip
    assert int(asked["nodes"]) * int(asked["ntasks-per-node"]) == Mesh.parse(mesh).size
    assert asked["gpus-per-node"] == asked["ntasks-per-node"]  # jax lets each process of Slurm see one GPU
    assert {"requeue", "signal"} <= set(asked)
