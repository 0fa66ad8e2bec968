/** A delivery's created_at is the time in its UUIDv7, in milliseconds since the epoch; it is stored nowhere else. */
export function createdAtMs(deliveryId: string): number {
  return Number.parseInt(deliveryId.slice(0, 8) + deliveryId.slice(9, 13), 16);
}
