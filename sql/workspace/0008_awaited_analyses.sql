-- Node runs that wait for an analysis that somebody else publishes, and how far the feeds of their accounts are read.

-- The analysis that ends the wait; null: it waits for none.
alter table workspace.node_runs add column awaited_analysis_id text;
-- Small: who goes on, or ends, leaves it.
create index node_runs_awaiting on workspace.node_runs (account_id, awaited_analysis_id)
  where awaited_analysis_id is not null;

-- One for each account that has such node runs. What was sequenced up to the position has woken whom it concerns. Who
-- begins to wait locks the row until it has committed, and so does who reads on: nothing comes between the two.
create table workspace.feed_readers (
  account_id uuid primary key references workspace.workspaces,
  position bigint not null
);
