-- A keyed digest of the event, beside a body that is sealed: equal events are sealed differently.
alter table :"schema".events add column digest bytea;
