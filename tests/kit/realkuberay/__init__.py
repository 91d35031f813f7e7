"""Runs the real KubeRay operator on this machine, against a real control plane, with KWOK as kubelet.

Nothing of KubeRay is in this repository: the operator is built once from a clone of KubeRay that MUSTER_TEST_KUBERAY
names, and kept in the cache of the tests with its definitions, roles and samples. `make kuberay` does all of it.
"""
