-- Tables of a schema with their columns, constraints and indexes, a line each. 1 schema, 2 tables (null: every one)
select line from (
  select c.relname || ' column ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || case when o.collname is not null and o.collname <> 'default' then ' collate ' || o.collname else '' end
    || case when a.attnotnull then ' not null' else '' end
    || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') as line
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_collation o on o.oid = a.attcollation
  left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
  where n.nspname = $1::text and ($2::text[] is null or c.relname = any ($2::text[])) and c.relkind = 'r'
  union all
  select c.relname || ' constraint ' || t.conname || ' ' || pg_get_constraintdef(t.oid)
  from pg_constraint t join pg_class c on c.oid = t.conrelid join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1::text and ($2::text[] is null or c.relname = any ($2::text[])) and t.contype in ('c', 'p', 'u', 'f')
  union all
  select c.relname || ' index ' || i.relname || substring(pg_get_indexdef(x.indexrelid) from ' USING .*')
    || case when x.indisvalid then '' else ' invalid' end
  from pg_index x join pg_class c on c.oid = x.indrelid join pg_class i on i.oid = x.indexrelid join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1::text and ($2::text[] is null or c.relname = any ($2::text[]))
) l order by line collate "C"
