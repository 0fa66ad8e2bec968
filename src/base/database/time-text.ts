/** SQL that writes a moment as answers have it, ISO 8601 in UTC with milliseconds; null stays null. */
export const timeText = (moment: string) =>
  `to_char(${moment} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
