"""Division: the capacity of a node of the tree, divided among its children in whole units.

Pure numbers: guarantees, weights, priorities and past usage. The ledger's shares and the order of KAI queues call these
functions; the wording shows the steps.
"""
