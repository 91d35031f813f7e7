"""Templates for quota trees, the rules they are applied by, and KAI queues; `problems` says how they are read."""

from __future__ import annotations

RULES: dict[str, str] = {
    "annotation": "annotation {key}: {because}",
    "attribute": "attribute {key}: {because}",
    "not_a_span": "{value!r} is not a span of time like 90s, 10m or 1h30m",
    "span_too_long": "{value} is more than a year",
    "span_zero": "it must be longer than 0; leave it out to count no past usage",
    "not_pausable": "{value!r} cannot be paused; {choices[0]} and {choices[1]} can",
    "not_levels": "{value!r} is not 1 to {most} rising spans of time like 1h,8h",
    "not_a_weight": "{value!r} is not a number from 0 to 100 like 0.5 or 2",
    "not_a_strategy": "{value!r} is no strategy; write pack, spread, or for example gpu=pack,cpu=spread",
}

TREES: dict[str, str] = {
    "tree_elsewhere": "is {value}; only an ElasticQuotaTree in {namespace} counts: create it there, and delete this "
    "one",
    "tree_missing": "is missing, so there is no tree; add it",
    "one_tree": "tree {tree} is in force; delete it before using this one",
    "tree_too_deep": "the tree is deeper than {most} levels",
    "tree_too_large": "the tree has more than {most} nodes",
    "tree_bytes": "the tree takes {count} bytes in the log, over {most}; write shorter names or fewer nodes",
    "profile_unknown": "profile {value!r} is unknown; write one of {choices} or leave it out",
    "unbound_queue_no_leaf": "annotation muster.dev/unbound-queue: {queue} is no leaf of the tree",
    "min_over_max": "min {resource} {least!q} is over max {most!q}; lower min or raise max",
    "children_over_parent": "the children's min {resource} sum up to {total!q}, over this node's min {own!q}; lower "
    "theirs or raise this one",
    "root_min_max": "the root's min and max must be equal, and are {least!q} and {most!q} for {resource}",
    "root_min_missing": "the root's min and max must be equal, and are absent and {most!q} for {resource}",
    "root_max_missing": "the root's min and max must be equal, and are {least!q} and absent for {resource}",
    "names_many_resources": "{which} names {count} resources, more than {most}",
    "names_no_resource": "{which} {value!r}: is not the name of a resource",
    "bad_amount": "{which} {resource}: {because}",
    "lend_limit_no_object": "attribute {key} is not a JSON object of quantities: {because}",
    "path_too_long": "its full path is longer than {most} characters; shorten the names",
    "not_a_node_name": "{value!r} is not a node name: 1 to 253 readable characters without a slash",
    "name_twice": "two children of one node are called {name}; rename one",
    "namespace_twice": "namespace {namespace} is already on {other}; name it once",
    "namespace_on_inner_node": "namespace {namespace} is on a node with children; move it to a leaf",
}

QUEUES: dict[str, str] = {
    "resources_missing": "resources must be specified; write quota, limit and overQuotaWeight for each",
    "not_a_queue_amount": "{which} {value}{resource!o} is no amount; write 0 or more, or -1 for unlimited",
    "not_a_queue_weight": "{which} {value}{resource!o} is no amount; write 0 for no surplus, or more",
    "parent_missing": "parentQueue {parent!r} does not exist; create it, or name one of {choices}",
    "parents_in_a_circle": "parentQueue leads in a circle: {circle}; leave it out on one of them",
    "below_disabled": "it is below {queue}, which is disabled: {because}",
    "queue_disabled": "queue {queue} is disabled: {because}",
    "queue_too_deep": "it is {count} levels deep, more than {most}; move it under a higher queue",
    "queue_path_too_long": "the names from the top down to it are longer than {most} characters; shorten them",
    "many_queues": "there are {count} queues, more than {most}; delete some",
    "queues_bytes": "the queues take {count} bytes in the log, over {most}; delete some, or shorten names",
    "usage_below_the_top": "its annotations about past usage count on a queue without a parent only",
    "usage_set_twice": "queue {queue} is older and sets {key} differently; its value is used",
    "quota_over_limit": "quota {resource!n}{quota!q} is over its limit {limit!q}: never reached",
    "over_subscribed": "the quotas of its children sum up to {resource!n}{total!q}, over its own {own!q}: they cannot "
    "all be guaranteed; lower them",
}
