-- As before: starts the next run of one delivery, and wakes it. But of several who replay it at once, those who come
-- too late keep no lock on its row: the winner's wake-up would pass over a locked row, and wait 15 s for the leader.
create or replace function sealpost.replay_delivery(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, out outcome text, out next_run integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  wakes_lane bigint;
begin
  perform from sealpost.deliveries
  where account_id = of_account and id = of_delivery and status not in ('failed', 'abandoned');
  if found then
    outcome := 'not_replayable';
    return;
  end if;
  -- The end of a block by an exception gives back the locks that were taken in it.
  begin
    select s.outcome, s.next_run, s.wakes_lane into outcome, next_run, wakes_lane
    from sealpost.start_next_run(of_account, of_delivery, analysis_retention, at) as s;
    if outcome = 'not_replayable' then
      raise exception using errcode = 'SP000';
    end if;
  exception when sqlstate 'SP000' then
    return;
  end;
  if wakes_lane is not null then
    perform sealpost.add_wakeups(array[of_delivery], array[wakes_lane]);
  end if;
end
$$;
