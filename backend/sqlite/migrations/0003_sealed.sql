-- A keyed digest of the event, beside a body that is sealed: equal events are sealed differently.
alter table belay_events add column digest blob;
