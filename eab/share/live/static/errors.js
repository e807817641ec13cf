// Mirrors eab/errors.py: an error whose message is a sentence for the reader.
export class EabError extends Error {}
