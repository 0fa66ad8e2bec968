/** `PENDING_UPLOAD`: its key is reserved and nothing stored there yet. */
export const DOCUMENT_STATUSES = ["PENDING_UPLOAD", "UPLOADED"] as const;

export const DOCUMENT_ORIGINS = ["UPLOADED"] as const;

/** What kind of text a document is that people can edit together; `NONE`: it is not. */
export const LIVE_CONTENT_TYPES = ["MARKDOWN", "NONE"] as const;
