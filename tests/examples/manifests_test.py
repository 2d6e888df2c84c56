"""The manifests of examples/kubernetes, held to the schemas of their projects (manifests.py)."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("COHORT_KUBERNETES_PYTHON", "python3")
MANIFESTS = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))
THERE = subprocess.run([PYTHON, "-c", "import kubernetes_validate, kubeflow.training, kubeflow_trainer_api"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(THERE, f"{PYTHON} has no kubernetes-validate, kubeflow-training and kubeflow-trainer-api (COHORT_KUBERNETES_PYTHON)")
class Manifests(unittest.TestCase):
    def verdicts(self, *files):
        done = subprocess.run([PYTHON, ROOT / "tests/examples/manifests.py", *files], capture_output=True, text=True, check=True)
        return dict(line.split(": ", 1) for line in done.stdout.splitlines())

    def test_all_pass(self):
        kinds = {pathlib.Path(file).name: kinds for file, kinds in self.verdicts(*MANIFESTS).items()}
        self.assertEqual(kinds, {"job.yaml": "Service Job", "jobset.yaml": "JobSet", "pytorchjob.yaml": "PyTorchJob", "tfjob.yaml": "TFJob",
                                 "trainjob.yaml": "TrainingRuntime TrainJob"})

    def test_the_schemas_refuse_what_is_not_theirs(self):
        changes = {
            "job.yaml": [("podFailurePolicy", "podFailurePolicies"), ("completions: 2", "completions: two"), ("fieldPath", "field")],
            "jobset.yaml": [("replicatedJobs", "replicas"), ("maxRestarts: 20", "maxRestarts: often"), ("backoffLimit", "backoff"), ("mountPath", "path")],
            "pytorchjob.yaml": [("pytorchReplicaSpecs", "replicaSpecs"), ("replicas: 1", "replicas: one"), ("mountPath", "path")],
            "tfjob.yaml": [("cleanPodPolicy", "clean"), ("secretName", "secret")],
            "trainjob.yaml": [("torch: {}", "torch: {numProcPerNode: 1}"), ("numNodes: 2", "nodes: 2"), ("maxRestarts", "restarts")],
        }
        with tempfile.TemporaryDirectory() as folder:
            wrong = {}
            for manifest in MANIFESTS:
                text = manifest.read_text(encoding="utf-8")
                for before, after in changes[manifest.name]:
                    self.assertIn(before, text)
                    file = pathlib.Path(folder, f"{len(wrong)}.yaml")
                    file.write_text(text.replace(before, after), encoding="utf-8")
                    wrong[str(file)] = f"{manifest.name} with {after}"
            for file, verdict in self.verdicts(*wrong).items():
                self.assertTrue(verdict.startswith("refused"), f"{wrong[file]}: {verdict}")


if __name__ == "__main__":
    unittest.main()
