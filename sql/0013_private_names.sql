-- A webhook_url whose host can never be public is refused when it is published, and not only when it is called: names
-- of clusters (.svc, .consul), the rest of the reserved top levels (.example, .mail), and metadata services.

-- Why a webhook_url is refused, as far as its text tells SQL: null means "not refused here". The dispatcher and the
-- HTTP operation know more (src/egress/rules/); this must never refuse what they allow.
-- unsafe: what UNSAFE_ALLOWED_TARGETS lifts the name, address and port rules for.
create or replace function sealpost.webhook_url_fault(url text, unsafe text[]) returns text
language plpgsql immutable parallel safe
as $$
declare
  authority text;
  host text;
  port text;
begin
  if length(url) > 2048 then
    return 'it is longer than 2048 characters';
  end if;
  if url ~ '[\x01-\x20\x7f]' then
    return 'it contains white space or control characters';
  end if;
  if strpos(url, '\') > 0 then
    return 'it contains a backslash';
  end if;
  if url !~* '^https://[^/\\]' then
    return 'it does not begin with https:// and a host name';
  end if;
  if strpos(url, '#') > 0 then
    return 'it has a fragment (#…), which is never sent';
  end if;
  authority := lower(substring(url from '^[^:]*://([^/?]*)'));
  if strpos(authority, '@') > 0 then
    return 'it carries a user name or a password';
  end if;
  port := substring(authority from ':([0-9]+)$');
  host := case when port is null then rtrim(authority, ':') else substring(authority from '^(.*):[0-9]+$') end;
  if exists (
    select from unnest(unsafe) as lifted
    where lifted = host || ':' || coalesce(ltrim(port, '0'), '443')
      or (
        lifted like '*.%'
        and right(host || ':' || coalesce(ltrim(port, '0'), '443'), length(lifted) - 1) = substr(lifted, 2))
  ) then
    return null;
  end if;
  if port is not null and (
    length(ltrim(port, '0')) > 9 or (port::integer < 1024 and port::integer <> 443) or port::integer > 65535
    or port::integer in (1433, 1521, 2049, 2181, 2375, 2376, 2377, 2378, 2379, 2380, 3306, 3389, 4369, 5432, 5671,
      5672, 5900, 5984, 6379, 6443, 6660, 6661, 6662, 6663, 6664, 6665, 6666, 6667, 6668, 6669, 6697, 8086, 8500,
      9042, 9092, 9200, 9300, 10250, 10255, 11211, 15672, 25672, 27017, 27018, 27019, 50000)
  ) then
    return format('port %s is not allowed (443, or 1024 and above except known services)', port);
  end if;
  if host ~ '^\[' then
    if host !~ '^\[[23][0-9a-f]{3}:[0-9a-f:.]*\]$' then
      return 'its address is not public';
    end if;
    return null;
  end if;
  -- Only canonical dotted quads: 010.0.0.1 is octal to a browser, decimal to inet.
  if host ~ '^(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})$' then
    if host ~ '^(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})$'
      and not host::inet <<= any (array[
        '0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12',
        '192.0.0.0/24', '192.0.2.0/24', '192.31.196.0/24', '192.52.193.0/24', '192.88.99.0/24', '192.168.0.0/16',
        '192.175.48.0/24', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4',
        '168.63.129.16/32']::inet[])
    then
      return null;
    end if;
    return 'its address is not public';
  end if;
  -- Anything but plain ASCII may turn into other characters when it is parsed: not judged here.
  if host ~ '^[a-z0-9._-]+$' and (
    host ~ '\.$'
    -- A number is an address, which the full rules read and judge.
    or (strpos(host, '.') = 0 and host !~ '^(?:0x[0-9a-f]*|[0-9]+)$')
    or host ~ (
      '\.(localhost|localdomain|local|internal|intranet|home|lan|corp|mail|private|svc|consul|'
      || 'test|example|invalid|alt|onion|arpa)$')
    or host ~ '(^|\.)metadata\.(goog|tencentyun\.com|platformequinix\.com|packet\.net)$'
    or host ~ '(^|\.)api\.metadata\.cloud\.ibm\.com$'
  ) then
    return 'its host name is not a public one';
  end if;
  return null;
end
$$;

-- Raises the error that names the first element which publishing refuses, and why. As before, but for the URL that
-- stands in for none: it has to be one that is allowed.
create or replace function sealpost.refuse_publication(account_ids uuid[], analyses json[], webhook_urls text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  refused record;
begin
  select input.n, fault.* into refused
  from unnest(account_ids, analyses, webhook_urls) with ordinality as input (account_id, analysis, webhook_url, n)
  cross join sealpost.settings
  left join sealpost.accounts on accounts.id = input.account_id
  cross join lateral sealpost.webhook_url_fault(coalesce(webhook_url, 'https://example.com'), unsafe_allowed_targets)
    as url_fault
  cross join lateral sealpost.read_analysis(analysis, analysis_bytes_max) as reading
  cross join lateral (
    select 'SP001' as state, 'unknown_account' as code,
      format('there is no account %s', coalesce(input.account_id::text, 'null')) as fault,
      'Create the account first: sealpost account create --name NAME' as hint
    where accounts.id is null
    union all
    select 'SP004', 'target_refused', 'its webhook_url is refused: ' || url_fault,
      'Give a public https:// URL: sealpost target check tells what it thinks of one.'
    where url_fault is not null
    union all
    select reading.state, reading.code, reading.fault,
      case reading.code
        when 'analysis_too_large' then 'Publish a smaller analysis, or raise ANALYSIS_BYTES_MAX and run migrate again.'
        else 'Send the analysis as a JSON object with a string "id" and "status": "succeeded" or "failed".'
      end
    where reading.fault is not null
    limit 1
  ) as fault
  order by input.n
  limit 1;
  if not found then
    raise exception using errcode = '40001',
      message = 'an account or a setting was changed while an analysis was published',
      hint = 'Run the transaction again.';
  end if;
  perform sealpost.publish_fault(refused.state, refused.n::integer, refused.code,
    format('analysis at index %s: %s', refused.n - 1, refused.fault), refused.hint);
end
$$;
