release savepoint belay
