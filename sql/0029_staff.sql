-- Support staff in the console.

-- Staff whom a proxy in front vouches for have no key: `staff`. Who they are is in `viewer`.
alter table sealpost.audit_log
  drop constraint audit_log_actor_check,
  add constraint audit_log_actor_check check (actor in ('key', 'staff_key', 'staff', 'command_line'));

-- Who made a bulk replay, in the audit log's words; null: a process of the version before. created_by_viewer: whose
-- session of the console it was; null: nobody's.
alter table sealpost.replays
  add column created_by text check (created_by in ('key', 'staff_key', 'staff', 'command_line')),
  add column created_by_viewer text;
