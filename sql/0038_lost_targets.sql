-- A move whose target is lost, and what two cells differ in.

-- opening: source only, from before the account may be open at the target. Until then whoever calls the move off needs
-- no word of the target: nobody opens the account without passing here. deleting is a target's step, too, now: the move
-- was called off, and what it brought is going.
alter table sealpost.moves
  drop constraint moves_step_check,
  add constraint moves_step_check check (step in ('begun', 'still', 'opening', 'done', 'deleting', 'deleted'));

-- A process of the version before may be opening these.
update sealpost.moves set step = 'opening' where direction = 'out' and step = 'still';

-- How long this database's rows are kept, as the leader last kept house; null: none has yet. An account is not moved to
-- where it would be forgotten sooner.
alter table sealpost.settings
  add column analysis_retention_ms bigint,
  add column log_retention_ms bigint,
  add column audit_retention_ms bigint,
  add column idempotency_retention_ms bigint;
