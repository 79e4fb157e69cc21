savepoint belay
