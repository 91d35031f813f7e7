"""Templates for gangs of pods, and for the requirements of pods; `problems` says how they are read."""

from __future__ import annotations

GPUS: dict[str, str] = {
    "bad_gpu_fraction": "gpu-fraction annotation value must be a positive number smaller than 1.0",
    "bad_gpu_memory": "gpu-memory annotation value must be a positive integer greater than 0",
    "bad_gpu_count": "fraction count annotation value must be a positive integer greater than 0",
    "bad_container_memory": "{key} annotation value must be a valid Kubernetes memory quantity greater than 0",
    "fraction_and_whole_gpu": "cannot have both GPU fraction request and whole GPU resource request/limit",
    "gpu_memory_and_gpu": "cannot request both GPU and GPU memory",
    "gpu_count_alone": "cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
    "mps_alone": "MPS is only supported with GPU fraction request",
    "several_containers_share": "currently, kai doesn't support multiple containers with fractional GPU requests",
    "gpu_limit_beside": "cannot combine nvidia.com/container. limit annotation with gpu-fraction or gpu-memory "
    "annotation",
    "gpu_memory_differs": "NvFractions memory request ({asked}Mi) does not match {key} annotation value ({memory} MiB)",
    "gpu_request_over_limit": "invalid fraction request for container {container}: request is greater than limit",
    "gpu_container_differs": "{key} annotation value {value} does not match container name {container}",
    "gpu_container_missing": "container {container} not found in pod spec, but a fractional annotation referencing it "
    "was found",
    "only_time_slicing": "annotation {key}: only {value} is served here",
    "gpu_sharing_off": "attempting to create a pod {pod} with gpu sharing request, while GPU sharing is disabled",
    "affinity_by_namespace_label": "pod affinity over {key} selects namespaces by label; name them instead",
}
"""Those about GPU shares are KAI Scheduler's, word for word: users know and search for them."""

GANGS: dict[str, str] = {
    "pod_group_missing": "PodGroup {gang} of scheduling.k8s.io does not exist; create it",
    "pod_group_too_small": "PodGroup {gang} says {value}; write 1 or more",
    "not_a_gang_name": "{value!r} is not a name of small letters, digits, - and ., at most 63 characters as a label",
    "not_a_gang_minimum": "{value!r} is not a count of 1 or more",
    "gang_minimum_missing": "nothing says how many pods gang {gang} takes: set {key}, or create a PodGroup of that "
    "name",
    "match_policy_unknown": "{value!r} is none of {choices}; {used} is used",
    "match_policy_ignored": "gangs declared by annotations know {used} only; {value} is ignored",
    "gang_starts_alone": "{because}; gang {gang} starts on its own",
    "gangs_without_itself": "does not name gang {gang} itself",
    "gangs_no_list": '{value!r} is not a JSON list such as ["namespace/gang-a", "namespace/gang-b"]',
    "many_gangs": "names {count} gangs, more than {most}",
    "not_a_gang": "{value!r} is not namespace/name",
    "timeout_no_time": "{value} is not a time; 600 s are used",
    "waiting_no_time": "{value!r} is not a time such as 30s or 1m30s; 600 s are used",
    "priorities_differ": "pods of gang {gang} must have one priority: {pod} has {value}, others have {common}; give "
    "all of them the same priorityClassName",
    "gang_of_group_missing": "gang {gang} of its group does not exist",
    "gang_of_group_refused": "gang {gang} of its group is refused: {because}",
    "gang_of_group_waits": "gang {gang} of its group cannot start: {because}",
    "gang_of_other_group": "gang {gang} names another group: {gangs}",
    "not_our_scheduler": "{pod} has schedulerName {scheduler}; set schedulerName: {ours}",
    "queue_paused": "queue {queue} is paused; resume its admissions",
    "pods_gated": "{count:pod} of gang {gang}",
    "too_many_at_once": "{count:pod} would have to start at once, more than {most}",
    "too_few_pods": "gang {gang} needs {needs} and has {has}",
    "pods_lost": "{running} of its pods run, {lacks} more are needed",
    "few_have_nodes": "for {seconds} s {bound} of its {pods} pods have a node, and {together} start together",
    "domain_short": "{level} {domain} has {has} of {wants}",
    "domain_none": "no {level} has any",
    "domain_not_for_all": "no {level} has room for all of it together",
}
