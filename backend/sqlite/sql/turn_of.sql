-- When an owner was last served. 1 owner
select turn from belay_turns where owner = ?1
