"""Templates for fields of objects, jobs of all kinds, and node pools; `problems` says how they are read."""

from __future__ import annotations

OBJECTS: dict[str, str] = {
    "said": "{said}",
    "not_decoded": "{said}",
    "nested_too_deeply": "nested too deeply",
    "fact_too_large": "Muster needs {count} bytes of it, over {most}",
    "spec_missing": "is missing, so there is nothing to run; add it",
    "group_unnamed": "is empty: Ray's autoscaler and Muster tell worker groups apart by name; name the group",
    "not_a_version": "{value!r} is not a version of {group}",
    "not_an_integer": "{value!r} is not an integer",
    "not_int32": "{value!r} is not a 32-bit integer",
    "not_a_count": "{value} is not a count",
    "not_a_number": "{value!r} is not a number",
    "not_a_time": "{value!r} is not a time",
    "not_a_name": "{value!r} is not a name of small letters, digits, - and .",
    "not_a_namespace": "{value!r} is not the name of a namespace",
    "not_a_uid": "{value!r} is not a uid",
    "none_of": "{value!r} is none of {choices}",
    "neither": "{value!r} is neither {choices[0]} nor {choices[1]}",
    "not_a_quantity": "{value!r} is not a quantity such as 500m, 4 or 14Gi",
    "negative": "{value!r} is negative",
    "uncountable": "{value!r} is more than this system can count",
    "uncountable_request": "asks for more {resource} than this system can count",
    "many_resources": "names {count} resources, more than {most}",
    "many_resources_asked": "the containers up to it name more than {most} resources",
    "not_a_resource": "{value!r} is not the name of a resource",
    "many_pods": "{count} pods are more than the {most} that one set may have",
    "not_gpus": "{count} of {value!r} is no amount of a resource",
    "not_cores": "{value} is not a number of cores",
    "not_a_share": "{value!r} is not a share such as 0.1",
    "not_spark_memory": "{value!r} is not an amount such as 512m or 2g",
    "not_a_policy": "{value!r} is not a policy; write one of {choices}",
}

KINDS: dict[str, str] = {
    "foreign_manager": "is {manager}, and only {own} suspends such a job; leave the field out",
    "of_a_jobset": "JobSet {jobset} decides when this Job runs; its quota is charged while it runs, and Muster does "
    "not queue it",
    "idle_suspended": "is true, and the autoscaler stopped the cluster because nothing used it; set "
    "spec.idleSuspend to false and spec.suspend to true, and it is queued again",
    "uses_existing_cluster": "KubeRay cannot suspend a RayJob that uses an existing cluster; describe the cluster in "
    "spec.rayClusterSpec instead",
    "ray_cluster_missing": "is missing, so there is nothing to queue; add it",
    "keeps_its_cluster": "must be true, since KubeRay suspends only RayJobs whose cluster it may shut down; set "
    "it to true",
    "submitter_in_kai_queue": "KAI-Scheduler does not support RayJob with K8sJobMode, and KubeRay starts none in a KAI "
    "queue; set it to HTTPMode, SidecarMode or InteractiveMode",
    "suspends_its_cluster": "keeps the RayCluster suspended once the service is resumed; leave the field out, "
    "Muster uses spec.suspend",
}

POOLS: dict[str, str] = {
    "many_pools": "declares {count} pools, more than {most}",
    "not_a_pool": "{because}; it is JSON with the keys {keys}",
    "not_a_pool_name": "the name of a pool is up to 63 small letters, digits, - and .",
    "max_nodes_missing": "is missing; say how many nodes the pool may have, 0 to {most}",
    "max_nodes_out_of_range": "is {value}; say how many nodes the pool may have, 0 to {most}",
    "pool_labels_empty": "is empty; name the labels that tell its nodes from others",
    "pool_allocatable_empty": 'is empty; give the resources of one node, as {{"cpu": "16", "memory": "64Gi"}}',
    "pool_class_missing": "is missing; write the class of a ProvisioningRequest, such as "
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io, or {other}",
    "not_a_pool_class": "{value!r} is neither the class of a ProvisioningRequest, such as "
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io, nor {other}",
    "wait_out_of_range": "is {value}; take 1 to {most}",
}
