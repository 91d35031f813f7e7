"""What is generated from proto-schemas/ray is what is committed, and it names nothing that changes a cluster."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto-schemas" / "ray" / "ray_head.proto"
DEMAND = ROOT / "libs" / "muster" / "ray"


def test_the_generated_code_is_up_to_date(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}"]
    subprocess.run([*command, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", PROTO.name], check=True)
    for name in ("ray_head_pb2.py", "ray_head_pb2.pyi"):
        assert (tmp_path / name).read_text() == (DEMAND / name).read_text(), "run `make schemas`"


def test_no_method_that_changes_a_cluster_is_named() -> None:
    said = "\n".join(path.read_text() for path in (PROTO, *DEMAND.glob("*.py")))
    for method in ("ResizeRaylet", "ReportAutoscalingState", "ReportClusterConfig", "InternalKVPut", "KillActor"):
        assert method not in said
