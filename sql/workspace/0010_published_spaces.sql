-- What a run published is of its space: for users who are not members of that, it does not exist.

-- By the row of the run, so that whatever ends a run says so, of whichever version.
create function workspace.stamp_delivery() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  update sealpost.deliveries set space_id = new.space_id
  where account_id = new.account_id and id = new.delivery_id;
  return null;
end
$$;
revoke execute on function workspace.stamp_delivery() from public;

create trigger runs_stamp_delivery after insert or update of delivery_id on workspace.runs
for each row when (new.delivery_id is not null) execute function workspace.stamp_delivery();

-- What runs have published until now, in the order in which deliveries are locked.
with published as (
  select delivery.account_id, delivery.id, run.space_id
  from workspace.runs as run
  join sealpost.deliveries as delivery
    on delivery.account_id = run.account_id and delivery.id = run.delivery_id
  where run.delivery_id is not null
  order by delivery.id for no key update of delivery
)
update sealpost.deliveries as delivery set space_id = published.space_id
from published where (delivery.account_id, delivery.id) = (published.account_id, published.id);

update sealpost.replays as replay set space_ids = found.space_ids
from (
  select item.replay_id, array_agg(distinct run.space_id) as space_ids
  from workspace.runs as run
  join sealpost.replay_items as item on item.delivery_id = run.delivery_id
  group by item.replay_id
) as found
where replay.id = found.replay_id;
