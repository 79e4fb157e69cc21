rollback to savepoint belay
