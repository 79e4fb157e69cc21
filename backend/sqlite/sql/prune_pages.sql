pragma incremental_vacuum (256)
