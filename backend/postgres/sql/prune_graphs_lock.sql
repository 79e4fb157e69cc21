-- Waits for every transaction that may be starting a run, and keeps others from starting one meanwhile.
lock table :"schema".graphs in access exclusive mode
