-- Reading an analysis takes less of PostgreSQL's time, whatever the text is made of: regular expressions took half a
-- microsecond for each match, and a caller decides how many of those there are. Same answers as before.

-- Whether a JSON text is nested more than 512 levels deep. Called only for texts with more than 512 opening brackets.
create or replace function sealpost.is_too_deep(analysis text) returns boolean
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Without escapes every second quote ends a string. What is outside of strings comes first, then every other one.
  unescaped constant text := replace(replace(analysis, '\\', ''), '\"', '');
  brackets text;
  shorter text;
  levels_left integer := 512;
begin
  if strpos(unescaped, '"') > 0 then
    brackets := regexp_replace(unescaped, '"[^"]*"', '', 'g');
  else
    brackets := unescaped;
  end if;
  -- The first characters are found first. What is left out is all else that JSON has outside of strings.
  brackets := translate(brackets, '[]{},0123456789.: -+eEtrufalsn' || E'\n\t\r', '[][]');
  -- Each pass takes the innermost pairs away, and with them exactly one level. Only a text with more pairs than levels
  -- can be too deep; most end here.
  loop
    if length(brackets) <= 2 * levels_left then
      return false;
    end if;
    shorter := replace(brackets, '[]', '');
    -- Long chains would take a pass for each level: those are left to the JSON parser.
    exit when length(shorter) > length(brackets) * 0.8;
    brackets := shorter;
    levels_left := levels_left - 1;
  end loop;
  -- The root is level 0.
  return jsonb_path_exists(
    replace(brackets, '][', '],[')::jsonb, format('strict $.**{%s}', levels_left)::jsonpath);
exception
  -- Thousands of levels are too many for PostgreSQL's own stack.
  when statement_too_complex then
    return true;
end
$$;

-- The analysis as id and status may be read from it. `json -> 'id'` fails on a text that holds \u0000 or a lone
-- surrogate anywhere, so backslashes are blanked to `?`, which neither id nor status may hold. Null: "id" or "status"
-- stands in it as a member name written with escapes, which a JSON parser would take for one and the blanked copy
-- hides.
create or replace function sealpost.without_escapes(body text) returns json
language plpgsql immutable
as $$
declare
  -- After these two no backslash stands before a backslash or a quote: each can be blanked by itself.
  unslashed constant text := replace(replace(body, '\\', '??'), '\"', '??');
  plain constant json := translate(unslashed, '\', '?')::json;
  decoded json;
begin
  if strpos(unslashed, '\u006') > 0 or strpos(unslashed, '\u007') > 0 then
    decoded := translate(
      replace(replace(replace(replace(replace(replace(unslashed,
        '\u0069', 'i'), '\u0064', 'd'), '\u0073', 's'), '\u0074', 't'), '\u0061', 'a'), '\u0075', 'u'),
      '\', '?')::json;
    if (select count(*) from json_object_keys(decoded) as name where name in ('id', 'status'))
      <> (select count(*) from json_object_keys(plain) as name where name in ('id', 'status'))
    then
      return null;
    end if;
  end if;
  return plain;
end
$$;
