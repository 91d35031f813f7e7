"""The auditor: it reads a log, and checks what must hold at every position without any code of the deciders."""
