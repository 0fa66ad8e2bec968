-- Which cell this database is of. `migrate` writes CELL once; null: none of several. What has it set refuses the
-- database of another cell.
alter table sealpost.settings add column cell text check (cell ~ '^[a-z][a-z0-9-]{0,31}$');
