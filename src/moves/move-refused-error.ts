/** The account is not moved like this; the message says what to do. Whatever was begun can go on, or be called off. */
export class MoveRefusedError extends Error {
  override readonly name = "MoveRefusedError";
}
