-- A move belongs to its target: another database under the same name would be a second home for the account.

-- Which one the other is: system identifier and oid. A name alone may be given to two. Null: the move began before this
-- was kept.
alter table sealpost.moves add column other_database text;

-- deleting: source only, as deleted is; what was copied is going, and from then on its rows prove nothing.
alter table sealpost.moves
  drop constraint moves_step_check,
  add constraint moves_step_check check (step in ('begun', 'still', 'done', 'deleting', 'deleted')),
  drop constraint moves_check,
  add constraint moves_check check ((step in ('done', 'deleting', 'deleted')) = (ended_at is not null));
