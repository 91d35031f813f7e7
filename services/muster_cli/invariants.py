"""The invariants in one sentence each: the checks of an audit of a log, and why other checks cover the rest."""

from __future__ import annotations

CHECKED: dict[str, str] = {
    "I1": "nothing is resumed that was not admitted earlier in the log",
    "I2": "what is reserved fits the max of its queue and of every node above it",
    "I3": "where gangs are placed, every pod an admitted gang needs has a place",
    "I4": "a job is charged with the requests of its pod templates",
    "I5": "usage is the sum of the charges, and never negative",
    "I6": "each release ends exactly one charge, and no job is charged twice",
    "I8": "no job is evicted without need: the claimant fits without the victims, and not without fewer",
    "I9": "a job is admitted, and resumed, at most once per attempt",
    "I11": "the facts about one object never go back to an older version",
    "I13": "every commit carries the epoch of the leader in force",
    "I15": "of equal requests in one queue the one ahead is tried first",
    "I16": "a suspended job of a queue is queued, charged, or told what it lacks",
    "I17": "whatever runs in a namespace with a quota is charged",
    "I19": "evictions are legal: owed, of preemptible jobs, and from no queue below its min",
    "I21": "nodes are requested once for each gang that lacks them, and no more than a pool may have",
    "I22": "what is charged is charged at the leaf its workload belongs to",
    "I23": "what is decided between two inputs is bounded",
    "I25": "a claim lasts only while its job waits unchanged; a job that passes it ends in time",
    "I26": "evictions for a job lead to its admission, unless something has changed in between",
    "I27": "a worker of a Ray cluster is deleted only where its operator was asked to a minute before, and did not",
    "I28": "a job that is moved so that another has room has other places, keeps its quota and starts there",
    "I29": "a pod of no job that its quota counts has a node from Muster only once it is charged",
    "I30": "a charge is what may still run: for no longer than a minute more, or less than the pods that are there",
}
UNCHECKED: dict[str, str] = {
    "I7": "needs to know what could have been evicted when; tested with random trees and in simulation",
    "I10": "that the past alone decides is what `muster replay` shows",
    "I12": "needs the lists of the API server, which are not in the log; tested with the watcher",
    "I14": "`muster replay --verify` decides everything again",
    "I18": "needs to know that trees and demands stayed; tested with random trees",
    "I20": "needs to know when the cluster was free of faults; checked in simulation",
    "I24": "what readers say of a job is checked by the read model while it folds",
}
